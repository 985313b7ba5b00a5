/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers with statistics on grids: which steps a plan has, and what is kept; rates and decay of
 * groups of parameters, and that the gradient is that of the loss, which one rank and a layout have
 * alike. Other results are the lattice's matter (app/lattice).
 */

#include <math.h>

#include "app/experts.h"
#include "app/grid_run.h"
#include "schedule/peaks.h"
#include "schedule/states.h"
#include "unit.h"

enum { MOST_PARAMS = 100 };

/* ---- plans ---- */

static ech_list *train_list(const grid_plans *g)
{
    return &g->plan[0]->list[ECH_LIST_TRAIN];
}

static int count_steps(const grid_plans *g, ech_step_kind kind)
{
    int n = 0;
    for (size_t s = 0; s < train_list(g)->step.n; s++) n += train_list(g)->step.at[s].kind == kind;
    return n;
}

/* Rounds where the optimizer declares them; folds where an axis is sharded, and nowhere else. */
TEST(test_rounds)
{
    grid_plans none = grid_plan("llama", "parallel.tensor=2");
    grid_plans whole = grid_plan("llama", "optimizer.name=adafactor");
    grid_plans data = grid_plan("llama", "optimizer.name=adafactor parallel.data=2");
    grid_plans cut = grid_plan("llama", "optimizer.name=adafactor parallel.tensor=2");
    assert_int_equal(count_steps(&none, ECH_STEP_STATISTICS), 0);
    assert_int_equal(count_steps(&whole, ECH_STEP_STATISTICS), 2 * (int)whole.plan[0]->bucket.n);
    assert_int_equal(count_steps(&data, ECH_STEP_STATISTICS), 2 * (int)data.plan[0]->bucket.n);
    assert_int_equal(count_steps(&none, ECH_STEP_FOLD), 0);
    assert_int_equal(count_steps(&whole, ECH_STEP_FOLD), 0);
    assert_int_equal(count_steps(&data, ECH_STEP_FOLD), 0);
    assert_true(count_steps(&cut, ECH_STEP_FOLD) > 0);
    grid_plans_free(&none);
    grid_plans_free(&whole);
    grid_plans_free(&data);
    grid_plans_free(&cut);
}

#define MUON "optimizer.name=muon optimizer.momentum=0.95 "

/* Of Muon, buckets that have a matrix of a layer; a bucket of each parameter shows it. */
TEST(test_rounds_of_some)
{
    for (int tensor = 1; tensor <= 2; tensor++) {
        char words[100];
        int matrices = 0;
        snprintf(words, sizeof words, MUON "parallel.bucket_bytes=1 parallel.tensor=%d", tensor);
        grid_plans g = grid_plan("gpt2", words);
        for (size_t p = 0; p < g.design.model->param.n; p++) {
            const ech_shape *shape = &g.design.model->param.at[p].shape;
            matrices += shape->dims == 2 && !ech_shape_has(shape, ECH_AXIS_VOCAB) &&
                        !ech_shape_has(shape, ECH_AXIS_POSITION);
        }
        assert_int_equal(matrices, 2 * 4);
        assert_int_equal(count_steps(&g, ECH_STEP_STATISTICS), 2 * matrices);
        assert_int_equal(count_steps(&g, ECH_STEP_FOLD), tensor > 1 ? matrices : 0);
        grid_plans_free(&g);
    }
}

/* With ZeRO one member of the group makes a matrix' direction, and none makes more than its share
 * and one matrix: also of those that a tensor rank has, and of key/value heads that several have.
 * All members know who. */
TEST(test_owners)
{
    for (int tensor = 1; tensor <= 4; tensor *= 4) {
        char words[200];
        snprintf(words, sizeof words,
                 MUON "parallel.data=2 parallel.zero=1 parallel.tensor=%d "
                      "model.num_key_value_heads=2 parallel.bucket_bytes=8KiB",
                 tensor);
        grid_plans g = grid_plan("llama", words);
        const ech_model *model = g.design.model;
        double flops[2][8] = {{0}},
               most = 0; /* of matrices of the layers, and of keys and values */
        for (int rank = 0; rank < 2 * tensor; rank++)
            for (int p = 0; p < (int)model->param.n; p++) {
                const ech_plan *plan = g.plan[rank], *first = g.plan[0];
                double one = plan->optimizer->flops(&model->param.at[p]);
                ech_layout_group group = plan->bucket.at[plan->param[p].bucket].group;
                assert_int_equal(plan->owner.at[plan->param[p].first_owner],
                                 first->owner.at[first->param[p].first_owner]);
                if (plan->param[p].statistics == 0) continue;
                if (one > most) most = one;
                ech_step round = {
                    .kind = ECH_STEP_STATISTICS, .index = plan->param[p].bucket, .count = 1};
                if (ech_step_takes_part(plan, &round, p, 0, round.count))
                    flops[group == ECH_GROUP_KEY_VALUE][rank] += one;
            }
        for (int kind = 0; kind < 2; kind++)
            for (int rank = 0; rank < 2 * tensor; rank++)
                for (int other = 0; other < 2 * tensor; other++)
                    assert_true(flops[kind][rank] <= flops[kind][other] + most);
        assert_true(flops[0][0] > 0 && flops[0][2 * tensor - 1] > 0);
        grid_plans_free(&g);
    }
}

/* Of a matrix n + m numbers over all shards, and those of an axis that is not cut on every rank. */
TEST(test_memory)
{
    for (int tensor = 1; tensor <= 2; tensor++) {
        char words[100];
        snprintf(words, sizeof words, "optimizer.name=adafactor parallel.tensor=%d", tensor);
        grid_plans g = grid_plan("llama", words);
        int64_t peak[ECH_MEMORY_KINDS], bytes = 0;
        for (size_t p = 0; p < g.design.model->param.n; p++) {
            const ech_shape *shape = &g.design.model->param.at[p].shape;
            int64_t size[ECH_MAX_DIMS];
            ech_shape_resolve(shape, ech_extent_of_params(g.design.layout->sharding), size);
            for (int d = 0; d < shape->dims; d++)
                bytes += ech_align(size[d] * (int64_t)sizeof(double), 64);
        }
        ech_plan_peaks(g.plan[0], peak);
        assert_int_equal(peak[ECH_MEMORY_OPTIMIZER], bytes);
        assert_true(peak[ECH_MEMORY_STATISTICS] > 0);
        grid_plans_free(&g);
    }
}

/* ---- groups of parameters ---- */

typedef struct left {
    double worst; /* the largest difference of a weight from what is to be left of it */
    int elements[2][2]; /* [decay][the rate is not 1] which are not zero */
} left;

/* Gradients are clipped to almost nothing: what a step of SGD leaves of a weight is what its own
 * decay and rate do. */
static ech_status decay(void *context, int rank, ech_compared_run *c)
{
    left *l = context;
    const ech_model *model = c->design->model;
    ech_exec *exec = c->session.exec;
    ECH_ASSERT(model->param.n <= MOST_PARAMS);
    double *before[MOST_PARAMS];
    for (int p = 0; p < (int)model->param.n; p++) {
        ech_tensor x = ech_exec_param(exec, p);
        before[p] = ech_calloc((size_t)ech_tensor_count(&x), sizeof *before[p]);
        ech_exec_read(exec, &x, before[p]);
    }
    ech_status status = ech_exec_run(exec, ECH_LIST_TRAIN, 0);
    for (int p = 0; p < (int)model->param.n; p++) {
        const ech_param *of = &model->param.at[p];
        ech_tensor x = ech_exec_param(exec, p);
        double factor = 1 - c->design->config->optimizer.learning_rate * of->rate *
                                (of->decay ? c->design->config->optimizer.weight_decay : 0);
        for (int64_t i = 0; i < ech_tensor_count(&x) && rank == 0; i++) {
            double off = fabs(((double *)x.data)[i] - before[p][i] * factor);
            if (!(off <= l->worst)) l->worst = off;
            l->elements[of->decay][of->rate != 1] += before[p][i] != 0;
        }
        free(before[p]);
    }
    return status;
}

TEST(test_groups)
{
    left l = {0};
    grid_run("gpt2",
             "optimizer.name=sgd optimizer.clip_norm=1e-20 optimizer.schedule=constant "
             "optimizer.learning_rate=0.25 optimizer.weight_decay=0.5 optimizer.rates=*.1.*=0.5 "
             "optimizer.no_decay=*.0.mlp* parallel.data=2",
             decay, &l);
    if (!(l.worst < 1e-15)) fail_msg("a weight is off by %g", l.worst);
    for (int d = 0; d < 2; d++)
        for (int r = 0; r < 2; r++) assert_true(l.elements[d][r] >= 64);
}

/* ---- gradients ---- */

/* The same samples twice: a small step against the gradient lowers the loss, with what routers add,
 * by the square of its norm. */
static ech_status descend(void *context, int rank, ech_compared_run *c)
{
    double *ratio = context, loss[2] = {0}, moved = 0;
    for (int i = 0; i < 2; i++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, 0));
        const ech_readings *r = ech_exec_readings(c->session.exec);
        ech_expert_metrics experts;
        ech_expert_metrics_take(c->design->model, r->reports, &experts);
        loss[i] = r->loss + experts.auxiliary;
        if (i == 0) moved = r->learning_rate * r->grad_norm * r->grad_norm;
    }
    if (rank == 0) *ratio = (loss[0] - loss[1]) / moved;
    return ECH_OK;
}

/* The gradient is that of the loss, the mean over tokens; what routers add is a mean over groups of
 * samples. */
TEST(test_gradient_is_of_the_loss)
{
#define SWITCH                                                                                     \
    "model.num_local_experts=4 model.num_experts_per_tok=1 model.moe_gate=switch "                 \
    "model.router_aux_loss_coef=2 training.micro_batch_size=2 model.moe_group_samples="
    static const char *const more[] = {"", "parallel.data=2", "parallel.tensor=2",
                                       "training.micro_batch_size=1 data.document_mask=true",
                                       SWITCH "1", SWITCH "2 parallel.data=2"};
    for (int i = 0; i < 6; i++) {
        char words[500];
        double ratio = 0;
        snprintf(words, sizeof words,
                 "optimizer.name=sgd optimizer.clip_norm=0 optimizer.learning_rate=1e-6 "
                 "optimizer.schedule=constant optimizer.weight_decay=0 %s",
                 more[i]);
        grid_run(i < 4 ? "llama" : "mixtral", words, descend, &ratio);
        if (!(fabs(ratio - 1) < 1e-3)) fail_msg("%s: %g", more[i], ratio);
    }
#undef SWITCH
}

ALL_TESTS(grid_setup, fixture_teardown)
