/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line over the file, and what is checked when all is in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/sample.h"
#include "unit.h"

static void assert_last_error(const char *expected)
{
    if (!strstr(ech_last_error(), expected))
        fail_msg("the error is\n%s\nand not\n%s", ech_last_error(), expected);
}

TEST(test_overrides)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_set(config, "training.steps=20"), ECH_OK);
    assert_int_equal(ech_config_set(config, "training.steps=30"), ECH_OK);
    assert_int_equal(ech_config_set(config, "memory.device_limit=8GiB"), ECH_OK);
    assert_int_equal(ech_config_set(config, "data.valid=a=b c"), ECH_OK);
    assert_int_equal(ech_config_set(config, "training.time_limit=1-12:00:00"), ECH_OK);
    assert_true(config->training.time_limit >= 129600 && config->training.time_limit <= 129600);
    assert_int_equal(ech_config_set(config, "data.train="), ECH_OK);
    assert_int_equal(config->training.steps, 30);
    assert_int_equal(config->memory.device_limit, INT64_C(8) << 30);
    assert_string_equal(config->data.valid, "a=b c");
    assert_string_equal(config->data.train, "");
    assert_true(ech_config_is_set(config, "memory.device_limit"));
    ech_config_destroy(config);
}

/* Paths are expanded where a user writes them, and taken as they are from what was printed. */
TEST(test_paths)
{
    ech_config *config = sample_create();
    setenv("HOME", "/home/me", 1);
    setenv("SCRATCH", "/scratch/a b", 1);
    const struct {
        const char *assignment, *message;
    } cases[] = {
        {"log.directory=$SCRATCH/x", "log.directory = $SCRATCH/x: a $ in a path: write ${NAME}"},
        {"checkpoint.directory=s3://b/x", "checkpoint.directory = s3://b/x: s3:// is no path"},
        {"data.train=0.5 a 0.5 hf://b", "hf:// is no path"},
        {"model.init_from=~you/x", "the folder of another user"},
        {"parallel.profile=${NO_SUCH}/p", "the variable NO_SUCH is not set"},
        {"log.directory=runs/b\n", "has a line end in it; write it in one line"},
    };
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ech_config_set(config, cases[i].assignment), ECH_EUSAGE);
        assert_last_error(cases[i].message);
    }
    assert_int_equal(ech_config_set(config, "log.directory=~/runs"), ECH_OK);
    assert_string_equal(config->log.directory, "/home/me/runs");
    assert_int_equal(ech_config_set(config, "data.train=0.5 ${SCRATCH} 0.5 ~/x"), ECH_OK);
    assert_string_equal(config->data.train, "0.5 /scratch/a\\ b 0.5 /home/me/x");
    assert_int_equal(ech_config_set(config, "optimizer.no_decay=~$"), ECH_OK); /* no path */
    FILE *file = fopen("paths.yaml", "w");
    assert_non_null(file);
    fputs("log:\n  directory: ~/y\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(ech_config_read_file(config, "paths.yaml"), ECH_OK);
    unlink("paths.yaml");
    assert_string_equal(config->log.directory, "/home/me/y");
    assert_int_equal(sample_read(config, "log:\n  directory: ${SCRATCH}\n"), ECH_OK);
    assert_string_equal(config->log.directory, "${SCRATCH}");
    ech_config_destroy(config);
}

/* A null of YAML is no path, and reading the file refuses it. */
TEST(test_peek)
{
    const struct {
        const char *text, *path;
    } cases[] = {{"training: {plugins: ~}", ""},
                 {"training: {plugins: null}", ""},
                 {"training:\n  plugins:\n", ""},
                 {"training: {plugins: 'null'}", "null"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = ech_config_peek_path("run.yaml", cases[i].text, NULL, 0, "training.plugins");
        assert_string_equal(path, cases[i].path);
        free(path);
    }
}

TEST(test_wrong_overrides)
{
    const struct {
        const char *assignment, *message;
    } cases[] = {
        {"training.steps", "command line: training.steps: not understood; write section.key=value"},
        {"training.stepz=1",
         "command line: training.stepz: no such key; did you mean training.steps?"},
        {"trainin.steps=1", "command line: trainin.steps: no such section; did you mean training?"},
        {"steps=1", "steps: no such key; write section.key=value; it is training.steps"},
        {"model.steps=1", "model.steps: no such key; it is training.steps"},
        {"=1", "command line: : no such key; write section.key=value"},
        {".=1", "command line: .: no such section"},
        {"training.=1", "the keys of training are steps"},
        {"training.steps=", "command line: training.steps: no value"},
        {"training.steps= 3", "command line: training.steps =  3: not a whole number"},
        {"training.steps=4x", "command line: training.steps = 4x: not a whole number"},
        {"training.steps=-1", "out of bounds; 0 to 1000000000000"},
        {"model.architecture=lama", "did you mean llama?"},
        {"parallel.partition=evn", "command line: parallel.partition = evn: neither a list like "
                                   "[3, 1] nor one of: even auto; "
                                   "did you mean even?"},
        {"parallel.stage_replicas=even", "neither a list like [3, 1] nor one of: auto"},
        {"parallel.stage_replicas=3", "parallel.stage_replicas = 3: neither a list"},
        {"parallel.stage_replicas=3,1", "= 3,1: neither a list"},
        {"parallel.stage_replicas=", "parallel.stage_replicas: no value"},
        {"parallel.stage_replicas=[3,1", "= [3,1: a list without its closing bracket"},
        {"parallel.stage_replicas=[", "= [: a list without its closing bracket"},
        {"parallel.stage_replicas=[3] ", "a list without its closing bracket"},
        {"parallel.stage_replicas= [3]", "=  [3]: neither a list"},
        {"parallel.stage_replicas=[]", "= []: an empty list; write it like [3, 1]"},
        {"parallel.stage_replicas=[  ]", "an empty list"},
        {"parallel.stage_replicas=[3,]", " = : not a whole number; write it like [3, 1]"},
        {"parallel.stage_replicas=[3 1]", " = 3 1: not a whole number"},
        {"parallel.stage_replicas=[3,x]",
         "command line: parallel.stage_replicas = x: not a whole number; write it like [3, 1]"},
        {"parallel.stage_replicas=[auto]", " = auto: not a whole number"},
        {"parallel.stage_replicas=[[3]]", " = [3]: not a whole number"},
        {"parallel.stage_replicas=[3]]", " = 3]: not a whole number"},
        {"parallel.stage_replicas=[1e3]", " = 1e3: not a whole number; write it out: 1000"},
        {"parallel.stage_replicas=[3, 0]",
         "command line: parallel.stage_replicas = 0: out of bounds; 1 to 1000000"},
        {"parallel.stage_replicas=[1000001]", "out of bounds"},
        {"parallel.partition=[-1]", " = -1: out of bounds; 0 to 1000000"},
        {"parallel.partition=[99999999999999999999]", "out of bounds; 0 to 1000000"},
        {"training.time_limit=5x",
         "= 5x: not a time; write it like 3600 (seconds), 90m, 2h, 1:30:00 or"},
        {"training.time_limit=-1", "= -1: out of bounds; 0 to 1000000000"},
        {"training.time_limit=1d12h", "= 1d12h: not a time"},
        {"training.time_limit=1_000", "not a time; write it without underscores: 1000"},
        {"training.time_limit=auto", "= auto: not a time"},
        {"training.time_limit=30000d", "out of bounds"},
        {"data.train=\xff/x", "data.train = \xff/x: not valid UTF-8"},
        {"data.train=\xed\xa0\x80", "not valid UTF-8"},
    };
    ech_config *config = sample_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ech_config_set(config, cases[i].assignment), ECH_EUSAGE);
        assert_last_error(cases[i].message);
    }
    assert_false(ech_config_is_set(config, "training.steps"));
    assert_int_equal(config->parallel.stage_replicas.word, ECH_REPLICAS_AUTO);
    assert_int_equal(config->parallel.partition.word, ECH_PARTITION_EVEN);
    ech_config_destroy(config);
}

TEST(test_lists)
{
    const struct {
        const char *given, *stored;
    } cases[] = {{"[3, 1]", "[3, 1]"},
                 {"[3,1]", "[3, 1]"},
                 {"[ 3  ,1 ]", "[3, 1]"},
                 {"[007]", "[7]"},
                 {"[1000000,1]", "[1000000, 1]"},
                 {"auto", "auto"}};
    ech_config *config = sample_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_text assignment = {0};
        ech_text_append(&assignment, "parallel.stage_replicas=%s", cases[i].given);
        assert_int_equal(ech_config_set(config, assignment.at), ECH_OK);
        assert_true(sample_prints(config, "parallel.stage_replicas", cases[i].stored));
        ech_text_free(&assignment);
    }
    /* Errors and complaints show what was written. */
    assert_int_equal(ech_config_set(config, "parallel.partition=[2,0,5]"), ECH_OK);
    ech_config_complain(config, "parallel.partition", "odd");
    assert_string_equal(ech_last_error(), "command line: parallel.partition = [2,0,5]: odd");
    const ech_config_list *list = &config->parallel.partition;
    assert_int_equal(list->n, 3);
    assert_true(list->at[0] == 2 && list->at[1] == 0 && list->at[2] == 5);
    assert_int_equal(list->word, -1);
    ech_config_replace_list(&config->parallel.partition, -1, list->at + 1, 2); /* of its own */
    assert_true(list->n == 2 && list->at[0] == 0 && list->at[1] == 5);
    assert_int_equal(ech_config_set(config, "parallel.partition=auto"), ECH_OK);
    assert_int_equal(list->n, 0);
    assert_int_equal(list->word, ECH_PARTITION_AUTO);
    ech_config_destroy(config);
}

TEST(test_longest_list)
{
    ech_config *config = sample_create();
    ech_text assignment = {0};
    ech_text_append(&assignment, "parallel.partition=[0");
    for (int i = 1; i < ECH_CONFIG_LONGEST_LIST; i++) ech_text_append(&assignment, ",%d", i);
    size_t n = assignment.n;
    ech_text_append(&assignment, "]");
    assert_int_equal(ech_config_set(config, assignment.at), ECH_OK);
    assert_int_equal(config->parallel.partition.n, ECH_CONFIG_LONGEST_LIST);
    for (int i = 0; i < ECH_CONFIG_LONGEST_LIST; i++)
        assert_int_equal(config->parallel.partition.at[i], i);
    assignment.n = n;
    ech_text_append(&assignment, ",1]");
    assert_int_equal(ech_config_set(config, assignment.at), ECH_EUSAGE);
    assert_last_error("...: too many entries; write it like [3, 1], with at most 4096 entries");
    ech_text_free(&assignment);
    ech_config_destroy(config);
}

TEST(test_required_keys)
{
    ech_config *config = sample_create();
    assert_int_equal(ech_config_check(config), ECH_EUSAGE);
    assert_last_error("required but not set: model.architecture model.hidden_size");
    assert_last_error("log.directory; set them in the run file");
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_check(config), ECH_OK);
    ech_config_destroy(config);
}

/* A family's own value of a required key: it is not missing, and it is printed. */
TEST(test_chosen_required_keys)
{
    ech_config *config = sample_create();
    ech_text before = {0}, after = {0};
    assert_int_equal(sample_read(config, "model: {architecture: gpt2, num_hidden_layers: 2, "
                                         "num_attention_heads: 4}\n"
                                         "data: {train: corpus, sequence_length: 32}\n"
                                         "training: {steps: 10, global_batch_size: 8}\n"
                                         "optimizer: {learning_rate: 1e-3}\n"
                                         "log: {directory: runs/one}\n"),
                     ECH_OK);
    assert_int_equal(ech_config_check(config), ECH_EUSAGE);
    assert_last_error("required but not set: model.hidden_size;");
    ech_config_print(config, &before);
    assert_null(strstr(before.at, "hidden_size"));
    ech_config_choose(config, "model.hidden_size", "48");
    assert_int_equal(ech_config_check(config), ECH_OK);
    ech_config_print(config, &after);
    assert_non_null(strstr(after.at, "  hidden_size: 48\n"));
    ech_text_free(&before);
    ech_text_free(&after);
    ech_config_destroy(config);
}

TEST(test_defaults_that_a_build_lacks)
{
    ech_config_names names[] = {
        {"models", "gpt2"}, {"optimizers", "adamw"},     {"curves", "cosine"},
        {"comms", "local"}, {"devices", "cpu queued"},   {"reductions", "direct"},
        {"gates", "topk"},  {"losses", "cross_entropy"},
    };
    ech_config *config;
    assert_int_equal(ech_config_create(names, 8, &config), ECH_OK);
    ech_config_mark_unread(
        config, "model.image_height model.image_width model.num_classes model.weight_layers", "");
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_check(config), ECH_EUSAGE);
    assert_last_error("default: parallel.comm = mpi: not one of: local");
    assert_int_equal(ech_config_set(config, "parallel.comm=local"), ECH_OK);
    assert_int_equal(ech_config_check(config), ECH_OK);
    ech_config_destroy(config);

    assert_int_equal(ech_config_create(names, 1, &config), ECH_OK);
    assert_int_equal(ech_config_set(config, "parallel.comm=local"), ECH_EINTERNAL);
    assert_last_error("nobody handed in the names of comms");
    ech_config_destroy(config);
}

TEST(test_complaints_name_the_place)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_complain(config, "model.hidden_size", "not divisible by %d", 5),
                     ECH_EUSAGE);
    assert_string_equal(ech_last_error(),
                        "run.yaml:3:16: model.hidden_size = 64: not divisible by 5");
    assert_int_equal(ech_config_set(config, "model.hidden_size=65"), ECH_OK);
    ech_config_complain(config, "model.hidden_size", "odd");
    assert_string_equal(ech_last_error(), "command line: model.hidden_size = 65: odd");
    ech_config_complain(config, "parallel.data", "odd");
    assert_string_equal(ech_last_error(), "parallel.data = auto (default): odd");
    ech_config_complain(config, "parallel.bucket_bytes", "odd");
    assert_string_equal(ech_last_error(), "parallel.bucket_bytes = 4MiB (default): odd");
    ech_config_destroy(config);
}

TEST(test_unread_keys)
{
    const char *owned = "model.rope_theta model.rms_norm_eps model.layer_norm_epsilon";
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_check_read(config, owned, "", "architecture gpt2"), ECH_OK);
    assert_int_equal(ech_config_set(config, "model.layer_norm_epsilon=1e-6"), ECH_OK);
    assert_int_equal(
        ech_config_check_read(config, owned, "model.layer_norm_epsilon", "architecture gpt2"),
        ECH_OK);
    assert_int_equal(ech_config_set(config, "model.rope_theta=500"), ECH_OK);
    assert_int_equal(
        ech_config_check_read(config, owned, "model.layer_norm_epsilon", "architecture gpt2"),
        ECH_EUSAGE);
    assert_string_equal(ech_last_error(), "command line: model.rope_theta = 500: not read by "
                                          "architecture gpt2; remove it");
    ech_config_destroy(config);
}

TEST(test_resume)
{
    ech_config *saved = sample_create();
    assert_int_equal(sample_read(saved, sample_run), ECH_OK);
    ech_config *now = ech_config_copy(saved);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_OK);
    /* Free keys may change, fixed ones may be said again. */
    assert_int_equal(ech_config_set(now, "training.steps=100"), ECH_OK);
    assert_int_equal(ech_config_set(now, "optimizer.learning_rate=1"), ECH_OK);
    assert_int_equal(ech_config_set(now, "training.seed=1"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_OK);
    assert_int_equal(saved->training.steps, 10);
    assert_int_equal(ech_config_set(now, "training.seed=2"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_last_error("command line: training.seed = 2: 1 in the checkpoint, and may not change");
    assert_int_equal(ech_config_set(now, "training.seed=1"), ECH_OK);
    assert_int_equal(ech_config_set(now, "model.rms_norm_eps=1.0000000000000001e-5"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_OK);
    assert_int_equal(ech_config_set(now, "model.rms_norm_eps=1.000000000000001e-5"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_last_error("1.0e-05 in the checkpoint");
    ech_config_destroy(now);
    now = ech_config_copy(saved);
    /* A layout may change; the model may not. */
    assert_int_equal(ech_config_set(now, "parallel.stage_replicas=[3,1]"), ECH_OK);
    assert_int_equal(ech_config_set(now, "parallel.schedule=any text"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_OK);
    assert_int_equal(ech_config_set(now, "model.tie_word_embeddings=false"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_last_error("model.tie_word_embeddings = false: auto in the checkpoint");
    ech_config_destroy(now);
    now = ech_config_copy(saved);
    assert_int_equal(ech_config_set(now, "data.split=9,1"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_last_error("data.split = 9,1:  in the checkpoint");
    /* All of them in one line. */
    assert_int_equal(ech_config_set(now, "training.seed=2"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_last_error("command line: data.split = 9,1:  in the checkpoint; command line: "
                      "training.seed = 2: 1 in the checkpoint, and may not change on resume; "
                      "set them back");
    ech_config_destroy(now);
    now = ech_config_copy(saved);
    /* Who is told that a position is missing looks for the key that was changed. */
    now->data.sequence_length = 99;
    now->model.max_position_embeddings = 99;
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_null(strstr(ech_last_error(), "max_position_embeddings"));
    assert_last_error("data.sequence_length = 99");
    now->data.sequence_length = saved->data.sequence_length;
    assert_int_equal(ech_config_check_resume(saved, now, ""), ECH_EUSAGE);
    assert_last_error("model.max_position_embeddings = 99 (default): auto in the checkpoint");
    ech_config_destroy(now);
    now = ech_config_copy(saved);
    assert_int_equal(ech_config_set(now, "parallel.flush_every=5"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, "parallel.comm"), ECH_OK);
    assert_int_equal(ech_config_check_resume(saved, now, "parallel.flush_every"), ECH_EUSAGE);
    assert_last_error("parallel.flush_every = 5: auto in the checkpoint");
    ech_config_destroy(now);
    ech_config_destroy(saved);
}

TEST(test_copies_are_apart)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    ech_config *copy = ech_config_copy(config);
    ech_config_replace_text(&copy->checkpoint.directory, "elsewhere");
    ech_config_replace_text(&copy->data.train, copy->data.train);
    assert_int_equal(ech_config_set(copy, "model.architecture=llama"), ECH_OK);
    assert_int_equal(ech_config_set(copy, "parallel.partition=[1, 1]"), ECH_OK);
    assert_int_equal(config->parallel.partition.word, ECH_PARTITION_EVEN);
    assert_string_equal(config->checkpoint.directory, "auto");
    assert_string_equal(ech_config_name(config, "model.architecture"), "gpt2");
    ech_config_destroy(config);
    assert_string_equal(copy->data.train, "corpus/train");
    ech_config_complain(copy, "model.hidden_size", "odd");
    assert_string_equal(ech_last_error(), "run.yaml:3:16: model.hidden_size = 64: odd");
    ech_config_destroy(copy);
    ech_config_destroy(NULL);
}
