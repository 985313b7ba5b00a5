/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins through the library. The examples' AdamW and GPipe order have the bits of the program's
 * own; Lion and a curve follow their formulas. A resume needs the same plugin. Tables of this
 * process are registered, and refused where they are wrong.
 */
#include <echelon.h>
#include <echelon_plugin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/fixture.h"
#include "base/file.h"
#include "share.h"
#include "unit.h"

enum { STEPS = 3, MOST_TENSORS = 200 };

static const char run_file[] =
    "data: {train: \"${ECHELON_TEST}/train\", sequence_length: 16}\n"
    "model: {hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4,\n"
    "        vocab_size: 260, intermediate_size: 48}\n"
    "training: {steps: 3, global_batch_size: 8, micro_batch_size: 1}\n"
    "optimizer: {learning_rate: 1e-2, weight_decay: 0.1, clip_norm: 0.5}\n"
    "parallel: {comm: local}\n"
    "log: {tensorboard: false}\n";

static int folders;

/* Sets the words "key=value" in their order; in values | is a blank. NULL: one is refused. */
static echelon_run *open_run(const char *words, const char *more, const char *folder)
{
    echelon_run *run;
    ECH_FREED_TEXT all = {0};
    const char *family = strstr(more, "model.mapping=") ? "" : "model.architecture=llama";
    ech_text_append(&all, "log.directory=%s/%s %s %s %s", fixture_folder, folder, family, words,
                    more);
    char *rest = NULL;
    setenv("ECHELON_TEST", fixture_folder, 1);
    assert_int_equal(echelon_run_open_text(run_file, "the test", &run), ECHELON_OK);
    for (char *word = strtok_r(all.at, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value = '\0';
        for (char *c = value + 1; *c; c++) *c = *c == '|' ? ' ' : *c;
        if (echelon_run_set(run, word, value + 1) == ECHELON_OK) continue;
        echelon_run_close(run);
        return NULL;
    }
    return run;
}

typedef struct trained {
    int n;
    unsigned char *data[MOST_TENSORS];
    int64_t bytes[MOST_TENSORS];
    char name[MOST_TENSORS][100]; /* of the parameter */
    double rate[STEPS];
} trained;

static void release(trained *t)
{
    for (int i = 0; i < t->n; i++) free(t->data[i]);
}

static trained train(const char *words, const char *more)
{
    trained t = {0};
    char folder[32];
    echelon_training *training;
    snprintf(folder, sizeof folder, "run%d", folders++);
    echelon_run *run = open_run(words, more, folder);
    if (!run) fail_msg("%s %s: %s", words, more, echelon_last_error());
    if (echelon_train_start(run, NULL, &training) != ECHELON_OK)
        fail_msg("%s %s: %s", words, more, echelon_last_error());
    for (int i = 0; !echelon_train_is_done(training); i++) {
        echelon_metrics m = {.size = sizeof m};
        assert_in_range(i, 0, STEPS - 1);
        assert_int_equal(echelon_train_step(training, &m), ECHELON_OK);
        t.rate[i] = m.learning_rate;
    }
    t.n = echelon_tensor_count(training);
    assert_in_range(t.n, 1, MOST_TENSORS);
    for (int i = 0; i < t.n; i++) {
        echelon_tensor is = {.size = sizeof is};
        assert_int_equal(echelon_tensor_at(training, i, &is), ECHELON_OK);
        t.bytes[i] = is.bytes;
        snprintf(t.name[i], sizeof t.name[i], "%s", is.name);
        t.data[i] = ech_calloc((size_t)is.bytes, 1);
        assert_int_equal(echelon_tensor_read(training, i, t.data[i], (size_t)is.bytes), ECHELON_OK);
    }
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
    return t;
}

static void assert_same(const char *words, const char *one, const char *other)
{
    trained a = train(words, one), b = train(words, other);
    assert_int_equal(a.n, b.n);
    for (int i = 0; i < a.n; i++) {
        assert_int_equal(a.bytes[i], b.bytes[i]);
        if (memcmp(a.data[i], b.data[i], (size_t)a.bytes[i]) != 0)
            fail_msg("%s: tensor %d differs with %s", words, i, other);
    }
    release(&a);
    release(&b);
}

#define PLUGIN(name) "training.plugins=" ECH_PLUGINS "/" name ".so "

#ifdef __SANITIZE_THREAD__ /* fp32 has the reference kernels then, whose arithmetic differs */
#define HAS_FP32 0
#else
#define HAS_FP32 1
#endif

/* In fp32 with the instruction set for which both are compiled. */
TEST(adamw_has_the_bits_of_the_own)
{
    static const char *const grids[] = {
        "parallel.data=2",
        "parallel.data=2 parallel.zero=1 precision.compute=fp64",
        "parallel.data=2 parallel.zero=2 parallel.tensor=2",
        "parallel.data=4 parallel.zero=3 precision.compute=fp64",
        "parallel.tensor=2 parallel.pipeline=2 precision.compute=bf16",
        "parallel.data=2 parallel.device=walled memory.offload_optimizer=host",
        "parallel.data=2 parallel.device=queued precision.compute=bf16 precision.gradients=compute",
        "parallel.data=2 parallel.device=walled parallel.zero=1",
    };
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        if (share_takes_of(g, sizeof grids / sizeof *grids) &&
            (HAS_FP32 || strstr(grids[g], "fp64")))
            assert_same(grids[g], "optimizer.name=adamw",
                        PLUGIN("adamw_copy") "optimizer.name=adamw_copy");
}

TEST(order_has_the_bits_of_the_own)
{
    assert_same("parallel.pipeline=2 parallel.data=2", "parallel.schedule=gpipe",
                PLUGIN("schedules") "parallel.schedule=all_forwards_first");
    assert_same("parallel.pipeline=2 parallel.data=auto", "parallel.schedule=gpipe",
                PLUGIN("schedules") "parallel.schedule=all_forwards_first");
}

TEST(curve_has_its_rates)
{
    trained t =
        train("optimizer.warmup_steps=1", PLUGIN("schedules") "optimizer.schedule=exponential "
                                                              "optimizer.min_learning_rate=1e-4");
    for (int i = 0; i < STEPS; i++) {
        double expected = i == 0 ? 1e-2 : 1e-2 * pow(1e-2, (i - 1) / 2.0);
        assert_true(fabs(t.rate[i] - expected) < 1e-12);
    }
    release(&t);
}

/* Lion's own formula, from the averages before and after an update: they tell the gradient, and so
 * where each weight goes. Where the sign hangs on the last bits nothing is compared. */
TEST(lion_follows_its_formula)
{
    const double rate = 1e-2, beta1 = 0.9, beta2 = 0.99;
    const char *lion = PLUGIN("lion") "optimizer.name=lion optimizer.beta2=0.99";
    const char *words = "precision.compute=fp64 parallel.data=2 parallel.zero=1 "
                        "optimizer.schedule=constant";
    char one[100], two[100];
    snprintf(one, sizeof one, "%s training.steps=1", words);
    snprintf(two, sizeof two, "%s training.steps=2", words);
    trained before = train(one, lion), after = train(two, lion);
    int64_t compared = 0, n = before.n / 2; /* weights, then averages */
    assert_int_equal(before.n, after.n);
    for (int64_t i = 0; i < n; i++) {
        double decay = strstr(before.name[i], "norm") ? 0 : 0.1;
        const double *w = (const double *)before.data[i], *to = (const double *)after.data[i];
        const double *m = (const double *)before.data[n + i];
        const double *next = (const double *)after.data[n + i];
        assert_int_equal(before.bytes[i], before.bytes[n + i]);
        for (size_t k = 0; k < (size_t)before.bytes[i] / sizeof *w; k++) {
            double gradient = (next[k] - beta2 * m[k]) / (1 - beta2);
            double step = beta1 * m[k] + (1 - beta1) * gradient;
            if (fabs(step) < 1e-12) continue;
            double expected = w[k] - rate * ((step > 0 ? 1 : -1) + decay * w[k]);
            if (fabs(to[k] - expected) > 1e-12)
                fail_msg("%s: %g instead of %g", before.name[i], to[k], expected);
            compared++;
        }
    }
    assert_true(compared > 10000);
    release(&before);
    release(&after);
}

/* The example's layer and the program's own relu2 compute the same. Initial weights differ by
 * rounding: one is given the standard deviation that the other computes. */
TEST(layer_has_the_results_of_the_own)
{
    static const char *const grids[] = {"", "parallel.tensor=2 parallel.data=2 parallel.zero=1",
                                        "parallel.pipeline=2 parallel.tensor=2 "
                                        "parallel.sequence=true"};
    static const char mapping[] =
        "family: own_relu2\narchitecture: OwnForCausalLM\nbase: llama\n"
        "keys: {hidden_act: {key: model.hidden_act, default: relu2, values: {relu2: relu2}}}\n"
        "defaults: {model.hidden_act: relu2}\n";
    char own_family[4200], path[4100];
    snprintf(path, sizeof path, "%s/relu2.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, mapping, sizeof mapping - 1), ECH_OK);
    snprintf(own_family, sizeof own_family, "model.mapping=%s", path);
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        if (!share_takes_of(g, sizeof grids / sizeof *grids)) continue;
        char words[300];
        snprintf(words, sizeof words, "precision.compute=fp64 model.initializer_range=%.17g %s",
                 0.01 * sqrt(8.0), grids[g]);
        trained own = train(words, own_family);
        trained plugged =
            train(words, PLUGIN("layers") "model.mapping=" ECH_MAPPINGS "/squared_relu.yaml");
        int compared = 0;
        assert_int_equal(own.n, plugged.n);
        for (int i = 0; i < own.n; i++) {
            const double *a = (const double *)own.data[i], *b = (const double *)plugged.data[i];
            assert_string_equal(own.name[i], plugged.name[i]);
            assert_int_equal(own.bytes[i], plugged.bytes[i]);
            for (size_t k = 0; k < (size_t)own.bytes[i] / sizeof *a; k++, compared++)
                if (!(fabs(a[k] - b[k]) <= 1e-6 * (1e-3 + fabs(a[k]))))
                    fail_msg("%s: %s: %g and %g", grids[g], own.name[i], a[k], b[k]);
        }
        assert_true(compared > 10000);
        release(&own);
        release(&plugged);
    }
}

/* The smoothed loss is 0.9 of the cross-entropy and 0.1 of the mean of all ids' cross-entropies: at
 * the first step, where logits are almost equal, both are almost log V. */
TEST(loss_is_of_its_formula)
{
    double loss[2];
    for (int i = 0; i < 2; i++) {
        echelon_training *training;
        echelon_metrics m = {.size = sizeof m};
        echelon_run *run = open_run("model.initializer_range=1e-4",
                                    i ? PLUGIN("smoothing") "training.loss=smoothing" : "",
                                    i ? "smoothed" : "plain");
        assert_non_null(run);
        assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
        assert_int_equal(echelon_train_step(training, &m), ECHELON_OK);
        loss[i] = m.loss;
        assert_int_equal(echelon_train_finish(training), ECHELON_OK);
        echelon_run_close(run);
    }
    assert_true(fabs(loss[0] - log(260)) < 1e-3);
    assert_true(fabs(loss[1] - log(260)) < 1e-3);
    assert_true(loss[0] != loss[1]);
}

/* ---- resuming ---- */

static void start(echelon_run *run, const char *error)
{
    echelon_training *training;
    assert_non_null(run);
    echelon_status status = echelon_train_start(run, NULL, &training);
    if (error && status == ECHELON_OK) fail_msg("not refused: %s", error);
    if (error && !strstr(echelon_last_error(), error))
        fail_msg("\"%s\" is not in: %s", error, echelon_last_error());
    if (!error && status != ECHELON_OK) fail_msg("%s", echelon_last_error());
    if (status == ECHELON_OK) {
        while (!echelon_train_is_done(training))
            assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
        assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    }
    echelon_run_close(run);
}

TEST(resume_needs_the_same_plugin)
{
#define LION PLUGIN("lion") "optimizer.name=lion"
    start(open_run("training.steps=2", LION, "resumed"), NULL);
    start(open_run("training.steps=3", LION, "resumed"), NULL);
    start(open_run("training.steps=4", "", "resumed"), "made with lion=");
    start(open_run("training.steps=4",
                   "training.plugins=" ECH_PLUGINS "/lion.so|" ECH_PLUGINS "/schedules.so "
                   "optimizer.name=lion optimizer.schedule=exponential",
                   "resumed"),
          "made with lion=");
    start(open_run("training.steps=4",
                   "training.plugins=" ECH_PLUGINS "/lion.so|" ECH_PLUGINS "/schedules.so "
                   "optimizer.name=lion",
                   "resumed"),
          NULL);
}

/* ---- registered tables ---- */

static double rate(const echelon_numbers *numbers, double t, double steps)
{
    (void)steps;
    return numbers->learning_rate * (1 - t * t);
}

static echelon_curve curve = {.size = sizeof curve, .name = "parabola", .rate = rate};
static const echelon_curve *const curves[] = {&curve, NULL};
static echelon_plugin table = {
    .size = sizeof table, .version = ECHELON_PLUGIN_VERSION, .name = "parabola", .curves = curves};

static void refuse(const echelon_plugin *wrong, const char *error)
{
    assert_int_equal(echelon_plugin_register(wrong), ECHELON_EUSAGE);
    if (!strstr(echelon_last_error(), error))
        fail_msg("\"%s\" is not in: %s", error, echelon_last_error());
}

TEST(tables_are_registered)
{
    assert_int_equal(echelon_plugin_register(&table), ECHELON_OK);
    assert_int_equal(echelon_plugin_register(&table), ECHELON_OK);
    trained t = train("optimizer.schedule=parabola", "");
    for (int i = 0; i < STEPS; i++) assert_true(fabs(t.rate[i] - 1e-2 * (1 - i * i / 9.0)) < 1e-12);
    release(&t);
}

/* A struct of a newer header, whose last field this library does not know. */
typedef struct newer_plugin {
    echelon_plugin known;
    const void *more;
} newer_plugin;

TEST(wrong_tables_are_refused)
{
    static echelon_plugin wrong[8];
    static newer_plugin newer, same;
    assert_int_equal(echelon_plugin_register(&table), ECHELON_OK);
    for (int i = 0; i < 8; i++) wrong[i] = table;
    wrong[0].version = 7;
    refuse(&wrong[0], "has version 7 of the plugin interface, and this program has version 1");
    wrong[1].name = "two words";
    refuse(&wrong[1], "the plugin's name is \"two words\"");
    wrong[2].size = 0;
    refuse(&wrong[2], "not the size");
    refuse(&wrong[3], "the plugin's name parabola belongs to a registered plugin already");
    wrong[4].name = "again";
    refuse(&wrong[4], "the name parabola belongs to another learning-rate curve");
    refuse(&wrong[4], "was refused");
    newer.known = table;
    newer.known.size = sizeof newer;
    newer.known.name = "newer";
    newer.more = &table;
    refuse((const echelon_plugin *)&newer, "fields that this program does not know");
    same.known = newer.known;
    same.known.name = "new";
    same.known.curves = NULL;
    assert_int_equal(echelon_plugin_register(&same.known), ECHELON_OK);
    wrong[5].name = "older"; /* without the last fields */
    wrong[5].size = offsetof(echelon_plugin, curves);
    assert_int_equal(echelon_plugin_register(&wrong[5]), ECHELON_OK);
}

static int setup(void **state)
{
    setenv("ECHELON_ISA", "portable", 1);
    return fixture_setup(state);
}

ALL_TESTS(setup, fixture_teardown)
