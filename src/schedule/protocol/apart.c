/* SPDX-License-Identifier: Apache-2.0
 *
 * Diverging replicas: replica i computes w_i(t+1) = w_i(t) - v g_i(w_i(t)), with its own norm and
 * clip factor. After every parallel.sync_every training steps an outer optimizer updates the common
 * weights x by the mean of x - w_i, and each w_i becomes x (local SGD: Stich 2019; DiLoCo:
 * Douillard et al. 2023). Under gossip w_i becomes the mean of itself and two neighbours' weights
 * after each of the other steps.
 *
 * Layer states, such as batch norm's running statistics, have no anchor. Each replica's follow its
 * own samples, and they become the mean of all replicas' where weights meet; under gossip the mean
 * of three.
 */
#include "schedule/protocol/roles.h"

static const ech_bucket_stage stages[] = {
    ECH_STAGES_OF_REPLICA,
};

void ech_replica_update(ech_framing *f, int turn)
{
    ech_frame_update_summed(f, ECH_GROUP_REPLICA, turn);
}

int ech_replica_end(ech_framing *f)
{
    return ech_frame_reduce_turn(f, ECH_GROUP_REPLICAS, 0, ech_frame_last_compute(f->list));
}

/* All differences are sent first, so that sums run during updates of weights. Of layer states the
 * states themselves are sent. */
void ech_replicas_plan_sync(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_SYNC];
    int members = ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_REPLICAS);
    ECH_FREED int *ready = ech_calloc(plan->bucket.n + 1, sizeof *ready);
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        if (plan->bucket.at[b].frozen) continue;
        ready[b] = ech_list_add(list, ECH_STEP_DIFFERENCE);
        list->step.at[ready[b]].index = b;
        if (members < 2) continue;
        int sum = ech_list_add(list, ECH_STEP_REDUCE_GRADS);
        list->step.at[sum].index = b;
        list->step.at[sum].group = ECH_GROUP_REPLICAS;
        ech_list_add_after(list, ready[b]);
        ready[b] = sum;
    }
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        if (plan->bucket.at[b].frozen) continue;
        int update = ech_list_add(list, ECH_STEP_OUTER_UPDATE);
        list->step.at[update].index = b;
        if (list->step.at[ready[b]].lane != ECH_LANE_COMPUTE) ech_list_add_after(list, ready[b]);
    }
}

/* Messages are in flight while weights are averaged. */
static void plan_gossip(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_GOSSIP];
    int buckets = (int)plan->bucket.n;
    if (ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_REPLICAS) < 2)
        return;
    ECH_FREED int *mixed = ech_calloc(plan->bucket.n + 1, sizeof *mixed);
    for (int b = 0; b < buckets; b++) {
        if (plan->bucket.at[b].frozen) continue;
        int sent = mixed[b] = ech_list_add(list, ECH_STEP_NEIGHBOURS);
        list->step.at[sent].index = b;
        list->step.at[sent].group = ECH_GROUP_REPLICAS;
    }
    for (int b = 0; b < buckets; b++) {
        if (plan->bucket.at[b].frozen) continue;
        int mix = ech_list_add(list, ECH_STEP_MIX);
        list->step.at[mix].index = b;
        ech_list_add_after(list, mixed[b]);
    }
}

static int64_t mixes_every(const ech_config *config)
{
    return config->parallel.strategy == ECH_STRATEGY_GOSSIP;
}

static void lists(ech_plan *plan, const ech_config *config)
{
    ech_replicas_plan_sync(plan);
    if (mixes_every(config)) plan_gossip(plan);
}

int64_t ech_replicas_meet_every(const ech_config *config)
{
    return config->parallel.sync_every;
}

const ech_serial_step ech_serial_replicas_begin[] = {ECH_OP(EACH_WORKER), ECH_STORE_EACH,
                                                     ECH_OP(END)};
const ech_serial_step ech_serial_replicas_train[] = {
    ECH_OP(EACH_STEP),     ECH_LOAD_EACH,     ECH_OP(GATHER),  ECH_OP(CHANGE),
    ECH_WITH(RUN, NEWEST), ECH_OP(GRADIENTS), ECH_OP(COMPARE), ECH_STORE_EACH,
    ECH_OP(LOSS),          ECH_OP(END),       ECH_OP(END)};
/* d = mean of x - w_i; m = b m + d; x = x - o (d + b m), o the outer learning rate, b its momentum;
 * w_i = x. */
static void meet(const ech_config *config, ech_serial_element *of, int workers)
{
    double b = config->parallel.outer_momentum, d = 0;
    for (int r = 0; r < workers; r++) d += (of[r].anchor - of[r].weight) / workers;
    double m = b * of->momentum + d;
    double x = of->anchor - config->parallel.outer_learning_rate * (d + b * m);
    for (int r = 0; r < workers; r++) of[r] = (ech_serial_element){x, x, m};
}

/* The same for tensors, with n d in place of d. */
static double minus_rate_of_mean(const ech_config *config, int replicas)
{
    return -config->parallel.outer_learning_rate * (1 / (double)replicas);
}

static double momentum(const ech_config *config, int replicas)
{
    (void)replicas;
    return config->parallel.outer_momentum;
}

static double minus_rate_of_momentum(const ech_config *config, int replicas)
{
    (void)replicas;
    return -config->parallel.outer_learning_rate * config->parallel.outer_momentum;
}

static const ech_meeting_row outer[] = {
    {ECH_MEETING_ANCHOR, ECH_MEETING_SUM, minus_rate_of_mean, ech_meeting_one},
    {ECH_MEETING_MOMENTUM, ECH_MEETING_SUM, ech_meeting_mean, momentum},
    {ECH_MEETING_ANCHOR, ECH_MEETING_MOMENTUM, minus_rate_of_momentum, ech_meeting_one},
    ECH_COPIES(WEIGHTS, ANCHOR),
};

void ech_serial_average(const ech_config *config, ech_serial_element *of, int workers)
{
    double mean = 0, part = 1 / (double)workers; /* in the order of direct reduction */
    (void)config;
    for (int r = 0; r < workers; r++) mean += part * of[r].weight;
    for (int r = 0; r < workers; r++) of[r].weight = mean;
}

static const ech_serial_step serial_sync[] = {ECH_OP(CHECK),
                                              ECH_LOAD_EACH,
                                              ECH_OP(CHANGE),
                                              ECH_STORE_EACH,
                                              ECH_MEET(meet, ech_serial_average),
                                              ECH_LOAD_EACH,
                                              ECH_OP(COMPARE),
                                              ECH_STORE_EACH,
                                              ECH_OP(END)};
/* w_i = (w_(i-1) + w_i + w_(i+1)) / 3, around a ring (Lian et al. 2017). */
static void mix(const ech_config *config, ech_serial_element *of, int workers)
{
    double first = of[0].weight, last = of[workers - 1].weight;
    (void)config;
    for (int r = 0; r < workers; r++) {
        double own = of[r].weight, next = r + 1 < workers ? of[r + 1].weight : first;
        of[r].weight = (own + next + last) / 3;
        last = own;
    }
}

static const ech_serial_step serial_gossip[] = {ECH_LOAD_EACH,      ECH_OP(CHANGE), ECH_STORE_EACH,
                                                ECH_MEET(mix, mix), ECH_LOAD_EACH,  ECH_OP(COMPARE),
                                                ECH_STORE_EACH,     ECH_OP(END)};

const ech_protocol ech_protocol_apart = {
    .worker = {ECH_STAGES(stages), ECH_DIVERGING_WORKER},
    ECH_DIVERGING,
    .lists = lists,
    .mixes_every = mixes_every,
    .outer = ECH_MEETING(outer),
    .serial = {.keeper = ECH_KEPT_BY_REPLICAS,
               .begin = ech_serial_replicas_begin,
               .train = ech_serial_replicas_train,
               .gossip = serial_gossip,
               .sync = serial_sync},
};
