/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of the parallel keys: what "auto" is, and what is refused, with which words.
 */

#include "layout/sample.h"
#include "unit.h"

/* `words`: of the message, divided by "|". */
static void refuse(const char *keys, int ranks, const char *words)
{
    ech_config *config = sample_config("gpt2");
    sample s;
    sample_set(config, keys);
    ech_clear_error();
    ech_status status = sample_try(config, ECH_PLACEMENT_LOOP, ranks, &s);
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
    assert_int_equal(ech_layout_resolve(config, s.model, ranks, NULL), ECH_OK);
    assert_int_equal(config->parallel.pipeline, pipeline);
    assert_int_equal(config->parallel.data, data);
    assert_int_equal(config->training.micro_batch_size, micro_batch_size);
    sample_free(&s);
}

TEST(test_auto)
{
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

TEST(test_ranks)
{
    refuse("parallel.pipeline=2 parallel.data=2", 3,
           "parallel.pipeline = 2|pipeline 2 x data 2 |needs 4 ranks|3 were started|"
           "--ranks 4");
    refuse("parallel.data=2", 3, "parallel.data = 2|needs 2 ranks|--ranks 2|leave parallel.data");
    refuse("parallel.pipeline=2", 5, "parallel.pipeline = 2|do not divide 5 ranks|--ranks 4");
    refuse("parallel.pipeline=4", 3, "4 stages do not divide 3 ranks|--ranks 4");
    refuse("parallel.stage_replicas=[3,1]", 3, "stage_replicas = [3,1]|needs 4 ranks|--ranks 4");
    refuse("parallel.stage_replicas=[3,1] parallel.pipeline=3", 4, "2 numbers for 3 stages");
}

TEST(test_stages)
{
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

TEST(test_partition)
{
    refuse("parallel.pipeline=2 parallel.partition=[2,2]", 2,
           "parallel.partition = [2,2]|4 layers in all|the model has 3");
    refuse("parallel.pipeline=2 parallel.partition=[1,1]", 2, "2 layers in all|has 3");
    refuse("parallel.pipeline=2 parallel.partition=[1,1,1]", 2, "3 numbers for 2 stages|one each");
    refuse("parallel.pipeline=2 parallel.virtual_stages=2 parallel.partition=[2,1]", 2,
           "2 numbers for 4 stages (pipeline x virtual_stages)");
    refuse("parallel.pipeline=3 parallel.partition=[2,0,1]", 3, "stage 1 has no layer");
}

TEST(test_batches)
{
    refuse("parallel.data=5", 5,
           "global_batch_size = 24|does not divide by parallel.data = 5; 20 would");
    refuse("parallel.data=2 training.micro_batch_size=5", 2, "micro_batch_size x data = 5 x 2|20");
    refuse("parallel.stage_replicas=[3,1] training.micro_batch_size=5", 4,
           "does not divide by micro_batch_size = 5|25 would");
    refuse("parallel.stage_replicas=[3,1] training.micro_batch_size=12", 4,
           "makes 2 micro-batches|a stage of 3 replicas|at least 3");
    refuse("parallel.data=1 training.global_batch_size=1000000 training.micro_batch_size=1", 1,
           "more than the 131072 that its plan|training.micro_batch_size = 40");
}
