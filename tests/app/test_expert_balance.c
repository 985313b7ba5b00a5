/* SPDX-License-Identifier: Apache-2.0
 *
 * What losses of importance and load do in training (Shazeer et al. 2017, arXiv:1701.06538, table 6): the squared coefficients of
 * variation, which a loss divided by its coefficient is, are far lower with coefficients than with hardly any.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>

#include <cmocka.h>

#include "app/experts.h"
#include "app/grid_run.h"

enum { STEPS = 80, LAST = 20 };

typedef struct variation {
    double importance,
        load; /* squared, of a layer and balance group, times the coefficient; mean over the last steps */
} variation;

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    variation *v = context;
    for (int step = 0; step < STEPS; step++) {
        ech_expert_metrics metrics;
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, step));
        if (rank > 0 || step < STEPS - LAST) continue;
        ech_expert_metrics_take(run->design->model, ech_exec_readings(run->session.exec)->reports,
                                &metrics);
        v->importance += metrics.importance / LAST;
        v->load += metrics.load / LAST;
    }
    return ECH_OK;
}

static variation train_by(const char *gate, double coefficient)
{
    char words[700];
    variation v = {0};
    snprintf(words, sizeof words,
             "model.num_key_value_heads=4 model.num_local_experts=8 training.micro_batch_size=8 "
             "training.global_batch_size=8 training.steps=%d optimizer.warmup_steps=1 "
             "model.moe_group_samples=8 "
             "optimizer.learning_rate=0.05 model.router_importance_coef=%g "
             "model.router_load_coef=%g %s",
             STEPS, coefficient, coefficient, gate);
    grid_run("mixtral", words, train, &v);
    v.importance /= coefficient;
    v.load /= coefficient;
    return v;
}

static void test_losses_balance(void **state)
{
    (void)state;
    static const char *const gates[] = {
        "model.moe_gate=noisy_topk model.num_experts_per_tok=2",
        "model.moe_gate=hierarchical model.num_experts_per_tok=2 model.n_group=4 "
        "model.topk_group=2"};
    for (int i = 0; i < 2; i++) {
        variation with = train_by(gates[i], 0.3), without = train_by(gates[i], 1e-9);
        if (!(with.importance < without.importance / 2 && with.load < without.load / 2))
            fail_msg("%s: importance %g with losses, %g without; load %g and %g", gates[i],
                     with.importance, without.importance, with.load, without.load);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses_balance)};
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
