/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, one query row at a time, of any queries over any keys. A query attends to keys
 * by their positions in the whole sample and by the start of its document.
 */
#include <math.h>

#include "kernel/ref/real.h"
#include "kernel/seen.h"

/* One call's numbers. Head h uses k and v of key/value head h / group. */
typedef struct problem {
    int64_t B, Tq, Tk, H, G, D, E;
    const ech_tensor *q, *k, *v;
    const ech_attention_rule *rule;
    const ech_attention_shard *at;
    const ech_tensor *starts;
    const ech_dropout *dropout;
    ech_random_key key;
    int64_t group;
} problem;

/* The product of D elements of x, from `from` on, and of y, from `of` on. */
static double dot(int64_t D, const ech_tensor *x, int64_t from, const ech_tensor *y, int64_t of)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++) sum += ech_value(x, from + d) * ech_value(y, of + d);
    return sum;
}

static bool sees(const problem *p, int64_t b, int64_t query, int64_t key)
{
    int64_t position = ech_rows_token_position(&p->at->query, query);
    int64_t there = ech_rows_token_position(&p->at->key, key);
    return there <= position && there >= ech_attention_first(p->rule, p->starts, b, position);
}

/* Keys [first, end): positions ascend, so a query sees a run of them. */
typedef struct run {
    int64_t first, end;
} run;

static run keys_seen(const problem *p, int64_t b, int64_t query)
{
    run seen = {0, 0};
    while (seen.first < p->Tk && !sees(p, b, query, seen.first)) seen.first++;
    for (seen.end = seen.first; seen.end < p->Tk && sees(p, b, query, seen.end);) seen.end++;
    return seen;
}

/* The factor by which dropout multiplies the probability of (query, key): 0 or 1/(1-p). */
static double dropout_factor(const problem *p, int64_t b, int64_t h, int64_t query, int64_t key)
{
    const ech_dropout *dropout = p->dropout;
    if (!(dropout->p > 0)) return 1;
    const ech_rows *rows = &p->at->query;
    int64_t head = (rows->first_sample + b) * p->at->heads + p->at->first_head + h;
    int64_t row = head * rows->whole + ech_rows_token_position(rows, query);
    uint64_t element = (uint64_t)(row * rows->whole + ech_rows_token_position(&p->at->key, key));
    bool dropped = ech_random_unit(ech_random_word(p->key, element)) < dropout->p;
    return dropped ? 0 : 1 / (1 - dropout->p);
}

static problem check(const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                     const ech_attention_rule *rule, const ech_attention_shard *at,
                     const ech_tensor *starts, const ech_dropout *dropout)
{
    problem p = {q->shape[0], q->shape[1],
                 k->shape[1], q->shape[2],
                 k->shape[2], q->shape[3],
                 v->shape[3], q,
                 k,           v,
                 rule,        at,
                 starts,      .dropout = dropout};
    ECH_SAMPLES(&at->query, starts, p.B, p.Tq);
    ECH_SAMPLES(&at->key, NULL, p.B, p.Tk);
    ECH_ASSERT(at->query.whole == at->key.whole);
    ECH_ASSERT(at->first_head >= 0 && at->first_head + p.H <= at->heads);
    ECH_ASSERT(p.G > 0 && p.H % p.G == 0);
    ECH_ASSERT(rule->cap >= 0 && rule->window >= 0);
    p.key = ech_dropout_key(dropout);
    p.group = p.H / p.G;
    return p;
}

/* The score of q·k. *slope: its derivative by q·k. */
static double score_of(const problem *p, double product, double *slope)
{
    double cap = p->rule->cap, score = p->rule->scale * product;
    *slope = p->rule->scale;
    if (!(cap > 0)) return score;
    double t = tanh(score / cap);
    *slope *= 1 - t * t;
    return cap * t;
}

/* softmax(scores) v of one row, in fp64; scores (Tk) is scratch; returns the row's log sum exp. */
static double attend(const problem *p, int64_t b, int64_t h, int64_t query, double *scores,
                     double *out)
{
    int64_t q = ech_head(p->q, b, query, h);
    run seen = keys_seen(p, b, query);
    double max = -INFINITY, sum = 0, slope;
    for (int64_t d = 0; d < p->E; d++) out[d] = 0;
    if (seen.first == seen.end) return -INFINITY;
    for (int64_t key = seen.first; key < seen.end; key++) {
        scores[key] =
            score_of(p, dot(p->D, p->q, q, p->k, ech_head(p->k, b, key, h / p->group)), &slope);
        max = scores[key] > max || isnan(scores[key]) ? scores[key] : max;
    }
    for (int64_t key = seen.first; key < seen.end; key++) sum += exp(scores[key] - max);
    double lse = max + log(sum);
    for (int64_t key = seen.first; key < seen.end; key++) {
        double weight = exp(scores[key] - lse) * dropout_factor(p, b, h, query, key);
        int64_t v = ech_head(p->v, b, key, h / p->group);
        for (int64_t d = 0; d < p->E; d++) out[d] += weight * ech_value(p->v, v + d);
    }
    return lse;
}

/* Writes a row and its log sum exp, or merges them with what is there: the softmax over two sets of
 * keys weighs each result by its fraction of the sum of exponentials. */
static void store(int64_t D, const double *row, double row_lse, bool merge, const ech_tensor *out,
                  int64_t at, const ech_tensor *lse, int64_t lse_at)
{
    double before = merge ? ech_value(lse, lse_at) : -INFINITY, old_weight = 0, weight = 1,
           both = row_lse;
    if (merge && row_lse == -INFINITY) return;
    if (before != -INFINITY) {
        double top = before > row_lse || isnan(before) ? before : row_lse;
        both = top + log(exp(before - top) + exp(row_lse - top));
        old_weight = exp(before - both);
        weight = exp(row_lse - both);
    }
    for (int64_t d = 0; d < D; d++) {
        double old = before != -INFINITY ? old_weight * ech_value(out, at + d) : 0;
        ech_store(out, at + d, weight * row[d] + old);
    }
    ech_store(lse, lse_at, both);
}

void ECH_REF(attention_forward)(ech_kernel_context *context, const ech_tensor *q,
                                const ech_tensor *k, const ech_tensor *v,
                                const ech_attention_rule *rule, const ech_attention_shard *at,
                                const ech_tensor *starts, const ech_dropout *dropout, bool merge,
                                const ech_tensor *out, const ech_tensor *lse)
{
    ECH_SEEN(at, k, v);
    problem p = check(q, k, v, rule, at, starts, dropout);
    ECH_SHAPES(attention_forward, ECH_REAL, q, k, v, out, lse);
    double *scores = ech_scratch(context, (size_t)(p.Tk + p.E) * sizeof *scores);
    double *row = scores + p.Tk;
    for (int64_t b = 0; b < p.B; b++)
        for (int64_t h = 0; h < p.H; h++)
            for (int64_t t = 0; t < p.Tq; t++) {
                double row_lse = attend(&p, b, h, t, scores, row);
                store(p.E, row, row_lse, merge, out, ech_head(out, b, t, h), lse,
                      (b * p.H + h) * p.Tq + t);
            }
}

/* Numbers of one row for backward. With P the probabilities, m the factors of dropout, dP = m (dout
 * v) and delta = dout out, the gradient of a score is P (dP - delta). Both lse and out are over all
 * keys, so P and delta belong to the whole row, for any part of the keys. */
typedef struct gradients {
    const ech_tensor *dout, *out, *lse;
    double *delta; /* (B,H,Tq) */
} gradients;

static void score(const problem *p, const gradients *from, int64_t b, int64_t h, int64_t query,
                  int64_t key, double *probability, double *ds)
{
    int64_t q = ech_head(p->q, b, query, h), k = ech_head(p->k, b, key, h / p->group);
    int64_t dout = ech_head(from->dout, b, query, h), v = ech_head(p->v, b, key, h / p->group);
    int64_t row = (b * p->H + h) * p->Tq + query;
    double m = dropout_factor(p, b, h, query, key), lse = ech_value(from->lse, row);
    double slope, P = exp(score_of(p, dot(p->D, p->q, q, p->k, k), &slope) - lse);
    double dP = m * dot(p->E, from->dout, dout, p->v, v);
    *probability = P * m;
    *ds = slope * P * (dP - from->delta[row]);
}

/* dq (+)= sum over keys of ds k. */
static void query_gradient(const problem *p, const gradients *from, int64_t b, int64_t h,
                           int64_t query, bool add, double *sum, const ech_tensor *dq)
{
    int64_t at = ech_head(dq, b, query, h);
    for (int64_t d = 0; d < p->D; d++) sum[d] = add ? ech_value(dq, at + d) : 0;
    run seen = keys_seen(p, b, query);
    for (int64_t key = seen.first; key < seen.end; key++) {
        double probability, ds;
        score(p, from, b, h, query, key, &probability, &ds);
        int64_t k = ech_head(p->k, b, key, h / p->group);
        for (int64_t d = 0; d < p->D; d++) sum[d] += ds * ech_value(p->k, k + d);
    }
    for (int64_t d = 0; d < p->D; d++) ech_store(dq, at + d, sum[d]);
}

/* dk (+)= sum over heads and later queries of ds q, dv of p dout. */
static void key_gradient(const problem *p, const gradients *from, int64_t b, int64_t g, int64_t key,
                         bool add, double *sum, const ech_tensor *dk, const ech_tensor *dv)
{
    int64_t k_at = ech_head(dk, b, key, g), v_at = ech_head(dv, b, key, g);
    double *of_v = sum + p->D;
    for (int64_t d = 0; d < p->D; d++) sum[d] = add ? ech_value(dk, k_at + d) : 0;
    for (int64_t d = 0; d < p->E; d++) of_v[d] = add ? ech_value(dv, v_at + d) : 0;
    for (int64_t h = g * p->group; h < (g + 1) * p->group; h++)
        for (int64_t query = 0; query < p->Tq; query++) {
            double probability, ds;
            if (!sees(p, b, query, key)) continue;
            score(p, from, b, h, query, key, &probability, &ds);
            int64_t q = ech_head(p->q, b, query, h), dout = ech_head(from->dout, b, query, h);
            for (int64_t d = 0; d < p->D; d++) sum[d] += ds * ech_value(p->q, q + d);
            for (int64_t d = 0; d < p->E; d++)
                of_v[d] += probability * ech_value(from->dout, dout + d);
        }
    for (int64_t d = 0; d < p->D; d++) ech_store(dk, k_at + d, sum[d]);
    for (int64_t d = 0; d < p->E; d++) ech_store(dv, v_at + d, of_v[d]);
}

void ECH_REF(attention_backward)(ech_kernel_context *context, const ech_tensor *dout,
                                 const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                                 const ech_tensor *out, const ech_tensor *lse,
                                 const ech_attention_rule *rule, const ech_attention_shard *at,
                                 const ech_tensor *starts, const ech_dropout *dropout, bool add_q,
                                 bool add_kv, const ech_tensor *dq, const ech_tensor *dk,
                                 const ech_tensor *dv)
{
    problem p = check(q, k, v, rule, at, starts, dropout);
    ECH_ASSERT(!at->query.position);
    ECH_SHAPES(attention_backward, ECH_REAL, dout, q, k, v, out, lse, dq, dk, dv);
    size_t rows = (size_t)(p.B * p.H * p.Tq);
    double *sum = ech_scratch(context, (rows + (size_t)(p.D + p.E)) * sizeof *sum);
    gradients from = {dout, out, lse, sum + p.D + p.E};
    for (int64_t b = 0; b < p.B; b++)
        for (int64_t h = 0; h < p.H; h++)
            for (int64_t t = 0; t < p.Tq; t++)
                from.delta[(b * p.H + h) * p.Tq + t] =
                    dot(p.E, dout, ech_head(dout, b, t, h), out, ech_head(out, b, t, h));
    for (int64_t b = 0; b < p.B; b++) {
        for (int64_t t = 0; t < p.Tq; t++)
            for (int64_t h = 0; h < p.H; h++) query_gradient(&p, &from, b, h, t, add_q, sum, dq);
        for (int64_t t = 0; t < p.Tk; t++)
            for (int64_t g = 0; g < p.G; g++) key_gradient(&p, &from, b, g, t, add_kv, sum, dk, dv);
    }
}

void ECH_REF(sinks_forward)(ech_kernel_context *context, const ech_tensor *sinks,
                            const ech_tensor *out, const ech_tensor *lse)
{
    int64_t H = out->shape[2], T = out->shape[1], rows = ech_tensor_count(lse);
    (void)context;
    ECH_SHAPES(sinks_forward, ECH_REAL, sinks, out, lse);
    for (int64_t i = 0; i < ech_tensor_count(out); i++) ech_store(out, i, 0);
    for (int64_t i = 0; i < rows; i++) ech_store(lse, i, ech_value(sinks, i / T % H));
}

void ECH_REF(sinks_backward)(ech_kernel_context *context, const ech_tensor *dout,
                             const ech_tensor *out, const ech_tensor *lse, const ech_tensor *sinks,
                             bool accumulate, const ech_tensor *dsinks)
{
    int64_t B = out->shape[0], T = out->shape[1], H = out->shape[2], D = out->shape[3];
    (void)context;
    ECH_SHAPES(sinks_backward, ECH_REAL, dout, out, lse, sinks, dsinks);
    for (int64_t h = 0; h < H; h++) {
        double sum = accumulate ? ech_value(dsinks, h) : 0, sink = ech_value(sinks, h);
        for (int64_t b = 0; b < B; b++)
            for (int64_t t = 0; t < T; t++) {
                double p = exp(sink - ech_value(lse, (b * H + h) * T + t));
                sum -= p * dot(D, dout, ech_head(dout, b, t, h), out, ech_head(out, b, t, h));
            }
        ech_store(dsinks, h, sum);
    }
}
