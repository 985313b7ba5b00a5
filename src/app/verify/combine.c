/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs make of copies, element by element. The equations stand beside the programs
 * (schedule/protocol) and in the papers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/verify/verifier.h"
#include "schedule/states.h"

static int64_t weights_of(const ech_follower *f)
{
    return f->of->first[ech_verifier_params(f->of)];
}

static int clusters_of(const ech_follower *f)
{
    return f->of->layout.design->schedule->ring.clusters;
}

/* ---- sums ---- */

void ech_follower_clear(ech_follower *f)
{
    for (int c = 0; c < clusters_of(f); c++)
        memset(ech_follower_copy(f, ECH_COPY_SUM, c), 0, (size_t)weights_of(f) * sizeof(double));
}

void ech_follower_add(ech_follower *f)
{
    double *sum = ech_follower_copy(f, ECH_COPY_SUM, 0);
    double tokens = ech_exec_scalar(f->run.session.exec, ECH_SCALAR_TOKENS); /* its divisor */
    for (int p = 0; p < ech_verifier_params(f->of); p++) {
        /* a partial of a layer state is a mean over the worker's own samples */
        double times = ech_verifier_param(f->of, p)->commit ? tokens / f->of->workers : tokens;
        for (int64_t i = f->of->first[p]; i < f->of->first[p + 1]; i++)
            sum[i] += times * f->gradient[i];
    }
}

void ech_follower_mean(ech_follower *f)
{
    const double *sum = ech_follower_copy(f, ECH_COPY_SUM, 0);
    double *mean = ech_follower_copy(f, ECH_COPY_GIVEN, 0), tokens = f->loss.tokens;
    for (int64_t i = 0; i < weights_of(f); i++) mean[i] = tokens > 0 ? sum[i] / tokens : 0;
    f->given = true;
}

void ech_follower_move(ech_follower *f)
{
    int cluster = ech_ring_cluster(&f->of->layout.design->schedule->ring, f->of->worker);
    double *sum = ech_follower_copy(f, ECH_COPY_SUM, cluster);
    ECH_FREED double *made = ech_calloc((size_t)weights_of(f) + 1, sizeof *made);
    ech_follower_store(f, made, false);
    for (int64_t i = 0; i < weights_of(f); i++) sum[i] += (made[i] - f->newest[i]) / f->of->workers;
}

/* ---- the ring token ---- */

/* The root between 0 and 1 of x^n + x = 1, by Newton's method. */
static double root(int n)
{
    double x = 1;
    for (int i = 0; i < 64; i++) x -= (pow(x, n) + x - 1) / (n * pow(x, n - 1) + 1);
    return x;
}

/* One element of all clusters: what each has, and had when the round began, becomes what all have
 * at its end. */
static double go_around(double *w, double *had, int n, double rate, double tolerance)
{
    double beta = n > 1 ? root(n) : 1, lambda = 1 - pow(beta, n - 1), mean = 0;
    for (int c = 0; c < n && n > 1; c++) {
        double *next = &w[(c + 1) % n], d = rate * (w[c] - had[c]);
        bool passes = fabs(d) > tolerance;
        double now =
            lambda * *next + (1 - lambda) * w[c] + (passes ? beta + lambda - 1 : lambda) * d;
        if (passes) *next += beta * d;
        w[c] = now;
        had[c] = passes ? now : now - d;
    }
    for (int c = 0; c < n; c++) mean += w[c] / n;
    return mean;
}

/* If the ring token goes around but once. */
void ech_follower_ring_token(ech_follower *f)
{
    const ech_config *config = f->of->layout.design->config;
    int n = clusters_of(f);
    const double *begun = ech_follower_copy(f, ECH_COPY_BEGUN, 0);
    ECH_FREED double *w = ech_calloc((size_t)n, sizeof *w);
    ECH_FREED double *had = ech_calloc((size_t)n, sizeof *had);
    double *sum = ech_follower_copy(f, ECH_COPY_SUM, 0);
    for (int p = 0; p < ech_verifier_params(f->of); p++)
        for (int64_t i = f->of->first[p]; i < f->of->first[p + 1]; i++) {
            double all = begun[i];
            for (int c = 0; c < n; c++) {
                had[c] = begun[i];
                w[c] = begun[i] + ech_follower_copy(f, ECH_COPY_SUM, c)[i];
                all += w[c] - begun[i];
            }
            sum[i] = ech_verifier_param(f->of, p)->commit
                         ? all
                         : go_around(w, had, n, config->parallel.token_rate,
                                     config->parallel.token_tolerance);
        }
}

/* ---- replicas that are apart ---- */

/* Tensor k of a parameter in the worker's own copy: the weights, then states. */
static double *own(ech_follower *f, int worker, int param, int k)
{
    return ech_follower_copy(f, ECH_COPY_OWN, worker) +
           f->tensor[k * ech_verifier_params(f->of) + param];
}

static int state_of(const ech_follower *f, int param, ech_state_role role)
{
    return 1 + ech_plan_state_of(f->run.session.plan, param, role);
}

/* The weights in full: the master copy, if there is one. */
static int full_of(const ech_follower *f, int param)
{
    return 1 + f->run.session.plan->param[param].master;
}

static void meet(ech_follower *f, int param)
{
    const ech_config *config = f->of->layout.design->config;
    int full = full_of(f, param), workers = f->of->workers;
    int anchor = state_of(f, param, ECH_STATE_ANCHOR);
    int momentum = state_of(f, param, ECH_STATE_OUTER_MOMENTUM);
    const ech_param *of = ech_verifier_param(f->of, param);
    ech_serial_equation *equation = of->commit ? f->of->equation_states : f->of->equation;
    if (!equation || of->frozen) return;
    int64_t n = f->of->first[param + 1] - f->of->first[param];
    ECH_FREED ech_serial_element *x = ech_calloc((size_t)workers, sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        for (int r = 0; r < workers; r++)
            x[r] = (ech_serial_element){.weight = own(f, r, param, full)[i],
                                        .anchor = anchor ? own(f, r, param, anchor)[i] : 0,
                                        .momentum = momentum ? own(f, r, param, momentum)[i] : 0};
        equation(config, x, workers);
        for (int r = 0; r < workers; r++) {
            own(f, r, param, 0)[i] = own(f, r, param, full)[i] = x[r].weight;
            if (anchor) own(f, r, param, anchor)[i] = x[r].anchor;
            if (momentum) own(f, r, param, momentum)[i] = x[r].momentum;
        }
    }
}

void ech_follower_meet(ech_follower *f)
{
    for (int p = 0; p < ech_verifier_params(f->of); p++) meet(f, p);
}
