/* SPDX-License-Identifier: Apache-2.0
 *
 * Features that must not change BITS do not: losses, norms and weights of a run are those of a
 * plain run of the same lists. The plain run is on the processor's own device, holds everything
 * there, and recomputes nothing. Each rank has weights of its own, and there are no shards where
 * shards add up in the same order.
 */
#include "app/probes/parts.h"
#include "config/strategy.h"

enum { TURNS = 64 };

typedef struct seen {
    double loss[TURNS], norm[TURNS];
    int turns;
    int params, replica; /* replica: the independent replica, else 0 */
    part *of;            /* [params] */
} seen;

/* ---- without ---- */

/* Sums of several micro-batches' shards are in another order than a sum of their sums, and so are
 * Adafactor's means over shards. A stage with fewer replicas has more micro-batches on each. */
static bool shards_alike(const ech_design *design)
{
    const ech_config *config = design->config;
    int fewest = design->layout->replicas[0];
    for (int i = 1; i < design->layout->stages; i++)
        if (design->layout->replicas[i] < fewest) fewest = design->layout->replicas[i];
    int64_t each = config->training.micro_batch_size * fewest;
    bool means = strcmp(ech_config_name(config, "optimizer.name"), "adafactor") == 0;
    bool at_once = config->parallel.zero == 1 || design->layout->protocol == ECH_PROTOCOL_CENTRAL;
    return !means && (at_once || config->training.global_batch_size == each);
}

/* Takes away what changes no bit. Returns whether there was any. */
static bool simplify(ech_config *config, const ech_design *design)
{
    ech_config *before = ech_config_copy(config);
    bool delayed = config->memory.offload_delayed_from > 0;
    ECH_ASSERT(ech_config_set(config, "parallel.device=cpu") == ECH_OK);
    config->memory.recompute = ECH_RECOMPUTE_NONE;
    if (config->memory.encode == ECH_ENCODE_LOSSLESS) config->memory.encode = ECH_ENCODE_NONE;
    config->memory.offload_activations = ECH_OFFLOAD_NONE;
    config->memory.offload_parameters = ECH_OFFLOAD_NONE;
    config->memory.offload_optimizer = delayed ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
    if (config->parallel.strategy == ECH_STRATEGY_CENTRAL_STORAGE) {
        config->parallel.strategy = ECH_STRATEGY_SYNCHRONOUS;
        config->parallel.zero = 1;
    }
    if (shards_alike(design)) config->parallel.zero = 0;
    if (config->parallel.zero == 3) config->parallel.zero_keep = 1;
    if (config->parallel.sequence == ECH_SEQUENCE_KEEP) config->parallel.sequence = 1;
    bool any = strcmp(ech_config_name(before, "parallel.device"), "cpu") != 0 ||
               before->memory.recompute != config->memory.recompute ||
               before->memory.encode != config->memory.encode ||
               before->memory.offload_activations != config->memory.offload_activations ||
               before->memory.offload_parameters != config->memory.offload_parameters ||
               before->memory.offload_optimizer != config->memory.offload_optimizer ||
               before->parallel.strategy != config->parallel.strategy ||
               before->parallel.zero != config->parallel.zero ||
               before->parallel.zero_keep != config->parallel.zero_keep ||
               before->parallel.sequence != config->parallel.sequence;
    ech_config_destroy(before);
    return any;
}

/* Stages keep their blocks: what is recomputed is work, too, by which a partition is found. */
static void pin_partition(ech_config *config, const ech_design *design)
{
    int n = ech_layout_virtual_stages(design->layout), head = (int)design->model->block.n - 1;
    ECH_FREED int64_t *layers = ech_calloc((size_t)n, sizeof *layers);
    for (int s = 0; s < n; s++)
        for (int b = design->layout->first_block[s]; b < design->layout->first_block[s + 1]; b++)
            layers[s] += b > 0 && b < head;
    ech_config_replace_list(&config->parallel.partition, ECH_PARTITION_EVEN, layers, n);
    ech_config_replace_text(&config->parallel.profile, "");
}

/* Of pushes the order is open; kernels of a GPU round otherwise. */
static bool applies(const ech_design *design)
{
    ech_config *copy = ech_config_copy(design->config);
    bool any = simplify(copy, design);
    ech_config_destroy(copy);
    const char *device = ech_config_name(design->config, "parallel.device");
    return any && design->layout->sums != ECH_SUMS_SERVERS &&
           ech_device_is_processor(ech_device_find(device));
}

/* ---- what a run leaves ---- */

static void take_readings(seen *s, const ech_exec *exec, int turns)
{
    for (int t = 0; t < turns && s->turns < TURNS; t++, s->turns++) {
        s->loss[s->turns] = ech_exec_readings(exec)[t].loss;
        s->norm[s->turns] = ech_exec_readings(exec)[t].grad_norm;
    }
}

static void take_weights(seen *s, const ech_session *session)
{
    const ech_plan *plan = session->plan;
    s->params = (int)plan->model->param.n;
    s->of = ech_calloc((size_t)s->params, sizeof *s->of);
    s->replica = part_replica(plan);
    for (int p = 0; p < s->params; p++) {
        int bucket = plan->param[p].bucket;
        if (bucket < 0 || ech_bucket_is_served(&plan->bucket.at[bucket])) continue;
        s->of[p] = part_take(session, p, -1);
    }
}

static bool trains(ech_list_kind list)
{
    return list == ECH_LIST_TRAIN || list == ECH_LIST_UNDELAYED;
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    seen *s = state;
    if (moment != PROBE_AFTER) return;
    if (trains(run->list)) take_readings(s, run->session->exec, probe_list(run)->turns);
    /* After all training lists of the run. */
    if (run->list == ECH_LIST_VALIDATE && !s->of) take_weights(s, run->session);
}

/* ---- again ---- */

typedef struct again {
    const probe_case *c;
    seen of[PROBE_MOST_RANKS];
} again;

static ech_status run_again(ech_comm *comm, const ech_design *design, void *context)
{
    again *a = context;
    seen *s = &a->of[ech_comm_rank(comm)];
    ech_compared_run run = {.design = design};
    ech_status status = ech_compared_run_open(&run, comm);
    for (int i = 0; i < a->c->lists && status == ECH_OK; i++) {
        const probe_ran *ran = &a->c->ran[i];
        if (ran->list == ECH_LIST_INIT || ran->list == ECH_LIST_VALIDATE) continue;
        status = ech_exec_run(run.session.exec, ran->list, ran->number);
        if (status == ECH_OK && trains(ran->list))
            take_readings(s, run.session.exec, run.session.plan->list[ran->list].turns);
    }
    if (status == ECH_OK) take_weights(s, &run.session);
    ech_compared_run_close(&run);
    return status;
}

/* ---- both ---- */

static void compare_weights(const ech_model *model, int param, int replica, void *const *with,
                            const seen *without, int ranks)
{
    const ech_shape *shape = &model->param.at[param].shape;
    size_t n = (size_t)ech_shape_whole(shape), bytes = n * sizeof(double);
    ECH_FREED double *a = ech_calloc(1, bytes), *b = ech_calloc(1, bytes);
    ECH_FREED bool *in_a = ech_calloc(n, sizeof *in_a), *in_b = ech_calloc(n, sizeof *in_b);
    for (int r = 0; r < ranks; r++) {
        const seen *x = with[r], *y = &without[r];
        if (x->replica != replica) continue;
        if (x->of[param].at) part_put(&x->of[param], shape, a, in_a);
        if (y->of[param].at) part_put(&y->of[param], shape, b, in_b);
    }
    if (memcmp(a, b, bytes) != 0)
        probe_fail("weights of %s are other bits without", model->param.at[param].name);
}

static void compare_readings(const seen *x, const seen *y)
{
    if (x->turns != y->turns) probe_fail("%d training steps, without %d", x->turns, y->turns);
    for (int t = 0; t < x->turns; t++)
        if (memcmp(&x->loss[t], &y->loss[t], sizeof x->loss[t]) != 0 ||
            memcmp(&x->norm[t], &y->norm[t], sizeof x->norm[t]) != 0)
            probe_fail("step %d: loss %.17g, norm %.17g; without %.17g, %.17g", t + 1, x->loss[t],
                       x->norm[t], y->loss[t], y->norm[t]);
}

static void release(void *state)
{
    seen *s = state;
    for (int p = 0; p < s->params; p++) free(s->of[p].at);
    free(s->of);
}

/* The same computation as verify's without all that: it, too, computes by another configuration
 * than it lays out. */
static ech_status run_without(const probe_case *c, ech_config *config, ech_config *computed,
                              ech_design *design, again *a)
{
    ECH_TRY(ech_design_create(config, c->tokenizer, c->ranks, c->ranks, design));
    pin_partition(config, design);
    simplify(config, design);
    simplify(computed, design);
    ech_design_destroy(design);
    ECH_TRY(ech_design_create(config, c->tokenizer, c->ranks, c->ranks, design));
    ech_design compared = *design;
    compared.config = computed;
    compared.kernels = ech_kernels_on("cpu", ECH_F64);
    compared.in_fp64 = config->precision.compute != ECH_COMPUTE_FP64;
    return ech_design_run(&compared, run_again, a);
}

static void judge(void *const *states, const probe_case *c)
{
    ech_config *config = ech_config_copy(c->config), *computed = ech_config_copy(c->computed);
    ech_design design = {0};
    again *a = ech_calloc(1, sizeof *a);
    const seen *first = states[0];
    a->c = c;
    probe_look_away();
    if (run_without(c, config, computed, &design, a) != ECH_OK) {
        probe_fail("without: %s", ech_last_error());
    } else {
        compare_readings(first, &a->of[0]);
        int replicas = probe_diverges(design.layout) ? design.layout->replicas[0] : 1;
        for (int r = 0; r < replicas; r++)
            for (int p = 0; p < first->params; p++)
                compare_weights(design.model, p, r, states, a->of, c->ranks);
    }
    for (int r = 0; r < c->ranks; r++) release(&a->of[r]);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    ech_config_destroy(computed);
    free(a);
}

const probe probe_bits = {.name = "bits",
                          .state = sizeof(seen),
                          .applies = applies,
                          .observe = observe,
                          .judge = judge,
                          .release = release};
