/* SPDX-License-Identifier: Apache-2.0
 *
 * One run reports all errors of a run file and of the assignments after it, a line each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config/capture.h"
#include "config/sample.h"
#include "unit.h"

/* As a command does it: the file, the words, then what is missing. */
static char *errors_of(const char *text, const char *const *words)
{
    ech_config *config = sample_create();
    capture c = begin_capture();
    ech_status st = sample_read(config, text);
    for (; *words; words++) ECH_ALSO(&st, ech_config_set(config, *words));
    ECH_ALSO(&st, ech_config_check(config));
    char *out = end_capture(&c);
    assert_int_equal(st, ECH_EUSAGE);
    ech_config_destroy(config);
    return out;
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static const struct {
    const char *text, *words[4];
    const char *lines[14]; /* what each line of error has, and no further line */
} cases[] = {
    /* Names, values, bounds, types and lists; what follows is read all the same. */
    {"model:\n"
     "  architecture: gpt3\n"
     "  hiden_size: 64\n"
     "  num_hidden_layers: [1, {a: 2}]\n"
     "  num_attention_heads: 4x\n"
     "dta:\n"
     "  train: [a, [b]]\n"
     "training:\n"
     "  steps: 10\n"
     "  steps: 11\n"
     "  global_batch_size: 0\n"
     "optimizer:\n"
     "  learning_rate: *x\n"
     "  nesterov: yes\n"
     "parallel:\n"
     "  stage_replicas: [1, 0, x]\n",
     {"training.seed=-1", "memory.limit=3", "parallel.data=2"},
     {"run.yaml:2:17: model.architecture = gpt3: not one of",
      "run.yaml:3:3: model.hiden_size: no such key",
      "run.yaml:4:22: model.num_hidden_layers: cannot be a list",
      "run.yaml:5:24: model.num_attention_heads = 4x", "run.yaml:6:1: dta: no such section",
      "run.yaml:10:3: training.steps: given twice",
      "run.yaml:11:22: training.global_batch_size = 0: out of bounds", "run.yaml:13:18: alias *x",
      "run.yaml:14:13: optimizer.nesterov = yes",
      "run.yaml:16:23: parallel.stage_replicas = 0: out", "command line: training.seed = -1",
      "command line: memory.limit: no such key", "required but not set: log.directory;"}},
    /* What is missing besides; what was meant is not. */
    {"model:\n  hiden_size: 64\n  learning_rate: 3\n  architecture: gpt2\n",
     {NULL},
     {"run.yaml:2:3: model.hiden_size", "run.yaml:3:3: model.learning_rate: no such key; it is",
      "required but not set: model.num_hidden_layers model.num_attention_heads data.train "
      "data.sequence_length training.steps training.global_batch_size log.directory; set"}},
    /* Sections: unknown, no mapping, twice, a key that is none. */
    {"modell: {hidden_size: 3}\ndata: 3\ntraining: &a {steps: x}\noptimizer: {eps: 2}\n"
     "optimizer: {beta1: 2}\n? [a, b]\n: {c: d}\nlog: {every: x}\n",
     {NULL},
     {"run.yaml:1:1: modell", "run.yaml:2:7: data: a value", "run.yaml:3:11: anchor",
      "run.yaml:4:18: optimizer.eps", "run.yaml:5:1: optimizer: section given twice",
      "run.yaml:6:3: name of a section: cannot be a list", "run.yaml:8:14: log.every = x",
      "required but not set: log.directory;"}},
    /* Keys after the first line that is not YAML are unknown. */
    {"model:\n  hidden_size: x\n  vocab_size: 0\ndata: [\n",
     {"log.every=x"},
     {"run.yaml:2:16", "run.yaml:3:15", "run.yaml:4:7: data: a list where keys", "not YAML",
      "log.every = x"}},
};

TEST(test_all_is_said)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said = errors_of(cases[i].text, cases[i].words), *at = said;
        int n = 0;
        for (; n < 14 && cases[i].lines[n]; n++) {
            char *end = strchr(at, '\n'), *found = strstr(at, cases[i].lines[n]);
            if (!end || !found || found > end)
                fail_msg("case %zu: no line %d with \"%s\" in\n%s", i, n, cases[i].lines[n], said);
            at = end + 1;
        }
        if (count_lines(said) != n) fail_msg("case %zu: not %d lines:\n%s", i, n, said);
        free(said);
    }
}

/* A file of another kind is not told of line by line. */
TEST(test_not_too_much)
{
    const char *const words[] = {NULL};
    ech_text text = {0};
    ech_text_append(&text, "model:\n");
    for (int i = 0; i < 1000; i++) ech_text_append(&text, "  key_%d: [1, [2]]\n", i);
    char *said = errors_of(text.at, words);
    assert_int_equal(count_lines(said), 21);
    assert_non_null(strstr(said, "run.yaml: found 20 errors; the rest"));
    free(said);
    ech_text_free(&text);
    for (int i = 0; i < 100000; i++) ech_text_append(&text, i ? "{" : "model: {x: ");
    said = errors_of(text.at, words);
    assert_int_equal(count_lines(said), 2);
    assert_non_null(strstr(said, "too deep"));
    free(said);
    ech_text_free(&text);
}

/* Nor is anything missing from a file that was not read. */
TEST(test_no_file)
{
    ech_config *config = sample_create();
    capture c = begin_capture();
    assert_int_equal(ech_config_read_file(config, "/nowhere/run.yaml"), ECH_EUSAGE);
    assert_int_equal(ech_config_check(config), ECH_OK);
    char *said = end_capture(&c);
    assert_int_equal(count_lines(said), 1);
    free(said);
    ech_config_destroy(config);
}
