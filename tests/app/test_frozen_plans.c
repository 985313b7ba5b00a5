/* SPDX-License-Identifier: Apache-2.0
 *
 * Frozen parameters (optimizer.rates = PATTERN=0) in plans: no gradients, optimizer states, masters
 * and steps; the backward ends at the lowest trained parameter. Values are the same as PyTorch's
 * (check_frozen.py), and layouts agree (lattice).
 */
#include <math.h>

#include "app/grid_run.h"
#include "schedule/states.h"
#include "schedule/traffic.h"
#include "unit.h"

static const ech_list *train_of(const ech_plan *plan)
{
    return &plan->list[ECH_LIST_TRAIN];
}

static bool has_step(const ech_plan *plan, ech_phase phase, int block)
{
    const ech_list *list = train_of(plan);
    for (size_t s = 0; s < list->step.n; s++)
        if (ech_step_kind_phase(list->step.at[s].kind) == (int)phase &&
            list->step.at[s].block == block)
            return true;
    return false;
}

static int count_kind(const ech_plan *plan, ech_step_kind kind)
{
    int n = 0;
    for (size_t s = 0; s < train_of(plan)->step.n; s++)
        n += train_of(plan)->step.at[s].kind == kind;
    return n;
}

/* Elements that this rank updates, by what the model says. */
static int64_t trained_here(const ech_plan *plan)
{
    int64_t n = 0;
    for (size_t p = 0; p < plan->model->param.n; p++)
        if (plan->param[p].bucket >= 0 && ech_param_is_trained(&plan->model->param.at[p]))
            n += plan->param[p].elements;
    return n;
}

/* No call writes a gradient of a frozen parameter, and no step works on its bucket. */
static void check_steps(const ech_plan *plan)
{
    const ech_model *model = plan->model;
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        for (size_t i = 0; i < block->operand.n; i++) {
            const ech_operand *o = &block->operand.at[i];
            if (o->port == ECH_PORT_DPARAM) assert_false(model->param.at[o->value].frozen);
        }
        for (size_t c = 0; c < block->program[ECH_BACKWARD_WEIGHT].n; c++) {
            const ech_block_call *call = &block->program[ECH_BACKWARD_WEIGHT].at[c];
            const ech_node *node = call->node < 0 ? NULL : &block->node.at[call->node];
            bool trained = !node || call->recompute;
            for (int i = 0; !trained && i < node->params; i++)
                trained = ech_param_is_trained(&model->param.at[node->param[i]]);
            assert_true(trained);
        }
    }
    for (size_t s = 0; s < train_of(plan)->step.n; s++) {
        const ech_step *step = &train_of(plan)->step.at[s];
        if (!ech_step_has_bucket(step) || ech_step_brings_weights(step)) continue;
        assert_false(plan->bucket.at[step->index].frozen);
    }
}

/* AdamW: two states per trained element, in bf16 runs a master of each matrix. */
static void check_bytes(const ech_plan *plan, int64_t shares)
{
    int64_t n = trained_here(plan) / shares, states = 0, gradients = 0;
    int64_t numbers[ECH_DTYPES];
    ech_plan_numbers(plan, ECH_MEMORY_OPTIMIZER, numbers);
    for (int d = 0; d < ECH_DTYPES; d++) states += numbers[d];
    assert_int_equal(states, 2 * n);
    ech_plan_numbers(plan, ECH_MEMORY_GRADIENTS, numbers);
    for (int d = 0; d < ECH_DTYPES; d++) gradients += numbers[d];
    assert_int_equal(gradients, trained_here(plan));
}

#define GRID "training.micro_batch_size=1 training.global_batch_size=4 precision.compute=fp32 "

TEST(test_bytes_and_steps)
{
    static const char *const frozen[] = {"optimizer.rates=*.0.*=0",
                                         "optimizer.rates=*norm*=0",
                                         "optimizer.rates=*mlp*=0",
                                         "optimizer.rates=*embed*=0",
                                         "optimizer.rates=*=0\t*.1.*=1",
                                         "optimizer.rates=*=0\t*q_proj*=1",
                                         "lora.rank=2 lora.targets=all-linear"};
    static const char *const layouts[] = {"", "parallel.pipeline=2", "parallel.tensor=2",
                                          "memory.recompute=full", "memory.offload_optimizer=host"};
    for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++)
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
            char words[400];
            snprintf(words, sizeof words, GRID "%s %s", layouts[k], frozen[i]);
            grid_plans g = grid_plan("llama", words);
            for (int r = 0; r < g.ranks; r++) {
                check_steps(g.plan[r]);
                if (!strstr(layouts[k], "offload")) check_bytes(g.plan[r], 1);
            }
            grid_plans_free(&g);
        }
}

/* Reductions send the trained parameters alone. */
TEST(test_traffic)
{
    int64_t bytes[2];
    for (int frozen = 0; frozen < 2; frozen++) {
        ech_traffic traffic[ECH_TRAFFIC_AXES];
        grid_plans g = grid_plan("llama", frozen ? GRID "parallel.data=2 optimizer.rates=*mlp*=0"
                                                 : GRID "parallel.data=2");
        ech_plan_traffic(g.plan[0], traffic);
        bytes[frozen] =
            ech_traffic_of(&traffic[ECH_TRAFFIC_DATA], ECH_COLLECTIVE_ALL_REDUCE, ECH_GROUP_DATA)
                .bytes;
        /* direct: 2 (N - 1) / N of all with padding, N = 2 ranks */
        int64_t elements = trained_here(g.plan[0]);
        for (size_t b = 0; b < g.plan[0]->bucket.n; b++)
            if (!g.plan[0]->bucket.at[b].frozen) elements += g.plan[0]->bucket.at[b].padding;
        assert_int_equal(bytes[frozen], elements * (int64_t)sizeof(float));
        grid_plans_free(&g);
    }
    assert_true(bytes[1] < bytes[0]);
}

/* Embedding and first layer frozen: their blocks have no backward, nothing is recomputed for them,
 * and a stage with these alone receives no gradients. */
TEST(test_backward_ends)
{
    grid_plans g = grid_plan("llama", GRID "model.num_hidden_layers=4 memory.recompute=full "
                                           "optimizer.rates=*embed*=0\t*.0.*=0");
    for (int b = 0; b < 6; b++) {
        bool backward = has_step(g.plan[0], ECH_BACKWARD_INPUT, b);
        assert_true(backward == (b >= 2));
        assert_true(has_step(g.plan[0], ECH_RECOMPUTE, b) == (b >= 2 && b < 5));
        assert_true(g.design.model->block.at[b]->frozen_below == (b <= 2));
    }
    grid_plans_free(&g);
    g = grid_plan("llama", GRID "model.num_hidden_layers=4 parallel.pipeline=2 "
                                "optimizer.rates=*=0\t*lm_head*=1");
    assert_int_equal(count_kind(g.plan[0], ECH_STEP_RECV_GRAD), 0);
    assert_int_equal(count_kind(g.plan[1], ECH_STEP_SEND_GRAD), 0);
    assert_int_equal(count_kind(g.plan[0], ECH_STEP_SEND_ACT), 4);
    assert_int_equal(count_kind(g.plan[0], ECH_STEP_UPDATE), 0);
    assert_int_equal(count_kind(g.plan[1], ECH_STEP_UPDATE), 1);
    grid_plans_free(&g);
}

/* Below ZeRO 3 each rank has all frozen weights; ZeRO 3 shards and gathers them, too. */
TEST(test_zero)
{
    for (int zero = 1; zero <= 3; zero++) {
        char words[200];
        snprintf(words, sizeof words,
                 GRID "parallel.data=2 parallel.zero=%d optimizer.rates=*mlp*=0", zero);
        grid_plans g = grid_plan("llama", words);
        for (size_t b = 0; b < g.plan[0]->bucket.n; b++) {
            const ech_bucket *bucket = &g.plan[0]->bucket.at[b];
            if (!bucket->frozen) continue;
            assert_true(ech_bucket_is_gathered(bucket) == (zero == 3));
            assert_int_equal(ech_bucket_kept(bucket), bucket->elements / (zero == 3 ? 2 : 1));
            assert_int_equal(bucket->states, 0);
        }
        check_steps(g.plan[0]);
        grid_plans_free(&g);
    }
}

/* Of a bf16 run with adapters: they alone have masters and two states, each in fp32. */
TEST(test_masters_of_adapters)
{
    grid_plans g = grid_plan("llama", "training.micro_batch_size=1 training.global_batch_size=4 "
                                      "precision.compute=bf16 lora.rank=2 lora.targets=all-linear");
    const ech_model *model = g.design.model;
    int64_t numbers[ECH_DTYPES], adapters = 0, base = 0, vectors = 0;
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_param *param = &model->param.at[p];
        int64_t n = ech_shape_whole(&param->shape);
        *(param->adapter ? &adapters : param->type == ECH_TYPE_WIDE ? &vectors : &base) += n;
    }
    assert_true(adapters > 0 && adapters * 5 < base);
    ech_plan_numbers(g.plan[0], ECH_MEMORY_OPTIMIZER, numbers);
    assert_int_equal(numbers[ECH_F32], 3 * adapters);
    ech_plan_numbers(g.plan[0], ECH_MEMORY_GRADIENTS, numbers);
    assert_int_equal(numbers[ECH_F32], adapters);
    ech_plan_numbers(g.plan[0], ECH_MEMORY_PARAMETERS, numbers);
    assert_int_equal(numbers[ECH_BF16], base + adapters);
    assert_int_equal(numbers[ECH_F32], vectors);
    grid_plans_free(&g);
}

/* A frozen matrix has no master in a bf16 run, and one slot under weight stashing. */
TEST(test_masters_and_versions)
{
    grid_plans g = grid_plan("llama", "training.micro_batch_size=1 training.global_batch_size=4 "
                                      "precision.compute=bf16 parallel.pipeline=2 "
                                      "parallel.schedule=pipedream optimizer.rates=*mlp*=0");
    const ech_plan *plan = g.plan[0];
    assert_true(plan->versions > 1);
    for (size_t b = 0; b < plan->bucket.n; b++)
        assert_int_equal(plan->bucket.at[b].versions,
                         plan->bucket.at[b].frozen ? 1 : plan->versions);
    for (size_t p = 0; p < plan->model->param.n; p++)
        if (plan->model->param.at[p].frozen) assert_int_equal(plan->param[p].states, 0);
    grid_plans_free(&g);
}

/* FLOPs of a step: 4 per frozen parameter and token, 6 per trained one. */
TEST(test_flops)
{
    grid_plans all = grid_plan("llama", GRID);
    grid_plans g = grid_plan("llama", GRID "optimizer.rates=*mlp*=0");
    double frozen = (double)(ech_model_params(g.design.model) - ech_model_trained(g.design.model));
    double less = all.design.sample_flops - g.design.sample_flops;
    double tokens = (double)g.config->data.sequence_length;
    assert_true(frozen > 0 && fabs(less - 2 * frozen * tokens) < 1e-6 * less);
    grid_plans_free(&all);
    grid_plans_free(&g);
}

ALL_TESTS(grid_setup, fixture_teardown)
