/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy: each name trains and is resumed with the bits of the keys that it stands for;
 * a key beside it that says otherwise is an error that says what would do.
 */

#include "app/runs.h"
#include "config/follow.h"
#include "unit.h"

static const struct strategy {
    const char *name;
    int ranks;
    const char *more, *keys; /* beside the name; what both together say */
} strategies[] = {
    {"synchronous", 2, "parallel.data=2", "parallel.data=2"},
    {"one_device", 1, "", "parallel.data=1"},
    {"mirrored", 3, "", "parallel.data=3 parallel.reduction=direct"},
    {"multi_worker_mirrored", 3, "parallel.node_ranks=2",
     "parallel.data=3 parallel.reduction=hierarchical parallel.node_ranks=2"},
    {"tpu", 4, "", "parallel.data=4 parallel.reduction=torus"},
    {"central_storage", 3, "", "parallel.data=3 parallel.reduction=direct"},
};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

TEST(each_has_the_bits_of_its_keys)
{
    for (int i = 0; i < STRATEGIES; i++) {
        const struct strategy *s = &strategies[i];
        char words[400];
        snprintf(words, sizeof words, "training.steps=4 checkpoint.every=2 parallel.strategy=%s %s",
                 s->name, s->more);
        runs_train("gpt2", "named", s->ranks, words);
        runs_remove_checkpoint("named", 4);
        runs_train("gpt2", "named", s->ranks, words); /* resumed */
        snprintf(words, sizeof words, "training.steps=4 checkpoint.every=2 %s", s->keys);
        runs_train("gpt2", "keys", s->ranks, words);
        assert_true(runs_same("named", "keys", 4));
        runs_remove("named");
        runs_remove("keys");
    }
}

/* What is printed as the run's resolved file reads back to the same. */
TEST(resolved_files_say_the_keys)
{
    ech_config *config = fixture_config("gpt2", "parallel.strategy=tpu"), *again;
    ech_text yaml = {0};
    ech_config_print(config, &yaml);
    assert_non_null(strstr(yaml.at, "strategy: tpu"));
    assert_non_null(strstr(yaml.at, "reduction: torus"));
    assert_non_null(strstr(yaml.at, "pipeline: 1"));
    again = fixture_config_of(yaml.at, "");
    assert_non_null(again);
    assert_int_equal(again->parallel.reduction, config->parallel.reduction);
    ech_config_destroy(again);
    ech_config_destroy(config);
    ech_text_free(&yaml);
}

TEST(others_are_errors)
{
    static const struct {
        const char *words, *said;
    } refused[] = {
        {"parallel.strategy=mirrored parallel.reduction=ring",
         "parallel.reduction = ring: parallel.strategy = mirrored says direct"},
        {"parallel.strategy=one_device parallel.data=2",
         "parallel.data = 2: parallel.strategy = one_device says 1"},
        {"parallel.strategy=tpu parallel.tensor=2",
         "parallel.tensor = 2: parallel.strategy = tpu says 1"},
        {"parallel.strategy=multi_worker_mirrored parallel.zero=1",
         "parallel.zero = 1: parallel.strategy = multi_worker_mirrored says 0"},
        {"parallel.strategy=mirrored parallel.comm=mpi",
         "parallel.comm = mpi: parallel.strategy = mirrored says local"},
        {"parallel.strategy=central_storage parallel.comm=ucx",
         "parallel.comm = ucx: parallel.strategy = central_storage says local"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *base =
            "model:\n  architecture: gpt2\n  hidden_size: 16\n  num_hidden_layers: 2\n"
            "  num_attention_heads: 4\n  vocab_size: 257\n"
            "data:\n  train: x\n  sequence_length: 9\n"
            "training:\n  steps: 4\n  global_batch_size: 12\n"
            "optimizer:\n  learning_rate: 1e-2\nlog:\n  directory: x\n";
        assert_null(fixture_config_of(base, refused[i].words));
        if (!strstr(ech_last_error(), refused[i].said))
            fail_msg("%s: %s", refused[i].words, ech_last_error());
    }
}

/* Without parallel.node_ranks the machines are those that the run has: here one. */
TEST(machines_are_known)
{
    runs_train("gpt2", "auto", 2, "training.steps=4 parallel.strategy=multi_worker_mirrored");
    runs_train("gpt2", "given", 2,
               "training.steps=4 parallel.strategy=multi_worker_mirrored parallel.node_ranks=2");
    assert_true(runs_same("auto", "given", 4));
    ech_design design = {0};
    ech_config *config = fixture_config("gpt2", "parallel.reduction=hierarchical");
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 6, 2, &design), ECH_OK);
    assert_int_equal(design.config->parallel.node_ranks, 2);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* A choice that needs another key sets it, and says so; a key that is set keeps its value. */
TEST(defaults_follow)
{
    static const struct {
        const char *words, *key, *value;
    } all[] = {
        {"parallel.strategy=gossip training.steps=12", "parallel.sync_every", "12"},
        {"parallel.strategy=gossip training.steps=12 training.validate_every=8",
         "parallel.sync_every", "4"},
        {"parallel.strategy=gossip parallel.sync_every=3", "parallel.sync_every", "3"},
        {"parallel.strategy=local_sgd", "parallel.sync_every", "1"},
        {"parallel.strategy=hogwild optimizer.weight_decay=0", "optimizer.name", "sgd"},
        {"optimizer.name=muon", "optimizer.momentum", "0.95"},
        {"optimizer.name=muon optimizer.momentum=0.9", "optimizer.momentum", "0.9"},
        {"optimizer.name=sgd optimizer.nesterov=true", "optimizer.momentum", "0.9"},
        {"memory.offload_parameters=disk", "memory.offload_optimizer", "disk"},
        {"memory.offload_parameters=host", "memory.offload_optimizer", "host"},
        {"memory.offload_parameters=disk memory.offload_optimizer=host", "memory.offload_optimizer",
         "host"},
        {"parallel.zero_keep=true", "parallel.zero", "3"},
        {"memory.recompute_blocks=2", "memory.recompute", "full"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ECH_FREED_TEXT value = {0}, said = {0}, yaml = {0};
        char line[100], set[100];
        ech_config *config = fixture_config("gpt2", all[i].words);
        ech_config_format(config, all[i].key, &value);
        ech_config_print_followed(config, "", &said);
        ech_config_print(config, &yaml);
        if (strcmp(value.at, all[i].value) != 0) fail_msg("%s: %s", all[i].words, value.at);
        snprintf(line, sizeof line, "  %s: %s\n", strchr(all[i].key, '.') + 1, all[i].value);
        assert_non_null(strstr(yaml.at, line));
        snprintf(line, sizeof line, "%s = %s (", all[i].key, all[i].value);
        snprintf(set, sizeof set, "%s=", all[i].key);
        bool follows = !strstr(all[i].words, set) && strcmp(all[i].value, "1") != 0;
        assert_int_equal(said.n && strstr(said.at, line), follows);
        ech_config_destroy(config);
    }
}

/* What follows a choice may exclude another one: the error names the choice. */
TEST(errors_name_the_choice)
{
    ech_design design = {0};
    ech_config *config =
        fixture_config("gpt2", "parallel.strategy=local_sgd memory.offload_parameters=host");
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 2, 2, &design), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(),
                           "not with memory.offload_optimizer = host, which follows from "
                           "memory.offload_parameters = host: "));
    ech_config_destroy(config);
}

ALL_TESTS(fixture_setup, fixture_teardown)
