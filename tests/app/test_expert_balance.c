/* SPDX-License-Identifier: Apache-2.0
 *
 * What losses of importance and load do in training (Shazeer et al. 2017, arXiv:1701.06538, table
 * 6): the squared coefficients of variation, which a loss divided by its coefficient is, fall, and
 * are far lower with coefficients than with hardly any. And what gates report does not depend on
 * the strategy.
 */

#include <math.h>

#include "app/experts.h"
#include "app/grid_run.h"
#include "unit.h"

enum { STEPS = 80, FEW = 20 };

/* Squared, of a layer and balance group, times the coefficient: the mean over some steps. */
typedef struct variation {
    double importance, load;
} variation;

/* FEW steps each: routers begin alike for all experts, and soon prefer some. */
typedef struct training {
    variation first, last;
} training;

static void add_to(variation *v, const ech_expert_metrics *metrics)
{
    v->importance += metrics->importance / FEW;
    v->load += metrics->load / FEW;
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    training *t = context;
    for (int step = 0; step < STEPS; step++) {
        ech_expert_metrics metrics;
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, step));
        if (rank > 0) continue;
        ech_expert_metrics_take(run->design->model, ech_exec_readings(run->session.exec)->reports,
                                &metrics);
        if (step < FEW) add_to(&t->first, &metrics);
        if (step >= STEPS - FEW) add_to(&t->last, &metrics);
    }
    return ECH_OK;
}

static training train_by(const char *gate, double coefficient)
{
    char words[700];
    training t = {.first = {0}};
    snprintf(words, sizeof words,
             "model.num_key_value_heads=4 model.num_local_experts=8 training.micro_batch_size=8 "
             "training.global_batch_size=8 training.steps=%d optimizer.warmup_steps=1 "
             "model.moe_group_samples=8 "
             "optimizer.learning_rate=0.05 model.router_importance_coef=%g "
             "model.router_load_coef=%g %s",
             STEPS, coefficient, coefficient, gate);
    grid_run("mixtral", words, train, &t);
    t.last.importance /= coefficient;
    t.last.load /= coefficient;
    t.first.importance /= coefficient;
    t.first.load /= coefficient;
    return t;
}

TEST(test_losses_balance)
{
    static const char *const gates[] = {
        "model.moe_gate=noisy_topk model.num_experts_per_tok=2",
        "model.moe_gate=hierarchical model.num_experts_per_tok=2 model.n_group=4 "
        "model.topk_group=2"};
    for (int i = 0; i < 2; i++) {
        training losses = train_by(gates[i], 0.3), hardly = train_by(gates[i], 1e-9);
        variation with = losses.last, without = hardly.last, first = losses.first;
        if (!(with.importance < without.importance / 2 && with.load < without.load / 2))
            fail_msg("%s: importance %g with losses, %g without; load %g and %g", gates[i],
                     with.importance, without.importance, with.load, without.load);
        if (!(with.importance < first.importance / 2 && with.load < first.load / 2))
            fail_msg("%s: importance %g, at first %g; load %g, at first %g", gates[i],
                     with.importance, first.importance, with.load, first.load);
    }
}

/* ---- reports of strategies ---- */

/* The sums that rank 0 and the last rank read of the first training step. */
typedef struct reports {
    double *of[2]; /* [n] */
    int64_t n;
    size_t capacity; /* of of[0], where it grows */
} reports;

static ech_status read_reports(void *context, int rank, ech_compared_run *run)
{
    reports *r = context;
    ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, 0));
    bool last = rank == run->design->world - 1;
    if (rank > 0 && !last) return ECH_OK;
    size_t n = (size_t)run->design->model->reports;
    r->of[last] = ech_calloc(n, sizeof(double));
    memcpy(r->of[last], ech_exec_readings(run->session.exec)->reports, n * sizeof(double));
    if (last) r->n = (int64_t)n;
    return ECH_OK;
}

/* In the first step all replicas and workers read the weights that the run began with: whatever
 * becomes of their gradients, the sums over all tokens are those of synchronous training. */
TEST(test_strategies_report_alike)
{
    static const char *const strategies[] = {"synchronous",
                                             "local_sgd parallel.sync_every=2",
                                             "hogwild optimizer.name=sgd optimizer.weight_decay=0",
                                             "asp parallel.servers=2",
                                             "ssp parallel.staleness=1"};
    reports want = {.n = 0};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        char words[300];
        reports r = {.n = 0};
        snprintf(words, sizeof words,
                 "model.num_key_value_heads=4 model.num_local_experts=4 precision.compute=fp64 "
                 "model.router_aux_loss_coef=0.1 parallel.data=2 parallel.strategy=%s",
                 strategies[i]);
        grid_run("mixtral", words, read_reports, &r);
        if (i == 0) want = r;
        assert_true(r.n > 0 && r.n == want.n);
        for (int rank = 0; rank < 2; rank++)
            for (int64_t k = 0; k < r.n; k++)
                if (!(fabs(r.of[rank][k] - want.of[0][k]) <= 1e-12 * (1 + fabs(want.of[0][k]))))
                    fail_msg("%s: number %lld is %g, not %g", strategies[i], (long long)k,
                             r.of[rank][k], want.of[0][k]);
        for (int rank = 0; rank < 2 && i > 0; rank++) free(r.of[rank]);
    }
    double rows = want.of[0][2 * 4 + ECH_GATE_ROWS];
    assert_true(rows > 0);
    free(want.of[0]);
    free(want.of[1]);
}

static ech_status read_weights(void *context, int rank, ech_compared_run *run)
{
    reports *r = context;
    const ech_plan *plan = run->session.plan;
    static const ech_list_kind lists[] = {ECH_LIST_INIT, ECH_LIST_TRAIN, ECH_LIST_SYNC};
    for (int i = 0; i < 3; i++)
        if (plan->list[lists[i]].step.n) ECH_TRY(ech_exec_run(run->session.exec, lists[i], 0));
    if (rank > 0) return ECH_OK;
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        ech_tensor x = ech_exec_param(run->session.exec, p);
        int64_t n = ech_tensor_count(&x);
        r->of[0] = ech_grow(r->of[0], &r->capacity, (size_t)(r->n + n), sizeof *r->of[0]);
        ech_exec_read(run->session.exec, &x, r->of[0] + r->n);
        r->n += n;
    }
    return ECH_OK;
}

/* With SGD the mean of the replicas' weights after a step are the weights of synchronous training,
 * also by the losses of balance. */
TEST(test_replicas_balance_as_strongly)
{
    static const char *const strategies[] = {"synchronous", "local_sgd parallel.sync_every=1"};
    reports r[2] = {{.n = 0}};
    for (int i = 0; i < 2; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "model.num_key_value_heads=4 model.num_local_experts=4 precision.compute=fp64 "
                 "model.router_aux_loss_coef=10 optimizer.name=sgd optimizer.weight_decay=0 "
                 "optimizer.clip_norm=0 parallel.data=2 parallel.strategy=%s",
                 strategies[i]);
        grid_run("mixtral", words, read_weights, &r[i]);
    }
    assert_true(r[0].n > 1000 && r[0].n == r[1].n);
    for (int64_t k = 0; k < r[0].n; k++)
        assert_true(fabs(r[0].of[0][k] - r[1].of[0][k]) <= 1e-12 * (1 + fabs(r[0].of[0][k])));
    free(r[0].of[0]);
    free(r[1].of[0]);
}

ALL_TESTS(grid_setup, fixture_teardown)
