/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of rows to experts and back. Slots name each row of a buffer once, so rows are independent.
 */
#include "kernel/cpu/dropout.h"
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

static int64_t slot_at(const ech_tensor *slot, int64_t i)
{
    return ((const int32_t *)slot->data)[i];
}

void ECH_CPU(dispatch_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *slot, const ech_tensor *sent)
{
    int64_t S = x->shape[0], C = x->shape[1], k = slot->shape[1];
    ECH_SHAPES(dispatch_forward, ECH_REAL, x, slot, sent);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s++)
        for (int64_t j = 0; j < k; j++) {
            int64_t to = slot_at(slot, s * k + j);
            ECH_ASSERT(to < sent->shape[0]);
            if (to >= 0) ech_part_copy(x, s * C, C, sent, to * C);
        }
}

void ECH_CPU(dispatch_backward)(ech_kernel_context *context, const ech_tensor *dsent,
                                const ech_tensor *slot, const ech_tensor *add, const ech_tensor *dx)
{
    int64_t S = dx->shape[0], C = dx->shape[1], k = slot->shape[1];
    ECH_SHAPES(dispatch_backward, ECH_REAL, dsent, slot, add, dx);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s++)
        for (int64_t c = 0; c < C; c += ECH_PART) {
            ECH_ALIGNED float part[2][ECH_PART];
            int64_t n = ech_part(C, c, ECH_PART);
            const float *more = ech_part_of(add, s * C + c, n, part[0]);
            float *sum = ech_part_to(dx, s * C + c, part[1]);
            if (more)
                memmove(sum, more, (size_t)n * sizeof *sum);
            else
                memset(sum, 0, (size_t)n * sizeof *sum);
            for (int64_t j = 0; j < k; j++) {
                int64_t from = slot_at(slot, s * k + j);
                if (from < 0) continue;
                const float *in = ech_part_of(dsent, from * C + c, n, part[0]);
#pragma omp simd
                for (int64_t i = 0; i < n; i++) sum[i] += in[i];
            }
            ech_part_done(dx, s * C + c, n, sum);
        }
}

/* What the gates multiply, and what of it is dropped. */
typedef struct combined {
    const ech_tensor *y, *gates, *slot;
    ech_rows rows;
    ech_random_key key;
    uint32_t threshold; /* 0: nothing is dropped */
    float scale;
} combined;

static combined combined_of(const ech_tensor *y, const ech_tensor *gates, const ech_tensor *slot,
                            const ech_dropout *dropout, const ech_rows *rows)
{
    ECH_ASSERT(dropout->p < 1);
    return (combined){y,
                      gates,
                      slot,
                      *rows,
                      ech_dropout_key(dropout),
                      dropout->p > 0 ? ech_drop_threshold(dropout->p) : 0,
                      (float)(1 / (1 - dropout->p))};
}

/* The factors of columns [c, c + n) of choice j of row s; NULL: all are 1. */
ECH_INLINE const float *factors(const combined *of, int64_t s, int64_t j, int64_t c, int64_t n,
                                float *buffer)
{
    int64_t k = of->slot->shape[1], C = of->y->shape[1];
    if (of->threshold == 0) return NULL;
    uint64_t first = (uint64_t)((ech_row_whole(&of->rows, s) * k + j) * C + c);
    ech_dropout_mask(of->key, of->threshold, of->scale, first, n, buffer);
    return buffer;
}

enum { PART = 256 };

static void combine_row(const combined *of, int64_t s, const ech_tensor *out)
{
    int64_t C = out->shape[1], k = of->slot->shape[1];
    for (int64_t c = 0; c < C; c += PART) {
        ECH_ALIGNED float part[2][PART], mask[PART];
        int64_t n = ech_part(C, c, PART);
        float *sum = ech_part_to(out, s * C + c, part[0]);
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t j = 0; j < k; j++) {
            int64_t from = slot_at(of->slot, s * k + j);
            if (from < 0) continue;
            float gate = ((const float *)of->gates->data)[s * k + j];
            const float *in = ech_part_of(of->y, from * C + c, n, part[1]);
            const float *by = factors(of, s, j, c, n, mask);
            /* A dropped element is 0 even where y is no number. */
            if (by) {
#pragma omp simd
                for (int64_t i = 0; i < n; i++)
                    sum[i] += ech_kept(by[i] != 0.0F, gate * by[i] * in[i]);
            } else {
#pragma omp simd
                for (int64_t i = 0; i < n; i++) sum[i] += gate * in[i];
            }
        }
        ech_part_done(out, s * C + c, n, sum);
    }
}

void ECH_CPU(combine_forward)(ech_kernel_context *context, const ech_tensor *y,
                              const ech_tensor *gates, const ech_tensor *slot,
                              const ech_dropout *dropout, const ech_rows *rows,
                              const ech_tensor *out)
{
    ECH_ROWS_NOW(rows);
    int64_t S = out->shape[0], C = out->shape[1];
    ECH_SHAPES(combine_forward, ECH_REAL, y, gates, slot, out);
    ECH_ROWS(rows, NULL, S);
    const combined of = combined_of(y, gates, slot, dropout, rows);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s++) combine_row(&of, s, out);
}

/* The gradients of choice j of row s: of its row of y, and of its gate. */
static void split_row(const combined *of, int64_t s, int64_t j, const ech_tensor *dout,
                      const ech_tensor *dy, const ech_tensor *dgates)
{
    int64_t C = dout->shape[1], k = of->slot->shape[1], at = slot_at(of->slot, s * k + j);
    float gate = ((const float *)of->gates->data)[s * k + j];
    double sum = 0;
    for (int64_t c = 0; at >= 0 && c < C; c += PART) {
        ECH_ALIGNED float part[3][PART], mask[PART];
        int64_t n = ech_part(C, c, PART);
        const float *d = ech_part_of(dout, s * C + c, n, part[0]);
        const float *in = ech_part_of(of->y, at * C + c, n, part[1]);
        float *to = ech_part_to(dy, at * C + c, part[2]), own = 0;
        const float *by = factors(of, s, j, c, n, mask);
        if (by) {
#pragma omp simd reduction(+ : own)
            for (int64_t i = 0; i < n; i++) {
                bool stays = by[i] != 0.0F;
                float kept = ech_kept(stays, by[i] * d[i]);
                own += ech_kept(stays, kept * in[i]);
                to[i] = ech_kept(stays, gate * kept);
            }
        } else {
#pragma omp simd reduction(+ : own)
            for (int64_t i = 0; i < n; i++) {
                own += d[i] * in[i];
                to[i] = gate * d[i];
            }
        }
        sum += (double)own;
        ech_part_done(dy, at * C + c, n, to);
    }
    ((float *)dgates->data)[s * k + j] = (float)sum;
}

void ECH_CPU(combine_backward)(ech_kernel_context *context, const ech_tensor *dout,
                               const ech_tensor *y, const ech_tensor *gates, const ech_tensor *slot,
                               const ech_dropout *dropout, const ech_rows *rows,
                               const ech_tensor *dy, const ech_tensor *dgates)
{
    ECH_ROWS_NOW(rows);
    int64_t S = dout->shape[0], C = dout->shape[1], k = slot->shape[1];
    ECH_SHAPES(combine_backward, ECH_REAL, dout, y, gates, slot, dy, dgates);
    ECH_ROWS(rows, NULL, S);
    const combined of = combined_of(y, gates, slot, dropout, rows);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t i = 0; i < S * k; i++) split_row(&of, i / k, i % k, dout, dy, dgates);
}
