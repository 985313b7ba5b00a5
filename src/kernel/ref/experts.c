/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts: the router's product, the destinations of rows, and their dispatch and return.
 */
#include <math.h>

#include "kernel/experts.h"
#include "kernel/ref/real.h"

/* Jitter of the elements of view row s, of C columns. */
typedef struct jitter_row {
    double p;
    ech_random_key key;
    uint64_t first;
} jitter_row;

static jitter_row jitter_of(const ech_dropout *jitter, const ech_rows *rows, int64_t s, int64_t C)
{
    uint64_t first = jitter->p > 0 ? (uint64_t)(ech_row_whole(rows, s) * C) : 0;
    return (jitter_row){jitter->p, ech_dropout_key(jitter), first};
}

static double jittered(const jitter_row *row, double x, int64_t c)
{
    if (row->p == 0) return x;
    return x * ech_jitter_factor(row->p, ech_random_word(row->key, row->first + (uint64_t)c));
}

void ECH_REF(router_forward)(ech_kernel_context *context, const ech_tensor *x,
                             const ech_tensor *weight, const ech_dropout *jitter,
                             const ech_rows *rows, const ech_tensor *logits)
{
    ECH_ROWS_NOW(rows);
    int64_t S = x->shape[0], C = x->shape[1], E = weight->shape[0];
    ECH_SHAPES(router_forward, ECH_REAL, x, weight, logits);
    ECH_ROWS(rows, NULL, S);
    for (int64_t s = 0; s < S; s++) {
        const jitter_row row = jitter_of(jitter, rows, s, C);
        for (int64_t e = 0; e < E; e++) {
            double sum = 0;
            for (int64_t c = 0; c < C; c++)
                sum += jittered(&row, ech_value(x, s * C + c), c) * ech_value(weight, e * C + c);
            ech_store(logits, s * E + e, sum);
        }
    }
}

void ECH_REF(router_backward_input)(ech_kernel_context *context, const ech_tensor *dlogits,
                                    const ech_tensor *weight, const ech_dropout *jitter,
                                    const ech_rows *rows, const ech_tensor *add,
                                    const ech_tensor *dx)
{
    ECH_ROWS_NOW(rows);
    int64_t S = dx->shape[0], C = dx->shape[1], E = weight->shape[0];
    ECH_SHAPES(router_backward_input, ECH_REAL, dlogits, weight, add, dx);
    ECH_ROWS(rows, NULL, S);
    for (int64_t s = 0; s < S; s++) {
        const jitter_row row = jitter_of(jitter, rows, s, C);
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t e = 0; e < E; e++)
                sum += ech_value(dlogits, s * E + e) * ech_value(weight, e * C + c);
            sum = jittered(&row, sum, c);
            ech_store(dx, s * C + c, sum + (add ? ech_value(add, s * C + c) : 0));
        }
    }
}

void ECH_REF(router_backward_weight)(ech_kernel_context *context, const ech_tensor *dlogits,
                                     const ech_tensor *x, const ech_dropout *jitter,
                                     const ech_rows *rows, bool accumulate,
                                     const ech_tensor *dweight)
{
    ECH_ROWS_NOW(rows);
    int64_t S = x->shape[0], C = x->shape[1], E = dweight->shape[0];
    ECH_SHAPES(router_backward_weight, ECH_REAL, dlogits, x, dweight);
    ECH_ROWS(rows, NULL, S);
    for (int64_t e = 0; e < E; e++)
        for (int64_t c = 0; c < C; c++) {
            double sum = accumulate ? ech_value(dweight, e * C + c) : 0;
            for (int64_t s = 0; s < S; s++) {
                const jitter_row row = jitter_of(jitter, rows, s, C);
                sum += ech_value(dlogits, s * E + e) * jittered(&row, ech_value(x, s * C + c), c);
            }
            ech_store(dweight, e * C + c, sum);
        }
}

/* At first `slot` is a choice's index among its expert's choices. */
void ECH_REF(route)(ech_kernel_context *context, const ech_tensor *choice, int64_t bound,
                    const ech_tensor *slot, const ech_tensor *counts)
{
    int64_t n = ech_tensor_count(choice), X = counts->shape[1], E = counts->shape[0] * X;
    const int32_t *expert = choice->data;
    int32_t *place = slot->data, *count = counts->data;
    ECH_SHAPES(route, ECH_REAL, choice, slot, counts);
    ECH_ASSERT(bound >= 0 && counts->shape[0] * bound <= INT32_MAX);
    for (int64_t e = 0; e < E; e++) count[e] = 0;
    for (int64_t i = 0; i < n; i++) {
        ECH_ASSERT(expert[i] >= -1 && expert[i] < E);
        place[i] = expert[i] < 0 ? -1 : count[expert[i]]++;
    }
    for (int64_t split = 0; split < counts->shape[0]; split++)
        ECH_ASSERT(ech_rows_before(count, X, split, X) <= bound);
    for (int64_t i = 0; i < n; i++) {
        if (expert[i] < 0) continue;
        int64_t split = expert[i] / X;
        place[i] +=
            (int32_t)(split * bound + ech_rows_before(count, X, split, expert[i] - split * X));
    }
}

void ECH_REF(slice_counts)(ech_kernel_context *context, const ech_tensor *counts, int64_t first,
                           int64_t rows, const ech_tensor *slice)
{
    int64_t X = counts->shape[1];
    const int32_t *count = counts->data;
    int32_t *within = slice->data;
    ECH_SHAPES(slice_counts, ECH_REAL, counts, slice);
    for (int64_t i = 0; i < ech_tensor_count(counts); i++)
        within[i] = (int32_t)ech_rows_within(ech_rows_before(count, X, i / X, i % X), count[i],
                                             first, rows);
}

static int64_t slot_at(const ech_tensor *slot, int64_t i)
{
    return ((const int32_t *)slot->data)[i];
}

void ECH_REF(dispatch_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *slot, const ech_tensor *sent)
{
    int64_t C = x->shape[1], k = slot->shape[1];
    ECH_SHAPES(dispatch_forward, ECH_REAL, x, slot, sent);
    for (int64_t i = 0; i < ech_tensor_count(slot); i++) {
        int64_t to = slot_at(slot, i);
        ECH_ASSERT(to < sent->shape[0]);
        for (int64_t c = 0; c < C && to >= 0; c++)
            ech_store(sent, to * C + c, ech_value(x, i / k * C + c));
    }
}

void ECH_REF(dispatch_backward)(ech_kernel_context *context, const ech_tensor *dsent,
                                const ech_tensor *slot, const ech_tensor *add, const ech_tensor *dx)
{
    int64_t S = dx->shape[0], C = dx->shape[1], k = slot->shape[1];
    ECH_SHAPES(dispatch_backward, ECH_REAL, dsent, slot, add, dx);
    for (int64_t i = 0; i < S * C; i++) {
        double sum = add ? ech_value(add, i) : 0;
        for (int64_t j = 0; j < k; j++) {
            int64_t from = slot_at(slot, i / C * k + j);
            if (from >= 0) sum += ech_value(dsent, from * C + i % C);
        }
        ech_store(dx, i, sum);
    }
}

void ECH_REF(dispatch_index)(ech_kernel_context *context, const ech_tensor *slot,
                             const ech_rows *rows, const ech_tensor *index)
{
    ECH_ROWS_NOW(rows);
    int64_t k = slot->shape[1];
    ECH_SHAPES(dispatch_index, ECH_REAL, slot, index);
    ECH_ROWS(rows, NULL, slot->shape[0]);
    for (int64_t i = 0; i < ech_tensor_count(slot); i++) {
        int64_t to = slot_at(slot, i);
        ECH_ASSERT(to < index->shape[0]);
        if (to >= 0) ech_choice_put(index->data, to, ech_row_whole(rows, i / k) * k + i % k);
    }
}

void ECH_REF(combine_forward)(ech_kernel_context *context, const ech_tensor *y,
                              const ech_tensor *gates, const ech_tensor *slot,
                              const ech_tensor *out)
{
    int64_t S = out->shape[0], C = out->shape[1], k = slot->shape[1];
    ECH_SHAPES(combine_forward, ECH_REAL, y, gates, slot, out);
    for (int64_t s = 0; s < S; s++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++) {
                int64_t from = slot_at(slot, s * k + j);
                if (from >= 0) sum += ech_value(gates, s * k + j) * ech_value(y, from * C + c);
            }
            ech_store(out, s * C + c, sum);
        }
}

void ECH_REF(combine_backward)(ech_kernel_context *context, const ech_tensor *dout,
                               const ech_tensor *y, const ech_tensor *gates, const ech_tensor *slot,
                               const ech_tensor *dy, const ech_tensor *dgates)
{
    int64_t S = dout->shape[0], C = dout->shape[1], k = slot->shape[1];
    ECH_SHAPES(combine_backward, ECH_REAL, dout, y, gates, slot, dy, dgates);
    for (int64_t i = 0; i < S * k; i++) {
        int64_t s = i / k, at = slot_at(slot, i);
        double gate = ech_value(gates, i), sum = 0;
        for (int64_t c = 0; c < C && at >= 0; c++) {
            double d = ech_value(dout, s * C + c);
            sum += d * ech_value(y, at * C + c);
            ech_store(dy, at * C + c, gate * d);
        }
        ech_store(dgates, i, sum);
    }
}

static double sigmoid_of(const ech_tensor *logits, int64_t r)
{
    return 1 / (1 + exp(-ech_value(logits, r)));
}

void ECH_REF(add_bias)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *bias,
                       const ech_tensor *y)
{
    ECH_SHAPES(add_bias, ECH_REAL, x, bias, y);
    for (int64_t i = 0; i < ech_tensor_count(y); i++)
        ech_store(y, i, ech_value(x, i) + ech_value(bias, i % bias->shape[0]));
}

void ECH_REF(row_gate_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *logits, const ech_tensor *y)
{
    int64_t S = x->shape[0], C = x->shape[1];
    ECH_SHAPES(row_gate_forward, ECH_REAL, x, logits, y);
    ECH_ASSERT(logits->shape[1] == 1);
    for (int64_t i = 0; i < S * C; i++)
        ech_store(y, i, sigmoid_of(logits, i / C) * ech_value(x, i));
}

void ECH_REF(row_gate_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *x, const ech_tensor *logits, const ech_tensor *dx,
                                const ech_tensor *dlogits)
{
    int64_t S = x->shape[0], C = x->shape[1];
    ECH_SHAPES(row_gate_backward, ECH_REAL, dy, x, logits, dx, dlogits);
    ECH_ASSERT(logits->shape[1] == 1);
    for (int64_t r = 0; r < S; r++) {
        double s = sigmoid_of(logits, r), sum = 0;
        for (int64_t i = r * C; i < r * C + C; i++) {
            double d = ech_value(dy, i);
            sum += d * ech_value(x, i);
            ech_store(dx, i, s * d);
        }
        ech_store(dlogits, r, s * (1 - s) * sum);
    }
}
