/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are sent as selections: which numbers a replica sends depends on its own
 * gradients, so no single rank can follow by itself. Rank 0 replays it: with what each replica has
 * it chooses by sorting, line by line of whole matrices, adds what all have chosen, and keeps the
 * rest. The single rank, whose gradients are not compressed, goes on with that sum.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/verify/verifier.h"
#include "tensor/tensor.h"

bool ech_verifier_chooses(const ech_verifier *v, const ech_copy *copy)
{
    return ech_compression_chosen(v->layout.design->config, ech_verifier_param(v, copy->param)) > 0;
}

/* Matrices of all replicas, one of a stack after the other: (stacked, replicas, rows, columns). */
typedef struct matrices {
    int64_t stacked, replicas, rows, columns;
} matrices;

static matrices matrices_of(const ech_shape *residual)
{
    const int64_t *size = residual->size + residual->dims - 3;
    return (matrices){residual->dims > 3 ? residual->size[0] : 1, size[0], size[1], size[2]};
}

typedef struct number {
    double value;
    int64_t index;
} number;

/* A NaN is larger than infinity. */
static double size_of(const number *x)
{
    return isnan(x->value) ? INFINITY : fmin(fabs(x->value), DBL_MAX);
}

/* Larger ones first; of equal ones those that come first. */
static int compare_numbers(const void *a, const void *b)
{
    const number *x = a, *y = b;
    double size = size_of(x), other = size_of(y);
    if (size > other || size < other) return size > other ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Moves the k chosen numbers of the line x[0], x[step], ... to `sent`, and sets them to zero in x.
 * */
static void choose_line(double *x, int64_t n, int64_t step, int64_t k, number *room, double *sent)
{
    for (int64_t i = 0; i < n; i++) room[i] = (number){x[i * step], i};
    qsort(room, (size_t)n, sizeof *room, compare_numbers);
    for (int64_t i = 0; i < k; i++) {
        sent[room[i].index * step] += room[i].value;
        x[room[i].index * step] = 0;
    }
}

static void choose(const ech_verifier *v, const ech_copy *copy, matrices m, double *x)
{
    const ech_param *param = ech_verifier_param(v, copy->param);
    const int64_t k = ech_compression_chosen(v->layout.design->config, param);
    const bool by_columns = ech_compression_by_columns(param);
    const int64_t lines = by_columns ? m.columns : m.rows, n = by_columns ? m.rows : m.columns;
    ECH_FREED number *room = ech_calloc((size_t)n, sizeof *room);
    for (int64_t i = 0; i < m.stacked * m.replicas; i++) {
        double *matrix = x + i * m.rows * m.columns;
        double *sent = copy->sent + i / m.replicas * m.rows * m.columns;
        for (int64_t l = 0; l < lines; l++) {
            int64_t at = by_columns ? l : l * n;
            choose_line(matrix + at, n, by_columns ? m.columns : 1, k, room, sent + at);
        }
    }
}

static void sum_replicas(matrices m, const double *x, double *sum)
{
    int64_t each = m.rows * m.columns;
    memset(sum, 0, (size_t)(m.stacked * each) * sizeof *sum);
    for (int64_t i = 0; i < m.stacked * m.replicas; i++)
        for (int64_t k = 0; k < each; k++) sum[i / m.replicas * each + k] += x[i * each + k];
}

static ech_compared residual_of(const ech_copy *copy, const ech_optimizer_needs *needs)
{
    ech_compared x = {.copy = copy, .kind = ECH_HELD_STATE};
    while (needs->state[x.state].role != ECH_STATE_RESIDUAL) x.state++;
    x.shape = &needs->state[x.state].shape;
    x.name = needs->state[x.state].name;
    return x;
}

ech_status ech_verifier_choose(ech_verifier *v, ech_copy *copy, double *mine, double *gradients)
{
    const ech_config *config = v->layout.design->config;
    ech_optimizer_needs needs = ech_optimizer_needs_of(config, ech_verifier_param(v, copy->param));
    ech_compared x = residual_of(copy, &needs);
    matrices m = matrices_of(x.shape);
    size_t n = (size_t)ech_shape_whole(x.shape), one = n / (size_t)m.replicas;
    if (v->result && !copy->kept) {
        copy->kept = ech_verifier_alloc(v, n, sizeof *copy->kept);
        copy->next = ech_verifier_alloc(v, n, sizeof *copy->next);
        copy->before = ech_verifier_alloc(v, one, sizeof *copy->before);
        copy->sent = ech_verifier_alloc(v, one, sizeof *copy->sent);
    }
    ECH_FREED double *all = v->result ? ech_calloc(n, sizeof *all) : NULL;
    ECH_TRY(ech_verifier_gather(v, &x, mine, all));
    if (!v->result) return ECH_OK;
    sum_replicas(m, copy->kept, copy->before);
    sum_replicas(m, all, gradients);
    memset(copy->sent, 0, one * sizeof *copy->sent);
    choose(v, copy, m, all);
    for (size_t i = 0; i < n; i++) copy->next[i] = all[i] / (double)config->precision.loss_scale;
    return ECH_OK;
}

static size_t count_of(const ech_verifier *v, const ech_copy *copy)
{
    ech_optimizer_needs needs =
        ech_optimizer_needs_of(v->layout.design->config, ech_verifier_param(v, copy->param));
    return (size_t)ech_shape_whole(residual_of(copy, &needs).shape);
}

void ech_verifier_keep(const ech_verifier *v, const ech_copy *copy)
{
    if (!ech_verifier_layout_updates(v, copy->stage)) return;
    memcpy(copy->kept, copy->next, count_of(v, copy) * sizeof *copy->kept);
}

void ech_verifier_add_kept(const ech_verifier *v, const ech_copy *copy, double *gradient)
{
    int64_t n = ech_shape_whole(&ech_verifier_param(v, copy->param)->shape);
    bool narrow = v->layout.session.plan->types.wide == ECH_F32;
    for (int64_t i = 0; i < n; i++) {
        double sum =
            gradient[i] + (double)v->layout.design->config->precision.loss_scale * copy->before[i];
        gradient[i] = narrow ? (double)(float)sum : sum;
    }
}

void ech_verifier_compare_kept(ech_verifier *v, const ech_compared *x, const double *all)
{
    const ech_copy *copy = x->copy;
    size_t n = (size_t)ech_shape_whole(x->shape);
    double most = ech_verifier_largest_gradient(v, copy); /* residuals are differences from it */
    ech_verifier_note(v, "residual of", copy->param,
                      ech_verifier_error(all, copy->kept, (int64_t)n, most),
                      &v->result->worst_state);
    memcpy(copy->kept, all, n * sizeof *all);
    v->result->compared += (int64_t)n;
}
