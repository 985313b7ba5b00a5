/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of a family that a mapping file states: a Llama folder with other keys and tensor names
 * has the same logits, losses and weights, bit for bit. What its runs leave needs no other copy of
 * the mapping file, and loads under other layouts.
 */
#include "app/convert.h"
#include "app/report/report.h"
#include "app/train/trained.h"
#include "app/train_from.h"
#include "app/verify/verify.h"
#include "unit.h"

enum { IDS = 5, VOCABULARY = 257 };

static const char mapping[] = "# Llama, renamed.\n"
                              "family: renamed\n"
                              "architecture: RenamedForCausalLM\n"
                              "keys:\n"
                              "  n_embd: model.hidden_size\n"
                              "  n_layer: model.num_hidden_layers\n"
                              "  act_fn: model.hidden_act\n"
                              "names:\n"
                              "  tokens: wte\n"
                              "  layers: blocks\n"
                              "  q: attn.wq\n"
                              "  down: mlp.shrink\n"
                              "prefix: \"\"\n";

/* What the mapping renames. */
static const char *const pairs[][2] = {{"LlamaForCausalLM", "RenamedForCausalLM"},
                                       {"\"llama\"", "\"renamed\""},
                                       {"hidden_size", "n_embd"},
                                       {"num_hidden_layers", "n_layer"},
                                       {"hidden_act", "act_fn"},
                                       {"model.embed_tokens", "wte"},
                                       {"model.layers.", "blocks."},
                                       {"self_attn.q_proj", "attn.wq"},
                                       {"mlp.down_proj", "mlp.shrink"}};

static void rename_all(const char *text, size_t n, ech_text *out)
{
    for (size_t i = 0; i < n;) {
        bool found = false;
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs && !found; p++) {
            size_t length = strlen(pairs[p][0]);
            found = i + length <= n && memcmp(text + i, pairs[p][0], length) == 0;
            if (found) ech_text_append(out, "%s", pairs[p][1]);
            if (found) i += length;
        }
        if (!found) ech_text_append_bytes(out, text + i++, 1);
    }
}

static void read_file(const char *folder, const char *name, char **text, size_t *n)
{
    ECH_FREED char *path = ech_file_join(folder, name);
    assert_int_equal(ech_file_read(path, 1 << 26, text, n), ECH_OK);
}

static void write_file(const char *folder, const char *name, const char *text, size_t n)
{
    ECH_FREED char *path = ech_file_join(folder, name);
    assert_int_equal(ech_file_write(path, text, n), ECH_OK);
}

/* The JSON in front, after its length, and then the tensors. */
static void rename_weights(const char *from, const char *to)
{
    ECH_FREED char *bytes = NULL;
    ECH_FREED_TEXT header = {0}, out = {0};
    size_t n;
    uint64_t length;
    read_file(from, "model.safetensors", &bytes, &n);
    memcpy(&length, bytes, sizeof length);
    rename_all(bytes + 8, length, &header);
    while (header.n % 8) ech_text_append(&header, " ");
    uint64_t now = header.n;
    ech_text_append_bytes(&out, &now, sizeof now);
    ech_text_append_bytes(&out, header.at, header.n);
    ech_text_append_bytes(&out, bytes + 8 + length, n - 8 - length);
    write_file(to, "model.safetensors", out.at, out.n);
}

/* FOLDER/llama is the model of a run of Llama, and FOLDER/renamed the same with other names. */
static void make_folders(void)
{
    char model[512], llama[300], renamed[300];
    ECH_FREED char *text = NULL;
    ECH_FREED_TEXT config = {0};
    size_t n;
    runs_train("llama", "source", 1, "training.steps=1 model.num_key_value_heads=2");
    runs_path(model, sizeof model, "source", 1, "model");
    snprintf(llama, sizeof llama, "%s/llama", fixture_folder);
    snprintf(renamed, sizeof renamed, "%s/renamed", fixture_folder);
    assert_int_equal(rename(model, llama), 0);
    runs_remove("source");
    assert_int_equal(ech_file_make_folder(renamed), ECH_OK);
    read_file(llama, "config.json", &text, &n);
    rename_all(text, n, &config);
    write_file(renamed, "config.json", config.at, config.n);
    write_file(renamed, ECH_MAPPING_FILE, mapping, sizeof mapping - 1);
    rename_weights(llama, renamed);
}

static ech_status take_logits(ech_trained *trained, void *context)
{
    double *to = context;
    for (int i = 0; i < IDS; i++) {
        ech_exec_set_token(trained->session.exec, 3 + 7 * i, i);
        ECH_TRY(ech_exec_run(trained->session.exec, ECH_LIST_GENERATE, 0));
        memcpy(to + (ptrdiff_t)i * VOCABULARY, ech_exec_logits(trained->session.exec),
               VOCABULARY * sizeof *to);
    }
    return ECH_OK;
}

/* Of what lies in the fixture's folder under that name. */
static void logits_of(const char *name, double to[IDS * VOCABULARY])
{
    ECH_FREED char *path = ech_file_join(fixture_folder, name);
    const ech_trained_options options = {.path = path, .samples = 1, .ids_do = true};
    if (ech_trained_run(&options, take_logits, to) != ECH_OK)
        fail_msg("%s: %s", name, ech_last_error());
}

static void assert_same_logits(const char *a, const char *b)
{
    double first[IDS * VOCABULARY], second[IDS * VOCABULARY];
    logits_of(a, first);
    logits_of(b, second);
    assert_true(first[0] > first[1] || first[0] < first[1]);
    assert_memory_equal(first, second, sizeof first);
}

/* Each tensor of one run's file is in the other's, under its other name. */
static void assert_same_tensors(const char *llama, const char *renamed, int step, const char *which)
{
    ech_safetensors *a = runs_open(llama, step, which), *b = runs_open(renamed, step, which);
    assert_true(ech_safetensors_count(a) > 10);
    assert_int_equal(ech_safetensors_count(a), ech_safetensors_count(b));
    for (int t = 0; t < ech_safetensors_count(a); t++) {
        const char *name = ech_safetensors_get(a, t).name;
        ECH_FREED_TEXT other = {0};
        int64_t n[2];
        ech_dtype dtype[2];
        rename_all(name, strlen(name), &other);
        void *x = runs_stored(a, name, &dtype[0], &n[0]),
             *y = runs_stored(b, other.at, &dtype[1], &n[1]);
        assert_true(n[0] > 0 && n[0] == n[1] && dtype[0] == dtype[1]);
        assert_memory_equal(x, y, (size_t)n[0] * ech_dtype_bytes(dtype[0]));
        free(x);
        free(y);
    }
    ech_safetensors_close(a);
    ech_safetensors_close(b);
}

static void train(const char *run, const char *from, int steps, const char *more)
{
    if (train_from(run, from, steps, more) != ECH_OK) fail_msg("%s: %s", run, ech_last_error());
}

TEST(as_the_family_with_other_names)
{
    make_folders();
    assert_same_logits("llama", "renamed");
    train("first", "llama", 2, "");
    train("second", "renamed", 2, "");
    ech_checkpoint_info a = runs_info("first", 2), b = runs_info("second", 2);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_same_tensors("first", "second", 2, runs_model);
    assert_same_tensors("first", "second", 2, runs_state);
}

/* After the first test: the folder that the run began with is gone. */
TEST(carries_its_mapping_along)
{
    char run[300], model[512], converted[300];
    ECH_FREED char *text = NULL, *config = NULL;
    ECH_FREED_TEXT words = {0};
    size_t n;
    runs_remove("renamed");
    train("second", "renamed", 3, "");
    assert_true(runs_has_checkpoint("second", 3));
    runs_path(model, sizeof model, "second", 3, "model");
    read_file(model, ECH_MAPPING_FILE, &text, &n);
    assert_int_equal(n, sizeof mapping - 1);
    assert_memory_equal(text, mapping, n);
    read_file(model, "config.json", &config, &n);
    assert_non_null(strstr(config, "\"model_type\": \"renamed\""));
    assert_non_null(strstr(config, "\"n_embd\": 16"));
    assert_null(strstr(config, "hidden_size"));
    snprintf(run, sizeof run, "%s/second", fixture_folder);
    snprintf(converted, sizeof converted, "%s/converted", fixture_folder);
    ECH_CLEANUP(ech_conversion_close) ech_conversion conversion = {.raw.fd = -1};
    assert_int_equal(ech_conversion_open(run, &(ech_conversion_options){0}, &conversion), ECH_OK);
    assert_int_equal(ech_conversion_write(&conversion, converted, conversion.dtype), ECH_OK);
    assert_same_logits("second", "converted");
    train("third", "converted", 1, "");
    if (ech_report_run(run, NULL, &words) != ECH_OK) fail_msg("report: %s", ech_last_error());
    assert_true(ech_file_has(run, ECH_MAPPING_FILE));
}

TEST(is_verified_on_a_grid)
{
    ech_config *config = fixture_config("renamed", "model.num_key_value_heads=2 parallel.tensor=2 "
                                                   "parallel.pipeline=2");
    ech_verification v = {.steps = 2, .tolerance = ECH_TOLERANCE};
    assert_int_equal(fixture_run(config, 4, ech_verify_rank, &v), ECH_OK);
    assert_true(v.passed);
    ech_config_destroy(config);
}

/* ---- model.mapping ---- */

/* The key may come after the family's name, or from the command line. */
TEST(is_named_by_a_run_file)
{
    char path[300], file[300], word[400];
    ECH_FREED_TEXT text = {0};
    ech_config *config = NULL;
    snprintf(file, sizeof file, "%s/named.yaml", fixture_folder);
    snprintf(path, sizeof path, "%s/run.yaml", fixture_folder);
    snprintf(word, sizeof word, "model.mapping=%s", file);
    const char family[] = "family: named\narchitecture: N\n";
    assert_int_equal(ech_file_write(file, family, sizeof family - 1), ECH_OK);
    ech_text_append(&text,
                    "model:\n  architecture: named\n  hidden_size: 16\n  num_hidden_layers: 2\n"
                    "  num_attention_heads: 4\ndata:\n  train: %s/train\n  sequence_length: 8\n"
                    "training:\n  steps: 1\n  global_batch_size: 1\n"
                    "optimizer:\n  learning_rate: 1\nlog:\n  directory: none\n",
                    fixture_folder);
    assert_int_equal(ech_file_write(path, text.at, text.n), ECH_OK);
    ech_log_set_quiet(true);
    assert_int_equal(ech_setup_config(path, NULL, 0, &config), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "model.architecture = named: not one of"));
    char *words[] = {word, (char *)(uintptr_t) "model.architecture=llama"};
    assert_int_equal(ech_setup_config(path, words, 2, &config), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "named.yaml says named; remove this key"));
    ech_log_set_quiet(false);
    assert_int_equal(ech_setup_config(path, words, 1, &config), ECH_OK);
    assert_string_equal(ech_config_name(config, "model.architecture"), "named");
    ech_config_destroy(config);
}

/* The name of a file in a folder is no reason to believe it. */
TEST(is_of_the_folders_family)
{
    char folder[300];
    snprintf(folder, sizeof folder, "%s/other", fixture_folder);
    assert_int_equal(ech_file_make_folder(folder), ECH_OK);
    const char family[] = "family: other\narchitecture: O\n",
               config[] = "{\"model_type\": \"oter\"}";
    write_file(folder, "config.json", config, sizeof config - 1);
    ech_log_set_quiet(true);
    assert_int_not_equal(train_from("run", "other", 1, ""), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "mapping file (model.mapping, docs/mapping.md)"));
    write_file(folder, ECH_MAPPING_FILE, family, sizeof family - 1);
    assert_int_not_equal(train_from("run", "other", 1, ""), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "config.json has model_type = oter; state that"));
    ech_log_set_quiet(false);
}

ALL_TESTS(fixture_setup, fixture_teardown)
