/* SPDX-License-Identifier: Apache-2.0
 *
 * The measurement behind `echelon profile`: training steps of one rank, timed step by step of its list.
 */
#include "app/plan/measure.h"

#include <stdlib.h>

#include "base/clock.h"

enum { MICRO_BATCHES = 2, MESSAGE_TAG = 1, MESSAGES = 32, MESSAGE_BYTES = 4 << 20 };

typedef ECH_LIST(double) samples;

typedef struct measurement {
    ech_config *config; /* of one rank alone */
    ech_design design;
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
    samples *phase; /* [blocks * ECH_PHASES] */
    samples update; /* norms and updates of a step */
} measurement;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(samples *list)
{
    if (list->n == 0) return 0;
    qsort(list->at, list->n, sizeof *list->at, by_value);
    return list->at[list->n / 2];
}

/* ---- one rank alone ---- */

static ech_status open_alone(measurement *m, const ech_config *run, const ech_tokenizer *tokenizer,
                             ech_comm *alone, bool alone_of_many)
{
    m->config = ech_config_copy(run);
    ech_setup_alone(m->config);
    m->config->training.global_batch_size = MICRO_BATCHES * run->training.micro_batch_size;
    m->config->training.check_every = 0;
    ech_config_replace_text(&m->config->parallel.comm, "local");
    ech_config_replace_text(&m->config->parallel.reduction, "direct");
    /* Ranks that are threads do not know of each other here, and would take the same cores. */
    if (alone_of_many) ech_config_replace_text(&m->config->parallel.pin, "false");
    ECH_TRY(ech_setup_resolve(m->config, tokenizer, 1, 1));
    ECH_TRY(ech_design_create(m->config, tokenizer, 1, &m->design));
    ECH_TRY(ech_design_open_data(&m->design, ECH_SHARE_TRAIN, &m->data));
    ECH_TRY(ech_session_create(&m->design, alone, false, &m->session));
    ech_loader_options options = ech_design_reads(&m->design, 0, true, INT64_MAX);
    ECH_TRY(ech_loader_create(m->data, &options, 0, &m->loader));
    ech_exec_set_loader(m->session.exec, ECH_TRAIN, m->loader);
    ech_exec_record(m->session.exec, true);
    m->phase = ech_calloc(m->design.model->block.n * ECH_PHASES, sizeof *m->phase);
    return ech_exec_run(m->session.exec, ECH_LIST_INIT, 0);
}

static void close_alone(measurement *m)
{
    for (size_t i = 0; m->phase && i < m->design.model->block.n * ECH_PHASES; i++)
        free(m->phase[i].at);
    free(m->phase);
    free(m->update.at);
    ech_loader_destroy(m->loader);
    ech_session_destroy(&m->session);
    ech_corpus_close(m->data);
    ech_design_destroy(&m->design);
    ech_config_destroy(m->config);
}

static void note_times(measurement *m)
{
    const ech_list *list = &m->session.plan->list[ECH_LIST_TRAIN];
    const double *begin = ech_exec_begins(m->session.exec), *end = ech_exec_ends(m->session.exec);
    double update = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int phase = ech_step_kind_phase(step->kind);
        if (phase >= 0)
            ECH_PUSH(m->phase[step->block * ECH_PHASES + phase], end[s] - begin[s]);
        else if (step->kind == ECH_STEP_NORM || step->kind == ECH_STEP_UPDATE)
            update += end[s] - begin[s];
    }
    ECH_PUSH(m->update, update);
}

/* The first step pays for pages and caches, and does not count. */
static ech_status time_steps(measurement *m, int64_t steps)
{
    for (int64_t step = 0; step <= steps; step++) {
        ECH_TRY(ech_exec_run(m->session.exec, ECH_LIST_TRAIN, step));
        if (step > 0) note_times(m);
    }
    return ECH_OK;
}

/* ---- what is known without measuring ---- */

/* Of micro-batch 0: what forwards write and a backward still reads. */
static void count_activations(const ech_plan *plan, ech_profile *profile)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int *forward_ends = ech_calloc(plan->model->block.n, sizeof *forward_ends);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind == ECH_STEP_FORWARD && step->micro == 0)
            forward_ends[step->block] = step->tick + step->ticks;
    }
    /* A block's output is kept for the next block: it dies in a backward or not, as all others. */
    int last = forward_ends[plan->model->block.n - 1];
    for (size_t v = 0; v < list->value.n; v++) {
        const ech_value *value = &list->value.at[v];
        if (value->kind != ECH_MEMORY_ACTIVATIONS || value->block < 0 || value->micro != 0)
            continue;
        if (value->dies >= last && value->born < forward_ends[value->block])
            profile->block[value->block].activation_bytes += value->bytes;
    }
    free(forward_ends);
}

static void count_bytes(const ech_plan *plan, ech_profile *profile)
{
    ech_extent extent = plan->list[ECH_LIST_TRAIN].extent;
    for (int b = 0; b < profile->blocks; b++) {
        const ech_block *block = plan->model->block.at[b];
        for (size_t i = 0; i < block->output.n; i++)
            profile->block[b].boundary_bytes +=
                (int64_t)ech_block_value_bytes(block, block->output.at[i], extent, plan->real);
    }
    for (size_t p = 0; p < plan->model->param.n; p++)
        profile->block[plan->model->param.at[p].block].param_bytes +=
            plan->param[p].elements * (int64_t)ech_dtype_bytes(plan->real);
    count_activations(plan, profile);
}

/* ---- between ranks ---- */

/* One message there and one back, of `bytes`; seconds for one, as rank 0 sees it. */
static ech_status time_message(ech_comm *comm, void *buffer, size_t bytes, double *seconds)
{
    int me = ech_comm_rank(comm);
    samples times = {0};
    ech_status status = ECH_OK;
    for (int i = 0; i < MESSAGES && me < 2 && status == ECH_OK; i++) {
        ech_request request;
        double start = ech_clock_now();
        for (int way = 0; way < 2 && status == ECH_OK; way++) {
            status =
                way == me
                    ? ech_comm_send_start(comm, 1 - me, MESSAGE_TAG, buffer, bytes, &request)
                    : ech_comm_receive_start(comm, 1 - me, MESSAGE_TAG, buffer, bytes, &request);
            if (status == ECH_OK) status = ech_comm_wait(comm, &request, 1);
        }
        ECH_PUSH(times, (ech_clock_now() - start) / 2);
    }
    *seconds = median(&times);
    free(times.at);
    return status;
}

static ech_status time_link(ech_comm *comm, ech_profile *profile)
{
    double small = 0, large = 0;
    if (ech_comm_size(comm) < 2) return ECH_OK;
    void *buffer = ech_calloc(1, MESSAGE_BYTES);
    ech_status status = time_message(comm, buffer, 8, &small);
    if (status == ECH_OK) status = time_message(comm, buffer, MESSAGE_BYTES, &large);
    free(buffer);
    profile->latency = small;
    profile->bandwidth = large > small ? MESSAGE_BYTES / (large - small) : 0;
    return status;
}

/* ---- the whole ---- */

static ech_profile *summarize(measurement *m, const ech_config *run)
{
    ech_text describes = {0};
    ech_profile *profile = ech_calloc(1, sizeof *profile);
    int64_t bytes = 0;
    profile->blocks = (int)m->design.model->block.n;
    profile->block = ech_calloc((size_t)profile->blocks, sizeof *profile->block);
    for (int b = 0; b < profile->blocks; b++)
        for (int phase = 0; phase < ECH_PHASES; phase++)
            profile->block[b].seconds[phase] = median(&m->phase[b * ECH_PHASES + phase]);
    count_bytes(m->session.plan, profile);
    for (int b = 0; b < profile->blocks; b++) bytes += profile->block[b].param_bytes;
    profile->update_seconds = median(&m->update) / (double)bytes;
    ech_profile_describe(run, &describes);
    profile->model = ech_strdup(describes.at);
    ech_text_free(&describes);
    return profile;
}

/* The ranks' mean of every time; rank 0's link. */
static ech_status average(ech_group *world, ech_profile *profile)
{
    int n = profile->blocks * ECH_PHASES + 3, at = 0;
    double *all = ech_calloc((size_t)n, sizeof *all), share = 1.0 / ech_group_size(world);
    bool first = ech_group_index(world) == 0;
    for (int b = 0; b < profile->blocks; b++)
        for (int phase = 0; phase < ECH_PHASES; phase++)
            all[at++] = profile->block[b].seconds[phase] * share;
    all[at] = profile->update_seconds * share;
    all[at + 1] = first ? profile->bandwidth : 0;
    all[at + 2] = first ? profile->latency : 0;
    ech_status status = ech_group_fold(world, ECH_FOLD_SUM, all, n);
    at = 0;
    for (int b = 0; b < profile->blocks; b++)
        for (int phase = 0; phase < ECH_PHASES; phase++)
            profile->block[b].seconds[phase] = all[at++];
    profile->update_seconds = all[at];
    profile->bandwidth = all[at + 1];
    profile->latency = all[at + 2];
    free(all);
    return status;
}

static ech_status measure(measurement *m, const ech_config *run, const ech_tokenizer *tokenizer,
                          ech_comm *alone, ech_comm *comm, ech_group *world, int64_t steps,
                          ech_profile **out)
{
    ECH_TRY(open_alone(m, run, tokenizer, alone, ech_comm_size(comm) > 1));
    ECH_TRY(ech_group_barrier(world));
    ECH_TRY(time_steps(m, steps));
    ECH_TRY(ech_group_barrier(world));
    ech_profile *profile = summarize(m, run);
    ech_status status = time_link(comm, profile);
    if (status == ECH_OK) status = average(world, profile);
    if (status == ECH_OK)
        *out = profile;
    else
        ech_profile_destroy(profile);
    return status;
}

ech_status ech_measure_blocks(const ech_config *config, const ech_tokenizer *tokenizer,
                              ech_comm *comm, int64_t steps, ech_profile **out)
{
    measurement m = {0};
    ech_comm *alone = NULL;
    ech_group *world = NULL;
    int n = ech_comm_size(comm), *ranks = ech_calloc((size_t)n, sizeof *ranks);
    for (int i = 0; i < n; i++) ranks[i] = i;
    ech_status status = ech_group_create(comm, "world", ranks, n, &world);
    if (status == ECH_OK)
        status = ech_comm_open(ech_comm_find("local"), 1, config->parallel.deadline, &alone);
    if (status == ECH_OK) status = measure(&m, config, tokenizer, alone, comm, world, steps, out);
    close_alone(&m);
    ech_comm_close(alone);
    ech_group_destroy(world);
    free(ranks);
    return status;
}
