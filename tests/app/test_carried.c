/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Hugging Face folder says besides weights goes on into every checkpoint, whether we use
 * it or not; what it does not say, a tokenizer above all, is not made up.
 */

#include "app/train/trained.h"
#include "app/train_from.h"
#include "unit.h"

static char *path_in(const char *folder, const char *name)
{
    ech_text path = {0};
    ech_text_append(&path, "%s/%s/%s", fixture_folder, folder, name);
    return path.at;
}

static void write_in(const char *folder, const char *name, const char *text)
{
    char *path = path_in(folder, name);
    assert_int_equal(ech_file_write(path, text, strlen(text)), ECH_OK);
    free(path);
}

static char *read_in(const char *folder, const char *name)
{
    static char *text; /* gcc takes the address of a local one for what it points to */
    char *path = path_in(folder, name);
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 26, &text, &n), ECH_OK);
    free(path);
    return text;
}

static bool is_in(const char *folder, const char *name)
{
    char *path = path_in(folder, name);
    bool is = ech_file_exists(path);
    free(path);
    return is;
}

/* "hf": a model of 257 ids with nothing beside it, and with these keys at the end of its
 * config.json. */
static void make_folder(const char *keys)
{
    char words[1000];
    runs_train("gpt2", "source", 1, "training.steps=1");
    snprintf(words, sizeof words,
             "cd %s && mkdir hf && cp source/checkpoints/step-00000001/model/model.safetensors hf",
             fixture_folder);
    assert_int_equal(system(words), 0);
    char *config = read_in("source/checkpoints/step-00000001/model", "config.json");
    ech_text text = {0};
    *strrchr(config, '}') = '\0';
    /* its own ids get names that nobody knows */
    memcpy(strstr(config, "bos_token_id"), "BOS", 3);
    memcpy(strstr(config, "eos_token_id"), "EOS", 3);
    ech_text_append(&text, "%s, %s}", config, keys);
    write_in("hf", "config.json", text.at);
    ech_text_free(&text);
    free(config);
    runs_remove("source");
}

static void assert_config_has(const char *run, int step, const char *part)
{
    char folder[100];
    snprintf(folder, sizeof folder, "%s/checkpoints/step-%08d/model", run, step);
    char *text = read_in(folder, "config.json"), *to = text;
    for (char *from = text; *from; from++)
        if (*from != ' ' && *from != '\n') *to++ = *from;
    *to = '\0';
    if (!strstr(text, part)) fail_msg("config.json has no %s: %s", part, text);
    free(text);
}

static const char every_step[] = "checkpoint:\n  every: 1\n";

static ech_status look(ech_trained *trained, void *context)
{
    ech_text *said = context;
    ech_text_append(said, "%s %d %d:", trained->tokenizer ? "tokenizer" : "ids",
                    trained->ends.begin, trained->ends.end);
    for (size_t i = 0; i < trained->stops.n; i++)
        ech_text_append(said, " %d", trained->stops.at[i]);
    return ECH_OK;
}

static void assert_ends(const char *name, const char *expected)
{
    ech_text said = {0};
    char *path = ech_file_join(fixture_folder, name);
    const ech_trained_options options = {.path = path, .samples = 1};
    if (ech_trained_run(&options, look, &said) != ECH_OK) fail_msg("%s", ech_last_error());
    assert_string_equal(said.at, expected);
    ech_text_free(&said);
    free(path);
}

/* Without a tokenizer, or with a link to one that is gone: nobody makes one up, and the ids
 * stay. */
TEST(without_a_tokenizer)
{
    for (int linked = 0; linked < 2; linked++) {
        make_folder("\"bos_token_id\": 3, \"eos_token_id\": [7, 8]");
        char *link = path_in("hf", "tokenizer.json");
        if (linked) assert_int_equal(symlink("../blobs/gone", link), 0);
        free(link);
        write_in("hf", "chat_template.jinja", "{{ messages }}");
        write_in("hf", "generation_config.json", "{\"eos_token_id\": [8, 9], \"top_p\": 0.9}");
        assert_int_equal(train_from("run", "hf", 1, every_step), ECH_OK);
        runs_remove("hf");
        assert_int_equal(train_from("run", "hf", 2, every_step), ECH_OK);
        for (int step = 1; step <= 2; step++) {
            char folder[100];
            snprintf(folder, sizeof folder, "run/checkpoints/step-%08d/model", step);
            assert_false(is_in(folder, "tokenizer.json"));
            assert_false(is_in(folder, "tokenizer_config.json"));
            assert_true(is_in(folder, "chat_template.jinja"));
            assert_config_has("run", step, "\"bos_token_id\":3");
            assert_config_has("run", step, "\"eos_token_id\":[7,8]");
        }
        assert_ends("run", "ids 3 7: 7 8 9");
        /* who knows the tokenizer may say so later */
        assert_int_equal(train_from("run", "hf", 3, "checkpoint:\n  every: 0\n"), ECH_OK);
        runs_remove("run");
    }
}

static const char tokenizer_config[] =
    "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"<|endoftext|>\",\n"
    "\"pad_token\": \"<|endoftext|>\",   \"model_max_length\": 1000,\n"
    "\"chat_template\": \"{% for m in messages %}{{ m['content'] }}{% endfor %}\"}";

static const struct {
    const char *name, *text;
} companions[] = {
    {"tokenizer_config.json", tokenizer_config},
    {"special_tokens_map.json", "{ \"pad_token\": \"<|endoftext|>\" }"},
    {"added_tokens.json", "{\"<|endoftext|>\":   256}"},
    {"chat_template.jinja", "{% for m in messages %}{{ m }}\n{% endfor %}"},
    {"generation_config.json", "{\"eos_token_id\":[256,65],\"max_length\":  40}"},
    {"vocab.json", "{\"not\": \"looked at\"}"},
};

/* Hugging Face's tokenizer.json for bytes, with what we do not look at. */
static char *make_tokenizer(void)
{
    ech_text json = {0}, config = {0};
    ech_tokenizer_export(fixture_tokenizer, &json, &config);
    char *at = strstr(json.at, "\"padding\": null");
    assert_non_null(at);
    memcpy(at, "\"padding\":    3", 15);
    ech_text_free(&config);
    return json.at;
}

TEST(unchanged)
{
    char *tokenizer = make_tokenizer();
    make_folder("\"eos_token_id\": [256, 66], \"pad_token_id\": 5, \"a_key\": {\"x\": [1, \"y\"]}, "
                "\"dtype\": \"float16\"");
    write_in("hf", "tokenizer.json", tokenizer);
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        write_in("hf", companions[i].name, companions[i].text);
    assert_ends("hf", "tokenizer 256 256: 256 66 65");
    assert_int_equal(train_from("run", "hf", 1, ""), ECH_OK);
    runs_remove("hf");
    assert_int_equal(train_from("run", "hf", 2, "checkpoint:\n  keep: 1\n"), ECH_OK);
    const char *model = "run/checkpoints/step-00000002/model";
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        char *text = read_in(model, companions[i].name);
        assert_string_equal(text, companions[i].text);
        free(text);
    }
    char *text = read_in(model, "tokenizer.json");
    assert_string_equal(text, tokenizer);
    free(text);
    assert_config_has("run", 2, "\"a_key\":{\"x\":[1,\"y\"]}");
    assert_config_has("run", 2, "\"pad_token_id\":5");
    assert_config_has("run", 2, "\"eos_token_id\":[256,66]");
    assert_config_has("run", 2, "\"torch_dtype\":\"float32\"");
    text = read_in(model, "config.json");
    assert_null(strstr(text, "\"dtype\"")); /* says another type than the weights have */
    assert_null(strstr(text, "\"bos_token_id\""));
    free(text);
    assert_ends("run", "tokenizer 256 256: 256 66 65");
    runs_remove("run");
    free(tokenizer);
}

/* A tokenizer that the run file names, and the folder's ids do not know, has ids of its own. */
TEST(another_tokenizer)
{
    make_folder("\"bos_token_id\": 3, \"eos_token_id\": [7, 8]");
    write_in("hf", "tokenizer_config.json", tokenizer_config);
    char words[400];
    snprintf(words, sizeof words, "training.steps=0 data.tokenizer=bytes model.init_from=%s/hf",
             fixture_folder);
    runs_train("gpt2", "run", 1, words);
    const char *model = "run/checkpoints/step-00000000/model";
    assert_true(is_in(model, "tokenizer.json"));
    char *text = read_in(model, "tokenizer_config.json");
    assert_null(strstr(text, "chat_template"));
    free(text);
    assert_config_has("run", 0, "\"eos_token_id\":256");
    assert_config_has("run", 0, "\"bos_token_id\":256");
    runs_remove("run");
    runs_remove("hf");
}

/* One with more ids than the model would train rows that are not there. */
TEST(too_large)
{
    char *tokenizer = make_tokenizer();
    ech_text larger = {0};
    char *at = strstr(tokenizer, "\"added_tokens\": [");
    assert_non_null(at);
    at += strlen("\"added_tokens\": [");
    ech_text_append(&larger,
                    "%.*s{\"id\": 300, \"content\": \"<x>\", \"single_word\": false, \"lstrip\": "
                    "false, \"rstrip\": false, \"normalized\": false, \"special\": true},%s",
                    (int)(at - tokenizer), tokenizer, at);
    make_folder("\"eos_token_id\": 256");
    write_in("hf", "tokenizer.json", larger.at);
    assert_int_not_equal(train_from("run", "hf", 1, ""), ECH_OK);
    char *yaml = ech_file_join(fixture_folder, "from.yaml");
    ech_config *config;
    ech_tokenizer *opened;
    assert_int_equal(ech_setup_config(yaml, NULL, 0, &config), ECH_OK);
    ech_design design;
    int32_t end;
    assert_int_equal(ech_initial_open_tokenizer(config, &opened, &end), ECH_OK);
    assert_int_equal(end, 256);
    assert_int_equal(ech_design_create(config, opened, 2, 2, &design), ECH_EUSAGE);
    if (!strstr(ech_last_error(), "257") || !strstr(ech_last_error(), "258"))
        fail_msg("says no numbers: %s", ech_last_error());
    ech_tokenizer_close(opened);
    ech_config_destroy(config);
    free(yaml);
    assert_false(is_in("run", "checkpoints"));
    ech_text_free(&larger);
    free(tokenizer);
    runs_remove("hf");
}

ALL_TESTS(fixture_setup, fixture_teardown)
