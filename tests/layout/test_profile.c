/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles: read back as written, refused when anything is wrong, and matched with a run.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "layout/profile.h"
#include "unit.h"

static void assert_error_has(const char *part)
{
    if (!strstr(ech_last_error(), part))
        fail_msg("the error \"%s\" does not say \"%s\"", ech_last_error(), part);
}

/* A path that no file has yet. */
static char *make_path(void)
{
    const char *parent = getenv("TMPDIR");
    char *path = ech_file_join(parent ? parent : "/tmp", "echelon-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    return path;
}

static ech_profile_block costs[] = {
    {.seconds = {1.0 / 3, 5e-324, 0},
     .boundary_bytes = 1,
     .param_bytes = 1000000000000,
     .low = {0.1, 0, 0},
     .high = {1.0 / 3, 5e-324, 1e-7}},
    {.seconds = {1e9, 0.1, 1e-7, 1.0 / 7, 0.3, 3},
     .activation_bytes = 123456789,
     .density = 1.0 / 3,
     .param_bytes = 4,
     .low = {1, 1.0 / 30, 1e-8, 0.1, 0.1, 1},
     .high = {1e9, 0.2, 1.0 / 3, 1, 0.7, 3}},
};

static ech_profile make_profile(void)
{
    return (ech_profile){.blocks = 2,
                         .block = costs,
                         .update_seconds = 1e-10,
                         .other_seconds = 1e-4 / 3,
                         .spread = 0.1 / 3,
                         .processor_share = 2.0 / 3,
                         .busy = true,
                         .bandwidth = 12345678901.25,
                         .latency = 0.1 + 0.2,
                         .model = "gpt2 \"C\"=8 \\ \xc3\xa9"};
}

TEST(test_round_trip)
{
    ech_profile want = make_profile(), *have;
    char *path = make_path();
    assert_int_equal(ech_profile_write(&want, path), ECH_OK);
    assert_int_equal(ech_profile_read(path, &have), ECH_OK);
    assert_int_equal(have->blocks, 2);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(have->block[i].seconds, costs[i].seconds, sizeof costs[i].seconds);
        assert_memory_equal(have->block[i].low, costs[i].low, sizeof costs[i].low);
        assert_memory_equal(have->block[i].high, costs[i].high, sizeof costs[i].high);
        assert_int_equal(have->block[i].activation_bytes, costs[i].activation_bytes);
        assert_int_equal(have->block[i].boundary_bytes, costs[i].boundary_bytes);
        assert_int_equal(have->block[i].param_bytes, costs[i].param_bytes);
        assert_true(have->block[i].density == costs[i].density);
    }
    assert_true(have->update_seconds == want.update_seconds);
    assert_true(have->bandwidth == want.bandwidth);
    assert_true(have->latency == want.latency);
    assert_true(have->other_seconds == want.other_seconds);
    assert_true(have->spread == want.spread);
    assert_true(have->processor_share == want.processor_share);
    assert_true(have->busy);
    assert_string_equal(have->model, want.model);
    ech_profile_destroy(have);
    unlink(path);
    free(path);
}

/* What cannot be read back is not written, and what was there stays. */
TEST(test_what_is_not_written)
{
    char *path = make_path();
    ech_profile good = make_profile(), *have;
    assert_int_equal(ech_profile_write(&good, path), ECH_OK);
    const double wrong[] = {(double)NAN, (double)INFINITY, -1, 1e19};
    for (int i = 0; i < 4; i++) {
        ech_profile bad = make_profile();
        bad.bandwidth = wrong[i];
        assert_int_equal(ech_profile_write(&bad, path), ECH_EINPUT);
        assert_error_has("'bandwidth' is no number from 0 to 1e+18");
    }
    ech_profile_block block = costs[0];
    ech_profile bad = make_profile();
    bad.blocks = 1;
    bad.block = &block;
    block.low[ECH_FORWARD] = 1;
    assert_int_equal(ech_profile_write(&bad, path), ECH_EINPUT);
    assert_error_has("'forward' does not ascend");
    bad = make_profile();
    bad.model = "\xff";
    assert_int_equal(ech_profile_write(&bad, path), ECH_EINPUT);
    assert_error_has("not UTF-8");
    assert_int_equal(ech_profile_read(path, &have), ECH_OK);
    assert_true(have->bandwidth == good.bandwidth);
    ech_profile_destroy(have);
    unlink(path);
    assert_int_equal(ech_profile_read(path, &have), ECH_EIO);
    assert_error_has(path);
    free(path);
}

static const char whole[] =
    "{\"version\": 4, \"echelon\": \"0.1.0\", \"model\": \"m\", \"busy\": false, \"spread\": 0.5, "
    "\"processor_share\": 1, \"bandwidth\": 2, \"latency\": 1e-5, \"update_seconds_per_byte\": 0, "
    "\"other_seconds\": 7, \"blocks\": [{\"name\": \"a\", \"forward\": [1, 1, 1.5], "
    "\"backward_input\": [0, 2, 3], \"backward_weight\": [2, 3.5, 1e9], "
    "\"recompute_selective\": [0, 0.5, 0.5], \"recompute_full\": [0, 0.75, 1], "
    "\"invert\": [0, 0, 0], \"activation_bytes\": 4, \"boundary_bytes\": 5, \"parameter_bytes\": "
    "6, \"density\": 0.25}]}";

TEST(test_what_is_read)
{
    ech_profile *have;
    assert_int_equal(ech_profile_parse(whole, sizeof whole - 1, "p", &have), ECH_OK);
    assert_int_equal(have->blocks, 1);
    assert_true(have->block[0].seconds[ECH_FORWARD] == 1);
    assert_true(have->block[0].seconds[ECH_BACKWARD_INPUT] == 2);
    assert_true(have->block[0].seconds[ECH_BACKWARD_WEIGHT] == 3.5);
    assert_true(have->block[0].seconds[ECH_PROFILE_SELECTIVE] == 0.5);
    assert_true(have->block[0].seconds[ECH_PROFILE_FULL] == 0.75);
    assert_true(have->block[0].seconds[ECH_PROFILE_INVERT] == 0);
    assert_true(have->block[0].low[ECH_BACKWARD_WEIGHT] == 2);
    assert_true(have->block[0].high[ECH_BACKWARD_WEIGHT] == 1e9);
    assert_true(have->other_seconds == 7 && have->spread == 0.5 && have->processor_share == 1);
    assert_false(have->busy);
    assert_int_equal(have->block[0].activation_bytes, 4);
    assert_int_equal(have->block[0].boundary_bytes, 5);
    assert_int_equal(have->block[0].param_bytes, 6);
    assert_true(have->block[0].density == 0.25);
    assert_true(have->bandwidth == 2 && have->latency == 1e-5 && have->update_seconds == 0);
    ech_profile_destroy(have);
}

/* `whole` with one part replaced: what is said of it. */
static const struct {
    const char *part, *instead;
    ech_status status;
    const char *message;
} changes[] = {
    {"\"version\": 4", "\"version\": 2", ECH_EUNSUPPORTED,
     "p: version 2, this program reads version 4; measure again"},
    {"\"version\": 4, ", "", ECH_EINPUT, "'version' is no whole number"},
    {"\"version\": 4", "\"version\": 4.0", ECH_EINPUT, "'version' is no whole number"},
    {"\"echelon\": \"0.1.0\"", "\"echelon\": 1", ECH_EINPUT, "'echelon' is no text"},
    {"\"echelon\": \"0.1.0\", ", "", ECH_EINPUT, "p: 10 keys where version 4 has 11"},
    {"\"model\": \"m\"", "\"model\": [\"m\"]", ECH_EINPUT, "'model' is no text"},
    {"\"model\": \"m\"", "\"model\": \"\\u0000\"", ECH_EINPUT, "bad JSON"},
    {"\"bandwidth\": 2", "\"bandwidth\": -2", ECH_EINPUT, "p: 'bandwidth' is no number from 0"},
    {"\"bandwidth\": 2", "\"bandwidth\": 1.1e18", ECH_EINPUT, "'bandwidth' is no number from 0"},
    {"\"bandwidth\": 2", "\"bandwidth\": 1e999", ECH_EINPUT, "bad JSON"},
    {"\"bandwidth\": 2", "\"bandwidth\": NaN", ECH_EINPUT, "JSON has no NaN"},
    {"\"bandwidth\": 2", "\"bandwidth\": null", ECH_EINPUT, "'bandwidth' is no number"},
    {"\"bandwidth\": 2", "\"bandwidth\": 2, \"bandwidth\": 2", ECH_EINPUT, "duplicate"},
    {"\"bandwidth\": 2", "\"bandwidth\": 2, \"more\": 2", ECH_EINPUT, "p: 12 keys where"},
    {"\"latency\": 1e-5, ", "", ECH_EINPUT, "'latency' is no number"},
    {"\"latency\": 1e-5", "\"latency\": 1e10", ECH_EINPUT, "'latency' is no number from 0 to 1e"},
    {"_per_byte\": 0", "_per_byte\": \"0\"", ECH_EINPUT, "'update_seconds_per_byte' is no number"},
    {"[{", "[[{", ECH_EINPUT, "bad JSON"},
    {"[{", "[1, {", ECH_EINPUT, "p: blocks[0]: is no object"},
    {"\"blocks\": [{", "\"blocks\": [], \"x\": [{", ECH_EINPUT, "12 keys where"},
    {"\"blocks\": [{", "\"x\": [{", ECH_EINPUT, "'blocks' is no array of 1 to 1000000"},
    {"\"forward\": [1,", "\"forward\": [-1e-300,", ECH_EINPUT, "blocks[0]: 'forward' is no number"},
    {"\"forward\": [1, 1, 1.5]", "\"forward\": 1", ECH_EINPUT, "'forward' is no array of three"},
    {"\"forward\": [1, 1, 1.5]", "\"forward\": [1, 1]", ECH_EINPUT,
     "'forward' is no array of three"},
    {"\"forward\": [1, 1, 1.5]", "\"forward\": [1, 2, 1.5]", ECH_EINPUT, "does not ascend"},
    {"\"backward_input\": [0, 2, 3], ", "", ECH_EINPUT, "'backward_input' is no array of three"},
    {"\"recompute_full\": [0, 0.75, 1], ", "", ECH_EINPUT, "'recompute_full' is no array of three"},
    {"\"invert\": [0, 0, 0]", "\"invert\": [0, 0]", ECH_EINPUT, "'invert' is no array of three"},
    {"3.5, 1e9]", "3.5, 1e10]", ECH_EINPUT, "blocks[0]: 'backward_weight' is no number from 0 to"},
    {"\"busy\": false", "\"busy\": 0", ECH_EINPUT, "p: 'busy' is not true or false"},
    {"\"spread\": 0.5", "\"spread\": -1", ECH_EINPUT, "p: 'spread' is no number"},
    {"_share\": 1", "_share\": 1.1", ECH_EINPUT, "'processor_share' is no number from 0 to 1"},
    {"\"other_seconds\": 7, ", "", ECH_EINPUT, "'other_seconds' is no number"},
    {"_bytes\": 4", "_bytes\": 4.0", ECH_EINPUT, "'activation_bytes' is no whole number from 0"},
    {"_bytes\": 5", "_bytes\": -5", ECH_EINPUT, "'boundary_bytes' is no whole number from 0"},
    {"_bytes\": 6", "_bytes\": 1000000000001", ECH_EINPUT, "from 0 to 1000000000000"},
    {"_bytes\": 6", "_bytes\": 99999999999999999999", ECH_EINPUT, "bad JSON"},
    {"_bytes\": 6, \"density\": 0.25", "_bytes\": 6", ECH_EINPUT, "'density' is no number from 0"},
    {"\"density\": 0.25", "\"density\": 1.5", ECH_EINPUT, "'density' is no number from 0 to 1"},
    {"\"name\": \"a\", ", "", ECH_EINPUT, "blocks[0]: 10 keys where version 4 has 11"},
    {"\"name\": \"a\"", "\"name\": 1", ECH_EINPUT, "blocks[0]: 'name' is no text"},
    {"\"name\": \"a\"", "\"name\": \"\xff\"", ECH_EINPUT, "bad JSON"},
    {"}]}", "}]} x", ECH_EINPUT, "bad JSON"},
};

TEST(test_what_is_refused)
{
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *at = strstr(whole, changes[i].part);
        assert_non_null(at);
        ech_text text = {0};
        ech_text_append_bytes(&text, whole, (size_t)(at - whole));
        ech_text_append(&text, "%s%s", changes[i].instead, at + strlen(changes[i].part));
        ech_profile *have = NULL;
        ech_status st = ech_profile_parse(text.at, text.n, "p", &have);
        if (st != changes[i].status || !strstr(ech_last_error(), changes[i].message))
            fail_msg("%s\ngave %d: %s", text.at, st, ech_last_error());
        assert_null(have);
        ech_text_free(&text);
    }
    ech_profile *have = NULL;
    for (size_t n = 0; n < sizeof whole - 1; n++)
        assert_int_equal(ech_profile_parse(whole, n, "p", &have), ECH_EINPUT);
    assert_int_equal(ech_profile_parse("[1]", 3, "p", &have), ECH_EINPUT);
    assert_error_has("p: must be a JSON object");
}

/* Before a tree is built. */
TEST(test_too_large)
{
    ech_profile *have = NULL;
    size_t limit = 64 << 20, n = 100000;
    char *text = malloc(limit + 1);
    assert_non_null(text);
    memset(text, ' ', limit + 1);
    assert_int_equal(ech_profile_parse(text, limit + 1, "p", &have), ECH_EINPUT);
    assert_error_has("p: 67108865 bytes; a profile has at most 67108864");
    memset(text, '[', n);
    assert_int_equal(ech_profile_parse(text, n, "p", &have), ECH_EINPUT);
    assert_error_has(
        "100000 objects and arrays 100000 deep, 0 commas) is beyond what such a file can need");
    for (size_t i = 0; i < n; i++) text[i] = i % 2 ? ',' : i ? '0' : '[';
    assert_int_equal(ech_profile_parse(text, n, "p", &have), ECH_EINPUT);
    assert_error_has("is beyond what such a file can need");
    /* In a string they are no values. */
    memset(text, ',', n);
    text[0] = text[n - 1] = '"';
    assert_int_equal(ech_profile_parse(text, n, "p", &have), ECH_EINPUT);
    assert_error_has("bad JSON");
    free(text);
}

/* The shortest text of many blocks is not taken for a crowd. */
TEST(test_many_blocks)
{
    ech_text text = {0};
    ech_text_append(&text,
                    "{\"version\":4,\"echelon\":\"\",\"model\":\"\",\"busy\":true,\"spread\":0,"
                    "\"processor_share\":0,\"bandwidth\":0,\"latency\":0,"
                    "\"update_seconds_per_byte\":0,\"other_seconds\":0,\"blocks\":[");
    for (int i = 0; i < 1000; i++)
        ech_text_append(
            &text,
            "%s{\"name\":\"\",\"forward\":[0,0,0],\"backward_input\":[0,0,0],"
            "\"backward_weight\":[0,0,0],\"recompute_selective\":[0,0,0],"
            "\"recompute_full\":[0,0,0],\"invert\":[0,0,0],"
            "\"activation_bytes\":0,\"boundary_bytes\":0,\"parameter_bytes\":%d,\"density\":0}",
            i ? "," : "", i % 10);
    ech_text_append(&text, "]}");
    ech_profile *have;
    assert_int_equal(ech_profile_parse(text.at, text.n, "p", &have), ECH_OK);
    assert_int_equal(have->blocks, 1000);
    assert_int_equal(have->block[999].param_bytes, 9);
    ech_profile_destroy(have);
    ech_text_free(&text);
}

static const char run[] = "model:\n"
                          "  architecture: gpt2\n"
                          "  hidden_size: 16\n"
                          "  num_hidden_layers: 2\n"
                          "  num_attention_heads: 4\n"
                          "  resid_pdrop: 0.1\n"
                          "data:\n"
                          "  train: t\n"
                          "  sequence_length: 8\n"
                          "training:\n"
                          "  steps: 1\n"
                          "  global_batch_size: 8\n"
                          "  micro_batch_size: 2\n"
                          "optimizer:\n"
                          "  learning_rate: 1\n"
                          "parallel:\n"
                          "  threads: 3\n"
                          "log:\n"
                          "  directory: d\n";

static ech_config *make_config(const char *assignment)
{
    const ech_config_names names[] = {{"models", ech_family_names()}};
    ech_config *config;
    assert_int_equal(ech_config_create(names, 1, &config), ECH_OK);
    assert_int_equal(ech_config_read_text(config, run, sizeof run - 1, "run"), ECH_OK);
    if (assignment) assert_int_equal(ech_config_set(config, assignment), ECH_OK);
    assert_int_equal(ech_model_resolve(config, 257), ECH_OK);
    return config;
}

TEST(test_description)
{
    ech_config *config = make_config(NULL);
    ech_text text = {0};
    ech_profile_describe(config, &text);
    assert_string_equal(text.at, "gpt2 C=16 L=2 H=4 G=4 F=64 P=8 V=257 tied resid_pdrop b=2 T=8 "
                                 "fp32 threads=3");
    ech_text_free(&text);
    ech_config_destroy(config);
    config = make_config("model.architecture=qwen3");
    config->model.head_dim = 6; /* where it is not C / H */
    ech_profile_describe(config, &text);
    assert_non_null(strstr(text.at, "qwen3 C=16 L=2 H=4 G=4 D=6 F="));
    ech_text_free(&text);
    ech_config_destroy(config);
    config = make_config("model.architecture=qwen3_moe");
    config->model.moe_dropout = 0.1;
    config->model.moe_first_dense = 1;
    config->model.moe_shared_experts = 2;
    ech_profile_describe(config, &text);
    assert_non_null(
        strstr(text.at, " E=8 k=2 topk M=32 shared=2 dense=1 every=1 moe_dropout resid_pdrop b="));
    ech_text_free(&text);
    ech_config_destroy(config);
    config = make_config("model.architecture=mixtral");
    ech_profile_describe(config, &text);
    assert_non_null(strstr(text.at, " E=8 k=2 topk resid_pdrop b="));
    ech_text_free(&text);
    ech_config_destroy(config);
}

/* A profile matches a run that differs in a key only if costs do not depend on the key. */
TEST(test_match_with_a_run)
{
    static const char *const others[] = {
        "model.architecture=llama",   "model.hidden_size=32",
        "model.num_hidden_layers=3",  "model.num_attention_heads=2",
        "model.intermediate_size=48", "model.max_position_embeddings=9",
        "model.vocab_size=300",       "model.tie_word_embeddings=false",
        "model.embd_pdrop=0.1",       "model.attn_pdrop=0.1",
        "model.resid_pdrop=0",        "training.micro_batch_size=4",
        "data.sequence_length=4",     "precision.compute=fp64",
        "parallel.threads=2",         "model.reversible=true"};
    static const char *const same[] = {"training.steps=9", "model.resid_pdrop=0.2",
                                       "training.global_batch_size=16", "parallel.pipeline=2",
                                       "memory.recompute=full"};
    ech_config *config = make_config(NULL);
    ech_model *model;
    assert_int_equal(ech_model_create(config, NULL, &model), ECH_OK);
    ech_text text = {0};
    ech_profile_describe(config, &text);
    ech_profile profile = {.blocks = (int)model->block.n, .model = text.at};
    assert_int_equal(ech_profile_check(&profile, config, model, "p.json"), ECH_OK);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        bool llama = strstr(others[i], "llama") != NULL;
        ech_config *other = llama ? ech_config_copy(config) : make_config(others[i]);
        if (llama) assert_int_equal(ech_config_set(other, others[i]), ECH_OK);
        assert_int_equal(ech_profile_check(&profile, other, model, "p.json"), ECH_EUSAGE);
        assert_error_has("p.json: measured with \"gpt2 C=16");
        assert_error_has("run `echelon profile`");
        ech_config_destroy(other);
    }
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        ech_config *other = make_config(same[i]);
        assert_int_equal(ech_profile_check(&profile, other, model, "p.json"), ECH_OK);
        ech_config_destroy(other);
    }
    profile.blocks++;
    assert_int_equal(ech_profile_check(&profile, config, model, "p.json"), ECH_EUSAGE);
    assert_error_has("p.json: costs of 5 blocks, but the model has 4");
    ech_text_free(&text);
    ech_model_destroy(model);
    ech_config_destroy(config);
}
