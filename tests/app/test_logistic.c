/* SPDX-License-Identifier: Apache-2.0
 *
 * Sparse logistic regression from lines of text to a checkpoint: as a program of loops over these
 * lines does it; all layouts as one rank; resumed as if it had not stopped; and what the family
 * does not have.
 */

#include "app/runs.h"
#include "app/verdict.h"
#include "share.h"
#include "unit.h"

enum { SAMPLES = 60, FEATURES = 40, MOST = 7, STEPS = 25 };

/* The lines as numbers, which the naive program reads. */
typedef struct line {
    double label; /* 1 or -1 */
    int n, index[MOST];
    double value[MOST]; /* of few bits, so that they are fp32 */
} line;

static line lines[SAMPLES];

static uint32_t word_of(uint64_t i)
{
    return ech_random_word((ech_random_key){.seed = 12}, i);
}

/* Draws a sample. Feature 1 is in every third sample, the last feature only in the last sample, and
 * sample 5 has no feature. */
static void draw_line(int s, line *l)
{
    uint64_t at = (uint64_t)s * 100;
    l->label = word_of(at) % 3 ? 1 : -1;
    for (int j = 1; j < FEATURES && l->n < MOST && s != 5; j++) {
        bool taken = (j == 1 && s % 3 == 0) || word_of(at + (uint64_t)j) % 8 == 0;
        if (taken) l->index[l->n++] = j;
    }
    if (s == SAMPLES - 1) l->index[l->n < MOST ? l->n++ : MOST - 1] = FEATURES;
    for (int k = 0; k < l->n; k++)
        l->value[k] = ((int)(word_of(at + 50 + (uint64_t)k) % 65) - 32) / 16.0;
}

static int make_data(void **state)
{
    ech_text text = {0};
    char in[300], out[300];
    ech_libsvm_count count;
    fixture_setup(state);
    ech_tokenizer_close(fixture_tokenizer);
    fixture_tokenizer = NULL; /* there is none */
    for (int s = 0; s < SAMPLES; s++) {
        draw_line(s, &lines[s]);
        ech_text_append(&text, "%+g", lines[s].label);
        for (int k = 0; k < lines[s].n; k++)
            ech_text_append(&text, " %d:%g", lines[s].index[k], lines[s].value[k]);
        ech_text_append(&text, "\n");
    }
    snprintf(in, sizeof in, "%s/lines.libsvm", fixture_folder);
    snprintf(out, sizeof out, "%s/lines", fixture_folder);
    ECH_ASSERT(ech_file_write(in, text.at, text.n) == ECH_OK);
    ech_text_free(&text);
    const ech_libsvm_options options = {.in = in, .out = out};
    ECH_ASSERT(ech_data_import_libsvm(&options, &count) == ECH_OK);
    ECH_ASSERT(count.samples == SAMPLES && count.features == FEATURES && count.longest == MOST);
    return 0;
}

/* NULL: it is refused. */
static ech_config *config_of(const char *name, const char *more)
{
    ech_text yaml = {0};
    ech_text_append(&yaml,
                    "model: {architecture: logistic, vocab_size: %d}\n"
                    "data: {train: %s/lines, valid: %s/lines, sequence_length: %d}\n"
                    "training: {steps: %d, global_batch_size: %d, check_every: 5, "
                    "validate_every: %d}\n"
                    "optimizer: {name: sgd, learning_rate: 2, weight_decay: 0.01, clip_norm: 0, "
                    "schedule: constant}\n"
                    "parallel: {comm: local, threads: 1}\n"
                    "precision: {compute: fp64}\n"
                    "log: {directory: %s/%s}\n",
                    FEATURES, fixture_folder, fixture_folder, MOST, STEPS, SAMPLES, STEPS,
                    fixture_folder, name);
    ech_config *config = fixture_config_of(yaml.at, more);
    ech_text_free(&yaml);
    return config;
}

static void train(const char *name, int ranks, const char *more)
{
    ech_config *config = config_of(name, more);
    ech_training training = {0};
    assert_non_null(config);
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    if (status != ECH_OK) fail_msg("%s on %d ranks: %s", more, ranks, ech_last_error());
    ech_config_destroy(config);
}

/* ---- the naive program ---- */

typedef struct fitted {
    double weight[FEATURES], bias;
} fitted;

static double logit_of(const fitted *f, const line *l)
{
    double sum = f->bias;
    for (int k = 0; k < l->n; k++) sum += f->weight[l->index[k] - 1] * l->value[k];
    return sum;
}

static double mean_loss(const fitted *f)
{
    double sum = 0;
    for (int s = 0; s < SAMPLES; s++) sum += log(1 + exp(-lines[s].label * logit_of(f, &lines[s])));
    return sum / SAMPLES;
}

/* A step of gradient descent on all samples, with the decay of weights, but not of the bias. */
static void descend(fitted *f, double rate, double decay)
{
    fitted slope = {{0}, 0};
    for (int s = 0; s < SAMPLES; s++) {
        const line *l = &lines[s];
        double d = -l->label / (1 + exp(l->label * logit_of(f, l))) / SAMPLES;
        for (int k = 0; k < l->n; k++) slope.weight[l->index[k] - 1] += d * l->value[k];
        slope.bias += d;
    }
    for (int j = 0; j < FEATURES; j++)
        f->weight[j] -= rate * (slope.weight[j] + decay * f->weight[j]);
    f->bias -= rate * slope.bias;
}

static void assert_close(double found, double expected, const char *what, int at)
{
    if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected))))
        fail_msg("%s %d: %.17g, the naive program says %.17g", what, at, found, expected);
}

static void assert_fitted(const char *name, const fitted *f)
{
    int64_t n;
    ech_safetensors *file = runs_open(name, STEPS, runs_model);
    double *weight = runs_read(file, "features.weight", &n);
    assert_int_equal(n, FEATURES);
    for (int j = 0; j < FEATURES; j++) assert_close(weight[j], f->weight[j], "weight", j);
    double *bias = runs_read(file, "logistic.bias", &n);
    assert_int_equal(n, 1);
    assert_close(bias[0], f->bias, "bias", 0);
    ech_safetensors_close(file);
    free(weight);
    free(bias);
    assert_close(runs_validation_loss(name), mean_loss(f), "loss", STEPS);
}

/* All samples in each step, so their order does not matter. */
TEST(as_a_naive_program)
{
    static const struct {
        int ranks;
        const char *words;
    } runs[] = {{1, "training.micro_batch_size=60"},
                {1, "training.micro_batch_size=4"},
                {2, "training.micro_batch_size=10 parallel.data=2 parallel.zero=2"},
                {3, "training.micro_batch_size=5 parallel.data=3"},
                {2, "training.micro_batch_size=10 parallel.pipeline=2"}};
    fitted f = {{0}, 0};
    for (int step = 0; step < STEPS; step++) descend(&f, 2, 0.01);
    assert_true(mean_loss(&f) < 0.5 && f.weight[FEATURES - 1] != 0);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!share_takes_of(i, sizeof runs / sizeof *runs)) continue;
        train("naive", runs[i].ranks, runs[i].words);
        assert_fitted("naive", &f);
        runs_remove("naive");
    }
}

/* The first loss is log 2: weights begin as zeros. */
TEST(begins_with_zeros)
{
    train("zeros", 1, "optimizer.learning_rate=0 optimizer.weight_decay=0");
    assert_close(runs_validation_loss("zeros"), log(2), "loss", 0);
    runs_remove("zeros");
}

/* A run that names no family begins with the weights of another: at a rate of 0 its loss is that
 * one's. */
TEST(from_weights)
{
    char path[300];
    ech_text yaml = {0};
    ech_config *config;
    ech_training training = {0};
    train("first", 1, "");
    ech_text_append(&yaml,
                    "model: {init_from: %s/first/checkpoints/step-%08d/model}\n"
                    "data: {train: %s/lines, valid: %s/lines, sequence_length: %d}\n"
                    "training: {steps: 1, global_batch_size: 12, validate_every: 1}\n"
                    "optimizer: {learning_rate: 0}\n"
                    "parallel: {comm: local, threads: 1}\n"
                    "precision: {compute: fp64}\n"
                    "log: {directory: %s/second}\n",
                    fixture_folder, STEPS, fixture_folder, fixture_folder, MOST, fixture_folder);
    snprintf(path, sizeof path, "%s/second.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, yaml.at, yaml.n), ECH_OK);
    ech_text_free(&yaml);
    assert_int_equal(ech_setup_config(path, NULL, 0, &config), ECH_OK);
    assert_int_equal(config->model.vocab_size, FEATURES);
    assert_int_equal(fixture_run(config, 2, ech_train_rank, &training), ECH_OK);
    ech_config_destroy(config);
    assert_close(runs_validation_loss("second"), runs_validation_loss("first"), "loss", 1);
    runs_remove("first");
    runs_remove("second");
}

/* ---- layouts ---- */

static const struct {
    int ranks;
    const char *words;
    bool resumes;
} layouts[] = {
    {2, "parallel.data=2", true},
    {3, "parallel.data=3 parallel.zero=1 optimizer.name=sgd optimizer.momentum=0.9", true},
    {2, "parallel.data=2 parallel.zero=2 precision.compute=fp32", true},
    {4, "parallel.data=4 parallel.zero=3", true},
    {2, "parallel.pipeline=2 parallel.schedule=gpipe", true},
    {4, "parallel.pipeline=2 parallel.data=2 parallel.schedule=zero-bubble", true},
    {2, "parallel.pipeline=2 parallel.schedule=pipedream", true},
    {2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw", true},
    {3, "parallel.stage_replicas=[2,1]", true},
    {2, "parallel.data=2 precision.compute=bf16", true},
    {2, "parallel.data=2 parallel.device=queued", true},
    {2, "parallel.data=2 parallel.device=walled", true},
    {2, "parallel.data=2 memory.recompute=full", true},
    {2, "parallel.data=2 memory.offload_optimizer=host", true},
    {2, "parallel.data=2 data.shards=static", true},
    {2, "parallel.data=2 optimizer.name=adafactor", true},
    {2, "parallel.data=2 optimizer.name=sm3", true},
    {2, "parallel.data=2 optimizer.name=adamw8", true},
    {2, "parallel.data=2 optimizer.name=muon optimizer.momentum=0.9", true},
    {2, "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2", true},
    {3, "parallel.servers=1 parallel.strategy=asp", false},
    {4, "parallel.servers=2 parallel.strategy=ssp parallel.staleness=1 optimizer.name=sgd", false},
    {2,
     "parallel.data=2 parallel.strategy=hogwild parallel.flush_every=4 optimizer.name=sgd "
     "optimizer.weight_decay=0",
     false},
};

TEST(layouts_agree)
{
    int bad = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!share_takes_of(i, sizeof layouts / sizeof *layouts)) continue;
        char words[400];
        snprintf(words, sizeof words,
                 "training.steps=8 training.global_batch_size=12 training.micro_batch_size=1 "
                 "training.check_every=0 training.validate_every=0 checkpoint.every=4 "
                 "optimizer.name=adamw %s",
                 layouts[i].words);
        ech_config *config = config_of("layout", words);
        assert_non_null(config);
        verdict_request request = {.config = config,
                                   .ranks = layouts[i].ranks,
                                   .steps = 8,
                                   .own_precision = strstr(words, "bf16") != NULL,
                                   .resumes = layouts[i].resumes};
        verdict found = verdict_of(&request);
        if (!found.passed) fprintf(stderr, "%s: %s\n", layouts[i].words, found.why);
        bad += !found.passed;
        ech_config_destroy(config);
    }
    assert_int_equal(bad, 0);
}

/* On two data ranks, whatever threads and devices compute. */
TEST(the_same_bits)
{
    static const char *const others[] = {"parallel.threads=3", "parallel.device=queued",
                                         "memory.recompute=full"};
    const char base[] = "parallel.data=2 training.micro_batch_size=10 precision.compute=fp32";
    train("first", 2, base);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!share_takes_of(i, sizeof others / sizeof *others)) continue;
        char words[200];
        snprintf(words, sizeof words, "%s %s", base, others[i]);
        train("other", 2, words);
        if (!runs_same_file("first", "other", STEPS, runs_model))
            fail_msg("%s leaves other weights", others[i]);
        runs_remove("other");
    }
    runs_remove("first");
}

/* A turn of lock-free ranks goes by the rows of its features alone; one rank is serial SGD. */
TEST(rows_by_lists_have_the_bits_of_all)
{
    static const char *const types[] = {"fp64", "fp32"};
    for (int i = 0; i < 2; i++) {
        char serial[300], hogwild[400];
        snprintf(serial, sizeof serial,
                 "precision.compute=%s optimizer.weight_decay=0 optimizer.clip_norm=0.02 "
                 "training.global_batch_size=12 training.micro_batch_size=4",
                 types[i]);
        snprintf(hogwild, sizeof hogwild, "%s parallel.strategy=hogwild parallel.flush_every=5",
                 serial);
        train("serial", 1, serial);
        train("hogwild", 1, hogwild);
        assert_true(runs_same_file("serial", "hogwild", STEPS, runs_model));
        runs_remove("serial");
        runs_remove("hogwild");
    }
}

/* ---- what it has not ---- */

/* The words are wrong where the keys are checked, or where the design is made. */
static void assert_refused(const char *words, const char *says)
{
    ech_config *config = config_of("refused", words);
    ech_design design = {0};
    if (config) {
        ech_status status = ech_design_create(config, NULL, 2, 2, &design);
        ech_design_destroy(&design);
        ech_config_destroy(config);
        assert_int_equal(status, ECH_EUSAGE);
    }
    if (!strstr(ech_last_error(), says))
        fail_msg("%s: \"%s\" does not say \"%s\"", words, ech_last_error(), says);
}

TEST(refusals)
{
    assert_refused("parallel.tensor=2", "tensor ranks share only layers of texts");
    assert_refused("parallel.context=2", "a sample has no sequence that ranks could share");
    assert_refused("memory.sequence_chunks=7 parallel.data=2",
                   "a sample has no sequence that could be cut");
    assert_refused("model.hidden_size=8", "model.hidden_size = 8: not read by logistic; remove it");
    assert_refused("model.tie_word_embeddings=true", "not read by logistic");
    assert_refused("data.tokenizer=bytes", "data.tokenizer = bytes: not read by logistic");
    assert_refused("data.document_mask=true", "not read by logistic");
    assert_refused("model.reversible=true", "not read by logistic");
    assert_refused("model.vocab_size=1", "a table of features has at least 2");
    assert_refused("model.vocab_size=auto", "`echelon data` says how many features there are");
}

/* A gpt2 on lines of features, and the other way round. */
TEST(other_data)
{
    char words[600];
    snprintf(words, sizeof words, "data.train=%s/train data.valid=", fixture_folder);
    for (int way = 0; way < 2; way++) {
        ech_config *config = way ? fixture_config("gpt2", "") : config_of("other", words);
        ech_design design = {0};
        ech_corpus *corpus = NULL;
        assert_non_null(config);
        if (way) {
            char path[300];
            snprintf(path, sizeof path, "%s/lines", fixture_folder);
            ech_config_replace_text(&config->data.train, path);
        }
        assert_int_equal(ech_design_create(config, NULL, 1, 1, &design), ECH_OK);
        assert_int_equal(ech_design_open_data(&design, ECH_SPLIT_TRAIN, &corpus), ECH_EUSAGE);
        assert_non_null(
            strstr(ech_last_error(), way ? "use model.architecture = logistic" : "so "));
        ech_design_destroy(&design);
        ech_config_destroy(config);
    }
}

ALL_TESTS(make_data, fixture_teardown)
