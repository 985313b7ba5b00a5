/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy: each name trains and is resumed with the bits of the keys that it stands for;
 * a key beside it that says otherwise is an error that says what would do.
 */

#include "app/runs.h"
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

/* Which ranks are a worker's nobody can know beforehand. */
TEST(workers_must_be_known)
{
    assert_int_equal(runs_try("gpt2", "run", 2, "parallel.strategy=multi_worker_mirrored"),
                     ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "set parallel.node_ranks"));
}

ALL_TESTS(fixture_setup, fixture_teardown)
