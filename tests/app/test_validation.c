/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation during a run. Its sample is the same under every layout and at each validation. A
 * request to stop ends it, and the next start makes up for it. training.patience ends the run at
 * the same step under every layout and after a resume. checkpoint.keep_best keeps the checkpoints
 * with the lowest losses.
 */

#include "app/runs.h"
#include "app/train/trainer.h"
#include "app/train/validation.h"
#include "checkpoint/folder.h"
#include "unit.h"

#define FP64 "precision.compute=fp64 training.steps=6 training.validate_every=2 "

/* All validation losses of a run's metrics. Returns how many there are. */
static int losses_of(const char *name, double *out, int most)
{
    char *text = runs_metrics(name);
    int n = 0;
    for (const char *at = text; n < most && (at = strstr(at, "\"valid_loss\":")); at++)
        out[n++] = strtod(at + strlen("\"valid_loss\":"), NULL);
    free(text);
    return n;
}

static bool says(const char *name, const char *what)
{
    char *text = runs_metrics(name);
    bool has = strstr(text, what) != NULL;
    free(text);
    return has;
}

/* ---- the sample ---- */

TEST(sample_is_the_same_under_every_layout)
{
    static const struct {
        const char *words;
        int ranks;
    } layouts[] = {{"parallel.data=3", 3},
                   {"parallel.pipeline=2 parallel.data=2 training.micro_batch_size=2", 4},
                   {"parallel.tensor=2", 2},
                   {"parallel.strategy=parameter_server parallel.data=2", 3}};
    enum { N = 3 };
    double one[N], other[N];
    runs_train("gpt2", "one", 1, FP64 "training.validate_samples=17");
    assert_int_equal(losses_of("one", one, N), N);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char words[300];
        snprintf(words, sizeof words, FP64 "training.validate_samples=17 model.resid_pdrop=0.1 %s",
                 layouts[i].words);
        runs_train("gpt2", "other", layouts[i].ranks, words);
        assert_int_equal(losses_of("other", other, N), N);
        for (int k = 0; k < N; k++)
            if (!(fabs(other[k] / one[k] - 1) < 1e-9))
                fail_msg("%s: %.17g, one rank has %.17g", words, other[k], one[k]);
        runs_remove("other");
    }
    runs_remove("one");
}

/* With a learning rate of 0 all validations have the same weights. */
TEST(sample_is_the_same_each_time_and_drawn)
{
    enum { N = 3 };
    double drawn[N], other[N], all[N];
#define STILL FP64 "optimizer.learning_rate=0 "
    runs_train("llama", "drawn", 1, STILL "training.validate_samples=12");
    runs_train("llama", "other", 1, STILL "training.validate_samples=24");
    runs_train("llama", "all", 1, STILL "training.validate_samples=0");
    assert_int_equal(losses_of("drawn", drawn, N), N);
    assert_int_equal(losses_of("other", other, N), N);
    assert_int_equal(losses_of("all", all, N), N);
    for (int k = 1; k < N; k++) {
        assert_true(drawn[k] == drawn[0]);
        assert_true(all[k] == all[0]);
    }
    assert_true(drawn[0] != all[0] && other[0] != all[0] && drawn[0] != other[0]);
    runs_remove("drawn");
    runs_remove("other");
    runs_remove("all");
}

TEST(automatic_sample_is_a_count)
{
    ech_config *config = runs_config("gpt2", "count", "training.validate_samples=auto");
    ech_design design = {0};
    ech_corpus *corpus;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    assert_int_equal(ech_design_open_data(&design, ECH_SPLIT_VALID, &corpus), ECH_OK);
    int64_t all = ech_corpus_samples(corpus);
    assert_true(all > 30);
    assert_int_equal(ech_validation_samples(config, corpus), all); /* fewer than 16,384 tokens */
    config->data.sequence_length = 10000;
    config->training.global_batch_size = 2;
    assert_int_equal(ech_validation_samples(config, corpus), 2 * ECH_VALIDATION_BATCHES);
    config->training.global_batch_size = 1;
    config->data.sequence_length = 1000;
    assert_int_equal(ech_validation_samples(config, corpus), 17);
    config->training.global_batch_size = INT64_MAX / 2;
    assert_int_equal(ech_validation_samples(config, corpus), all);
    ech_corpus_close(corpus);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* ---- a stop during a validation ---- */

/* Asks for a stop once the ranks are about to validate, in place of a signal at that moment. */
static ech_status ask_before(ech_trainer *t, void *context, bool *ends)
{
    double loss = 0;
    bool stops = false;
    (void)ends;
    if (t->step != *(int64_t *)context) return ECH_OK;
    ech_train_ask(ECH_ASKED_TO_STOP);
    ECH_TRY(ech_trainer_validate(t, &loss, &stops));
    assert_true(stops && isnan(loss));
    return ECH_OK;
}

TEST(request_to_stop_ends_a_validation)
{
    int64_t step = 3;
    ech_training training = {.pause = ask_before, .context = &step};
    ech_config *config = runs_config(
        "gpt2", "stopped", FP64 "parallel.data=2 training.global_batch_size=4 checkpoint.every=2");
    assert_int_equal(fixture_run(config, 2, ech_train_rank, &training), ECH_OK);
    ech_train_take_asked();
    ech_config_destroy(config);
    assert_true(runs_has_checkpoint("stopped", 4)); /* the next step saw it, too */
    assert_false(runs_has_checkpoint("stopped", 6));
    assert_false(runs_info("stopped", 4).validated.step == 4); /* its validation was cut short */
    runs_train("gpt2", "stopped", 2,
               FP64 "parallel.data=2 training.global_batch_size=4 checkpoint.every=2");
    runs_train("gpt2", "whole", 2,
               FP64 "parallel.data=2 training.global_batch_size=4 checkpoint.every=2");
    double stopped[4], whole[4];
    assert_int_equal(losses_of("stopped", stopped, 4), 3);
    assert_int_equal(losses_of("whole", whole, 4), 3);
    for (int k = 0; k < 3; k++) assert_true(stopped[k] == whole[k]);
    assert_true(runs_same("stopped", "whole", 6));
    assert_int_equal(runs_info("stopped", 4).validated.step, 4); /* made up for, and saved */
    runs_remove("stopped");
    runs_remove("whole");
}

/* ---- early stopping ---- */

/* The rate makes the loss of a tiny model grow again. */
#define WORSENS                                                                                    \
    "precision.compute=fp64 training.steps=40 training.validate_every=2 optimizer.warmup_steps=0 " \
    "optimizer.schedule=constant optimizer.learning_rate=0.2 model.resid_pdrop=0 "                 \
    "model.attn_pdrop=0 "

static int last_step(const char *name)
{
    for (int step = 40; step >= 0; step--)
        if (runs_has_checkpoint(name, step)) return step;
    return -1;
}

/* The step after which Keras' rule would stop, from the losses of a run without it. */
static int rule(const double *loss, int n, int patience, double least)
{
    double best = INFINITY;
    for (int k = 0, waited = 0; k < n; k++) {
        bool better = loss[k] < best - least;
        if (better) best = loss[k];
        waited = better ? 0 : waited + 1;
        if (waited >= patience) return 2 * (k + 1);
    }
    return 40;
}

TEST(patience_ends_all_ranks_at_the_same_step)
{
    enum { MOST = 20 };
    double loss[MOST];
    runs_train("gpt2", "free", 1, WORSENS);
    int n = losses_of("free", loss, MOST), step = rule(loss, n, 2, 0.01);
    assert_int_equal(n, MOST);
    if (step >= 36) fail_msg("the loss does not grow: %g, %g, %g", loss[0], loss[9], loss[19]);
    runs_train("gpt2", "one", 1, WORSENS "training.patience=2 training.min_improvement=0.01");
    runs_train("gpt2", "four", 4,
               WORSENS "training.patience=2 training.min_improvement=0.01 parallel.pipeline=2 "
                       "parallel.data=2 checkpoint.every=2 training.micro_batch_size=2");
    assert_int_equal(last_step("one"), step);
    assert_int_equal(last_step("four"), step);
    assert_true(says("four", "\"valid_waited\":2"));

    /* The count is saved: a resumed run ends at the same step. */
    assert_int_equal(runs_info("four", step).validated.waited, 2);
    assert_int_equal(runs_info("four", step - 2).validated.waited, 1);
    runs_remove_checkpoint("four", step);
    runs_train("gpt2", "four", 1,
               WORSENS "training.patience=2 training.min_improvement=0.01 checkpoint.every=2");
    assert_int_equal(last_step("four"), step);

    /* The same command does nothing more, and a larger number goes on. */
    runs_train("gpt2", "four", 1, WORSENS "training.patience=2 training.min_improvement=0.01");
    assert_int_equal(last_step("four"), step);
    runs_train("gpt2", "four", 1,
               WORSENS "training.patience=3 training.min_improvement=0.01 training.steps=40");
    assert_int_equal(last_step("four"), rule(loss, n, 3, 0.01));
    runs_remove("free");
    runs_remove("one");
    runs_remove("four");
}

TEST(patience_ends_a_span_where_it_ends)
{
    runs_train("gpt2", "span", 2,
               WORSENS "training.patience=1 training.min_improvement=100 parallel.pipeline=2 "
                       "parallel.schedule=pipedream parallel.flush_every=2");
    assert_int_equal(last_step("span"), 4); /* the second validation is no improvement of 100 */
    runs_remove("span");
}

/* ---- the best checkpoints ---- */

TEST(best_checkpoints_are_kept)
{
    enum { MOST = 20 };
    double loss[MOST];
    runs_train("gpt2", "best", 2,
               WORSENS "parallel.data=2 checkpoint.keep=1 checkpoint.keep_best=2");
    int n = losses_of("best", loss, MOST), kept = 0;
    assert_int_equal(n, MOST);
    for (int k = 0; k < n; k++) {
        int better = 0, step = 2 * (k + 1);
        for (int i = 0; i < n; i++) better += loss[i] < loss[k];
        bool has = runs_has_checkpoint("best", step);
        if (has != (better < 2 || step == 40))
            fail_msg("step %d: %s, and %d are better", step, has ? "kept" : "removed", better);
        kept += has;
        if (has) assert_true(runs_info("best", step).validated.loss == loss[k]);
    }
    assert_in_range(kept, 2, 3);

    /* The run goes on from the newest, and what was best remains. */
    double lowest = INFINITY;
    int best = 0;
    for (int k = 0; k < n; k++)
        if (loss[k] < lowest) lowest = loss[k], best = 2 * (k + 1);
    runs_train("gpt2", "best", 1,
               WORSENS "checkpoint.keep=1 checkpoint.keep_best=true training.steps=44");
    assert_true(runs_has_checkpoint("best", best) && runs_has_checkpoint("best", 44));
    runs_remove("best");
}

/* Checkpoints for their losses change nothing of the training. */
TEST(keeping_the_best_changes_no_bit)
{
    runs_train("llama", "plain", 2, FP64 "parallel.data=2");
    runs_train("llama", "kept", 2, FP64 "parallel.data=2 checkpoint.keep_best=1 checkpoint.keep=1");
    assert_true(runs_same("plain", "kept", 6));
    runs_remove("plain");
    runs_remove("kept");
}

ALL_TESTS(fixture_setup, fixture_teardown)
