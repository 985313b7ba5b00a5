/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = local_sgd and diloco: replicas that take steps of their own and meet. On any grid they are their serial replay;
 * with plain SGD and a meeting behind each step they are synchronous training; nothing is sent between replicas amid meetings, and
 * where they meet the planned bytes; a resume goes on as if nothing had been.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/grid_run.h"
#include "app/runs.h"
#include "schedule/traffic.h"

/* ---- verify ---- */

static const struct {
    const char *family, *words;
} grids[] = {
    {"gpt2", "optimizer.name=sgd parallel.data=3 parallel.strategy=local_sgd parallel.sync_every=2 "
             "training.micro_batch_size=1 training.global_batch_size=6"},
    {"llama", "parallel.data=2 parallel.pipeline=2 parallel.tensor=2 parallel.strategy=diloco "
              "parallel.sync_every=2 model.resid_pdrop=0.1 training.global_batch_size=8 "
              "training.micro_batch_size=1 parallel.schedule=zero-bubble"},
    {"gpt2", "parallel.data=2 parallel.pipeline=2 model.tie_word_embeddings=true "
             "parallel.strategy=diloco parallel.reduction=ring data.shards=static "
             "optimizer.name=adafactor optimizer.momentum=0.9"},
    {"qwen3", "parallel.data=2 parallel.context=2 parallel.strategy=diloco parallel.sync_every=2 "
              "data.document_mask=true model.head_dim=4 optimizer.rates=*.1.*=0.5"},
    {"llama", "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 "
              "parallel.sequence=true parallel.strategy=local_sgd parallel.device=queued "
              "optimizer.name=muon optimizer.momentum=0.9"},
};

static void grids_are_their_replay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char words[600];
        snprintf(words, sizeof words, "%s", grids[i].words);
        ech_config *config = grid_config(grids[i].family, words);
        ech_verification v = {.steps = 4, .tolerance = ECH_TOLERANCE};
        assert_int_equal(fixture_run(config, grid_ranks(config), ech_verify_rank, &v), ECH_OK);
        if (!v.passed) fail_msg("%s: %g at %s", words, v.worst, v.worst_at);
        assert_true(v.compared > 10000 && v.validated && !v.exact);
        ech_config_destroy(config);
    }
}

/* ---- runs ---- */

#define RUN                                                                                        \
    "precision.compute=fp64 optimizer.name=sgd optimizer.clip_norm=0 optimizer.learning_rate=0.1 " \
    "training.steps=4 "

/* One step from common weights, all of as many tokens: the mean of what replicas make of their own is what they make of the mean
 * gradient. */
static void meeting_in_each_step_is_synchronous(void **state)
{
    (void)state;
    static const char *const more[] = {"parallel.data=2", "parallel.data=3",
                                       "parallel.data=2 parallel.tensor=2"};
    static const int ranks[] = {2, 3, 4};
    for (int i = 0; i < 3; i++) {
        char words[400];
        snprintf(words, sizeof words, RUN "%s", more[i]);
        runs_train("gpt2", "together", ranks[i], words);
        snprintf(words, sizeof words, RUN "%s parallel.strategy=local_sgd", more[i]);
        runs_train("gpt2", "apart", ranks[i], words);
        assert_true(runs_apart("apart", "together", 4, runs_model) < 1e-11);
        snprintf(words, sizeof words, RUN "%s parallel.strategy=local_sgd parallel.sync_every=4",
                 more[i]);
        runs_train("gpt2", "seldom", ranks[i], words);
        assert_true(runs_apart("seldom", "together", 4, runs_model) > 1e-9); /* it is another */
        runs_remove("together");
        runs_remove("apart");
        runs_remove("seldom");
    }
}

/* Replicas have met where weights come from. */
static void begins_from_weights_of_others(void **state)
{
    (void)state;
    char words[600];
    runs_train("gpt2", "first", 1, RUN);
    for (int apart = 0; apart < 2; apart++) {
        snprintf(words, sizeof words,
                 RUN "parallel.data=2 training.seed=5 model.init_from=%s/first%s", fixture_folder,
                 apart ? " parallel.strategy=local_sgd" : "");
        runs_train("gpt2", apart ? "apart" : "together", 2, words);
    }
    assert_true(runs_apart("apart", "together", 4, runs_model) < 1e-11);
    runs_remove("first");
    runs_remove("apart");
    runs_remove("together");
}

static void averaging_is_an_outer_step_of_one(void **state)
{
    (void)state;
    runs_train("gpt2", "local", 2,
               RUN "parallel.data=2 parallel.sync_every=2 parallel.strategy=local_sgd");
    runs_train("gpt2", "outer", 2,
               RUN "parallel.data=2 parallel.sync_every=2 parallel.strategy=diloco "
                   "parallel.outer_learning_rate=1 parallel.outer_momentum=0");
    assert_true(runs_same("local", "outer", 4));
    runs_remove("local");
    runs_remove("outer");
}

/* Also in 16 bits, and on as many ranks as there happen to be then. */
static void resumes_are_bitwise(void **state)
{
    (void)state;
    static const char *const more[] = {"precision.compute=bf16",
                                       "optimizer.name=sm3 optimizer.momentum=0.5"};
    for (int i = 0; i < 2; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "%s training.steps=8 checkpoint.every=4 parallel.data=2 "
                 "parallel.strategy=diloco parallel.sync_every=2",
                 more[i]);
        runs_train("llama", "whole", 2, words);
        runs_train("llama", "parts", 2, words);
        runs_remove_checkpoint("parts", 8);
        runs_train("llama", "parts", 2, words);
        assert_true(runs_same("whole", "parts", 8));
        runs_remove_checkpoint("parts", 8);
        *strstr(words, "parallel.data=2") = '\0';
        strcat(words, "parallel.data=3 parallel.strategy=diloco parallel.sync_every=2");
        runs_train("llama", "parts", 3, words);
        assert_true(runs_has_checkpoint("parts", 8) && !runs_same("whole", "parts", 8));
        runs_remove("whole");
        runs_remove("parts");
    }
}

/* A tensor of the run's states, in fp64. */
static double *state_at(const char *name, int step, const char *tensor, int64_t *n)
{
    char path[512];
    ech_safetensors *file;
    runs_path(path, sizeof path, name, step, runs_state);
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    double *values = runs_read(file, tensor, n);
    ech_safetensors_close(file);
    return values;
}

/* Checkpoints have what each replica's optimizer keeps; other numbers of replicas begin with the mean. A learning rate of 0
 * and no gradient's part of the next step leave that: beta1 is as good as 1. */
static void others_go_on_with_the_mean(void **state)
{
    (void)state;
    static const char tensor[] = "model.layers.0.mlp.up_proj.weight.exp_avg";
    char words[400];
    snprintf(words, sizeof words,
             "precision.compute=fp64 training.steps=2 checkpoint.every=2 parallel.data=2 "
             "parallel.strategy=diloco parallel.sync_every=2");
    runs_train("llama", "two", 2, words);
    int64_t n, m;
    double *two = state_at("two", 2, tensor, &n);
    snprintf(words, sizeof words,
             "precision.compute=fp64 training.steps=4 checkpoint.every=4 parallel.data=3 "
             "training.global_batch_size=12 optimizer.beta1=0.999999 parallel.strategy=diloco "
             "parallel.sync_every=2");
    runs_train("llama", "two", 3, words);
    double *three = state_at("two", 4, tensor, &m);
    assert_true(n > 100 && 2 * m == 3 * n);
    double apart = 0, between = 0, size = 0;
    for (int64_t i = 0; i < n / 2; i++) {
        double mean = (two[i] + two[n / 2 + i]) / 2;
        size = fmax(size, fabs(mean));
        between = fmax(between, fabs(two[i] - two[n / 2 + i]));
        for (int r = 0; r < 3; r++) apart = fmax(apart, fabs(three[r * (m / 3) + i] - mean));
    }
    assert_true(between > 1e-2 * size && apart < 1e-3 * size && apart > 0);
    free(two);
    free(three);
    runs_remove("two");
}

/* Who is asked to stop does so where replicas have weights in common. */
static void stops_where_replicas_meet(void **state)
{
    (void)state;
    runs_train("gpt2", "late", 2,
               RUN "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2 "
                   "training.time_limit=0.000001");
    assert_true(runs_has_checkpoint("late", 2) && !runs_has_checkpoint("late", 4));
    runs_remove("late");
}

/* ---- what is sent ---- */

enum { RANKS = 8, STEPS = 4 };
static struct {
    int64_t amid, planned_amid, met, planned;
} sent[RANKS];

static ech_status count_bytes(void *context, int rank, ech_compared_run *run)
{
    ech_exec *exec = run->session.exec;
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    (void)context;
    ech_plan_list_traffic(run->session.plan, ECH_LIST_SYNC, traffic);
    sent[rank].planned = ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes;
    sent[rank].planned_amid = ech_plan_traffic_along(run->session.plan, ECH_TRAFFIC_DATA).bytes;
    sent[rank].amid = sent[rank].met = 0;
    for (int step = 0; step < STEPS; step++) {
        int64_t before = ech_exec_reduce_count(exec).bytes;
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        int64_t trained = ech_exec_reduce_count(exec).bytes;
        ECH_TRY(ech_exec_run(exec, ECH_LIST_SYNC, step));
        sent[rank].amid += trained - before;
        sent[rank].met += ech_exec_reduce_count(exec).bytes - trained;
    }
    return ECH_OK;
}

static void bytes_are_sent_where_replicas_meet(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        int ranks;
        bool sums; /* ranks of a replica add to gradients: others are as they were */
    } all[] = {{"parallel.data=4", 4, false},
               {"parallel.data=2 parallel.pipeline=2 parallel.reduction=ring", 4, false},
               {"parallel.data=2 parallel.context=2", 4, true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char words[300];
        snprintf(words, sizeof words, "parallel.strategy=diloco %s", all[i].words);
        grid_run("llama", words, count_bytes, NULL);
        for (int r = 0; r < all[i].ranks; r++) {
            assert_int_equal(sent[r].met, STEPS * sent[r].planned);
            assert_int_equal(sent[r].amid, STEPS * sent[r].planned_amid);
            assert_true(sent[r].met > 0 && (sent[r].amid > 0) == all[i].sums);
        }
    }
}

/* ---- what is refused ---- */

static void other_calendars_are_errors(void **state)
{
    (void)state;
    static const char *const keys[] = {"training.steps=9", "training.validate_every=2",
                                       "training.check_every=4", "checkpoint.every=1"};
    ech_log_set_quiet(true);
    for (int i = 0; i < 4; i++) {
        char words[300];
        snprintf(words, sizeof words,
                 "training.steps=12 optimizer.name=sgd parallel.data=2 parallel.strategy=diloco "
                 "parallel.sync_every=3 %s",
                 keys[i]);
        assert_int_equal(runs_try("gpt2", "refused", 2, words), i == 0 ? ECH_OK : ECH_EUSAGE);
        if (i > 0)
            assert_non_null(strstr(ech_last_error(), "no multiple of parallel.sync_every = 3"));
    }
    ech_log_set_quiet(false);
    runs_remove("refused");
}

/* A resume says which strategy's checkpoint it is. */
static void strategies_cannot_change(void **state)
{
    (void)state;
    static const struct {
        const char *saved, *now, *said;
    } all[] = {{"", "parallel.strategy=diloco", "the checkpoint has those of synchronous"},
               {"parallel.strategy=local_sgd", "", "the checkpoint has those of local_sgd"},
               {"parallel.strategy=diloco", "parallel.strategy=local_sgd", "has those of 0.9"}};
    ech_log_set_quiet(true);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char words[200];
        snprintf(words, sizeof words, "optimizer.name=sgd parallel.data=2 %s", all[i].saved);
        ech_config *saved = grid_config("gpt2", words);
        snprintf(words, sizeof words, "optimizer.name=sgd parallel.data=2 %s", all[i].now);
        grid_plans g = grid_plan("gpt2", words);
        const ech_param *param = &g.design.model->param.at[0];
        assert_int_equal(ech_optimizer_check_resume(saved, saved, param), ECH_OK);
        assert_int_equal(ech_optimizer_check_resume(saved, g.config, param), ECH_EUSAGE);
        if (!strstr(ech_last_error(), all[i].said)) fail_msg("%s", ech_last_error());
        grid_plans_free(&g);
        ech_config_destroy(saved);
    }
    ech_log_set_quiet(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grids_are_their_replay),
                                       cmocka_unit_test(meeting_in_each_step_is_synchronous),
                                       cmocka_unit_test(begins_from_weights_of_others),
                                       cmocka_unit_test(averaging_is_an_outer_step_of_one),
                                       cmocka_unit_test(resumes_are_bitwise),
                                       cmocka_unit_test(others_go_on_with_the_mean),
                                       cmocka_unit_test(stops_where_replicas_meet),
                                       cmocka_unit_test(bytes_are_sent_where_replicas_meet),
                                       cmocka_unit_test(other_calendars_are_errors),
                                       cmocka_unit_test(strategies_cannot_change)};
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
