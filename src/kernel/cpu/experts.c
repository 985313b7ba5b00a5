/* SPDX-License-Identifier: Apache-2.0
 *
 * Dispatch of rows to experts and their return. Slots name each row of a buffer once, so rows are
 * independent.
 */
#include "kernel/experts.h"
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

void ECH_CPU(dispatch_index)(ech_kernel_context *context, const ech_tensor *slot,
                             const ech_rows *rows, const ech_tensor *index)
{
    ECH_ROWS_NOW(rows);
    int64_t S = slot->shape[0], k = slot->shape[1];
    ECH_SHAPES(dispatch_index, ECH_REAL, slot, index);
    ECH_ROWS(rows, NULL, S);
#pragma omp parallel for num_threads(context->threads) if (S * k > ECH_CHUNK)
    for (int64_t i = 0; i < S * k; i++) {
        int64_t to = slot_at(slot, i);
        ECH_ASSERT(to < index->shape[0]);
        if (to >= 0) ech_choice_put(index->data, to, ech_row_whole(rows, i / k) * k + i % k);
    }
}

/* The operands of the gates. */
typedef struct combined {
    const ech_tensor *y, *gates, *slot;
} combined;

enum { PART = 256 };

static void combine_row(const combined *of, int64_t s, const ech_tensor *out)
{
    int64_t C = out->shape[1], k = of->slot->shape[1];
    for (int64_t c = 0; c < C; c += PART) {
        ECH_ALIGNED float part[2][PART];
        int64_t n = ech_part(C, c, PART);
        float *sum = ech_part_to(out, s * C + c, part[0]);
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t j = 0; j < k; j++) {
            int64_t from = slot_at(of->slot, s * k + j);
            if (from < 0) continue;
            float gate = ((const float *)of->gates->data)[s * k + j];
            const float *in = ech_part_of(of->y, from * C + c, n, part[1]);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) sum[i] += gate * in[i];
        }
        ech_part_done(out, s * C + c, n, sum);
    }
}

void ECH_CPU(combine_forward)(ech_kernel_context *context, const ech_tensor *y,
                              const ech_tensor *gates, const ech_tensor *slot,
                              const ech_tensor *out)
{
    int64_t S = out->shape[0], C = out->shape[1];
    ECH_SHAPES(combine_forward, ECH_REAL, y, gates, slot, out);
    const combined of = {y, gates, slot};
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
        ECH_ALIGNED float part[3][PART];
        int64_t n = ech_part(C, c, PART);
        const float *d = ech_part_of(dout, s * C + c, n, part[0]);
        const float *in = ech_part_of(of->y, at * C + c, n, part[1]);
        float *to = ech_part_to(dy, at * C + c, part[2]), own = 0;
#pragma omp simd reduction(+ : own)
        for (int64_t i = 0; i < n; i++) {
            own += d[i] * in[i];
            to[i] = gate * d[i];
        }
        sum += (double)own;
        ech_part_done(dy, at * C + c, n, to);
    }
    ((float *)dgates->data)[s * k + j] = (float)sum;
}

void ECH_CPU(combine_backward)(ech_kernel_context *context, const ech_tensor *dout,
                               const ech_tensor *y, const ech_tensor *gates, const ech_tensor *slot,
                               const ech_tensor *dy, const ech_tensor *dgates)
{
    int64_t S = dout->shape[0], C = dout->shape[1], k = slot->shape[1];
    ECH_SHAPES(combine_backward, ECH_REAL, dout, y, gates, slot, dy, dgates);
    const combined of = {y, gates, slot};
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t i = 0; i < S * k; i++) split_row(&of, i / k, i % k, dout, dy, dgates);
}

/* ---- rows by a gate of their own ---- */

void ECH_CPU(row_gate_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *logits, const ech_tensor *y)
{
    int64_t S = x->shape[0], C = x->shape[1];
    ECH_SHAPES(row_gate_forward, ECH_REAL, x, logits, y);
    ECH_ASSERT(logits->shape[1] == 1);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s++) {
        float gate = ech_sigmoid(((const float *)logits->data)[s]);
        for (int64_t c = 0; c < C; c += PART) {
            ECH_ALIGNED float part[2][PART];
            int64_t n = ech_part(C, c, PART);
            const float *in = ech_part_of(x, s * C + c, n, part[0]);
            float *out = ech_part_to(y, s * C + c, part[1]);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) out[i] = gate * in[i];
            ech_part_done(y, s * C + c, n, out);
        }
    }
}

/* Returns dy·x of the row. */
static double gate_row(const ech_tensor *dy, const ech_tensor *x, float gate, int64_t s,
                       const ech_tensor *dx)
{
    int64_t C = x->shape[1];
    double sum = 0;
    for (int64_t c = 0; c < C; c += PART) {
        ECH_ALIGNED float part[3][PART];
        int64_t n = ech_part(C, c, PART);
        const float *d = ech_part_of(dy, s * C + c, n, part[0]);
        const float *in = ech_part_of(x, s * C + c, n, part[1]);
        float *to = ech_part_to(dx, s * C + c, part[2]), own = 0;
#pragma omp simd reduction(+ : own)
        for (int64_t i = 0; i < n; i++) {
            own += d[i] * in[i];
            to[i] = gate * d[i];
        }
        sum += (double)own;
        ech_part_done(dx, s * C + c, n, to);
    }
    return sum;
}

void ECH_CPU(row_gate_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *x, const ech_tensor *logits, const ech_tensor *dx,
                                const ech_tensor *dlogits)
{
    int64_t S = x->shape[0], C = x->shape[1];
    ECH_SHAPES(row_gate_backward, ECH_REAL, dy, x, logits, dx, dlogits);
    ECH_ASSERT(logits->shape[1] == 1);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s++) {
        float z = ((const float *)logits->data)[s], gate = ech_sigmoid(z);
        double sum = gate_row(dy, x, gate, s, dx);
        ((float *)dlogits->data)[s] = (float)((double)gate * (double)ech_sigmoid(-z) * sum);
    }
}
