/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders from strangers: their numbers are compared with what is there before anything is
 * allocated by them, and their run files choose no path.
 */

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "app/convert.h"
#include "app/runs.h"
#include "app/train/trained.h"
#include "checkpoint/rewrite.h"
#include "unit.h"

static char *folder_of(const char *name)
{
    char *path = ech_file_join(fixture_folder, name);
    assert_int_equal(ech_file_make_folder(path), ECH_OK);
    return path;
}

static void put(const char *folder, const char *name, const void *bytes, size_t n)
{
    char *path = ech_file_join(folder, name);
    assert_int_equal(ech_file_write(path, bytes, n), ECH_OK);
    free(path);
}

/* ---- sizes ---- */

/* Some gigabytes of weights, by config.json. */
static void put_config(const char *folder, int64_t layers, int64_t width, int64_t vocabulary)
{
    ech_text text = {0};
    ech_text_append(
        &text,
        "{\"model_type\": \"llama\", \"num_hidden_layers\": %lld, \"hidden_size\": %lld, "
        "\"vocab_size\": %lld, \"num_attention_heads\": 8, \"intermediate_size\": 64, "
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
        "\"tie_word_embeddings\": false}",
        (long long)layers, (long long)width, (long long)vocabulary);
    put(folder, "config.json", text.at, text.n);
    ech_text_free(&text);
}

/* n tensors of one number each. */
static void put_weights(const char *folder, int n)
{
    ech_text header = {0}, text = {0};
    for (int i = 0; i < n; i++)
        ech_text_append(&header,
                        "%s\"model.t%d.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
                        "\"data_offsets\":[%d,%d]}",
                        i ? "," : "{", i, 4 * i, 4 * i + 4);
    ech_text_append(&header, "}");
    uint64_t length = header.n;
    ech_text_append_bytes(&text, (const char *)&length, sizeof length);
    ech_text_append_bytes(&text, header.at, header.n);
    char *zeros = ech_calloc((size_t)n, 4);
    ech_text_append_bytes(&text, zeros, 4 * (size_t)n);
    put(folder, "model.safetensors", text.at, text.n);
    free(zeros);
    ech_text_free(&header);
    ech_text_free(&text);
}

static ech_status use(ech_trained *trained, void *context)
{
    (void)trained;
    *(int *)context += 1;
    return ECH_OK;
}

static ech_status init_from(const char *folder)
{
    char words[700];
    snprintf(words, sizeof words, "model.init_from=%s data.train=nothing log.directory=%s/run",
             folder, fixture_folder);
    char *assignments[] = {words, strstr(words, "data."), strstr(words, "log.")};
    assignments[1][-1] = assignments[2][-1] = '\0';
    char *file = ech_file_join(fixture_folder, "run.yaml");
    const char yaml[] = "data: {sequence_length: 8}\ntraining: {steps: 1, global_batch_size: 1}\n"
                        "optimizer: {learning_rate: 1e-3}\nparallel: {comm: local}\n";
    assert_int_equal(ech_file_write(file, yaml, sizeof yaml - 1), ECH_OK);
    ech_config *config = NULL;
    ech_status st = ech_setup_config(file, assignments, 3, &config);
    ech_config_destroy(config);
    free(file);
    return st;
}

/* Shapes of 600 layers, and what the address sanitizer keeps of freed memory; not gigabytes of
 * weights. */
enum { MOST_TAKEN = 128 << 20 };

static int64_t most_bytes(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return 1024 * (int64_t)usage.ru_maxrss;
}

typedef ech_status (*reader)(const char *folder);

static ech_status sample(const char *folder)
{
    int used = 0;
    ech_status st = ech_trained_run(
        &(ech_trained_options){.path = folder, .samples = 1, .ids_do = true}, use, &used);
    assert_int_equal(used, st == ECH_OK);
    return st;
}

static ech_status convert(const char *folder)
{
    ech_conversion conversion;
    ECH_TRY(ech_conversion_open(folder, &(ech_conversion_options){0}, &conversion));
    ech_conversion_close(&conversion);
    return ECH_OK;
}

/* It does not read such a folder, says this about it, whatever thread does, and takes no memory for
 * it. */
static void expect_refusal(reader read, const char *folder, const char *says)
{
    char *path = ech_file_join(fixture_folder, "said"), *text;
    size_t n;
    int64_t before = most_bytes();
    int kept = dup(STDERR_FILENO), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(kept >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    ech_log_set_quiet(false);
    ech_status st = read(folder);
    dup2(kept, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(kept);
    close(file);
    assert_int_equal(ech_file_read(path, 1 << 16, &text, &n), ECH_OK);
    assert_int_not_equal(st, ECH_OK);
    if (!strstr(text, says)) fail_msg("it says: %s", text);
    int64_t taken = most_bytes() - before;
    if (taken >= MOST_TAKEN) fail_msg("%lld MiB", (long long)taken >> 20);
    free(text);
    free(path);
}

static void expect_refusals(const char *folder, const char *says)
{
    const reader readers[] = {sample, convert, init_from};
    for (int i = 0; i < 3; i++) expect_refusal(readers[i], folder, says);
}

TEST(shapes_come_first)
{
    char *folder = folder_of("shapes");
    put_weights(folder, 600);
    put_config(folder, 2, 64, 4000000); /* 2 GB of tables, which would fit */
    expect_refusals(folder, "no tensor 'model.embed_tokens.weight'");
    put_config(folder, 600, 1024, 1000);
    expect_refusals(folder, "no tensor 'model.embed_tokens.weight'");
    put_config(folder, 4096, 64, 1000);
    expect_refusals(folder, "has only 600 tensors");
    runs_remove("shapes");
    free(folder);
}

/* Without weights a plan is made, but nothing that would begin with them. */
TEST(no_weights)
{
    char *folder = folder_of("none");
    put_config(folder, 2, 64, 4000000);
    assert_int_equal(init_from(folder), ECH_OK);
    expect_refusal(sample, folder, "has neither model.safetensors nor");
    expect_refusal(convert, folder, "has neither model.safetensors nor");
    runs_remove("none");
    free(folder);
}

/* ---- paths ---- */

/* A pipe that nobody writes, a damaged tokenizer, folders that are not there: none of them
 * matters. */
TEST(run_files_choose_no_path)
{
    char step[512], pipe[512];
    runs_train("gpt2", "theirs", 1, "training.steps=1 data.tokenizer=bytes");
    runs_path(step, sizeof step, "theirs", 1, "");
    snprintf(pipe, sizeof pipe, " %s/pipe", fixture_folder);
    assert_int_equal(mkfifo(pipe + 1, 0600), 0);
    const char *const changes[][2] = {
        {"\n  tokenizer:", pipe}, {"\n  init_from:", " /nowhere/model"}, {"\n  schedule: 1f1b", ""},
        {"\n  directory:", pipe}, {"\n  resume:", " /nowhere/else"},     {"\n  profile:", pipe}};
    checkpoint_rewrite_run_file(step, changes, sizeof changes / sizeof *changes);
    assert_int_equal(sample(step), ECH_OK);
    assert_int_equal(unlink(pipe + 1), 0);
    runs_remove("theirs");
}

/* Where and how much they offload, and their batches, matter as little; nothing is created or
 * removed. */
TEST(run_files_take_no_resources)
{
    char step[512], away[512], kept[600];
    runs_train("gpt2", "theirs", 1, "training.steps=1 data.tokenizer=bytes");
    runs_path(step, sizeof step, "theirs", 1, "");
    snprintf(away, sizeof away, " %s/away", fixture_folder);
    const char *const offloads[][2] = {{"\n  offload_parameters:", " disk"},
                                       {"\n  offload_optimizer:", " disk"},
                                       {"\n  offload_directory:", away},
                                       {"\n  global_batch_size:", " 1000000"},
                                       {"\n  micro_batch_size:", " 1000000"}};
    checkpoint_rewrite_run_file(step, offloads, sizeof offloads / sizeof *offloads);
    assert_int_equal(sample(step), ECH_OK);
    assert_false(ech_file_exists(away + 1));
    assert_int_equal(ech_file_make_folder(away + 1), ECH_OK);
    snprintf(kept, sizeof kept, "%s/rank-0.offload", away + 1);
    assert_int_equal(ech_file_write(kept, "another run's", 13), ECH_OK);
    assert_int_equal(sample(step), ECH_OK);
    assert_true(ech_file_exists(kept));
    const char *const wide[][2] = {{"\n  intermediate_size:", " 10000000"}};
    checkpoint_rewrite_run_file(step, wide, 1);
    expect_refusal(sample, step, "c_fc.weight");
    runs_remove("theirs");
    runs_remove("away");
}

/* A checkpoint that was written before there was a key, which today follows from others. */
TEST(older_than_a_key)
{
    char step[512];
    const char *const changes[][2] = {{"\n  head_dim:", " auto"}};
    runs_train("llama", "older", 1, "training.steps=1 data.tokenizer=bytes");
    runs_path(step, sizeof step, "older", 1, "");
    checkpoint_rewrite_run_file(step, changes, 1);
    runs_train("llama", "older", 1, "training.steps=2 data.tokenizer=bytes");
    assert_true(runs_has_checkpoint("older", 2));
    runs_remove("older");
}

/* Texts of a folder that are links to what is no file. */
TEST(links_to_devices)
{
    static const char *const targets[] = {"/dev/tty", "/dev/zero", "/dev/ptmx"};
    char *folder = folder_of("links"), *link = ech_file_join(folder, "config.json");
    put_weights(folder, 2);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(symlink(targets[i], link), 0);
        expect_refusals(folder, "config.json: ");
        assert_int_equal(unlink(link), 0);
    }
    free(link);
    free(folder);
    runs_remove("links");
}

ALL_TESTS(fixture_setup, fixture_teardown)
