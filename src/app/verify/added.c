/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of what lock-free ranks add, and of several clusters what the token's last round makes of their sums.
 */
#include "app/verify/added.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ech_added {
    int ranks;
    ech_loader **loader; /* [ranks] of the same batches: what is another rank's is padding */
    int64_t n;           /* weights of the model */
    int64_t updates;     /* of the single rank, before the span */
    double *before;      /* [n] the weights with which a span began */
    double *read;        /* [n] those that a rank had read */
    double *sum;         /* [clusters][n] of what their ranks have added so far */
    double loss, tokens; /* of the training step, over all ranks */
};

static int clusters_of(const ech_verifier *v)
{
    return v->layout.design->layout->clusters;
}

ech_status ech_added_create(const ech_verifier *v, ech_added **out)
{
    ech_added *a = *out = ech_calloc(1, sizeof *a);
    ech_loader_options options = ech_design_reads(v->single.design, 0, true, INT64_MAX);
    a->ranks = v->layout.design->layout->world;
    a->n = v->first[ech_verifier_params(v)];
    a->before = ech_calloc((size_t)a->n + 1, sizeof *a->before);
    a->read = ech_calloc((size_t)a->n + 1, sizeof *a->read);
    a->sum = ech_calloc((size_t)(clusters_of(v) * a->n) + 1, sizeof *a->sum);
    a->loader = ech_calloc((size_t)a->ranks, sizeof(ech_loader *));
    options.replicas = a->ranks;
    for (options.replica = 0; options.replica < a->ranks; options.replica++)
        ECH_TRY(ech_loader_create(v->single.data, &options, 0, &a->loader[options.replica]));
    return ECH_OK;
}

void ech_added_destroy(ech_added *a)
{
    if (!a) return;
    for (int r = 0; r < a->ranks; r++) ech_loader_destroy(a->loader[r]);
    free(a->loader);
    free(a->before);
    free(a->read);
    free(a->sum);
    free(a);
}

static void read_weights(const ech_verifier *v, ech_exec *exec, double *out)
{
    for (int p = 0; p < ech_verifier_params(v); p++) {
        ech_tensor x = ech_exec_param(exec, p);
        ech_exec_read(exec, &x, out + v->first[p]);
    }
}

static void write_weights(const ech_verifier *v, const double *from)
{
    ech_exec *exec = v->single.session.exec;
    for (int p = 0; p < ech_verifier_params(v); p++) {
        ech_tensor x = ech_exec_param(exec, p);
        ech_exec_write(exec, &x, from + v->first[p]);
    }
}

/* The single rank takes the step of one rank, with its weights; each moves weights by one of so many parts. */
static ech_status follow(ech_verifier *v, int rank)
{
    ech_added *a = v->added;
    ech_exec *exec = v->single.session.exec;
    const double *from = v->turn ? a->read : a->before;
    ECH_FREED double *made = ech_calloc((size_t)a->n + 1, sizeof *made);
    write_weights(v, from);
    ech_exec_set_updates(exec, a->updates + v->turn);
    ech_exec_set_loader(exec, ECH_TRAIN, a->loader[rank]);
    v->taken = false;
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, v->step));
    ECH_ASSERT(v->taken);
    a->loss += ech_exec_readings(exec)->loss_sum;
    a->tokens += ech_exec_readings(exec)->tokens;
    read_weights(v, exec, made);
    double *sum = a->sum + ech_layout_cluster(v->layout.design->layout, rank) * a->n;
    for (int64_t i = 0; i < a->n; i++) sum[i] += (made[i] - from[i]) / a->ranks;
    return ECH_OK;
}

/* Each rank has all parameters, as they lie in the model. */
static ech_status compare_rank(ech_verifier *v, int rank)
{
    size_t n = (size_t)v->own[ech_verifier_params(v)], bytes = n * sizeof(double);
    int turns = v->layout.design->schedule->turns;
    double *gradients = v->mine + (size_t)v->turn * n;
    double *read = v->mine + (size_t)(turns + v->turn) * n;
    ECH_TRY(ech_verifier_send(v, rank, gradients, bytes, v->gradients));
    if (v->turn > 0)
        ECH_TRY(ech_verifier_send(v, rank, read, bytes, v->result ? v->added->read : NULL));
    return v->result ? follow(v, rank) : ECH_OK;
}

static ech_status compare_step(ech_verifier *v)
{
    ech_added *a = v->added;
    if (v->result) a->loss = a->tokens = 0;
    for (int r = 0; r < v->layout.design->layout->world; r++) ECH_TRY(compare_rank(v, r));
    if (v->result)
        ech_verifier_compare_losses(
            v, "loss", ech_exec_readings(v->layout.session.exec)[v->turn].loss,
            a->tokens > 0 ? a->loss / a->tokens : 0, &v->result->worst_loss);
    return ECH_OK;
}

/* ---- the end of a span ---- */

/* The root between 0 and 1 of x^n + x = 1, by Newton's method. */
static double root(int n)
{
    double x = 1;
    for (int i = 0; i < 64; i++) x -= (pow(x, n) + x - 1) / (n * pow(x, n - 1) + 1);
    return x;
}

/* One element of all clusters: what each has, and had when the round began, becomes what all have behind it. */
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

/* The first cluster's sum becomes what ranks have in the end, if the token goes around but once. */
static void end_span(const ech_verifier *v)
{
    ech_added *a = v->added;
    const ech_config *config = v->layout.design->config;
    int n = clusters_of(v);
    ECH_FREED double *w = ech_calloc((size_t)n, sizeof *w);
    ECH_FREED double *had = ech_calloc((size_t)n, sizeof *had);
    for (int64_t i = 0; i < a->n; i++) {
        for (int c = 0; c < n; c++) {
            had[c] = a->before[i];
            w[c] = a->before[i] + a->sum[c * a->n + i];
        }
        a->sum[i] =
            go_around(w, had, n, config->parallel.token_rate, config->parallel.token_tolerance);
    }
}

bool ech_added_is_carried(const ech_design *design)
{
    const ech_layout *layout = design->layout;
    return layout->clusters > 1 && design->schedule->turns >= layout->token_turns;
}

/* Rank 0 has what all have. */
static void compare_sum(ech_verifier *v)
{
    ech_added *a = v->added;
    read_weights(v, v->layout.session.exec, a->read);
    end_span(v);
    for (int p = 0; p < ech_verifier_params(v) && !v->result->carried; p++) {
        int64_t first = v->first[p], n = v->first[p + 1] - first;
        double error = ech_verifier_error(a->read + first, a->sum + first, n, 0x1p-970);
        ech_verifier_note(v, "weight", p, error, &v->result->worst_weight);
        v->result->compared += n;
    }
    write_weights(v, a->read);
}

ech_status ech_verifier_compare_added(ech_verifier *v, int64_t step)
{
    ech_added *a = v->added;
    int turns = v->layout.design->schedule->turns;
    if (v->result) {
        a->updates = step;
        read_weights(v, v->single.session.exec, a->before);
        memset(a->sum, 0, (size_t)(clusters_of(v) * a->n) * sizeof *a->sum);
    }
    for (v->turn = 0; v->turn < turns; v->turn++) {
        v->step = step + v->turn;
        ECH_TRY(compare_step(v));
    }
    if (v->result) compare_sum(v);
    v->turn = 0;
    return ECH_OK;
}
