/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of the parallel keys: what "auto" is, and what is refused, with which words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layout/sample.h"

/* `words`: of the message, divided by "|". */
static void refuse(const char *keys, int ranks, const char *words)
{
    ech_config *config = sample_config("gpt2");
    sample s;
    sample_set(config, keys);
    ech_clear_error();
    bool quiet = ech_log_set_quiet(true);
    ech_status status = sample_try(config, ranks, &s);
    ech_log_set_quiet(quiet);
    assert_int_equal(status, ECH_EUSAGE);
    assert_true(sample_error_has(words));
    sample_free(&s);
}

static void expect(const char *keys, int ranks, int pipeline, int data, int micro_batch_size)
{
    ech_config *config = sample_config("gpt2");
    config->training.micro_batch_size = ECH_AUTO;
    sample_set(config, keys);
    sample s = sample_create(config, ranks);
    assert_int_equal(config->parallel.pipeline, pipeline);
    assert_int_equal(config->parallel.data, data);
    assert_int_equal(config->training.micro_batch_size, micro_batch_size);
    /* What was resolved resolves to itself. */
    assert_int_equal(ech_layout_resolve(config, s.model, NULL, ranks), ECH_OK);
    assert_int_equal(config->parallel.pipeline, pipeline);
    assert_int_equal(config->parallel.data, data);
    assert_int_equal(config->training.micro_batch_size, micro_batch_size);
    sample_free(&s);
}

static void test_auto(void **state)
{
    (void)state;
    expect("", 1, 1, 1, 24);
    expect("", 4, 1, 4, 6);
    expect("parallel.pipeline=2", 4, 2, 2, 12);
    expect("parallel.pipeline=2 parallel.data=2", 4, 2, 2, 12);
    expect("parallel.data=3", 3, 1, 3, 8);
    expect("parallel.stage_replicas=[3,1]", 4, 2, 1, 8);
    expect("parallel.stage_replicas=[1,2,1] training.micro_batch_size=3", 4, 3, 1, 3);
    expect("parallel.stage_replicas=[3,1] training.global_batch_size=7", 4, 2, 1, 1);
    /* What context and tensor ranks leave over. */
    expect("parallel.tensor=2", 8, 1, 4, 6);
    expect("parallel.tensor=2 parallel.context=2 parallel.pipeline=2", 16, 2, 2, 12);
    expect("parallel.tensor=2 parallel.data=2", 4, 1, 2, 12);
    expect("parallel.stage_replicas=[3,1] parallel.context=2", 8, 2, 1, 8);
}

static void test_ranks(void **state)
{
    (void)state;
    refuse("parallel.pipeline=2 parallel.data=2", 3,
           "parallel.pipeline = 2|pipeline 2 x data 2 |needs 4 ranks|3 were started|"
           "--ranks 4");
    refuse("parallel.data=2", 3, "parallel.data = 2|needs 2 ranks|--ranks 2|leave parallel.data");
    refuse("parallel.pipeline=2", 5, "parallel.pipeline = 2|do not divide 5 ranks|--ranks 4");
    refuse("parallel.pipeline=4", 3, "4 stages do not divide 3 ranks|--ranks 4");
    refuse("parallel.stage_replicas=[3,1]", 3, "stage_replicas = [3,1]|needs 4 ranks|--ranks 4");
    refuse("parallel.stage_replicas=[3,1] parallel.pipeline=3", 4, "2 numbers for 3 stages");
    refuse("parallel.stage_replicas=[3,1] parallel.data=2", 4,
           "parallel.data = 2|leave it out|parallel.stage_replicas");
}

static void test_stages(void **state)
{
    (void)state;
    refuse("parallel.pipeline=6 parallel.data=1", 6,
           "parallel.pipeline = 6|6 stages for 5 blocks|3 layers|at most 5 stages");
    refuse("parallel.pipeline=2 parallel.virtual_stages=3 parallel.data=1", 2,
           "parallel.virtual_stages = 3|6 stages (pipeline x virtual_stages) for 5 blocks|at most "
           "2 virtual stages");
    /* What is offered is above 0, and one of a thing is one. */
    refuse("parallel.pipeline=8 parallel.virtual_stages=2", 8,
           "parallel.pipeline = 8|16 stages|at most 2 stages");
    refuse("parallel.virtual_stages=6", 2, "parallel.virtual_stages = 6|at most 5 virtual stages");
    refuse("parallel.pipeline=6 parallel.virtual_stages=6", 6, "at most 1 virtual stage");
    refuse("parallel.pipeline=4 model.num_hidden_layers=1", 4, "(embedding, 1 layer, head)");
    refuse("parallel.pipeline=2 parallel.partition=[3]", 2, "1 number for 2 stages");
    refuse("parallel.stage_replicas=[3] parallel.pipeline=2", 3, "1 number for 2 stages");
    refuse("parallel.context=2", 1, "2 context ranks do not divide 1 rank;");
    refuse("parallel.tensor=3 model.num_attention_heads=1", 3, "do not divide 1 attention head;");
    refuse("parallel.partition=[1]", 1, "1 layer in all, and the model has 3");
    refuse("parallel.stage_replicas=[1,1,1,1,1,1]", 6, "6 stages for 5 blocks");
}

static void test_partition(void **state)
{
    (void)state;
    refuse("parallel.pipeline=2 parallel.partition=[2,2]", 2,
           "parallel.partition = [2,2]|4 layers in all|the model has 3");
    refuse("parallel.pipeline=2 parallel.partition=[1,1]", 2, "2 layers in all|has 3");
    refuse("parallel.pipeline=2 parallel.partition=[1,1,1]", 2, "3 numbers for 2 stages|one each");
    refuse("parallel.pipeline=2 parallel.virtual_stages=2 parallel.partition=[2,1]", 2,
           "2 numbers for 4 stages (pipeline x virtual_stages)");
    refuse("parallel.pipeline=3 parallel.partition=[2,0,1]", 3, "stage 1 has no layer");
    refuse("parallel.partition=auto", 2, "echelon profile|parallel.profile");
    refuse("parallel.partition=auto parallel.stage_replicas=[1,1]", 2, "leave one of the two out");
}

static void test_batches(void **state)
{
    (void)state;
    refuse("parallel.data=5", 5, "global_batch_size = 24|does not divide by parallel.data = 5|25");
    refuse("parallel.data=2 training.micro_batch_size=5", 2, "micro_batch_size x data = 5 x 2|20");
    refuse("parallel.stage_replicas=[3,1] training.micro_batch_size=5", 4,
           "does not divide by micro_batch_size = 5|25 would");
    refuse("parallel.stage_replicas=[3,1] training.micro_batch_size=12", 4,
           "makes 2 micro-batches|a stage of 3 replicas|at least 3");
    refuse("parallel.data=1 training.global_batch_size=1000000 training.micro_batch_size=1", 1,
           "more than a plan's|larger training.micro_batch_size");
}

/* ---- parallel.partition = auto ---- */

/* Blocks: embedding, three layers, head. Seconds of all phases together, and bytes of parameters, over
 * links of a byte a second on which activations are free. */
static void expect_partition(const char *keys, int ranks, const double seconds[5],
                             const int64_t bytes[5], const char *partition, const char *replicas)
{
    ech_block_cost block[5];
    ech_profile profile = {.blocks = 5, .block = block, .bandwidth = 1};
    for (int b = 0; b < 5; b++)
        block[b] = (ech_block_cost){.seconds = {seconds[b], 0, 0}, .param_bytes = bytes[b]};
    ech_config *config = sample_config("gpt2");
    config->training.micro_batch_size = 1;
    sample_set(config, keys);
    ech_model *model;
    assert_int_equal(ech_model_resolve(config, 50), ECH_OK);
    assert_int_equal(ech_model_create(config, &model), ECH_OK);
    for (int again = 0; again < 2; again++) { /* what was found resolves to itself, without costs */
        assert_int_equal(ech_layout_resolve(config, model, again ? NULL : &profile, ranks), ECH_OK);
        assert_string_equal(config->parallel.partition, partition);
        assert_string_equal(config->parallel.stage_replicas, replicas);
    }
    ech_layout *layout;
    assert_int_equal(ech_layout_create(config, model, ranks, &layout), ECH_OK);
    ech_layout_destroy(layout);
    ech_model_destroy(model);
    ech_config_destroy(config);
}

static void test_partition_auto(void **state)
{
    (void)state;
    const double even[5] = {0, 2, 2, 2, 0}, front[5] = {0, 4, 1, 1, 0}, wide[5] = {0, 6, 3, 1, 1};
    const int64_t none[5] = {0}, heavy[5] = {99, 99, 99, 99, 99}, end[5] = {0, 0, 0, 99, 99};
    /* Nothing to sum up: replicas alone. Much to sum up: stages alone. */
    expect_partition("parallel.partition=auto", 3, even, none, "[3]", "auto");
    expect_partition("parallel.partition=auto", 3, even, heavy, "[1, 1, 1]", "auto");
    expect_partition("parallel.partition=auto parallel.pipeline=2", 2, front, heavy, "[1, 2]",
                     "auto");
    /* What computes in replicas, what has parameters on one rank: PipeDream's "3-1". */
    expect_partition("parallel.partition=auto", 4, wide, end, "[2, 1]", "[3, 1]");
    /* Tensor ranks, or context ranks, are one worker together. */
    expect_partition("parallel.partition=auto parallel.tensor=2", 8, wide, end, "[2, 1]", "[3, 1]");
    expect_partition("parallel.partition=auto parallel.tensor=2 parallel.context=2 "
                     "parallel.node_ranks=12",
                     12, even, heavy, "[1, 1, 1]", "auto");
    expect_partition("parallel.partition=auto parallel.tensor=2 parallel.data=1", 6, even, none,
                     "[1, 1, 1]", "auto");
    /* Chunks of a rank. */
    expect_partition("parallel.partition=auto parallel.pipeline=2 parallel.virtual_stages=2", 2,
                     even, heavy, "[0, 1, 1, 1]", "auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto),    cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_stages),  cmocka_unit_test(test_partition),
        cmocka_unit_test(test_batches), cmocka_unit_test(test_partition_auto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
