/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines in LIBSVM's format: what they say becomes samples of features, which a loader gives in
 * batches; what they cannot say is one error with file and line.
 */
#include "data/loaders.h"

#include <math.h>

#include "data/libsvm.h"
#include "data/text_chunk.h"

enum { LENGTH = 4 };

static ech_status import(const char *text, int64_t features, double valid, ech_libsvm_count *count)
{
    static char in[4200], out[4200];
    write_file("a.libsvm", text, strlen(text));
    snprintf(in, sizeof in, "%s", in_scratch("a.libsvm"));
    snprintf(out, sizeof out, "%s", in_scratch("a"));
    const ech_libsvm_options options = {.in = in, .out = out, .valid = valid, .features = features};
    return ech_data_import_libsvm(&options, count);
}

static ech_corpus_options corpus_options(const char *name, int64_t length)
{
    return (ech_corpus_options){.key = "data.train",
                                .sources = in_scratch(name),
                                .split = "",
                                .sequence_length = length,
                                .samples = ECH_SAMPLES_OF_features,
                                .vocabulary = 100};
}

static ech_corpus *open_samples(const char *name)
{
    ech_corpus_options options = corpus_options(name, LENGTH);
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    return corpus;
}

static ech_loader_options reads(void)
{
    return (ech_loader_options){.sequence_length = LENGTH,
                                .global_batch_size = 4,
                                .shares = 1,
                                .micro_batch_size = 2,
                                .data_degree = 1,
                                .vocabulary = 100,
                                .last_position = INT64_MAX,
                                .prefetch = 1,
                                .samples = ECH_SAMPLES_OF_features};
}

static const char four[] = "+1 3:0.5 10:-2 100:1e-3\n"
                           "# a comment\n"
                           "-1 1:1 2:2 3:3 4:4 # another\r\n"
                           "\n"
                           "-1\n"
                           "1\t7:.25";

static void assert_row(const ech_batch *batch, int64_t row, int n, const int32_t *ids,
                       const float *values, int32_t label)
{
    for (int t = 0; t < LENGTH; t++) {
        int64_t at = row * LENGTH + t;
        assert_int_equal(batch->tokens[at], t < n ? ids[t] : 0);
        assert_true(batch->values[at] == (t < n ? values[t] : 0));
    }
    assert_int_equal(batch->lengths[row], n);
    assert_true(batch->weights[row] == (n > 0 ? 1.0f : 0.0f));
    assert_int_equal(batch->targets[row], label);
}

/* A line without features is feature 0 with value 0. */
TEST(lines_become_samples)
{
    ech_libsvm_count count;
    assert_int_equal(import(four, 0, 0, &count), ECH_OK);
    assert_int_equal(count.samples, 4);
    assert_int_equal(count.features, 100);
    assert_int_equal(count.longest, 4);
    ech_corpus *corpus = open_samples("a");
    assert_int_equal(ech_corpus_samples(corpus), 4);
    ech_loader *loader = start(corpus, reads(), 0);
    for (int epoch = 0; epoch < 2; epoch++) {
        const ech_batch *batch = next(loader, epoch);
        assert_true(batch->step_tokens == 4);
        assert_row(batch, 0, 3, (int32_t[]){2, 9, 99}, (float[]){0.5f, -2, 1e-3f}, 1);
        assert_row(batch, 1, 4, (int32_t[]){0, 1, 2, 3}, (float[]){1, 2, 3, 4}, 0);
        assert_row(batch, 2, 1, (int32_t[]){0}, (float[]){0}, 0);
        assert_row(batch, 3, 1, (int32_t[]){6}, (float[]){0.25f}, 1);
    }
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

/* The padding after the last sample is 0. */
TEST(padding_is_zero)
{
    ech_libsvm_count count;
    assert_int_equal(import(four, 0, 0, &count), ECH_OK);
    ech_corpus *corpus = open_samples("a");
    ech_loader_options options = reads();
    options.last_position = 6;
    ech_loader *loader = start(corpus, options, 1);
    const ech_batch *batch = next(loader, 1);
    assert_true(batch->step_tokens == 2);
    assert_row(batch, 1, 4, (int32_t[]){0, 1, 2, 3}, (float[]){1, 2, 3, 4}, 0);
    for (int64_t row = 2; row < 4; row++) assert_row(batch, row, 0, NULL, NULL, 0);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

/* The last half of the bytes, and of the documents of a split: here the same two. */
TEST(parts_for_validation)
{
    static const char text[] = "1 1:1\n0 2:2\n1 3:3\n0 4:4\n";
    ech_libsvm_count count;
    assert_int_equal(import(text, 0, 0.5, &count), ECH_OK);
    assert_int_equal(count.samples, 2);
    assert_int_equal(count.valid_samples, 2);
    assert_int_equal(import(text, 0, 0, &count), ECH_OK);
    ech_corpus_options split = corpus_options("a", LENGTH);
    split.split = "1,1";
    split.part = ECH_SPLIT_VALID;
    ech_corpus *corpora[2] = {open_samples("a-valid")};
    assert_int_equal(ech_corpus_open(&split, &corpora[1]), ECH_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ech_corpus_samples(corpora[i]), 2);
        ech_loader *loader = start(corpora[i], reads(), 0);
        const ech_batch *batch = next(loader, 0);
        assert_row(batch, 0, 1, (int32_t[]){2}, (float[]){3}, 1);
        assert_row(batch, 1, 1, (int32_t[]){3}, (float[]){4}, 0);
        ech_loader_destroy(loader);
        ech_corpus_close(corpora[i]);
    }
    assert_int_equal(import("1 1:1\n", 0, 0.01, &count), ECH_EUSAGE);
    assert_error_has("too few samples for a validation share");
}

/* Lines are counted over the chunks in which a file is read, and anew in each file of a folder. */
TEST(long_files)
{
    enum { LINES = 100000 };
    ech_text text = {0};
    ech_libsvm_count count;
    for (int i = 0; i < LINES; i++)
        ech_text_append(&text, "%d %d:1 %d:0.25\n", i % 2, i % 90 + 1, i % 90 + 11);
    assert_true(text.n > ECH_TEXT_CHUNK_BYTES);
    assert_int_equal(import(text.at, 0, 0.25, &count), ECH_OK);
    assert_int_equal(count.samples + count.valid_samples, LINES);
    assert_true(abs((int)count.valid_samples - LINES / 4) < 500); /* lines differ in length */
    ech_text_append(&text, "1 7:x\n");
    assert_int_equal(import(text.at, 0, 0, &count), ECH_EINPUT);
    assert_error_has("a.libsvm:100001: the value x");
    ech_text_free(&text);

    assert_int_equal(ech_file_make_folder(in_scratch("folder")), ECH_OK);
    write_file("folder/1.svm", "1 1:1\n0 2:1", 11);
    write_file("folder/2.txt", "\n0 3:1\n", 7);
    char in[4200], out[4200];
    snprintf(in, sizeof in, "%s", in_scratch("folder"));
    snprintf(out, sizeof out, "%s", in_scratch("b"));
    const ech_libsvm_options options = {.in = in, .out = out};
    assert_int_equal(ech_data_import_libsvm(&options, &count), ECH_OK);
    assert_int_equal(count.files, 2);
    assert_int_equal(count.samples, 3);
    write_file("folder/3", "\n\nyes 1:1\n", 10);
    assert_int_equal(ech_data_import_libsvm(&options, &count), ECH_EINPUT);
    assert_error_has("folder/3:3: the label is yes");
}

TEST(names)
{
    static const char *const yes[] = {"a.libsvm", "x/a.svm", "a.libsvm.gz", "a.b.svm.gz"};
    static const char *const no[] = {"a.txt", ".svm", "a.svm.txt", "svm", "a.libsvm.gzip", ".gz"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(ech_data_is_libsvm(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(ech_data_is_libsvm(no[i]));
}

/* What is held in memory is what the files have, for any part of them. */
TEST(held_files_read_alike)
{
    enum { RUNS = 8 };
    ech_libsvm_count count;
    ech_token_file *file, *held;
    const ech_token_options options = {.documents = true, .values = true};
    assert_int_equal(import(four, 0, 0, &count), ECH_OK);
    assert_int_equal(ech_token_file_open(in_scratch("a"), &options, &file), ECH_OK);
    assert_int_equal(ech_token_file_open(in_scratch("a"), &options, &held), ECH_OK);
    int64_t bytes = 2 * file->part.at[0].bytes; /* ids and values are of 4 bytes each */
    assert_int_equal(ech_token_file_hold(file, bytes - 1), ECH_OK);
    assert_int_equal(ech_token_file_hold(held, bytes), ECH_OK);
    assert_true(!file->part.at[0].tokens.held && !file->part.at[0].values.held);
    assert_true(held->part.at[0].tokens.held && held->part.at[0].values.held);
    assert_int_equal(file->runs.run.n, RUNS);
    for (size_t i = 0; i < RUNS; i++) {
        int32_t id[2][LENGTH];
        float value[2][LENGTH];
        int64_t n = ech_token_run_end(&file->runs, i) - file->runs.run.at[i].first;
        ech_token_file_prefetch(file, i, n);
        ech_token_file_prefetch(held, i, n);
        assert_int_equal(ech_token_file_read_run(file, i, n, 100, id[0]), ECH_OK);
        assert_int_equal(ech_token_file_read_run(held, i, n, 100, id[1]), ECH_OK);
        assert_int_equal(ech_token_file_read_values(file, i, n, value[0]), ECH_OK);
        assert_int_equal(ech_token_file_read_values(held, i, n, value[1]), ECH_OK);
        assert_memory_equal(id[0], id[1], (size_t)n * sizeof **id);
        assert_memory_equal(value[0], value[1], (size_t)n * sizeof **value);
    }
    ech_token_file_close(file);
    ech_token_file_close(held);
}

/* Ids of 32 bits, up to the largest index. */
TEST(many_features)
{
    ech_libsvm_count count;
    assert_int_equal(import("1 1:1 1000000:2 2147483647:3\n", 0, 0, &count), ECH_OK);
    assert_int_equal(count.features, INT32_MAX);
    ech_corpus_options options = corpus_options("a", LENGTH);
    options.vocabulary = INT32_MAX;
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    ech_loader_options wanted = reads();
    wanted.vocabulary = INT32_MAX;
    ech_loader *loader = start(corpus, wanted, 0);
    assert_row(next(loader, 0), 0, 3, (int32_t[]){0, 999999, INT32_MAX - 1}, (float[]){1, 2, 3}, 1);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

/* ---- what is refused ---- */

TEST(bad_lines)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"1 0:1\n", "a.libsvm:1: index 0: the first is 1"},
        {"1 1:1\n1 -3:1\n", "a.libsvm:2: index -3: the first is 1"},
        {"1 51:1\n", "a.libsvm:1: index 51 exceeds the 50 features; --features sets"},
        {"\n\n1 3:1 3:2\n", "a.libsvm:3: index 3 after 3: indices must ascend"},
        {"1 3:1 2:2\n", "a.libsvm:1: index 2 after 3: indices must ascend"},
        {"1 x:1\n", "a.libsvm:1: x is no index of a feature"},
        {"1 1.5:1\n", "a.libsvm:1: 1.5 is no index of a feature"},
        {"1 99999999999999999999:1\n", "is no index of a feature"},
        {"1 1:x\n", "a.libsvm:1: the value x of index 1 is no number within"},
        {"1 1:nan\n", "the value nan of index 1 is no number"},
        {"1 1:inf\n", "the value inf of index 1 is no number"},
        {"1 1:1e39\n", "the value 1e39 of index 1 is no number within"},
        {"1 1:\n", "the value  of index 1 is no number"},
        {"1 1: 2\n", "is no number"},
        {"1 1:2:3\n", "the value 2:3 of index 1"},
        {"1 7\n", "a.libsvm:1: 7 is no INDEX:VALUE"},
        {"1 qid:4 1:1\n", "a.libsvm:1: qid:4 is for rankings"},
        {"2 1:1\n", "a.libsvm:1: the label is 2; each line must begin with 1 or -1"},
        {"cat 1:1\n", "a.libsvm:1: the label is cat;"},
        {"1:1 2:2\n", "a.libsvm:1: the label is 1:1;"},
        {"-1 1:1\n1 1:1\n0 1:1\n", "a.libsvm:3: the label 0: other labels are -1"},
        {"0 1:1\n-1 1:1\n", "a.libsvm:2: the label -1: other labels are 0"},
        {"", "a.libsvm: holds no sample"},
        {"# nothing\n", "a.libsvm: holds no sample"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ech_libsvm_count count;
        assert_int_equal(import(bad[i].text, 50, 0, &count), ECH_EINPUT);
        assert_error_has(bad[i].says);
        assert_int_equal(count_entries(), 1); /* only the lines */
    }
}

/* A word that is longer than any number, or has a NUL: no crash, and no number of a part of it. */
TEST(odd_words)
{
    ech_libsvm sample = {0};
    bool found;
    char text[400] = "1 1:";
    memset(text + 4, '1', sizeof text - 4);
    assert_int_equal(ech_libsvm_parse("F", 7, text, sizeof text, 50, &sample, &found), ECH_EINPUT);
    assert_error_has("F:7: 1:11111");
    assert_int_equal(ech_libsvm_parse("F", 8, "1 1:1\0009", 7, 50, &sample, &found), ECH_EINPUT);
    assert_error_has("F:8: 1:1...");
    assert_int_equal(ech_libsvm_parse("F", 9, "+1 1:+2", 7, 50, &sample, &found), ECH_OK);
    assert_true(found && sample.values.n == 1 && sample.values.at[0] == 2);
    ech_libsvm_free(&sample);
}

static void assert_refused(ech_corpus_options options, ech_status why, const char *says)
{
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), why);
    assert_error_has(says);
}

TEST(other_files)
{
    ech_libsvm_count count;
    assert_int_equal(import(four, 0, 0, &count), ECH_OK);
    assert_refused(corpus_options("a", 3), ECH_EUSAGE, "has 4 features, the most of all; use 4");
    ech_corpus_options texts = corpus_options("a", LENGTH);
    texts.samples = ECH_SAMPLES_OF_tokens;
    assert_refused(texts, ECH_EUSAGE, "has features with values, which a model of texts cannot");
    write_file("a.values", "12345678", 8);
    assert_refused(corpus_options("a", LENGTH), ECH_EINPUT, "they are from different imports");

    /* A file of tokens takes the name: its values are no longer there. */
    ech_token_file_close(counting_file("a", 9));
    assert_false(ech_file_exists(in_scratch("a.values")));
    assert_refused(corpus_options("a", LENGTH), ECH_EUSAGE,
                   "is not a feature data set; create one");
    write_file("a.values", golden_idx, 36);
    assert_refused(corpus_options("a", LENGTH), ECH_EINPUT, "is no sample of features");
}

/* Ids beyond the model's features, and a value that no import writes. */
TEST(damaged_samples)
{
    for (int way = 0; way < 2; way++) {
        ech_libsvm_count count;
        const float bad[] = {1, NAN, 3, 4};
        const ech_batch *batch;
        assert_int_equal(import("1 1:1 90:2 91:3\n", 0, 0, &count), ECH_OK);
        if (way) write_file("a.values", bad, sizeof bad);
        ech_corpus *corpus = open_samples("a");
        ech_loader_options options = reads();
        options.vocabulary = way ? 100 : 90;
        ech_loader *loader = start(corpus, options, 0);
        assert_int_equal(ech_loader_next(loader, 0, &batch), ECH_EINPUT);
        assert_error_has(way ? "the value of token 1 is not finite"
                             : "feature 90 stands in it, but model.vocab_size is 90");
        ech_loader_destroy(loader);
        ech_corpus_close(corpus);
    }
}
