/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of what lock-free ranks add, and of several clusters what the token's last round makes of their sums.
 */
#include "app/verify/added.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The single rank or its twin: it takes the steps of all ranks, one after the other. */
typedef struct follower {
    ech_compared_run *run;
    ech_loader **loader; /* [ranks] of the same batches: what is another rank's is padding */
    double *before;      /* [n] the weights with which a span began */
    double *sum;         /* [clusters][n] of what their ranks have added so far */
    ech_tokens_loss loss; /* of the training step, over all ranks */
} follower;

enum { SINGLE, TWIN, FOLLOWERS };

struct ech_added {
    int ranks;
    follower of[FOLLOWERS];
    int64_t n;       /* weights of the model */
    int64_t updates; /* of the single rank, before the span */
    double *read;    /* [n] those that a rank had read */
};

static int clusters_of(const ech_verifier *v)
{
    return v->layout.design->layout->clusters;
}

static ech_status open_follower(const ech_verifier *v, ech_compared_run *run, follower *f)
{
    ech_added *a = v->added;
    ech_loader_options options = ech_design_reads(run->design, 0, true, INT64_MAX);
    f->run = run;
    f->before = ech_calloc((size_t)a->n + 1, sizeof *f->before);
    f->sum = ech_calloc((size_t)(clusters_of(v) * a->n) + 1, sizeof *f->sum);
    f->loader = ech_calloc((size_t)a->ranks, sizeof(ech_loader *));
    options.replicas = a->ranks;
    for (options.replica = 0; options.replica < a->ranks; options.replica++)
        ECH_TRY(ech_loader_create(run->data, &options, 0, &f->loader[options.replica]));
    return ECH_OK;
}

ech_status ech_added_create(ech_verifier *v)
{
    ech_added *a = v->added = ech_calloc(1, sizeof *a);
    a->ranks = v->layout.design->layout->world;
    a->n = v->first[ech_verifier_params(v)];
    a->read = ech_calloc((size_t)a->n + 1, sizeof *a->read);
    ECH_TRY(open_follower(v, &v->single, &a->of[SINGLE]));
    return open_follower(v, &v->twin, &a->of[TWIN]);
}

void ech_added_destroy(ech_added *a)
{
    if (!a) return;
    for (follower *f = a->of; f < a->of + FOLLOWERS; f++) {
        for (int r = 0; r < a->ranks && f->loader; r++) ech_loader_destroy(f->loader[r]);
        free(f->loader);
        free(f->before);
        free(f->sum);
    }
    free(a->read);
    free(a);
}

static void read_weights(const ech_verifier *v, const ech_compared_run *run, double *out)
{
    for (int p = 0; p < ech_verifier_params(v); p++) {
        ech_tensor x = ech_exec_param(run->session.exec, p);
        ech_exec_read(run->session.exec, &x, out + v->first[p]);
    }
}

/* To the single rank. */
static void write_weights(const ech_verifier *v, const double *from)
{
    ech_exec *exec = v->single.session.exec;
    for (int p = 0; p < ech_verifier_params(v); p++) {
        ech_tensor x = ech_exec_param(exec, p);
        ech_exec_write(exec, &x, from + v->first[p]);
    }
}

/* Takes the step of one rank, with the weights that are there; each moves weights by one of so many
 * parts. */
static ech_status take_step(ech_verifier *v, follower *f, int rank)
{
    ech_added *a = v->added;
    ech_exec *exec = f->run->session.exec;
    ECH_FREED double *from = ech_calloc((size_t)a->n + 1, sizeof *from);
    ECH_FREED double *made = ech_calloc((size_t)a->n + 1, sizeof *made);
    read_weights(v, f->run, from);
    ech_exec_set_updates(exec, a->updates + v->turn);
    ech_exec_set_loader(exec, ECH_TRAIN, f->loader[rank]);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, v->step));
    ech_tokens_loss_add(&f->loss, f->run);
    read_weights(v, f->run, made);
    double *sum = f->sum + ech_layout_cluster(v->layout.design->layout, rank) * a->n;
    for (int64_t i = 0; i < a->n; i++) sum[i] += (made[i] - from[i]) / a->ranks;
    return ECH_OK;
}

/* The twin comes first: its gradients are compared when the single rank's are there. */
static ech_status follow(ech_verifier *v, int rank)
{
    ech_added *a = v->added;
    write_weights(v, v->turn ? a->read : a->of[SINGLE].before);
    ech_unit_begin(v);
    v->taken = v->twin_taken = false;
    ECH_TRY(take_step(v, &a->of[TWIN], rank));
    ECH_TRY(take_step(v, &a->of[SINGLE], rank));
    ECH_ASSERT(v->taken && v->twin_taken);
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
    for (int f = 0; v->result && f < FOLLOWERS; f++) a->of[f].loss = (ech_tokens_loss){0};
    for (int r = 0; r < v->layout.design->layout->world; r++) ECH_TRY(compare_rank(v, r));
    if (v->result)
        ech_verifier_compare_mean(v, ech_exec_readings(v->layout.session.exec)[v->turn].loss,
                                  &a->of[SINGLE].loss, &a->of[TWIN].loss);
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
static void end_span(const ech_verifier *v, follower *f)
{
    ech_added *a = v->added;
    const ech_config *config = v->layout.design->config;
    int n = clusters_of(v);
    ECH_FREED double *w = ech_calloc((size_t)n, sizeof *w);
    ECH_FREED double *had = ech_calloc((size_t)n, sizeof *had);
    for (int64_t i = 0; i < a->n; i++) {
        for (int c = 0; c < n; c++) {
            had[c] = f->before[i];
            w[c] = f->before[i] + f->sum[c * a->n + i];
        }
        f->sum[i] =
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
    const double *single = a->of[SINGLE].sum, *twin = a->of[TWIN].sum;
    read_weights(v, &v->layout, a->read);
    for (int f = 0; f < FOLLOWERS; f++) end_span(v, &a->of[f]);
    for (int p = 0; p < ech_verifier_params(v) && !v->result->carried; p++) {
        int64_t first = v->first[p], n = v->first[p + 1] - first;
        double error = ech_verifier_error(a->read + first, single + first, n, 0x1p-970);
        ech_verifier_note(v, "weight", p, error, &v->result->worst_weight);
        ech_unit_note(v, twin + first, single + first, n, 0x1p-970);
        v->result->compared += n;
    }
    write_weights(v, a->read);
}

static void begin_span(ech_verifier *v, int64_t step)
{
    ech_added *a = v->added;
    a->updates = v->step = step;
    ech_unit_begin(v);
    for (follower *f = a->of; f < a->of + FOLLOWERS; f++) {
        read_weights(v, f->run, f->before);
        memset(f->sum, 0, (size_t)(clusters_of(v) * a->n) * sizeof *f->sum);
    }
}

ech_status ech_verifier_compare_added(ech_verifier *v, int64_t step)
{
    int turns = v->layout.design->schedule->turns;
    if (v->result) begin_span(v, step);
    for (v->turn = 0; v->turn < turns; v->turn++) {
        v->step = step + v->turn;
        ECH_TRY(compare_step(v));
    }
    if (v->result) compare_sum(v);
    v->turn = 0;
    return ECH_OK;
}
