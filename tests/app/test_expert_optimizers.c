/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers of experts: what a stack of them becomes is what each becomes alone, as a matrix of
 * its own with rows, columns, blocks and a direction of its own.
 */

#include <math.h>

#include "app/grid_run.h"
#include "optim/optimized.h"
#include "unit.h"

enum { STEPS = 4, EXPERTS = 5 };

/* Five experts: members that share them out have parts of one. */
#define SIZES                                                                                      \
    "model.num_key_value_heads=2 model.num_local_experts=5 model.intermediate_size=24 "            \
    "training.micro_batch_size=1 optimizer.clip_norm=0 "

static const char *const optimizers[] = {
    "optimizer.name=adamw optimizer.eps=1e-6",
    "optimizer.name=sgd optimizer.momentum=0.9 optimizer.nesterov=true",
    "optimizer.name=adamw8 optimizer.block=4 optimizer.eps=1e-6",
    "optimizer.name=adamw8 optimizer.block=20 optimizer.eps=1e-6",
    "optimizer.name=sm3 optimizer.momentum=0.9",
    "optimizer.name=adafactor",
    "optimizer.name=adafactor optimizer.momentum=0.9 optimizer.scale_parameter=false",
    "optimizer.name=muon optimizer.momentum=0.95 optimizer.nesterov=true",
    "optimizer.name=muon optimizer.momentum=0.8 optimizer.adjust_rate=match_rms_adamw",
};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* ---- a stack is as many matrices ---- */

/* A stack of the run, and its experts as parameters of their own, which take the run's
 * gradients. */
typedef struct beside {
    ech_compared_run *run;
    int param;
    optimized one[EXPERTS];
    int64_t each; /* elements of an expert */
} beside;

static void take_gradients(void *context, ech_exec *exec, const ech_step *step)
{
    beside *b = context;
    const ech_plan *plan = b->run->session.plan;
    if (step->kind != ECH_STEP_NORM || step->index != plan->param[b->param].bucket) return;
    ech_tensor gradient = ech_exec_gradient(exec, b->param);
    ECH_FREED double *all = ech_calloc((size_t)ech_tensor_count(&gradient), sizeof *all);
    ech_exec_read(exec, &gradient, all);
    for (int e = 0; e < EXPERTS; e++)
        memcpy(b->one[e].gradient.data, all + e * b->each, (size_t)b->each * sizeof *all);
}

/* x is stacked; `of`: the same of one alone. */
static void compare(beside *b, const char *what, const ech_tensor *x, const ech_tensor *of, int e)
{
    int64_t n = ech_tensor_count(of);
    ECH_FREED double *all = ech_calloc((size_t)ech_tensor_count(x), sizeof *all);
    assert_int_equal(ech_tensor_count(x), EXPERTS * n);
    ech_exec_read(b->run->session.exec, x, all);
    double most = 0, apart = 0;
    for (int64_t i = 0; i < n; i++) {
        double wanted = of->dtype == ECH_U8 ? ((const uint8_t *)of->data)[i] : optimized_get(of, i);
        most = fmax(most, fabs(wanted));
        apart = fmax(apart, fabs(all[e * n + i] - wanted));
    }
    if (!(apart <= 1e-12 * most) || !(most > 0))
        fail_msg("%s of expert %d is %.3g apart, of %.3g", what, e, apart, most);
}

static ech_status train_beside(void *context, int rank, ech_compared_run *run)
{
    beside *b = context;
    ech_exec *exec = run->session.exec;
    ech_tensor stack = ech_exec_param(exec, b->param);
    const ech_param *of = &run->design->model->param.at[b->param];
    ECH_FREED double *begin = ech_calloc((size_t)ech_tensor_count(&stack), sizeof *begin);
    (void)rank;
    assert_int_equal(stack.dims, 3);
    assert_int_equal(stack.shape[0], EXPERTS);
    b->run = run;
    b->each = stack.shape[1] * stack.shape[2];
    ech_exec_read(exec, &stack, begin);
    for (int e = 0; e < EXPERTS; e++) {
        b->one[e] = optimized_create(run->design->config, ech_kernels_ref(ECH_F64), stack.shape[1],
                                     stack.shape[2]);
        memcpy(b->one[e].param.data, begin + e * b->each, (size_t)b->each * sizeof *begin);
    }
    ech_exec_observe(exec, take_gradients, b);
    ech_optimizer_needs needs = ech_optimizer_needs_of(run->design->config, of);
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        const ech_readings *now = ech_exec_readings(exec);
        assert_true(now->clip == 1 && now->learning_rate > 0);
        for (int e = 0; e < EXPERTS; e++) {
            optimized_step(&b->one[e], now->learning_rate, 1);
            compare(b, "the weight", &stack, &b->one[e].param, e);
            for (int s = 0; s < needs.states; s++) {
                ech_tensor state = ech_exec_state(exec, b->param, s);
                compare(b, needs.state[s].name, &state, &b->one[e].state[s], e);
            }
        }
    }
    for (int e = 0; e < EXPERTS; e++) optimized_free(&b->one[e]);
    return ECH_OK;
}

static int find_stack(const char *words, const char *name)
{
    grid_plans g = grid_plan("mixtral", words);
    int found = -1;
    for (int p = 0; p < (int)g.design.model->param.n; p++)
        if (strstr(g.design.model->param.at[p].name, name)) found = p;
    grid_plans_free(&g);
    ECH_ASSERT(found >= 0);
    return found;
}

/* Wide experts and tall ones, on the device and on the host. */
TEST(test_a_stack_is_as_many_matrices)
{
    static const char *const names[] = {"experts.%d.w1", "experts.%d.w2"};
    for (int i = 0; i < OPTIMIZERS; i++)
        for (int k = 0; k < 2; k++) {
            char words[600];
            snprintf(words, sizeof words, SIZES "training.steps=%d %s%s", STEPS, optimizers[i],
                     i % 2 == k ? "" : " memory.offload_optimizer=host");
            beside b = {.param = find_stack(words, names[k])};
            grid_run("mixtral", words, train_beside, &b);
        }
}

ALL_TESTS(grid_setup, fixture_teardown)
