/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from folders. Recorded models of Hugging Face transformers have their recorded logits, as
 * they are and converted. A run that starts from another one's weights begins with the same bits
 * under any layout. A resume reads only its own checkpoint.
 */

#include "app/convert.h"
#include "app/report/report.h"
#include "app/train/trained.h"
#include "app/train_from.h"
#include "checkpoint/whole.h"
#include "share.h"
#include "unit.h"

enum { VOCABULARY = 260, MOST_IDS = 16 };

typedef struct recorded {
    int64_t ids[MOST_IDS];
    double logits[MOST_IDS * VOCABULARY];
    int64_t n;
    double worst; /* difference */
} recorded;

static void read_tensor(const ech_safetensors *file, const char *name, void *to)
{
    int i = ech_safetensors_find(file, name);
    assert_true(i >= 0);
    ech_saved_tensor x = ech_safetensors_get(file, i);
    assert_in_range(x.shape[0], 1, MOST_IDS);
    saved_whole(&x, to);
    assert_int_equal(ech_safetensors_read(file, i, &x), ECH_OK);
}

static void read_recorded(const char *name, recorded *out)
{
    char path[512];
    ech_safetensors *file;
    snprintf(path, sizeof path, "%s/models/%s.safetensors", ECH_FIXTURES, name);
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    out->n = ech_safetensors_get(file, ech_safetensors_find(file, "ids")).shape[0];
    read_tensor(file, "ids", out->ids);
    read_tensor(file, "logits", out->logits);
    ech_safetensors_close(file);
}

static ech_status compare(ech_trained *trained, void *context)
{
    recorded *r = context;
    for (int64_t i = 0; i < r->n; i++) {
        ech_exec_set_token(trained->session.exec, (int32_t)r->ids[i], i);
        ECH_TRY(ech_exec_run(trained->session.exec, ECH_LIST_GENERATE, 0));
        for (int v = 0; v < VOCABULARY; v++) {
            double far =
                fabs(ech_exec_logits(trained->session.exec)[v] - r->logits[i * VOCABULARY + v]);
            if (!(far <= r->worst)) r->worst = far;
        }
    }
    return ECH_OK;
}

static void check_logits(const char *folder, recorded *r)
{
    r->worst = 0;
    assert_int_equal(
        ech_trained_run(&(ech_trained_options){.path = folder, .samples = 1}, compare, r), ECH_OK);
    if (!(r->worst < 1e-4)) fail_msg("%s: logits %g apart", folder, r->worst);
}

TEST(as_transformers)
{
    static const char *const names[] = {"gpt2_openai", "llama31", "qwen3"};
    for (int i = 0; i < 3; i++) {
        char folder[512], converted[512];
        recorded r;
        ech_conversion conversion;
        snprintf(folder, sizeof folder, "%s/models/%s", ECH_FIXTURES, names[i]);
        snprintf(converted, sizeof converted, "%s/%s", fixture_folder, names[i]);
        read_recorded(names[i], &r);
        check_logits(folder, &r);
        assert_int_equal(ech_conversion_open(folder, &(ech_conversion_options){0}, &conversion),
                         ECH_OK);
        assert_int_equal(conversion.dtype, i == 1 ? ECH_BF16 : ECH_F32);
        assert_int_equal(conversion.ends.end, 256);
        assert_int_equal(ech_conversion_write(&conversion, converted, conversion.dtype), ECH_OK);
        assert_int_equal(ech_conversion_write(&conversion, converted, ECH_F32), ECH_EUSAGE);
        ech_conversion_close(&conversion);
        check_logits(converted, &r);
    }
}

/* Both runs' weights, of different steps, byte for byte. */
static void assert_same_weights(const char *a, int step_a, const char *b, int step_b)
{
    char path[2][512], *bytes[2];
    size_t n[2];
    runs_path(path[0], sizeof path[0], a, step_a, runs_model);
    runs_path(path[1], sizeof path[1], b, step_b, runs_model);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ech_file_read(path[i], 1 << 26, &bytes[i], &n[i]), ECH_OK);
    assert_true(n[0] > 1000 && n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
}

TEST(under_any_layout)
{
    static const struct {
        int ranks;
        const char *words;
    } layouts[] = {{1, ""},
                   {2, "parallel.tensor=2"},
                   {2, "parallel.tensor=2 parallel.device=walled"},
                   {2, "parallel.pipeline=2"},
                   {4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true"},
                   {2, "parallel.context=2"},
                   {2, "parallel.pipeline=2 parallel.schedule=pipedream"},
                   {2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw "
                       "training.micro_batch_size=3"}};
    static const char *const families[] = {"gpt2", "llama", "qwen3"};
    for (int f = 0; f < 3; f++) {
        const char *architecture = families[f];
        runs_train(architecture, "first", 1, "training.steps=2 data.sequence_length=8");
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            if (!share_takes_of(i, sizeof layouts / sizeof *layouts)) continue;
            char words[600];
            snprintf(words, sizeof words,
                     "training.steps=0 training.seed=5 data.sequence_length=8 "
                     "model.init_from=%s/first %s",
                     fixture_folder, layouts[i].words);
            runs_train(architecture, "second", layouts[i].ranks, words);
            assert_same_weights("first", 2, "second", 0);
            runs_remove("second");
        }
        runs_remove("first");
    }
}

/* What reads the weights before the newest, reads these. */
TEST(also_what_was_before)
{
    char words[500];
    ech_safetensors *file[2];
    const char *const which[] = {runs_model, runs_state};
    runs_train("gpt2", "first", 1, "training.steps=1 precision.compute=fp64");
    snprintf(words, sizeof words,
             "training.steps=0 training.seed=5 precision.compute=fp64 model.init_from=%s/first "
             "parallel.pipeline=2 parallel.schedule=pipedream-2bw training.micro_batch_size=3",
             fixture_folder);
    runs_train("gpt2", "second", 2, words);
    for (int i = 0; i < 2; i++) file[i] = runs_open("second", 0, which[i]);
    for (int t = 0; t < ech_safetensors_count(file[0]); t++) {
        char before[300];
        const char *name = ech_safetensors_get(file[0], t).name;
        int64_t n[2];
        snprintf(before, sizeof before, "%s.previous", name);
        double *a = runs_read(file[0], name, &n[0]), *b = runs_read(file[1], before, &n[1]);
        assert_true(n[0] > 0 && n[0] == n[1]);
        assert_memory_equal(a, b, (size_t)n[0] * sizeof *a);
        free(a);
        free(b);
    }
    for (int i = 0; i < 2; i++) ech_safetensors_close(file[i]);
    runs_remove("first");
    runs_remove("second");
}

TEST(resumes_alone)
{
    char words[600], from[300], away[300];
    runs_train("gpt2", "source", 1, "training.steps=1");
    snprintf(words, sizeof words, "training.steps=2 model.init_from=%s/source", fixture_folder);
    runs_train("gpt2", "run", 1, words);
    snprintf(from, sizeof from, "%s/source", fixture_folder);
    snprintf(away, sizeof away, "%s/away", fixture_folder);
    assert_int_equal(rename(from, away), 0);
    snprintf(words, sizeof words, "training.steps=3 model.init_from=%s/source", fixture_folder);
    runs_train("gpt2", "run", 2, words);
    assert_true(runs_has_checkpoint("run", 3));
    assert_int_not_equal(runs_try("gpt2", "other", 2, words), ECH_OK);
    runs_remove("run");
    runs_remove("away");
}

/* ---- runs whose model and tokenizer come from init_from alone ---- */

/* One byte becomes another. */
static void damage(const char *run, int step, const char *file)
{
    char path[512], *bytes;
    size_t n;
    runs_path(path, sizeof path, run, step, file);
    assert_int_equal(ech_file_read(path, 1 << 26, &bytes, &n), ECH_OK);
    bytes[n / 2] ^= 0x40;
    assert_int_equal(ech_file_write(path, bytes, n), ECH_OK);
    free(bytes);
}

static const char every_step[] = "checkpoint:\n  every: 1\n";

/* Whichever file of the newest checkpoint is damaged, the run goes on from the one before. */
TEST(goes_on_from_the_older)
{
    static const char *const files[] = {"model/tokenizer.json", "model/tokenizer_config.json",
                                        "model/config.json", runs_model};
    runs_train("gpt2", "source", 1, "training.steps=1");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(train_from("run", "source", 2, every_step), ECH_OK);
        damage("run", 2, files[i]);
        if (train_from("run", "source", 3, every_step) != ECH_OK)
            fail_msg("%s is damaged: %s", files[i], ech_last_error());
        assert_true(runs_has_checkpoint("run", 3));
        runs_remove("run");
    }
    runs_remove("source");
}

static ech_status count_tokens(ech_trained *trained, void *context)
{
    *(int64_t *)context = trained->tokenizer->vocabulary;
    return ECH_OK;
}

static void away(const char *name)
{
    char from[300], to[400];
    snprintf(from, sizeof from, "%s/%s", fixture_folder, name);
    snprintf(to, sizeof to, "%s/away", fixture_folder);
    assert_int_equal(ech_file_remove_all(to), ECH_OK);
    assert_int_equal(rename(from, to), 0);
}

/* What a run leaves needs nothing that it began with, and no checkpoint that is pruned. */
TEST(source_is_gone)
{
    char run[300], *text;
    ech_text words = {0};
    size_t n;
    int64_t vocabulary = 0;
    runs_train("gpt2", "source", 1, "training.steps=1");
    assert_int_equal(train_from("run", "source", 1, ""), ECH_OK);
    away("source");
    for (int step = 2; step <= 3; step++)
        assert_int_equal(train_from("run", "source", step, "checkpoint:\n  keep: 1\n"), ECH_OK);
    assert_false(runs_has_checkpoint("run", 1));
    snprintf(run, sizeof run, "%s/run/run.yaml", fixture_folder);
    assert_int_equal(ech_file_read(run, 1 << 20, &text, &n), ECH_OK);
    assert_non_null(strstr(text, "tokenizer: auto"));
    free(text);
    snprintf(run, sizeof run, "%s/run", fixture_folder);
    if (ech_report_run(run, NULL, &words) != ECH_OK) fail_msg("report: %s", ech_last_error());
    ech_text_free(&words);
    assert_int_equal(ech_trained_run(&(ech_trained_options){.path = run, .samples = 1},
                                     count_tokens, &vocabulary),
                     ECH_OK);
    assert_int_equal(vocabulary, 257);
    runs_remove("run");
    runs_remove("away");
}

/* checkpoint.resume names another run's checkpoint, which has all that init_from would give. */
TEST(begins_with_a_checkpoint)
{
    char more[400];
    runs_train("gpt2", "source", 1, "training.steps=1");
    assert_int_equal(train_from("first", "source", 1, ""), ECH_OK);
    away("source");
    assert_int_not_equal(train_from("second", "source", 2, ""), ECH_OK);
    snprintf(more, sizeof more, "checkpoint:\n  resume: %s/first\n", fixture_folder);
    if (train_from("second", "source", 2, more) != ECH_OK) fail_msg("%s", ech_last_error());
    assert_true(runs_has_checkpoint("second", 2));
    runs_remove("first");
    if (train_from("second", "source", 3, more) != ECH_OK) fail_msg("%s", ech_last_error());
    assert_true(runs_has_checkpoint("second", 3));
    runs_remove("second");
    runs_remove("away");
}

/* Hugging Face's cache: snapshots/HASH has links alone, into ../../blobs. */
static void make_cache(const char *name)
{
    char words[4096];
    snprintf(words, sizeof words,
             "cd %s && rm -rf blobs snapshots && mkdir -p blobs snapshots/hash && "
             "for f in '%s'/models/%s/*; do cp \"$f\" \"blobs/x${f##*/}\" && "
             "ln -s \"../../blobs/x${f##*/}\" \"snapshots/hash/${f##*/}\"; done",
             fixture_folder, ECH_FIXTURES, name);
    assert_int_equal(system(words), 0);
}

TEST(from_a_cache)
{
    static const char *const names[] = {"gpt2_openai", "llama31"}; /* one file; shards */
    char folder[300], converted[300];
    snprintf(folder, sizeof folder, "%s/snapshots/hash", fixture_folder);
    snprintf(converted, sizeof converted, "%s/converted", fixture_folder);
    for (int i = 0; i < 2; i++) {
        recorded r;
        ech_conversion conversion;
        make_cache(names[i]);
        read_recorded(names[i], &r);
        check_logits(folder, &r);
        assert_int_equal(ech_conversion_open(folder, &(ech_conversion_options){0}, &conversion),
                         ECH_OK);
        assert_int_equal(ech_conversion_write(&conversion, converted, conversion.dtype), ECH_OK);
        ech_conversion_close(&conversion);
        check_logits(converted, &r);
        if (train_from("run", "snapshots/hash", 0, "") != ECH_OK) fail_msg("%s", ech_last_error());
        runs_remove("run");
        runs_remove("converted");
    }
    runs_remove("snapshots");
    runs_remove("blobs");
}

/* ---- rows for more tokens ---- */

enum { HAD = 257, MORE = 262 };

/* The table's first rows are those of the source, and each new one is the mean of some of them. */
static void check_grown(const char *name, const int *from, int count)
{
    int64_t n[2];
    ech_dtype dtype[2];
    float *was = runs_tensor("source", 1, runs_model, name, &dtype[0], &n[0]);
    float *now = runs_tensor("grown", 0, runs_model, name, &dtype[1], &n[1]);
    int64_t width = n[0] / HAD;
    assert_true(dtype[0] == ECH_F32 && dtype[1] == ECH_F32);
    assert_true(n[0] == HAD * width && n[1] == MORE * width);
    assert_memory_equal(was, now, (size_t)n[0] * sizeof *was);
    for (int64_t i = 0; i < width; i++) {
        double sum = 0;
        for (int r = 0; r < count; r++) sum += was[(from ? from[r] : r) * width + i];
        for (int64_t r = HAD; r < MORE; r++)
            assert_true(now[r * width + i] == (float)(sum / count));
    }
    free(was);
    free(now);
}

static void train_grown(const char *architecture, const char *run, int ranks, const char *more)
{
    char words[1000];
    snprintf(words, sizeof words,
             "training.seed=5 data.sequence_length=8 model.init_from=%s/source "
             "model.vocab_size=%d %s",
             fixture_folder, MORE, more);
    runs_train(architecture, run, ranks, words);
}

/* Rows are the same under any layout, and trained and saved as others are. */
TEST(more_tokens)
{
    static const struct {
        int ranks;
        const char *words;
    } layouts[] = {{2, "parallel.tensor=2"},
                   {2, "parallel.pipeline=2"},
                   {4, "parallel.data=4 parallel.zero=3"},
                   {4, "parallel.tensor=2 parallel.data=2 parallel.zero=3"},
                   {2, "parallel.tensor=2 parallel.device=walled"}};
    static const struct {
        const char *architecture, *words, *table;
    } models[] = {{"gpt2", "model.tie_word_embeddings=true", "transformer.wte.weight"},
                  {"llama", "model.tie_word_embeddings=false", "model.embed_tokens.weight"}};
    char words[400];
    for (int m = 0; m < 2; m++) {
        snprintf(words, sizeof words, "training.steps=1 data.sequence_length=8 %s",
                 models[m].words);
        runs_train(models[m].architecture, "source", 1, words);
        snprintf(words, sizeof words, "training.steps=0 %s", models[m].words);
        train_grown(models[m].architecture, "grown", 1, words);
        check_grown(models[m].table, NULL, HAD);
        if (m == 1) check_grown("lm_head.weight", NULL, HAD);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            snprintf(words, sizeof words, "training.steps=0 %s %s", models[m].words,
                     layouts[i].words);
            train_grown(models[m].architecture, "other", layouts[i].ranks, words);
            if (!runs_same_file("grown", "other", 0, runs_model)) fail_msg("%s", words);
            runs_remove("other");
        }
        /* the checkpoint has them, and a run goes on from it */
        snprintf(words, sizeof words, "training.steps=2 %s", models[m].words);
        train_grown(models[m].architecture, "grown", 2, words);
        assert_true(runs_has_checkpoint("grown", 2));
        runs_remove("grown");
        runs_remove("source");
    }
}

TEST(more_tokens_from_some)
{
    static const int from[] = {256, 0, 41};
    runs_train("llama", "source", 1, "training.steps=1 data.sequence_length=8");
    train_grown("llama", "grown", 2,
                "training.steps=0 parallel.tensor=2 model.new_rows_from=[256,0,41]");
    check_grown("model.embed_tokens.weight", from, 3);
    check_grown("lm_head.weight", from, 3);
    runs_remove("grown");
    runs_remove("source");
}

TEST(rows_that_cannot_be_added)
{
    static const struct {
        const char *model, *said;
    } cases[] = {
        {"  vocab_size: 262\n  new_rows_from: [3, 257]\n", "has no token 257; name tokens"},
        {"  new_rows_from: [3]\n", "no rows are added"},
        {"  vocab_size: 256\n", "model.vocab_size = 256: "}};
    static const char more[] = "  vocab_size: 262\n";
    runs_train("gpt2", "source", 1, "training.steps=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(train_from_with("run", "source", cases[i].model, 1, ""), ECH_EUSAGE);
        if (!strstr(ech_last_error(), cases[i].said)) fail_msg("%s", ech_last_error());
    }
    assert_int_equal(train_from("run", "source", 1, ""), ECH_OK);
    assert_int_equal(train_from_with("run", "source", more, 2, ""), ECH_EUSAGE);
    assert_int_equal(train_from("run", "source", 2, ""), ECH_OK);
    runs_remove("run");
    assert_int_equal(train_from_with("run", "source", more, 1, ""), ECH_OK);
    assert_int_equal(train_from_with("run", "source", more, 2, ""), ECH_OK);
    runs_remove("run");
    runs_remove("source");
}

ALL_TESTS(fixture_setup, fixture_teardown)
