/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of blocks from the times of their steps, and the measurement of `echelon profile`.
 */
#include "app/block_times.h"

#include <stdlib.h>

#include "app/codes.h"
#include "base/clock.h"
#include "config/strategy.h"
#include "schedule/costs.h"
#include "schedule/states.h"

enum { MICRO_BATCHES = 2, MESSAGE_TAG = 1, MESSAGES = 32, MESSAGE_BYTES = 4 << 20 };

/* On an idle machine quartiles differ by 1 to 4%, and a thread that computes always has a core. */
static const double widest_spread = 0.1, smallest_share = 0.95;

void ech_measured_times_create(const ech_model *model, ech_measured_times *out)
{
    int slots = (int)model->block.n * ECH_PROFILE_PHASES;
    *out =
        (ech_measured_times){.slots = slots, .slot = ech_calloc((size_t)slots, sizeof *out->slot)};
    for (int i = 0; i < slots; i++) out->slot[i].micro = -1;
}

void ech_measured_times_free(ech_measured_times *times)
{
    for (int i = 0; i < times->slots; i++) free(times->slot[i].seconds.at);
    free(times->slot);
    free(times->update.at);
    free(times->other.at);
    *times = (ech_measured_times){0};
}

/* Bytes of parameters that simulations count for the step at the rate that a profile gives for norm
 * and update together; 0: it is none of these. */
static double updated_bytes(const ech_plan *plan, const ech_step *step)
{
    const ech_costs costs = {.seconds = true, .rates = {.update_seconds = 1}};
    return ech_costs_of_step(&costs, plan, step, (ech_participants){1, plan->rank, plan->rank});
}

/* Begins the sum of another micro-batch. */
static void begin_micro(ech_measured_phase *slot, int micro)
{
    if (slot->micro >= 0) ECH_PUSH(slot->seconds, slot->sum);
    slot->micro = micro;
    slot->sum = 0;
}

void ech_measured_times_add(ech_measured_times *times, const ech_plan *plan, const double *begin,
                            const double *end)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    double update = 0, bytes = 0, other = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        double took = end[s] - begin[s];
        int phase = ech_step_kind_phase(step->kind);
        if (step->lane != ECH_LANE_COMPUTE) continue;
        if (phase >= 0) {
            phase = ech_profile_phase(step->phase, &plan->model->options);
            ech_measured_phase *slot = &times->slot[step->block * ECH_PROFILE_PHASES + phase];
            if (slot->micro != step->micro) begin_micro(slot, step->micro);
            if (step->phase == ECH_RECOMPUTE) took /= ech_costs_recomputed(plan, step->block);
            slot->sum += took;
            continue;
        }
        double updated = updated_bytes(plan, step);
        bytes += updated;
        *(updated > 0 ? &update : &other) += took;
    }
    for (int i = 0; i < times->slots; i++) begin_micro(&times->slot[i], -1);
    if (bytes > 0) ECH_PUSH(times->update, update / bytes);
    ECH_PUSH(times->other, other / list->turns);
}

double ech_measured_times_spread(const ech_profile_block *block, int n)
{
    double apart = 0, sum = 0;
    for (int i = 0; i < n * ECH_PROFILE_PHASES; i++) {
        const ech_profile_block *cost = &block[i / ECH_PROFILE_PHASES];
        int phase = i % ECH_PROFILE_PHASES;
        apart += cost->high[phase] - cost->low[phase];
        sum += cost->seconds[phase];
    }
    return sum > 0 ? apart / sum : 0;
}

ech_profile *ech_measured_times_profile(ech_measured_times *times, int ways)
{
    ech_profile *profile = ech_calloc(1, sizeof *profile);
    profile->blocks = times->slots / ECH_PROFILE_PHASES;
    profile->block = ech_calloc((size_t)profile->blocks, sizeof *profile->block);
    for (int i = 0; i < times->slots; i++) {
        ech_profile_block *cost = &profile->block[i / ECH_PROFILE_PHASES];
        int phase = i % ECH_PROFILE_PHASES;
        cost->low[phase] = ech_quartile(&times->slot[i].seconds, 1) * ways;
        cost->seconds[phase] = ech_quartile(&times->slot[i].seconds, 2) * ways;
        cost->high[phase] = ech_quartile(&times->slot[i].seconds, 3) * ways;
    }
    profile->update_seconds = ech_median(&times->update);
    profile->other_seconds = ech_median(&times->other);
    profile->spread = ech_measured_times_spread(profile->block, profile->blocks);
    profile->processor_share = 1;
    return profile;
}

void ech_measured_judge(ech_profile *profile)
{
    profile->busy = profile->spread > widest_spread || profile->processor_share < smallest_share;
}

/* ---- one rank alone ---- */

typedef struct measurement {
    int phase; /* of ech_profile_phase: the R that is measured; ECH_FORWARD: none, but all else */
    ech_config *config; /* of one rank alone */
    ech_design design;
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
    ech_measured_times times;
    double *density;   /* [blocks]: ech_profile_block.density */
    double ran, given; /* seconds of the lists; seconds in which the compute lane had a processor */
} measurement;

static ech_status open_alone(measurement *m, const ech_design *run, ech_comm *alone,
                             bool alone_of_many)
{
    m->config = ech_config_copy(run->config);
    ech_config_set_alone(m->config);
    m->config->parallel.flush_every = 1; /* no spans */
    m->config->training.global_batch_size = MICRO_BATCHES * m->config->training.micro_batch_size;
    m->config->training.check_every = 0;
    m->config->data.shards = ECH_SHARDS_NONE; /* what is measured does not depend on samples */
    m->config->data.shares = ECH_AUTO;
    if (m->phase == ECH_PROFILE_SELECTIVE) m->config->memory.recompute = ECH_RECOMPUTE_SELECTIVE;
    if (m->phase == ECH_PROFILE_FULL) m->config->memory.recompute = ECH_RECOMPUTE_FULL;
    m->config->memory.invert = m->phase == ECH_PROFILE_INVERT;
    if (m->phase > ECH_PROFILE_SELECTIVE) m->config->memory.recompute_blocks = 1;
    m->config->parallel.comm = ECH_COMM_local;
    m->config->parallel.reduction = ECH_REDUCTION_DIRECT;
    /* Each rank counts as a run of its own here, so ranks that are threads would be pinned to the
     * same cores. */
    if (alone_of_many) m->config->parallel.pin = ECH_PIN_FALSE;
    ECH_TRY(ech_design_create_alone(run, m->config, &m->design));
    ECH_TRY(ech_design_open_data(&m->design, ECH_SPLIT_TRAIN, &m->data));
    ECH_TRY(ech_session_create(&m->design, alone, false, &m->session));
    ech_loader_options options = ech_design_reads(&m->design, 0, true, INT64_MAX);
    ECH_TRY(ech_loader_create(m->data, &options, 0, &m->loader));
    ech_exec_set_loader(m->session.exec, ECH_TRAIN, m->loader);
    ech_exec_record(m->session.exec, true);
    ech_measured_times_create(m->design.model, &m->times);
    m->density = ech_calloc(m->design.model->block.n, sizeof *m->density);
    return ech_exec_run(m->session.exec, ECH_LIST_INIT, 0);
}

static void close_alone(measurement *m)
{
    ech_measured_times_free(&m->times);
    free(m->density);
    ech_loader_destroy(m->loader);
    ech_session_destroy(&m->session);
    ech_corpus_close(m->data);
    ech_design_destroy(&m->design);
    ech_config_destroy(m->config);
}

/* Seconds in which COUNT waited for the batch, without using the processor. */
static double waited_for_data(const ech_list *list, const double *begin, const double *mark)
{
    double waited = 0;
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_COUNT)
            waited += mark[list->step.at[s].tick] - begin[s];
    return waited;
}

/* The first step pays for pages and caches, and does not count. */
static ech_status time_steps(measurement *m, int64_t steps)
{
    ech_exec *exec = m->session.exec;
    const ech_plan *plan = m->session.plan;
    for (int64_t step = 0; step <= steps; step++) {
        double given = ech_clock_mine();
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        ech_code_metrics_raise(plan->model, ech_exec_readings(exec)->reports, m->density);
        if (step == 0) continue;
        const ech_exec_times *t = ech_exec_get_times(exec);
        ech_measured_times_add(&m->times, plan, t->begins, t->ends);
        m->given += ech_clock_mine() - given;
        m->ran +=
            t->ended - t->began - waited_for_data(&plan->list[ECH_LIST_TRAIN], t->begins, t->marks);
    }
    return ECH_OK;
}

/* ---- bytes, from the plan ---- */

/* Saved activations per block, counted on micro-batch 0: what its forward writes and a backward
 * reads. */
static void count_activations(const ech_plan *plan, ech_profile *profile)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ECH_FREED int *forward_ends = ech_calloc(plan->model->block.n, sizeof *forward_ends);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind == ECH_STEP_FORWARD && step->micro == 0)
            forward_ends[step->block] = step->tick + ech_step_ticks(step);
    }
    /* Saved: alive after the last block's forward has ended. */
    int last = forward_ends[plan->model->block.n - 1];
    for (size_t v = 0; v < list->value.n; v++) {
        const ech_value *value = &list->value.at[v];
        if (value->kind != ECH_MEMORY_ACTIVATIONS || value->block < 0 || value->micro != 0)
            continue;
        if (value->dies >= last && value->born < forward_ends[value->block])
            profile->block[value->block].activation_bytes += value->bytes;
    }
}

static void count_bytes(const ech_plan *plan, ech_profile *profile)
{
    ech_extent extent = plan->list[ECH_LIST_TRAIN].extent;
    for (int b = 0; b < profile->blocks; b++) {
        const ech_block *block = plan->model->block.at[b];
        for (size_t i = 0; i < block->output.n; i++)
            profile->block[b].boundary_bytes +=
                (int64_t)ech_block_value_bytes(block, block->output.at[i], extent, plan->types);
    }
    for (size_t p = 0; p < plan->model->param.n; p++)
        profile->block[plan->model->param.at[p].block].param_bytes +=
            ech_plan_param_bytes(plan, (int)p);
    count_activations(plan, profile);
}

/* ---- between ranks ---- */

/* One message there and one back, of `bytes`; seconds for one, as rank 0 sees it. */
static ech_status time_message(ech_comm *comm, void *buffer, size_t bytes, double *seconds)
{
    int me = ech_comm_rank(comm);
    double times[MESSAGES];
    *seconds = 0;
    if (me > 1) return ECH_OK;
    for (int i = 0; i < MESSAGES; i++) {
        ech_request request;
        double start = ech_clock_now();
        for (int way = 0; way < 2; way++) {
            if (way == me)
                ECH_TRY(ech_comm_send_start(comm, 1 - me, MESSAGE_TAG, buffer, bytes, &request));
            else
                ECH_TRY(ech_comm_receive_start(comm, 1 - me, MESSAGE_TAG, buffer, bytes, &request));
            ECH_TRY(ech_comm_wait(comm, &request, 1));
        }
        times[i] = (ech_clock_now() - start) / 2;
    }
    *seconds = ech_median(&(ech_numbers){.at = times, .n = MESSAGES});
    return ECH_OK;
}

static ech_status time_link(ech_comm *comm, ech_profile *profile)
{
    double small, large;
    if (ech_comm_size(comm) < 2) return ECH_OK;
    ECH_FREED void *buffer = ech_calloc(1, MESSAGE_BYTES);
    ECH_TRY(time_message(comm, buffer, 8, &small));
    ECH_TRY(time_message(comm, buffer, MESSAGE_BYTES, &large));
    profile->latency = small;
    profile->bandwidth = large > small ? MESSAGE_BYTES / (large - small) : 0;
    return ECH_OK;
}

/* ---- the whole ---- */

static ech_profile *summarize(measurement *m, const ech_config *run)
{
    ECH_FREED_TEXT describes = {0};
    ech_profile *profile = ech_measured_times_profile(&m->times, ech_plan_ways(m->session.plan));
    count_bytes(m->session.plan, profile);
    for (int b = 0; b < profile->blocks; b++) profile->block[b].density = m->density[b];
    if (m->given < m->ran) profile->processor_share = m->given / m->ran;
    ech_profile_describe(run, &describes);
    profile->model = ech_strdup(describes.at);
    return profile;
}

static ech_status fold_densities(ech_group *world, ech_profile *profile)
{
    ECH_FREED double *density = ech_profile_densities(profile);
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, density, profile->blocks));
    for (int b = 0; b < profile->blocks; b++) profile->block[b].density = density[b];
    return ECH_OK;
}

/* Combines the ranks' profiles: the mean of each time, rank 0's link, the worst spread and
 * processor share, the largest densities. */
static ech_status average(ech_group *world, ech_profile *profile)
{
    double *link[] = {&profile->bandwidth, &profile->latency};
    double worst[] = {profile->spread, -profile->processor_share};
    ECH_LIST(double *) time = {0};
    for (int i = 0; i < profile->blocks * ECH_PROFILE_PHASES; i++) {
        ech_profile_block *cost = &profile->block[i / ECH_PROFILE_PHASES];
        ECH_PUSH(time, &cost->low[i % ECH_PROFILE_PHASES]);
        ECH_PUSH(time, &cost->seconds[i % ECH_PROFILE_PHASES]);
        ECH_PUSH(time, &cost->high[i % ECH_PROFILE_PHASES]);
    }
    ECH_PUSH(time, &profile->update_seconds);
    ECH_PUSH(time, &profile->other_seconds);
    ECH_FREED double **times = time.at;
    int n = (int)time.n;
    ECH_FREED double *all = ech_calloc(time.n + 2, sizeof *all);
    for (int i = 0; i < n; i++) all[i] = *times[i] / ech_group_size(world);
    for (int i = 0; i < 2; i++) all[n + i] = ech_group_index(world) == 0 ? *link[i] : 0;
    ECH_TRY(ech_group_fold(world, ECH_FOLD_SUM, all, n + 2));
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, worst, 2));
    ECH_TRY(fold_densities(world, profile));
    for (int i = 0; i < n; i++) *times[i] = all[i];
    for (int i = 0; i < 2; i++) *link[i] = all[n + i];
    profile->spread = worst[0];
    profile->processor_share = -worst[1];
    ech_measured_judge(profile);
    return ECH_OK;
}

static ech_status measure_alone(int phase, const ech_design *run, ech_comm *alone, ech_group *world,
                                int64_t steps, ech_profile **out)
{
    measurement m = {.phase = phase};
    ech_status status = open_alone(&m, run, alone, ech_group_size(world) > 1);
    if (status == ECH_OK) status = ech_group_barrier(world);
    if (status == ECH_OK) status = time_steps(&m, steps);
    if (status == ECH_OK) status = ech_group_barrier(world);
    if (status == ECH_OK) *out = summarize(&m, run->config);
    close_alone(&m);
    return status;
}

/* What R takes, measured with recomputation, beside all else, measured without. */
static void take_phase(ech_profile *profile, const ech_profile *again, int phase)
{
    for (int b = 0; b < profile->blocks; b++) {
        profile->block[b].low[phase] = again->block[b].low[phase];
        profile->block[b].seconds[phase] = again->block[b].seconds[phase];
        profile->block[b].high[phase] = again->block[b].high[phase];
    }
    if (again->processor_share < profile->processor_share)
        profile->processor_share = again->processor_share;
    profile->spread = ech_measured_times_spread(profile->block, profile->blocks);
}

static ech_status measure(const ech_design *run, ech_comm *alone, ech_group *world, ech_comm *comm,
                          int64_t steps, ech_profile **out)
{
    bool reversible = run->config->model.reversible == 1;
    ECH_CLEANUP(ech_profile_destroy_at) ech_profile *profile = NULL;
    ECH_TRY(measure_alone(ECH_FORWARD, run, alone, world, steps, &profile));
    for (int phase = ECH_RECOMPUTE; phase <= ECH_PROFILE_FULL + reversible; phase++) {
        ECH_CLEANUP(ech_profile_destroy_at) ech_profile *again = NULL;
        ECH_TRY(measure_alone(phase, run, alone, world, steps, &again));
        take_phase(profile, again, phase);
    }
    ECH_TRY(time_link(comm, profile));
    ECH_TRY(average(world, profile));
    *out = profile;
    profile = NULL;
    return ECH_OK;
}

ech_status ech_measure_blocks(const ech_design *design, ech_comm *comm, int64_t steps,
                              ech_profile **out)
{
    ech_group *world = NULL;
    ech_comm *alone;
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, design->config->parallel.deadline, &alone));
    ech_status status = ech_group_create_world(comm, "world", &world);
    if (status == ECH_OK) status = measure(design, alone, world, comm, steps, out);
    ech_group_destroy(world);
    ech_comm_close(alone);
    return status;
}
