/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files: what a good one gives, and for every kind of bad one the message and its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "config/sample.h"
#include "unit.h"

TEST(test_a_good_file)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_check(config), ECH_OK);
    assert_string_equal(ech_config_name(config, "model.architecture"), "gpt2");
    assert_int_equal(config->model.hidden_size, 64);
    assert_string_equal(config->data.train, "corpus/train");
    assert_true(config->optimizer.learning_rate == 1e-3);
    /* Defaults. */
    assert_int_equal(config->model.num_key_value_heads, ECH_AUTO);
    assert_int_equal(config->model.tie_word_embeddings, ECH_AUTO);
    assert_int_equal(config->memory.device_limit, ECH_AUTO);
    assert_int_equal(config->parallel.bucket_bytes, 4 << 20);
    assert_string_equal(config->checkpoint.directory, "auto");
    assert_string_equal(config->data.valid, "");
    assert_int_equal(config->optimizer.nesterov, 0);
    assert_true(config->optimizer.eps == 1e-8);
    assert_true(ech_config_is_set(config, "model.hidden_size"));
    assert_false(ech_config_is_set(config, "model.rope_theta"));
    ech_config_destroy(config);
}

TEST(test_forms_of_values)
{
    ech_config *config = sample_create();
    const char *text = "# comment\n"
                       "---\n"
                       "{model: {hidden_size: \"128\", tie_word_embeddings: true}}\n"
                       "...\n";
    assert_int_equal(sample_read(config, text), ECH_OK);
    assert_int_equal(config->model.hidden_size, 128);
    assert_int_equal(config->model.tie_word_embeddings, 1);
    text = "model:\n  tie_word_embeddings: auto\n  num_key_value_heads: auto\n"
           "memory:\n  device_limit: 1.5GiB # comment\n"
           "optimizer:\n  nesterov: 'true'\n  clip_norm: .5\n"
           "data:\n  valid: \"\"\n  train: >-\n    a\n    b\n"
           "log:\n  directory: \"d\\u00e9\\n\"\n";
    assert_int_equal(sample_read(config, text), ECH_OK);
    assert_int_equal(config->model.tie_word_embeddings, ECH_AUTO);
    assert_int_equal(config->memory.device_limit, INT64_C(3) << 29);
    assert_int_equal(config->optimizer.nesterov, 1);
    assert_true(config->optimizer.clip_norm == 0.5);
    assert_string_equal(config->data.train, "a b");
    assert_string_equal(config->log.directory, "d\xc3\xa9\n");
    /* What was read before stays. */
    assert_int_equal(config->model.hidden_size, 128);
    ech_config_destroy(config);
}

/* Checkpoints and run files of older versions have keys that others replaced. */
TEST(test_replaced_keys)
{
    static const char *const values[][2] = {{"0", "R"}, {"1", "N"}, {"4", "RRRN"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ech_config *config = sample_create();
        char text[80];
        snprintf(text, sizeof text, "model:\n  no_rope_layer_interval: %s\n", values[i][0]);
        assert_int_equal(sample_read(config, text), ECH_OK);
        assert_string_equal(config->model.rotary_layers, values[i][1]);
        assert_true(ech_config_is_set(config, "model.rotary_layers"));
        ech_config_destroy(config);
    }
}

TEST(test_forms_of_lists)
{
    const struct {
        const char *text, *replicas, *partition;
    } cases[] = {
        {"parallel: {stage_replicas: [3, 1]}\n", "[3, 1]", "even"},
        {"parallel:\n  stage_replicas: [3,1]\n  partition: auto\n", "[3, 1]", "auto"},
        {"parallel:\n  stage_replicas: # comment\n    - 3\n    - \"01\"\n", "[3, 1]", "even"},
        {"parallel:\n  stage_replicas:\n  - 3\n  partition: [ 4,\n    0 , 7,]\n", "[3]",
         "[4, 0, 7]"},
        {"parallel:\n  stage_replicas: \"[3, 1]\"\n  partition: 'even'\n", "[3, 1]", "even"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_config *config = sample_create();
        assert_int_equal(sample_read(config, cases[i].text), ECH_OK);
        assert_true(sample_prints(config, "parallel.stage_replicas", cases[i].replicas));
        assert_true(sample_prints(config, "parallel.partition", cases[i].partition));
        ech_config_destroy(config);
    }
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, cases[3].text), ECH_OK);
    ech_config_complain(config, "parallel.partition", "odd");
    assert_string_equal(ech_last_error(), "run.yaml:4:14: parallel.partition = [4, 0, 7]: odd");
    ech_config_destroy(config);
}

TEST(test_longest_list)
{
    ech_config *config = sample_create();
    ech_text text = {0};
    ech_text_append(&text, "parallel:\n  partition:\n");
    for (int i = 0; i < ECH_CONFIG_LONGEST_LIST; i++) ech_text_append(&text, "    - 1\n");
    assert_int_equal(sample_read(config, text.at), ECH_OK);
    assert_int_equal(config->parallel.partition.n, ECH_CONFIG_LONGEST_LIST);
    ech_text_append(&text, "    - 1\n");
    assert_int_equal(sample_read(config, text.at), ECH_EUSAGE);
    assert_non_null(
        strstr(ech_last_error(), "run.yaml:4099:7: parallel.partition: more than 4096"));
    ech_text_free(&text);
    ech_config_destroy(config);
}

TEST(test_nothing_sets_nothing)
{
    const char *texts[] = {"", "\n\n", "# only a comment\n", "---\n", "{}", "model: {}\n", "~"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ech_config *config = sample_create();
        assert_int_equal(sample_read(config, texts[i]), ECH_OK);
        assert_false(ech_config_is_set(config, "model.hidden_size"));
        assert_int_equal(ech_config_check(config), ECH_EUSAGE);
        ech_config_destroy(config);
    }
}

static const struct {
    const char *text, *message;
} malformed[] = {
    /* names */
    {"model:\n  hidden_sise: 3\n",
     "run.yaml:2:3: model.hidden_sise: no such key; did you mean model.hidden_size?"},
    {"model:\n  num_layers: 3\n", "here that is model.num_hidden_layers"},
    {"model:\n  learning_rate: 3\n",
     "run.yaml:2:3: model.learning_rate: no such key; it is optimizer.learning_rate"},
    {"model:\n  every: 3\n", "it is checkpoint.every or log.every"},
    {"precision:\n  xyzzy: 3\n",
     "no such key; the keys of precision are compute gradients residual reduce"},
    {"model:\n  xyzzy: 3\n", "model.xyzzy: no such key; `echelon help keys` lists the "},
    {"modell:\n  hidden_size: 3\n", "run.yaml:1:1: modell: no such section; did you mean model?"},
    {"\n\nsteps: 3\n", "run.yaml:3:1: steps: no such section; it is training.steps"},
    {"xyzzy: 3\n", "no such section; the sections are model data training lora optimizer"},
    {"model:\n  <<: 3\n", "run.yaml:2:3: model.<<: no such key"},
    {"model:\n  \"hidden_size\\0x\": 3\n", "run.yaml:2:3: key of model: contains a NUL character"},
    /* given twice */
    {"model:\n  hidden_size: 3\n  hidden_size: 3\n",
     "run.yaml:3:3: model.hidden_size: given twice, first in line 2"},
    {"model:\n  hidden_size: 3\nmodel:\n  vocab_size: 3\n",
     "run.yaml:3:1: model: section given twice, first in line 1"},
    /* shapes */
    {"- model\n", "run.yaml:1:1: a list where sections are expected"},
    {"model\n", "run.yaml:1:1: a value where sections are expected"},
    {"\"\"\n", "where sections are expected"},
    {"model: 3\n", "run.yaml:1:8: model: a value where keys are expected"},
    {"model:\n", "run.yaml:1:7: model: nothing where keys are expected"},
    {"model: [1]\n", "run.yaml:1:8: model: a list where keys are expected"},
    {"model:\n  hidden_size: [3]\n", "run.yaml:2:16: model.hidden_size: cannot be a list"},
    {"model:\n  hidden_size:\n    - 3\n", "model.hidden_size: cannot be a list"},
    {"model:\n  hidden_size:\n    width: 3\n",
     "run.yaml:3:5: model.hidden_size: cannot be a mapping"},
    {"parallel:\n  stage_replicas: [3, [1]]\n",
     "run.yaml:2:23: parallel.stage_replicas: cannot be a list"},
    {"parallel:\n  stage_replicas: [a: 1]\n", "stage_replicas: cannot be a mapping"},
    {"parallel:\n  stage_replicas: {a: 1}\n",
     "run.yaml:2:19: parallel.stage_replicas: cannot be a mapping"},
    {"parallel:\n  stage_replicas: [&a 3]\n", "run.yaml:2:20: anchor &a: not supported"},
    {"parallel:\n  stage_replicas: !!seq [3]\n", "not supported; remove it"},
    {"model:\n  [a, b]: 3\n", "run.yaml:2:3: key of model: cannot be a list"},
    {"? {a: b}\n: 3\n", "name of a section: cannot be a mapping"},
    {"model:\n  hidden_size: &w 3\n", "run.yaml:2:16: anchor &w: not supported"},
    {"model: &m\n  hidden_size: 3\n", "run.yaml:1:8: anchor &m: not supported"},
    {"model:\n  hidden_size: *w\n", "run.yaml:2:16: alias *w: not supported"},
    {"model:\n  hidden_size: !!int 3\n", "tag tag:yaml.org,2002:int: not supported"},
    {"model: {}\n---\ndata: {}\n", "run.yaml:2:1: a second document"},
    /* no value */
    {"model:\n  hidden_size:\n", "run.yaml:2:15: model.hidden_size: no value; set one or"},
    {"model:\n  hidden_size: ~\n", "run.yaml:2:16: model.hidden_size: no value"},
    {"model:\n  hidden_size: null\n", "model.hidden_size: no value"},
    {"model:\n  hidden_size: \"\"\n", "run.yaml:2:16: model.hidden_size: no value"},
    {"data:\n  valid:\n", "data.valid: no value; set one, \"\" for an empty text, or remove"},
    {"data:\n  valid: \"a\\0b\"\n", "run.yaml:2:10: data.valid: contains a NUL character"},
    /* whole numbers */
    {"model:\n  hidden_size: 4x\n", "run.yaml:2:16: model.hidden_size = 4x: not a whole number"},
    {"model:\n  hidden_size: 1_000\n", "= 1_000: not a whole number; write it without "
                                       "underscores: 1000"},
    {"model:\n  hidden_size: 1e3\n", "= 1e3: not a whole number; write it out: 1000"},
    {"model:\n  hidden_size: 2.5\n", "= 2.5: not a whole number; write it like 16"},
    {"model:\n  hidden_size: 0x10\n", "= 0x10: not a whole number"},
    {"model:\n  hidden_size: +3\n", "= +3: not a whole number"},
    {"model:\n  hidden_size: ' 3'\n", "not a whole number"},
    {"model:\n  hidden_size: auto\n", "= auto: not a whole number; write it like 16"},
    {"model:\n  vocab_size: big\n", "write it like 16, or auto"},
    {"model:\n  hidden_size: 0\n",
     "run.yaml:2:16: model.hidden_size = 0: out of bounds; 1 to 1000000"},
    {"model:\n  hidden_size: -1\n", "= -1: out of bounds"},
    {"model:\n  vocab_size: -1\n", "= -1: out of bounds; 1 to 2000000000, or auto"},
    {"model:\n  hidden_size: 1000001\n", "out of bounds"},
    {"model:\n  hidden_size: 99999999999999999999\n", "out of bounds; 1 to 1000000"},
    {"training:\n  seed: 9000000000000001\n", "out of bounds; 0 to 9000000000000000"},
    /* bytes */
    {"memory:\n  device_limit: 8 GiB\n",
     "run.yaml:2:17: memory.device_limit = 8 GiB: not a number of bytes; write it like"},
    {"memory:\n  device_limit: 1e9\n", "not a number of bytes; write it out: 1000000000"},
    {"memory:\n  device_limit: 8gib\n", "= 8gib: not a number of bytes"},
    {"memory:\n  device_limit: 0\n", "out of bounds; 1 to 1000000000000000000, or auto"},
    /* numbers */
    {"optimizer:\n  learning_rate: nan\n",
     "run.yaml:2:18: optimizer.learning_rate = nan: not a number; write it like 0.1 or 1e-5"},
    {"optimizer:\n  learning_rate: .inf\n", "not a number"},
    {"optimizer:\n  learning_rate: 1e999\n", "not a number"},
    {"optimizer:\n  learning_rate: 1e-3 1e-4\n", "= 1e-3 1e-4: not a number"},
    {"optimizer:\n  learning_rate: 1_0.5\n", "without underscores: 10.5"},
    {"optimizer:\n  learning_rate: -1\n", "= -1: out of bounds; 0 to 1000000"},
    {"optimizer:\n  beta2: 1\n", "out of bounds; 0 to 0.9999999"},
    {"optimizer:\n  learning_rate: auto\n", "= auto: not a number"},
    /* truth */
    {"optimizer:\n  nesterov: yes\n",
     "run.yaml:2:13: optimizer.nesterov = yes: neither true nor false; write true or false"},
    {"optimizer:\n  nesterov: True\n", "= True: neither true nor false"},
    {"optimizer:\n  nesterov: 1\n", "= 1: neither true nor false"},
    {"optimizer:\n  nesterov: auto\n", "neither true nor false"},
    {"model:\n  tie_word_embeddings: on\n", "write true or false, or auto"},
    /* names of things */
    {"model:\n  architecture: gpt3\n",
     "run.yaml:2:17: model.architecture = gpt3: not one of: gpt2 llama; did you mean gpt2?"},
    {"model:\n  architecture: bert\n", "= bert: not one of: gpt2 llama"},
    {"model:\n  architecture: gpt2 llama\n", "= gpt2 llama: not one of"},
    {"precision:\n  compute: fp23\n", "not one of: fp32 fp64 bf16 fp16; did you mean fp32?"},
    /* lists */
    {"parallel:\n  stage_replicas: [3,\n  x]\n",
     "run.yaml:3:3: parallel.stage_replicas = x: not a whole number; write it like [3, 1]"},
    {"parallel:\n  stage_replicas:\n    - 3\n    - 0\n",
     "run.yaml:4:7: parallel.stage_replicas = 0: out of bounds; 1 to 1000000"},
    {"parallel:\n  stage_replicas: [3, ~]\n", "= ~: not a whole number"},
    {"parallel:\n  stage_replicas: [\"3, 1\"]\n", "= 3, 1: not a whole number"},
    {"parallel:\n  stage_replicas: [\"3\\0\"]\n",
     "parallel.stage_replicas: contains a NUL character"},
    {"parallel:\n  stage_replicas: []\n",
     "run.yaml:2:19: parallel.stage_replicas = []: an empty list"},
    {"parallel:\n  partition: odd\n",
     "run.yaml:2:14: parallel.partition = odd: neither a list like [3, 1] nor one of: even auto"},
    {"parallel:\n  partition: 3\n", "= 3: neither a list like [3, 1] nor one of: even auto"},
    {"parallel:\n  partition:\n", "parallel.partition: no value; set one or remove the key"},
    {"parallel:\n  partition: [1\n", "not YAML: while parsing a flow sequence"},
    /* not YAML */
    {"model:\n\thidden_size: 3\n", "run.yaml:2:1: not YAML: "},
    {"model:\n\thidden_size: 3\n", "indent with blanks, not with tabs"},
    {"model: {hidden_size: 3\n", "not YAML: while parsing a flow mapping"},
    {"model:\n  hidden_size: \"3\n", "not YAML: while scanning a quoted scalar"},
    {"model:\n  hidden_size: 3\n vocab_size: 3\n", "run.yaml:3:2: not YAML"},
    {"model:\n  train: \xff\n", "run.yaml:2: byte 16: not YAML text: invalid"},
    {"model:\n  train: \x01\n", "run.yaml:2: byte 16: not YAML text: control characters"},
    {"%YAML 3.0\n---\n", "not YAML: found incompatible YAML document"},
    {"@", "run.yaml:1:1: not YAML: "},
    {"model: {}\n...\njunk\n", "run.yaml:3:1: not YAML: "},
    {"model: {}\n... junk\n", "run.yaml:2:5: not YAML: "},
    {"model:\n  train: \xc3\n", "run.yaml:2: byte 17: not YAML text: invalid"},
    {"model:\n  train: \xed\xa0\x80\n", "run.yaml:2: byte 16: not YAML text: invalid Unicode"},
    {"model:\n  train: \xf5\x80\x80\x80\n", "run.yaml:2: byte 16: not YAML text: invalid"},
    {"data:\n  train: \"\\ud800\"\n", "not YAML: while parsing a quoted scalar"},
    {"data:\n  train: \"\\x\"\n", "not YAML: while parsing a quoted scalar"},
    /* other encodings and line ends keep their lines */
    {"\xef\xbb\xbfmodel:\n  hidden_size: x\n", "run.yaml:2:16: model.hidden_size = x: not a whole"},
    {"model:\r\n  hidden_size: x\r\n", "run.yaml:2:16: model.hidden_size = x: not a whole"},
    {"model:\r  hidden_size: x\r", "run.yaml:2:16: model.hidden_size = x: not a whole"},
    /* what makes other programs run code or out of memory */
    {"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "run.yaml:3:1: c: no such section"},
    {"model: {hidden_size: &a [1, 1], vocab_size: [*a, *a]}\n",
     "run.yaml:1:45: model.vocab_size: cannot be a list"},
    {"model:\n  hidden_size: !!python/object/apply:os.system [x]\n", "run.yaml:2:16: tag tag:yaml"},
    {"model:\n  <<: *base\n", "run.yaml:2:3: model.<<: no such key"},
    {"%TAG ! tag:x,2000:\n---\nmodel: !a {}\n", "run.yaml:3:8: tag tag:x,2000:a: not supported"},
    /* no control character reaches the terminal */
    {"model:\n  hidden_size: \"a\\nb\\e[31m\"\n", "= a b [31m: not a whole number"},
    {"model:\n  hidden_size: \"\\x9b31m\"\n", "=   31m: not a whole number"},
    {"model:\n  \"a\\rb\": 3\n", "run.yaml:2:3: model.a b: no such key"},
    {"model:\n  no_rope_layer_interval: 4097\n",
     "run.yaml:2:27: model.no_rope_layer_interval = 4097: must be an integer from 0 to 4096; "
     "model.rotary_layers replaced this key"},
    {"model:\n  rotary_layers: RN\n  no_rope_layer_interval: 2\n",
     "run.yaml:3:3: model.rotary_layers: given twice, first in line 2"},
};

TEST(test_malformed_files)
{
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        ech_config *config = sample_create();
        ech_clear_error();
        ech_status st = sample_read(config, malformed[i].text);
        if (st != ECH_EUSAGE || !strstr(ech_last_error(), malformed[i].message))
            fail_msg("%s\ngave %d: %s\nand not: %s", malformed[i].text, st, ech_last_error(),
                     malformed[i].message);
        /* Every one of them says where, in one line. */
        assert_memory_equal(ech_last_error(), "run.yaml:", 9);
        assert_true(ech_last_error()[9] >= '1' && ech_last_error()[9] <= '9');
        assert_null(strpbrk(ech_last_error(), "\n\r\x1b"));
        ech_config_destroy(config);
    }
}

TEST(test_an_error_changes_nothing)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    const char *text = "model:\n  hidden_size: 96\ntraining:\n  seed: x\n";
    assert_int_equal(sample_read(config, text), ECH_EUSAGE);
    assert_int_equal(config->model.hidden_size, 64);
    ech_config_destroy(config);
}

TEST(test_long_values_are_cut_in_messages)
{
    ech_config *config = sample_create();
    ech_text text = {0};
    ech_text_append(&text, "model:\n  hidden_size: ");
    for (int i = 0; i < 5000; i++) ech_text_append(&text, "x");
    assert_int_equal(sample_read(config, text.at), ECH_EUSAGE);
    assert_true(strlen(ech_last_error()) < 300);
    assert_non_null(strstr(ech_last_error(), "xxx...: not a whole number"));
    ech_text_free(&text);
    ech_config_destroy(config);
}

TEST(test_size_limit)
{
    ech_config *config = sample_create();
    size_t n = 1 << 20;
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, '\n', n + 1);
    assert_int_equal(ech_config_read_text(config, text, n, "run.yaml"), ECH_OK);
    assert_int_equal(ech_config_read_text(config, text, n + 1, "run.yaml"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "run.yaml: 1048577 bytes"));
    /* Deep nesting must not cost time or stack. */
    memset(text, '[', n);
    assert_int_equal(ech_config_read_text(config, text, n, "run.yaml"), ECH_EUSAGE);
    memset(text, '{', n);
    assert_int_equal(ech_config_read_text(config, text, n, "run.yaml"), ECH_EUSAGE);
    free(text);
    ech_config_destroy(config);
}

TEST(test_files)
{
    char path[] = "/tmp/ech-test-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ech_file_write(path, sample_run, strlen(sample_run)), ECH_OK);
    ech_config *config = sample_create();
    assert_int_equal(ech_config_read_file(config, path), ECH_OK);
    assert_int_equal(config->training.steps, 10);
    assert_int_equal(ech_file_write(path, "model:\n  x: 1\n", 14), ECH_OK);
    assert_int_equal(ech_config_read_file(config, path), ECH_EUSAGE);
    assert_memory_equal(ech_last_error(), path, strlen(path));
    assert_non_null(strstr(ech_last_error(), ":2:3: model.x: no such key"));
    unlink(path);
    assert_int_equal(ech_config_read_file(config, path), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "cannot open"));
    ech_config_destroy(config);
}
