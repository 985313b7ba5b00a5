/* SPDX-License-Identifier: Apache-2.0
 *
 * OFFLOADS leave once and come back once. This holds for every value that a block keeps of a
 * micro-batch. Updates on the host move each gradient out and each weight in, an N-th if N ranks
 * share them, and states on disk in and out (ZeRO-Offload: Ren et al. 2021, section 3). An
 * incomplete sum of gradients leaves and comes back, too, if more than memory.prefetch other uses
 * of gradients come before the next use of its bucket. A value that a block carries between
 * sequence chunks leaves at most once for each chunk.
 */
#include <stdlib.h>

#include "app/probe.h"
#include "schedule/operands.h"
#include "schedule/states.h"
#include "schedule/traffic.h"

typedef struct seen {
    int64_t kept, back; /* bytes that are sent to ranks that hold them, and back */
} seen;

static bool applies(const ech_design *design)
{
    const ech_config *config = design->config;
    return config->memory.offload_activations != ECH_OFFLOAD_NONE ||
           config->memory.offload_optimizer != ECH_OFFLOAD_NONE;
}

/* ---- what blocks keep ---- */

static void check_copy(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    int64_t bytes = 0;
    for (int a = 0; a < step->accesses; a += 2)
        bytes += ech_plan_value(plan, list, list->access.at[step->first_access + a].value)->bytes;
    if (bytes != step->bytes || bytes == 0)
        probe_fail("a copy of block %d moves %lld bytes and counts %lld", step->block,
                   (long long)bytes, (long long)step->bytes);
}

static void check_kept(const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    size_t n = plan->model->block.n * (size_t)list->micro_batches;
    ECH_FREED int(*moved)[ECH_SPACES][ECH_SPACES] = ech_calloc(n, sizeof *moved);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool copies = step->kind == ECH_STEP_OFFLOAD || step->kind == ECH_STEP_FETCH;
        if (!copies || step->resource != ECH_RESOURCE_KEPT || step->micro < 0) continue;
        check_copy(plan, list, step);
        moved[step->block * list->micro_batches + step->micro][step->from][step->to]++;
    }
    for (size_t i = 0; i < n; i++)
        for (int from = 0; from < ECH_SPACES; from++)
            for (int to = 0; to < ECH_SPACES; to++)
                if (moved[i][from][to] > 1 || moved[i][from][to] != moved[i][to][from])
                    probe_fail("what a block keeps goes %d times from space %d to %d and comes "
                               "back %d times",
                               moved[i][from][to], from, to, moved[i][to][from]);
}

/* Forwards append to keys and values, backwards read them; all but the last one's backward, which
 * comes first, find the gradients and all but the first one's leave some. */
static void check_carried(const ech_plan *plan, ech_resource kind)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int chunks = list->numbering.sequence_chunks;
    bool gradients = kind == ECH_RESOURCE_CARRIED_GRADIENTS;
    int most_out = gradients ? chunks - 1 : chunks,
        most_in = gradients ? chunks - 1 : 2 * chunks - 1;
    size_t n = plan->model->block.n * (size_t)list->micro_batches;
    ECH_FREED int(*moved)[ECH_SPACES][ECH_SPACES] = ech_calloc(n, sizeof *moved);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool copies = step->kind == ECH_STEP_OFFLOAD || step->kind == ECH_STEP_FETCH;
        if (!copies || step->resource != kind) continue;
        check_copy(plan, list, step);
        int first = step->micro - ech_micro_at(list->numbering, step->micro).sequence_chunk;
        moved[step->block * list->micro_batches + first][step->from][step->to]++;
    }
    for (size_t i = 0; i < n; i++) {
        int out = moved[i][ECH_SPACE_DEVICE][ECH_SPACE_HOST];
        int in = moved[i][ECH_SPACE_HOST][ECH_SPACE_DEVICE];
        bool disk = plan->kept == ECH_SPACE_DISK;
        if (out > most_out || in > most_in || (out > 0) != (in > 0) ||
            moved[i][ECH_SPACE_HOST][ECH_SPACE_DISK] != (disk ? out : 0) ||
            moved[i][ECH_SPACE_DISK][ECH_SPACE_HOST] != (disk ? in : 0))
            probe_fail("what a block carries leaves the device %d times and comes back %d times",
                       out, in);
    }
}

/* ---- updates ---- */

/* Bytes that pass between host and device, each way, since ranks fold statistics there. */
static int64_t bytes_of_folds(const ech_bucket *bucket)
{
    int folds = 0;
    for (int round = 0; round < bucket->rounds; round++)
        folds += bucket->folded[round][ECH_FOLD_SHARDS].bytes > 0 ||
                 bucket->folded[round][ECH_FOLD_TENSOR].bytes > 0;
    return folds * bucket->statistics_bytes;
}

static int64_t bytes_of_states(const ech_plan *plan, const ech_bucket *bucket)
{
    int64_t first, n = ech_bucket_updated(bucket, &first), bytes = 0;
    for (int s = 0; s < bucket->states; s++)
        bytes += n * (int64_t)ech_dtype_bytes(bucket->state[s].dtype);
    for (int i = 0; i < bucket->params; i++) {
        const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
        for (int s = 0; s < p->states; s++) {
            const ech_plan_state *state = &plan->state.at[p->first_state + s];
            if (!ech_state_is_element_wise(&state->is))
                bytes += state->elements *
                         (int64_t)ech_dtype_bytes(ech_plan_state_dtype(plan, &state->is));
        }
    }
    return bytes;
}

/* Uses of gradients, one block's for one sequence chunk, in a list's order. */
typedef struct uses {
    const ech_plan *plan;
    const ech_list *list;
    int n;               /* so far */
    const ech_step *of;  /* a step of the last one */
    int *at;             /* [steps] their use; of others 0 */
    int *last;           /* [buckets] the last use that changes the sum, + 1 */
    const ech_step **by; /* [buckets] a step of that */
    int64_t bytes;       /* of sums that go out, and come back */
} uses;

/* The use changes the bucket's sum. */
static void note_sum(uses *u, const ech_step *step, int index, int use)
{
    const ech_bucket *bucket = &u->plan->bucket.at[index];
    int64_t numbers = ech_bucket_scatters_each(bucket) ? bucket->shard : bucket->elements;
    bool adds = u->by[index] && u->by[index]->turn == step->turn;
    if (adds && use - (u->last[index] - 1) > u->plan->prefetch)
        u->bytes += numbers * (int64_t)ech_dtype_bytes(bucket->dtype);
    u->last[index] = use + 1;
    u->by[index] = step;
}

static void note_use(void *context, size_t s, int index)
{
    uses *u = context;
    const ech_bucket *bucket = &u->plan->bucket.at[index];
    const ech_step *step = &u->list->step.at[s], *was = u->of;
    if (bucket->commits) return;
    bool same =
        was && was->turn == step->turn && was->micro == step->micro && was->block == step->block;
    u->n += !same;
    u->at[s] = u->n;
    u->of = step;
    if (!ech_bucket_scatters_each(bucket)) note_sum(u, step, index, u->n);
}

/* Of what is scattered by micro-batch sums change by scatters, which come right after a use. */
static void note_scatters(uses *u)
{
    int use = 0;
    for (size_t s = 0; s < u->list->step.n; s++) {
        const ech_step *step = &u->list->step.at[s];
        if (u->at[s]) use = u->at[s];
        if (step->kind == ECH_STEP_SCATTER_GRADS && step->micro >= 0)
            note_sum(u, step, step->index, use);
    }
}

static int64_t bytes_of_sums(const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ECH_FREED int *at = ech_calloc(list->step.n + 1, sizeof *at);
    ECH_FREED int *last = ech_calloc(plan->bucket.n + 1, sizeof *last);
    ECH_FREED const ech_step **by = ech_calloc(plan->bucket.n + 1, sizeof *by);
    uses u = {.plan = plan, .list = list, .at = at, .last = last, .by = by};
    ech_list_each_writer(plan, list, note_use, &u);
    note_scatters(&u);
    return u.bytes;
}

static void expect(const ech_traffic *traffic, ech_traffic_axis axis, int64_t wanted)
{
    int64_t bytes = ech_traffic_all(&traffic[axis]).bytes;
    if (bytes != wanted)
        probe_fail("updates: %s: %lld bytes, by the formula %lld", ech_traffic_axis_name(axis),
                   (long long)bytes, (long long)wanted);
}

static void check_updates(const ech_plan *plan)
{
    int64_t out = 0, in = 0, states = 0, turns = plan->list[ECH_LIST_TRAIN].turns;
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    ech_plan_traffic(plan, traffic);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        if (bucket->commits || bucket->frozen) continue; /* layer states stay on the device */
        int64_t first, n = ech_bucket_updated(bucket, &first);
        int64_t weights = n * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        out += n * (int64_t)ech_dtype_bytes(bucket->dtype) + bytes_of_folds(bucket);
        if (!ech_plan_has_masters(plan, bucket)) out += weights;
        in += weights + bytes_of_folds(bucket);
        if (plan->states == ECH_SPACE_DISK) states += bytes_of_states(plan, bucket);
    }
    int64_t sums = bytes_of_sums(plan);
    expect(traffic, ECH_TRAFFIC_TO_HOST, turns * out + sums);
    expect(traffic, ECH_TRAFFIC_FROM_HOST, turns * in + sums);
    expect(traffic, ECH_TRAFFIC_FROM_DISK, turns * states);
    expect(traffic, ECH_TRAFFIC_TO_DISK, turns * states);
}

/* ---- both ---- */

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    seen *s = state;
    const ech_config *config = run->design->config;
    const ech_plan *plan = run->session->plan;
    if (moment != PROBE_OPENED) return;
    check_kept(plan);
    check_carried(plan, ECH_RESOURCE_CARRIED);
    check_carried(plan, ECH_RESOURCE_CARRIED_GRADIENTS);
    s->kept = ech_plan_traffic_along(plan, ECH_TRAFFIC_KEPT).bytes;
    s->back = ech_plan_traffic_along(plan, ECH_TRAFFIC_BACK).bytes;
    bool on_device = config->memory.offload_activations == ECH_OFFLOAD_NONE &&
                     config->memory.offload_parameters == ECH_OFFLOAD_NONE;
    if (on_device) check_updates(plan);
}

static void judge(void *const *states, const probe_case *c)
{
    int64_t kept = 0, back = 0;
    for (int r = 0; r < c->ranks; r++) {
        kept += ((const seen *)states[r])->kept;
        back += ((const seen *)states[r])->back;
    }
    if (kept != back || (c->config->memory.offload_activations == ECH_OFFLOAD_PEER && kept == 0))
        probe_fail("ranks send %lld bytes to those that hold them and get %lld back",
                   (long long)kept, (long long)back);
}

const probe probe_offloads = {.name = "offloads",
                              .state = sizeof(seen),
                              .applies = applies,
                              .observe = observe,
                              .judge = judge};
