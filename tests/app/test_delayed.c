/* SPDX-License-Identifier: Apache-2.0
 *
 * Delayed updates (ZeRO-Offload). From memory.offload_delayed_from on, weights are those of a loop
 * in this file, whose gradients come from another run of one rank without delay. A resumed run has
 * the same bits. An update that would be infinite is withheld. In virtual time the host's updates
 * overlap the next step's compute, so that a step is shorter. The lattice tests that layouts equal
 * their serial replay.
 */

#include "app/runs.h"
#include "unit.h"

#include "app/made_up_profile.h"
#include "app/verify/verify.h"
#include "share.h"
#include "simulate/simulate.h"

/* ---- w(t + 1) = w(t) - rate x g(w(t - 1)) ---- */

enum { STEPS = 12, FROM = 4 };
static const double rate = 0.5;

/* One rank that delays nothing: it says the gradient of any weights. */
typedef struct oracle {
    ech_config *config;
    ech_design design;
    ech_comm *comm;
    ech_compared_run run;
    double *gradient;
    bool taken;
} oracle;

static int64_t elements_of(const ech_model *model, int param)
{
    return ech_shape_whole(&model->param.at[param].shape);
}

static int64_t all_elements(const ech_model *model)
{
    int64_t n = 0;
    for (int p = 0; p < (int)model->param.n; p++) n += elements_of(model, p);
    return n;
}

static void take_gradient(void *context, ech_exec *exec, const ech_step *step)
{
    oracle *o = context;
    double *to = o->gradient;
    if (step->kind != ECH_STEP_NORM || o->taken) return;
    for (int p = 0; p < (int)o->design.model->param.n; p++) {
        ech_tensor g = ech_exec_gradient(exec, p);
        ech_exec_read(exec, &g, to);
        to += elements_of(o->design.model, p);
    }
    o->taken = true;
}

static void oracle_open(oracle *o, const ech_design *of)
{
    *o = (oracle){.config = ech_config_copy(of->config)};
    ech_config_set_alone(o->config);
    o->config->memory.offload_optimizer = ECH_OFFLOAD_NONE;
    assert_int_equal(o->config->memory.offload_delayed_from, 0);
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 1, 60, &o->comm), ECH_OK);
    assert_int_equal(ech_design_create_alone(of, o->config, &o->design), ECH_OK);
    o->run.design = &o->design;
    assert_int_equal(ech_compared_run_open(&o->run, o->comm), ECH_OK);
    ech_exec_observe(o->run.session.exec, take_gradient, o);
    o->gradient = ech_calloc((size_t)all_elements(o->design.model), sizeof *o->gradient);
}

static void oracle_close(oracle *o)
{
    ech_compared_run_close(&o->run);
    ech_design_destroy(&o->design);
    ech_comm_close(o->comm);
    ech_config_destroy(o->config);
    free(o->gradient);
}

/* Of the batch of training step t. */
static void oracle_ask(oracle *o, int t, const double *weights)
{
    ech_exec *exec = o->run.session.exec;
    for (int p = 0; p < (int)o->design.model->param.n; p++) {
        ech_tensor w = ech_exec_param(exec, p);
        ech_exec_write(exec, &w, weights);
        weights += elements_of(o->design.model, p);
    }
    o->taken = false;
    assert_int_equal(ech_exec_run(exec, ECH_LIST_TRAIN, t), ECH_OK);
    assert_true(o->taken);
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Computes STEPS training steps; those from `from` on read the weights before the newest.
 * weights[t] are the weights before step t. */
static void follow_formula(const ech_design *of, int from, double **weights)
{
    oracle o;
    oracle_open(&o, of);
    int64_t n = all_elements(of->model);
    for (int t = 0; t < STEPS; t++) {
        oracle_ask(&o, t, weights[t < from ? t : t - 1]);
        double most = of->config->optimizer.clip_norm, norm = norm_of(o.gradient, n);
        double factor = most > 0 && norm > most ? most / (norm + 1e-6) : 1; /* as PyTorch clips */
        for (int64_t i = 0; i < n; i++)
            weights[t + 1][i] = weights[t][i] - rate * factor * o.gradient[i];
    }
    oracle_close(&o);
}

/* The largest difference, over the largest number. */
static double apart(const double *a, const double *b, int64_t n)
{
    double worst = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(a[i] - b[i]));
        size = fmax(size, fabs(b[i]));
    }
    return worst / size;
}

static void read_weights(const ech_compared_run *run, double *to)
{
    for (int p = 0; p < (int)run->design->model->param.n; p++) {
        ech_tensor w = ech_exec_param(run->session.exec, p);
        ech_exec_read(run->session.exec, &w, to);
        to += elements_of(run->design->model, p);
    }
}

static ech_status compare_with_formula(ech_comm *comm, const ech_design *design, void *context)
{
    double *formula[STEPS + 1], *prompt[STEPS + 1];
    ech_compared_run run = {.design = design};
    size_t n = (size_t)all_elements(design->model);
    (void)context;
    ECH_TRY(ech_compared_run_open(&run, comm));
    for (int t = 0; t <= STEPS; t++) {
        formula[t] = ech_calloc(n, sizeof **formula);
        prompt[t] = ech_calloc(n, sizeof **prompt);
    }
    read_weights(&run, formula[0]);
    read_weights(&run, prompt[0]);
    follow_formula(design, FROM, formula);
    follow_formula(design, STEPS, prompt);
    double *now = ech_calloc(n, sizeof *now);
    for (int t = 0, turns; t < STEPS;) {
        ech_list_kind list = ech_schedule_list(design->schedule, t, &turns);
        assert_int_equal(list, t < FROM ? ECH_LIST_UNDELAYED : ECH_LIST_TRAIN);
        ECH_TRY(ech_exec_run(run.session.exec, list, t));
        t += turns;
        read_weights(&run, now);
        double error = apart(now, formula[t], (int64_t)n);
        if (!(error < 1e-13)) fail_msg("after step %d: %g from the formula", t, error);
        if (t > FROM + 2) assert_true(apart(now, prompt[t], (int64_t)n) > 1e-4);
    }
    for (int t = 0; t <= STEPS; t++) {
        free(formula[t]);
        free(prompt[t]);
    }
    free(now);
    ech_compared_run_close(&run);
    return ECH_OK;
}

/* Spans of two and of four steps: what is late is handed on from one to the next. */
TEST(test_formula)
{
    static const char *const more[] = {
        "parallel.flush_every=2 memory.offload_optimizer=host optimizer.clip_norm=0",
        "parallel.flush_every=4 memory.offload_optimizer=host optimizer.clip_norm=0",
        "parallel.flush_every=4 memory.offload_optimizer=disk optimizer.clip_norm=0.1 "
        "memory.prefetch=0 parallel.bucket_bytes=1",
        "parallel.flush_every=2 memory.offload_optimizer=disk optimizer.clip_norm=0.1 "
        "parallel.device=queued"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char words[600];
        snprintf(words, sizeof words,
                 "training.steps=%d memory.offload_delayed_from=%d training.check_every=0 "
                 "training.micro_batch_size=4 precision.compute=fp64 optimizer.name=sgd "
                 "optimizer.momentum=0 optimizer.learning_rate=%g optimizer.warmup_steps=0 "
                 "optimizer.schedule=constant optimizer.weight_decay=0 %s",
                 STEPS, FROM, rate, more[i]);
        assert_true(fixture_runs(i % 2 ? "gpt2" : "llama", words, 1, compare_with_formula, NULL));
    }
}

/* ---- layouts ---- */

typedef struct shape {
    int ranks;
    const char *more;
} shape;

static const shape shapes[] = {
    {1, "memory.offload_optimizer=host memory.sequence_chunks=3"},
    {2, "memory.offload_optimizer=disk parallel.data=2 parallel.zero=1 precision.compute=bf16"},
    /* the weights of a turn are offloaded while gradients of the next one are summed */
    {2, "memory.offload_optimizer=host parallel.data=2 parallel.zero=2"},
    {4, "memory.offload_optimizer=host parallel.pipeline=2 parallel.data=2 parallel.zero=1 "
        "parallel.schedule=zero-bubble model.tie_word_embeddings=true parallel.device=queued"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- resuming ---- */

/* From before the delay, from its first step (on other layouts: probes/resumes.c), and from within
 * it. */
TEST(test_resumes)
{
    for (size_t i = 0; i < SHAPES; i++) {
        if (!share_takes()) continue;
        char words[700];
        snprintf(words, sizeof words,
                 "training.steps=8 checkpoint.every=2 checkpoint.keep=0 "
                 "memory.offload_delayed_from=4 parallel.flush_every=2 "
                 "training.micro_batch_size=2 model.num_hidden_layers=4 %s %s",
                 i % 2 ? "" : "checkpoint.background=true", shapes[i].more);
        const char *family = i % 2 ? "llama" : "gpt2";
        runs_train(family, "whole", shapes[i].ranks, words);
        runs_train(family, "parts", shapes[i].ranks, words);
        for (int from = 6; from >= 2; from -= 2) {
            runs_remove_checkpoint("parts", from + 2);
            if (from < 6) runs_remove_checkpoint("parts", 8);
            if (from == 2) runs_remove_checkpoint("parts", 6);
            assert_true(runs_has_checkpoint("parts", from));
            runs_train(family, "parts", shapes[i].ranks, words);
            if (!runs_same("whole", "parts", 8)) fail_msg("%s from step %d", words, from);
        }
        runs_remove("whole");
        runs_remove("parts");
    }
}

/* A run goes on with delayed updates, without them, and with spans of another length. */
TEST(test_changes)
{
    static const char plain[] = "checkpoint.every=2 checkpoint.keep=0 training.micro_batch_size=2";
    static const char *const spans[] = {
        "memory.offload_delayed_from=0", "memory.offload_delayed_from=2 parallel.flush_every=2",
        "memory.offload_delayed_from=4", "memory.offload_delayed_from=0"};
    for (int i = 0; i < 4; i++) {
        char words[400];
        snprintf(words, sizeof words, "%s training.steps=%d memory.offload_optimizer=host %s",
                 plain, 4 * (i + 1), spans[i]);
        runs_train("llama", "changed", 1, words);
        assert_true(runs_has_checkpoint("changed", 4 * (i + 1)));
    }
    runs_remove("changed");
}

/* ---- withheld ---- */

typedef struct withheld {
    int steps;
    bool finite;
} withheld;

static ech_status overflow(ech_comm *comm, const ech_design *design, void *context)
{
    withheld *w = context;
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    for (int t = 0, turns; t < 8; t += turns) {
        ech_list_kind list = ech_schedule_list(design->schedule, t, &turns);
        ECH_TRY(ech_exec_run(run.session.exec, list, t));
        for (int turn = 0; turn < turns; turn++)
            w->steps += ech_exec_readings(run.session.exec)[turn].withheld;
    }
    size_t n = (size_t)all_elements(design->model);
    double *weights = ech_calloc(n, sizeof *weights);
    read_weights(&run, weights);
    w->finite = true;
    for (size_t i = 0; i < n; i++) w->finite &= isfinite(weights[i]);
    free(weights);
    ech_compared_run_close(&run);
    return ECH_OK;
}

/* With a loss scale at which gradients leave the type's range weights stay what they are. */
TEST(test_withheld)
{
    for (int disk = 0; disk < 2; disk++) {
        char words[500];
        withheld w = {0};
        snprintf(words, sizeof words,
                 "training.steps=8 memory.offload_delayed_from=4 parallel.flush_every=2 "
                 "training.check_every=0 training.micro_batch_size=4 precision.compute=fp16 "
                 "precision.gradients=compute precision.loss_scale=16777216 "
                 "memory.offload_optimizer=%s",
                 disk ? "disk" : "host");
        ech_config *config = fixture_config("gpt2", words);
        assert_int_equal(fixture_run(config, 1, overflow, &w), ECH_OK);
        assert_true(w.steps > 4 && w.finite);
        ech_config_destroy(config);
    }
}

/* ---- virtual time ---- */

typedef struct timed {
    double end;      /* of a training step */
    double host;     /* in which the host updates, in a step */
    double together; /* of that, in which some F, B or W of a block runs, or a norm */
    bool drawn;
} timed;

/* Drawn, too: some bar of the host begins and ends within a forward. */
static bool is_drawn(const ech_simulation *s, const ech_plan *const *plans)
{
    ech_timeline timeline;
    bool drawn = false;
    ech_simulation_timeline(s, plans, ECH_LIST_TRAIN, &timeline);
    ech_timeline_finish(&timeline);
    for (size_t a = 0; a < timeline.bar.n; a++)
        for (size_t b = 0; b < timeline.bar.n; b++) {
            const ech_timeline_bar *host = &timeline.bar.at[a], *over = &timeline.bar.at[b];
            drawn |= host->kind == ECH_BAR_HOST && over->kind == ECH_BAR_FORWARD &&
                     over->begin <= host->begin && host->end <= over->end;
        }
    ech_timeline_free(&timeline);
    return drawn;
}

static double overlap(const ech_simulation *s, const ech_list *list)
{
    double all = 0;
    for (size_t a = 0; a < list->step.n; a++)
        for (size_t b = 0; b < list->step.n && list->step.at[a].lane == ECH_LANE_HOST; b++) {
            bool norm = list->step.at[b].kind == ECH_STEP_NORM; /* among the backward's steps */
            if (list->step.at[b].lane != ECH_LANE_COMPUTE) continue;
            if (list->step.at[b].block < 0 && !norm) continue;
            double begin = fmax(s->begin[0][a], s->begin[0][b]);
            double end = fmin(s->finish[0][a], s->finish[0][b]);
            if (end > begin) all += end - begin;
        }
    return all;
}

static double host_time(const ech_simulation *s, const ech_list *list)
{
    double all = 0;
    for (size_t i = 0; i < list->step.n; i++)
        if (list->step.at[i].lane == ECH_LANE_HOST) all += s->finish[0][i] - s->begin[0][i];
    return all;
}

/* update_seconds: of a byte of parameters; copies take no time. */
static timed simulate(const char *more, double update_seconds)
{
    char words[500], path[300];
    ech_design design = {0};
    ech_plan *plan;
    ech_profile *profile;
    ech_simulation simulation;
    snprintf(path, sizeof path, "%s/profile.json", fixture_folder);
    snprintf(words, sizeof words,
             "training.steps=32 training.check_every=0 training.micro_batch_size=6 "
             "model.num_hidden_layers=6 %s",
             more);
    ech_config *config = fixture_config("llama", words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    made_up_profile_write(&design, path);
    assert_int_equal(ech_profile_read(path, &profile), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_costs costs = ech_costs_of(config, profile, NULL);
    costs.rates.copy = INFINITY;
    costs.rates.other_seconds = 0;
    costs.rates.update_seconds = update_seconds;
    const ech_plan *const plans[] = {plan};
    assert_int_equal(ech_simulate(plans, 1, ECH_LIST_TRAIN, &costs, &simulation), ECH_OK);
    timed of = {simulation.end / list->turns, host_time(&simulation, list) / list->turns,
                overlap(&simulation, list) / list->turns, is_drawn(&simulation, plans)};
    ech_simulation_free(&simulation);
    ech_plan_destroy(plan);
    ech_profile_destroy(profile);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return of;
}

/* Without the delay a step takes its compute, its norms and then its update. With it all updates of
 * a span but the last overlap compute, so each step but the first takes the longer of the two. It
 * also takes the norms that do not overlap the update. */
TEST(test_virtual_time)
{
    enum { TURNS = 8 };
    static const double shares[] = {0.2, 0.5, 0.9, 1, 2};
    static const char host[] = "memory.offload_optimizer=host";
    static const char delays[] = "memory.offload_optimizer=host memory.offload_delayed_from=8 "
                                 "parallel.flush_every=8";
    double compute = simulate(host, 0).end, of_unit = simulate(host, 1e-6).host / compute;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double seconds = 1e-6 * shares[i] / of_unit;
        timed prompt = simulate(host, seconds), delayed = simulate(delays, seconds);
        double update = prompt.host, norm = prompt.end - compute - update;
        double most = norm + (compute + (TURNS - 1) * fmax(compute, update) + update) / TURNS;
        double busy = compute + norm;
        double least = (busy + (TURNS - 1) * fmax(busy, update) + update) / TURNS;
        assert_true(fabs(delayed.host - update) < 1e-9 && prompt.together < 1e-9);
        if (delayed.end < 0.98 * least || delayed.end > 1.02 * most)
            fail_msg("update %g of compute: %g, not %g to %g", shares[i], delayed.end, least, most);
        assert_true(delayed.end < prompt.end - 0.8 * fmin(compute, update));
        assert_true(delayed.together > 0.8 * fmin(compute, update));
        assert_true(delayed.drawn && !prompt.drawn);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
