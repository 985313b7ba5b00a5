/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, one query row at a time.
 */
#include <math.h>

#include "kernel/ref/real.h"

/* One call's numbers. k and v of head h are those of key/value head h / group. */
typedef struct problem {
    int64_t B, T, H, G, D, group;
    const ech_tensor *q, *k, *v;
    double scale;
    const ech_dropout *dropout;
} problem;

static const real *row_of(const ech_tensor *x, int64_t b, int64_t t, int64_t h)
{
    return (const real *)x->data + b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

static double dot(int64_t D, const real *a, const real *b)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++) sum += (double)a[d] * b[d];
    return sum;
}

/* What dropout multiplies the probability of (query, key) by: 0 or 1/(1-p). */
static double kept(const problem *at, int64_t b, int64_t h, int64_t query, int64_t key)
{
    const ech_dropout *dropout = at->dropout;
    if (!(dropout->p > 0)) return 1;
    int64_t row = ((dropout->first_sample + b) * at->H + h) * at->T + query;
    uint64_t element = (uint64_t)(row * at->T + key);
    bool dropped = ech_random_unit(ech_random_word(dropout->key, element)) < dropout->p;
    return dropped ? 0 : 1 / (1 - dropout->p);
}

static problem check(const ech_tensor *q, const ech_tensor *k, const ech_tensor *v, double scale,
                     const ech_dropout *dropout)
{
    problem at = {q->shape[0], q->shape[1], q->shape[2], k->shape[2], q->shape[3], 0,
                  q,           k,           v,           scale,       dropout};
    ECH_SHAPE_STRIDED(q, ECH_REAL, at.B, at.T, at.H, at.D);
    ECH_SHAPE_STRIDED(k, ECH_REAL, at.B, at.T, at.G, at.D);
    ECH_SHAPE_STRIDED(v, ECH_REAL, at.B, at.T, at.G, at.D);
    ECH_ASSERT(at.G > 0 && at.H % at.G == 0);
    at.group = at.H / at.G;
    return at;
}

/* out = softmax(scale q kT) v of one row; p (T) is scratch; returns the row's log sum exp. */
static double forward_row(const problem *at, int64_t b, int64_t h, int64_t query, double *p,
                          double *sum_v, real *out)
{
    const real *q = row_of(at->q, b, query, h);
    double max = -INFINITY, sum = 0;
    for (int64_t key = 0; key <= query; key++) {
        p[key] = at->scale * dot(at->D, q, row_of(at->k, b, key, h / at->group));
        max = p[key] > max || isnan(p[key]) ? p[key] : max;
    }
    for (int64_t key = 0; key <= query; key++) sum += exp(p[key] - max);
    double lse = max + log(sum);
    for (int64_t d = 0; d < at->D; d++) sum_v[d] = 0;
    for (int64_t key = 0; key <= query; key++) {
        double weight = exp(p[key] - lse) * kept(at, b, h, query, key);
        const real *v = row_of(at->v, b, key, h / at->group);
        for (int64_t d = 0; d < at->D; d++) sum_v[d] += weight * v[d];
    }
    for (int64_t d = 0; d < at->D; d++) out[d] = (real)sum_v[d];
    return lse;
}

void ECH_REF(attention_forward)(ech_kernel_context *context, const ech_tensor *q,
                                const ech_tensor *k, const ech_tensor *v, double scale,
                                const ech_dropout *dropout, const ech_tensor *out,
                                const ech_tensor *lse)
{
    problem at = check(q, k, v, scale, dropout);
    ECH_SHAPE(out, ECH_REAL, at.B, at.T, at.H, at.D);
    ECH_SHAPE(lse, ECH_REAL, at.B, at.H, at.T);
    double *p = ech_scratch(context, (size_t)(at.T + at.D) * sizeof *p);
    for (int64_t b = 0; b < at.B; b++)
        for (int64_t h = 0; h < at.H; h++)
            for (int64_t t = 0; t < at.T; t++) {
                real *to = (real *)out->data + ((b * at.T + t) * at.H + h) * at.D;
                ((real *)lse->data)[(b * at.H + h) * at.T + t] =
                    (real)forward_row(&at, b, h, t, p, p + at.T, to);
            }
}

/* What backward knows of one row: with P the probabilities, m what dropout multiplies them by,
 * dP = m (dout v) and delta = dout out, the gradient of a score is P (dP - delta). */
typedef struct gradients {
    const ech_tensor *dout, *out, *lse;
    double *delta; /* (B,H,T) */
} gradients;

static void score(const problem *at, const gradients *from, int64_t b, int64_t h, int64_t query,
                  int64_t key, double *p, double *ds)
{
    const real *q = row_of(at->q, b, query, h), *dout = row_of(from->dout, b, query, h);
    int64_t row = (b * at->H + h) * at->T + query;
    double m = kept(at, b, h, query, key), lse = ((const real *)from->lse->data)[row];
    double P = exp(at->scale * dot(at->D, q, row_of(at->k, b, key, h / at->group)) - lse);
    double dP = m * dot(at->D, dout, row_of(at->v, b, key, h / at->group));
    *p = P * m;
    *ds = at->scale * P * (dP - from->delta[row]);
}

/* dq = sum over keys of ds k. */
static void query_gradient(const problem *at, const gradients *from, int64_t b, int64_t h,
                           int64_t query, double *sum, real *dq)
{
    for (int64_t d = 0; d < at->D; d++) sum[d] = 0;
    for (int64_t key = 0; key <= query; key++) {
        double p, ds;
        score(at, from, b, h, query, key, &p, &ds);
        const real *k = row_of(at->k, b, key, h / at->group);
        for (int64_t d = 0; d < at->D; d++) sum[d] += ds * k[d];
    }
    for (int64_t d = 0; d < at->D; d++) dq[d] = (real)sum[d];
}

/* dk = sum over heads and later queries of ds q, dv of p dout. */
static void key_gradient(const problem *at, const gradients *from, int64_t b, int64_t g,
                         int64_t key, double *sum, real *dk, real *dv)
{
    for (int64_t d = 0; d < 2 * at->D; d++) sum[d] = 0;
    for (int64_t h = g * at->group; h < (g + 1) * at->group; h++)
        for (int64_t query = key; query < at->T; query++) {
            double p, ds;
            score(at, from, b, h, query, key, &p, &ds);
            const real *q = row_of(at->q, b, query, h), *dout = row_of(from->dout, b, query, h);
            for (int64_t d = 0; d < at->D; d++) {
                sum[d] += ds * q[d];
                sum[at->D + d] += p * dout[d];
            }
        }
    for (int64_t d = 0; d < at->D; d++) {
        dk[d] = (real)sum[d];
        dv[d] = (real)sum[at->D + d];
    }
}

void ECH_REF(attention_backward)(ech_kernel_context *context, const ech_tensor *dout,
                                 const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                                 const ech_tensor *out, const ech_tensor *lse, double scale,
                                 const ech_dropout *dropout, const ech_tensor *dq,
                                 const ech_tensor *dk, const ech_tensor *dv)
{
    problem at = check(q, k, v, scale, dropout);
    ECH_SHAPE(dout, ECH_REAL, at.B, at.T, at.H, at.D);
    ECH_SHAPE(out, ECH_REAL, at.B, at.T, at.H, at.D);
    ECH_SHAPE(lse, ECH_REAL, at.B, at.H, at.T);
    ECH_SHAPE_STRIDED(dq, ECH_REAL, at.B, at.T, at.H, at.D);
    ECH_SHAPE_STRIDED(dk, ECH_REAL, at.B, at.T, at.G, at.D);
    ECH_SHAPE_STRIDED(dv, ECH_REAL, at.B, at.T, at.G, at.D);
    size_t rows = (size_t)(at.B * at.H * at.T);
    double *sum = ech_scratch(context, (rows + 2 * (size_t)at.D) * sizeof *sum);
    gradients from = {dout, out, lse, sum + 2 * at.D};
    for (int64_t b = 0; b < at.B; b++)
        for (int64_t h = 0; h < at.H; h++)
            for (int64_t t = 0; t < at.T; t++)
                from.delta[(b * at.H + h) * at.T + t] =
                    dot(at.D, row_of(dout, b, t, h), row_of(out, b, t, h));
    for (int64_t b = 0; b < at.B; b++)
        for (int64_t t = 0; t < at.T; t++) {
            for (int64_t h = 0; h < at.H; h++)
                query_gradient(&at, &from, b, h, t, sum, (real *)row_of(dq, b, t, h));
            for (int64_t g = 0; g < at.G; g++)
                key_gradient(&at, &from, b, g, t, sum, (real *)row_of(dk, b, t, g),
                             (real *)row_of(dv, b, t, g));
        }
}
