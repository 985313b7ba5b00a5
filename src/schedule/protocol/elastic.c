/* SPDX-License-Identifier: Apache-2.0
 *
 * Elastic averaging SGD (Zhang, Choromanska, LeCun 2015). Each of n replicas takes training steps
 * of its own, x_i(t+1) = x_i(t) - v g_i(x_i(t)). After every parallel.sync_every of them the x_i
 * and the center c attract each other, with b the parallel.outer_learning_rate:
 *
 *     x_i' = x_i - b/n (x_i - c)        c' = (1 - b) c + b (mean of the x_i)
 *
 * The center is the model: when replicas meet it becomes the weights of all of them, which are
 * validated and saved, and the anchor of a replica becomes x_i. The list RETURN, before the next
 * training step, exchanges the two again. Layer states, such as batch norm's running statistics,
 * have no center: at each meeting they become the mean of all replicas'.
 */
#include "schedule/protocol/roles.h"

static const ech_bucket_stage stages[] = {ECH_STAGES_OF_REPLICA};

static void lists(ech_plan *plan, const ech_config *config)
{
    (void)config;
    ech_list *list = &plan->list[ECH_LIST_RETURN];
    ech_replicas_plan_sync(plan);
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        if (plan->bucket.at[b].frozen || plan->bucket.at[b].commits) continue;
        int exchange = ech_list_add(list, ECH_STEP_EXCHANGE);
        list->step.at[exchange].index = b;
    }
}

/* b/n; 1 - b/n; -b/n */
static double pull(const ech_config *config, int replicas)
{
    return config->parallel.outer_learning_rate / replicas;
}

static double rest(const ech_config *config, int replicas)
{
    return 1 - pull(config, replicas);
}

static double minus_pull(const ech_config *config, int replicas)
{
    return -pull(config, replicas);
}

/* c - x_i is summed. */
static const ech_meeting_row outer[] = {
    {ECH_MEETING_WEIGHTS, ECH_MEETING_ANCHOR, pull, rest},
    {ECH_MEETING_ANCHOR, ECH_MEETING_SUM, minus_pull, ech_meeting_one},
    ECH_EXCHANGES,
};

static void attract(const ech_config *config, ech_serial_element *of, int workers)
{
    double b = config->parallel.outer_learning_rate, c = of->anchor, mean = 0;
    for (int r = 0; r < workers; r++) mean += of[r].weight / workers;
    for (int r = 0; r < workers; r++) {
        of[r].weight -= b / workers * (of[r].weight - c);
        of[r].anchor = (1 - b) * c + b * mean;
    }
}

static void exchange(const ech_config *config, ech_serial_element *of, int workers)
{
    (void)config;
    for (int r = 0; r < workers; r++)
        of[r] = (ech_serial_element){of[r].anchor, of[r].weight, of[r].momentum};
}

static const ech_serial_step serial_sync[] = {ECH_OP(CHECK),
                                              ECH_LOAD_EACH,
                                              ECH_OP(CHANGE),
                                              ECH_STORE_EACH,
                                              ECH_MEET(attract, ech_serial_average),
                                              ECH_MEET(exchange, NULL),
                                              ECH_LOAD_EACH,
                                              ECH_OP(COMPARE),
                                              ECH_STORE_EACH,
                                              ECH_OP(END)};
static const ech_serial_step serial_returns[] = {
    ECH_LOAD_EACH, ECH_OP(CHANGE),  ECH_STORE_EACH, ECH_MEET(exchange, NULL),
    ECH_LOAD_EACH, ECH_OP(COMPARE), ECH_STORE_EACH, ECH_OP(END)};

const ech_protocol ech_protocol_elastic = {
    .worker = {ECH_STAGES(stages), ECH_DIVERGING_WORKER},
    ECH_DIVERGING,
    .lists = lists,
    .mixes_every = ech_protocol_never,
    .outer = ECH_MEETING(outer),
    .serial = {.keeper = ECH_KEPT_BY_REPLICAS,
               .begin = ech_serial_replicas_begin,
               .train = ech_serial_replicas_train,
               .sync = serial_sync,
               .returns = serial_returns},
};
