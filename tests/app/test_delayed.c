/* SPDX-License-Identifier: Apache-2.0
 *
 * Delayed updates (ZeRO-Offload). A run that is resumed before, at and after
 * memory.offload_delayed_from has the same bits. An update that would be infinite is withheld. In
 * virtual time the host's updates overlap the next step's compute, so that a step is shorter. The
 * lattice compares layouts with their serial replay, whose versions test_replay.c compares with
 * the papers'; tests/oracle/versions.py has the formula.
 */

#include "app/runs.h"
#include "unit.h"

#include "app/made_up_profile.h"
#include "app/verify/verify.h"
#include "share.h"
#include "simulate/simulate.h"

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
    w->finite = true;
    for (int p = 0; p < (int)design->model->param.n; p++) {
        ech_tensor x = ech_exec_param(run.session.exec, p);
        ECH_FREED double *weights = ech_calloc((size_t)ech_tensor_count(&x), sizeof *weights);
        ech_exec_read(run.session.exec, &x, weights);
        for (int64_t i = 0; i < ech_tensor_count(&x); i++) w->finite &= isfinite(weights[i]);
    }
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
