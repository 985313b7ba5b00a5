/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank runs an ordinary train list. Between its steps it loads the weights that the next step
 * must read, and before the update the newest. When its gradient is complete, it may be replaced.
 *
 * The twin measures how much a run amplifies rounding: it begins with the single rank's weights
 * after a random last bit of each has been changed, and updates by the layout's gradients, changed
 * in the same way. Its differences from the single rank are the unit of the comparison.
 */
#include "app/verify/follower.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/verify/verifier.h"
#include "base/random.h"

enum { TENSORS = 1 + ECH_MAX_STATES }; /* of a parameter: the weights, then states */

static int params_of(const ech_follower *f)
{
    return (int)f->run.design->model->param.n;
}

/* ---- copies ---- */

static ech_tensor tensor_of(const ech_follower *f, int param, int k)
{
    ech_exec *exec = f->run.session.exec;
    return k == 0 ? ech_exec_param(exec, param) : ech_exec_state(exec, param, k - 1);
}

static int tensors_of(const ech_follower *f, int param)
{
    return 1 + f->run.session.plan->param[param].states;
}

static void lay_out(ech_follower *f)
{
    int params = params_of(f);
    f->tensor = ech_verifier_alloc(f->of, (size_t)(TENSORS * params), sizeof *f->tensor);
    for (int k = 0; k < TENSORS; k++)
        for (int p = 0; p < params; p++) {
            f->tensor[k * params + p] = f->all;
            if (k >= tensors_of(f, p)) continue;
            ech_tensor x = tensor_of(f, p, k);
            f->all += ech_tensor_count(&x);
        }
}

double *ech_follower_copy(ech_follower *f, ech_serial_copy copy, int number)
{
    double **at = &f->copy[copy][number];
    int64_t n = copy < ECH_COPY_READ ? f->all : f->of->first[params_of(f)];
    if (!*at) *at = ech_verifier_alloc(f->of, (size_t)n, sizeof **at);
    return *at;
}

/* Between the rank and a copy, to it or from it. */
static void move(const ech_follower *f, double *to, const double *from, bool whole)
{
    ech_exec *exec = f->run.session.exec;
    for (int p = 0; p < params_of(f); p++)
        for (int k = 0; k < (whole ? tensors_of(f, p) : 1); k++) {
            ech_tensor x = tensor_of(f, p, k);
            int64_t at = f->tensor[k * params_of(f) + p];
            if (to) ech_exec_read(exec, &x, to + at);
            if (from) ech_exec_write(exec, &x, from + at);
        }
}

void ech_follower_store(const ech_follower *f, double *to, bool whole)
{
    move(f, to, NULL, whole);
}

void ech_follower_load(const ech_follower *f, const double *from, bool whole)
{
    move(f, NULL, from, whole);
}

void ech_follower_load_states(const ech_follower *f, const double *from)
{
    for (int p = 0; p < params_of(f); p++) {
        if (!ech_verifier_param(f->of, p)->commit) continue;
        ech_tensor x = tensor_of(f, p, 0);
        ech_exec_write(f->run.session.exec, &x, from + f->tensor[p]);
    }
}

/* ---- weights that steps read ---- */

/* The weights of a version of the run; -1 is its version 0. A span reads none older than the one
 * before its first, and that one only under some schedules. */
static double *version_at(ech_follower *f, int64_t version)
{
    const ech_schedule *schedule = &f->of->schedule;
    int kept = schedule->turns + ech_weights_keep_previous(schedule->weights);
    double **at = &f->past[version < 0 ? 0 : version % kept];
    ECH_ASSERT(version <= f->versions && version >= f->versions - kept);
    if (!*at) *at = ech_verifier_alloc(f->of, (size_t)f->of->first[params_of(f)], sizeof **at);
    return *at;
}

/* Of the stage that the layout has the parameter on. */
static const double *weights_for(ech_follower *f, int param, int64_t q, bool backward)
{
    const ech_verifier *v = f->of;
    const ech_design *design = v->layout.design;
    if (f->reads == ECH_COPY_NEWEST || v->list == ECH_LIST_UNDELAYED) return f->newest;
    if (f->reads != ECH_COPY_VERSIONS) return ech_follower_copy(f, f->reads, v->worker);
    return version_at(f, f->base + ech_replay_version(design->layout, design->schedule, v->turn, q,
                                                      v->stage_of[param], backward));
}

static void load_param(ech_follower *f, int param, const double *from)
{
    if (f->loaded[param] == from) return;
    ech_tensor x = ech_exec_param(f->run.session.exec, param);
    ech_exec_write(f->run.session.exec, &x, from + f->of->first[param]);
    f->loaded[param] = from;
}

static void load_for(ech_follower *f, int64_t q, bool backward)
{
    if (f->micro == q && f->backward == backward) return;
    f->micro = q;
    f->backward = backward;
    for (int p = 0; p < params_of(f); p++) load_param(f, p, weights_for(f, p, q, backward));
}

/* A stage clips its gradients with the norm of what its update reads of them, and withholds the
 * update if that is not finite; all of a bucket is of one stage. */
static void clip(ech_follower *f, int bucket)
{
    const ech_plan *plan = f->run.session.plan;
    const int *stage_of = f->of->stage_of;
    int stage = stage_of[plan->bucket_param.at[plan->bucket.at[bucket].first_param]];
    ech_exec *exec = f->run.session.exec;
    double squares = 0, scale = ech_exec_scalar(exec, ECH_SCALAR_LOSS_SCALE);
    for (int p = 0; p < params_of(f); p++)
        if (stage_of[p] == stage && ech_param_is_trained(ech_verifier_param(f->of, p)))
            squares += ech_exec_scalar(exec, ECH_SCALARS + p);
    bool updates = isfinite(squares);
    double factor = updates ? ech_clip_factor(sqrt(squares), f->of->clip_norm) / scale : 0;
    ech_exec_set_scalar(exec, ECH_SCALAR_CLIP, factor);
    ech_exec_set_scalar(exec, ECH_SCALAR_WITHHELD, !updates);
}

/* Statistics read gradients as clipped, and the newest weights, like updates. */
static void prepare_update(ech_follower *f, int bucket)
{
    if (!f->updates)
        for (int p = 0; p < params_of(f); p++) load_param(f, p, f->newest);
    f->updates = true;
    f->micro = -1;
    if (!ech_weights_are_synchronous(f->of->schedule.weights)) clip(f, bucket);
}

static void prepare(ech_follower *f, const ech_step *next)
{
    int phase = ech_step_kind_phase(next->kind);
    if (next->kind == ECH_STEP_CLIP) f->clipped = true;
    if (f->clipped && ech_step_has_bucket(next)) prepare_update(f, next->index);
    if (phase >= 0) load_for(f, next->micro, phase > ECH_FORWARD);
}

/* ---- gradients ---- */

double ech_verifier_epsilon(ech_dtype dtype)
{
    return dtype == ECH_F64    ? DBL_EPSILON
           : dtype == ECH_F32  ? (double)FLT_EPSILON
           : dtype == ECH_F16  ? 0x1p-10
           : dtype == ECH_BF16 ? 0x1p-7
                               : 0; /* codes */
}

/* Each of the n numbers stays, or becomes its neighbour on one of the two sides. Layer states stay:
 * they are updated by counts, which are exact. */
static void change_last_bits(const ech_verifier *v, int param, ech_dtype dtype, double *x,
                             int64_t n)
{
    const double by = ech_verifier_param(v, param)->commit ? 0 : ech_verifier_epsilon(dtype);
    const ech_random_key key = {.step = (uint32_t)v->step, .stream = (uint32_t)param};
    for (int64_t i = 0; i < n; i++)
        x[i] *= 1 + by * (double)((int)(ech_random_word(key, (uint64_t)i) % 3) - 1);
}

void ech_follower_change(ech_verifier *v)
{
    const ech_follower *single = &v->single;
    ECH_FREED double *x = ech_calloc((size_t)single->all + 1, sizeof *x);
    ech_follower_store(single, x, true);
    for (int p = 0; p < params_of(single); p++)
        change_last_bits(v, p, tensor_of(single, p, 0).dtype, x + v->first[p],
                         v->first[p + 1] - v->first[p]);
    ech_follower_load(&v->twin, x, true);
}

void ech_follower_give(ech_follower *f, int param, const double *gradient)
{
    int64_t first = f->of->first[param], n = f->of->first[param + 1] - first;
    memcpy(ech_follower_copy(f, ECH_COPY_GIVEN, 0) + first, gradient, (size_t)n * sizeof *gradient);
    f->given = true;
}

/* Stores the gradient of a parameter; what is given takes its place. */
static void exchange(ech_follower *f, int param)
{
    const ech_verifier *v = f->of;
    ech_exec *exec = f->run.session.exec;
    ech_tensor gradient = ech_exec_gradient(exec, param);
    int64_t first = v->first[param], n = v->first[param + 1] - first;
    ech_exec_read(exec, &gradient, f->gradient + first);
    if (!f->given) return;
    double *given = ech_follower_copy(f, ECH_COPY_GIVEN, 0) + first;
    if (f->is_twin && ech_serial_does(v->serial, ECH_DO_GATHER))
        change_last_bits(v, param, gradient.dtype, given, n);
    ech_exec_write(exec, &gradient, given);
}

/* Gradients are complete before the first norm. Other lists are observed, too. Between two steps of
 * the compute lane there may be loads of batches. */
static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    ech_follower *f = context;
    const ech_list *list = &f->run.session.plan->list[ECH_LIST_TRAIN];
    const ech_step *first = list->step.at, *end = first + list->step.n, *next = step + 1;
    (void)exec;
    if (step < first || step >= end) return;
    while (next < end && next->lane != ECH_LANE_COMPUTE) next++;
    if (next == end) return;
    prepare(f, next);
    if (next->kind != ECH_STEP_NORM || f->taken) return;
    for (int p = 0; p < params_of(f); p++)
        if (!ech_verifier_param(f->of, p)->frozen) exchange(f, p);
    f->taken = true;
}

ech_status ech_follower_run(ech_follower *f, ech_serial_copy reads)
{
    ech_verifier *v = f->of;
    ech_exec *exec = f->run.session.exec;
    ech_loader *loader = f->loader[v->worker];
    f->reads = reads;
    f->taken = f->clipped = f->updates = false;
    if (v->turn == 0) f->base = f->versions;
    f->newest = version_at(f, f->versions);
    f->versions += reads == ECH_COPY_VERSIONS;
    ech_follower_store(f, f->newest, false);
    for (int p = 0; p < params_of(f); p++) f->loaded[p] = f->newest;
    f->micro = -1;
    load_for(f, 0, false);
    if (v->clock > f->next[v->worker]) ech_loader_rewind(loader, v->clock);
    f->next[v->worker] = v->clock + 1;
    ech_exec_set_loader(exec, ECH_TRAIN, loader);
    ech_exec_set_updates(exec, v->updates - v->unnumbered[v->worker]);
    if (v->layout.design->layout->sums != ECH_SUMS_ALL)
        ech_exec_set_replica(exec, v->workers, v->worker);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, v->clock));
    ECH_ASSERT(f->taken);
    if (!f->is_twin) ech_verifier_count_updates(v);
    const ech_readings *readings = ech_exec_readings(exec);
    f->loss.sum += readings->loss_sum;
    f->loss.tokens += readings->tokens;
    f->given = false;
    return ECH_OK;
}

/* ---- the whole ---- */

static ech_status open_loaders(ech_follower *f)
{
    int workers = f->of->workers;
    ech_loader_options options = ech_design_reads(f->run.design, 0, true, INT64_MAX);
    f->loader = ech_verifier_alloc(f->of, (size_t)workers, sizeof *f->loader);
    f->next = ech_verifier_alloc(f->of, (size_t)workers, sizeof *f->next);
    if (f->of->layout.design->layout->sums != ECH_SUMS_ALL) options.replicas = workers;
    options.counts_others = !f->of->layout.design->layout->alone; /* as its workers do */
    for (options.replica = 0; options.replica < workers; options.replica++)
        ECH_TRY(ech_loader_create(f->run.data, &options, 0, &f->loader[options.replica]));
    return ECH_OK;
}

ech_status ech_follower_open(ech_follower *f, ech_verifier *of, const ech_design *design)
{
    size_t n = (size_t)of->first[ech_verifier_params(of)], workers = (size_t)of->workers;
    f->of = of;
    f->run.design = design;
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, design->config->parallel.deadline, &f->comm));
    ECH_TRY(ech_compared_run_open(&f->run, f->comm));
    lay_out(f);
    for (int c = 0; c < ECH_COPIES; c++)
        f->copy[c] = ech_verifier_alloc(of, workers, sizeof *f->copy[c]);
    f->past = ech_verifier_alloc(of, (size_t)of->schedule.turns + 1, sizeof *f->past);
    f->gradient = ech_verifier_alloc(of, n, sizeof *f->gradient);
    f->loaded = ech_verifier_alloc(of, (size_t)params_of(f), sizeof *f->loaded);
    if (ech_verifier_clocks(of)) ech_exec_set_workers(f->run.session.exec, of->workers);
    ech_exec_observe(f->run.session.exec, observe, f);
    return open_loaders(f);
}

void ech_follower_close(ech_follower *f)
{
    for (int w = 0; f->loader && w < f->of->workers; w++) ech_loader_destroy(f->loader[w]);
    ech_compared_run_close(&f->run);
    ech_comm_close(f->comm);
}
