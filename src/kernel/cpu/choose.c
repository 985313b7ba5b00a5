/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest numbers of lines. A heap has the magnitudes that are chosen so far, the least of them
 * first; numbers that are no larger, which are nearly all numbers of a long line, are skipped many
 * at a time. Several adjacent columns are processed together. Heaps are in the memory of the
 * resulting values.
 */
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

enum { TOGETHER = 16 /* columns, or numbers of a row */ };

ECH_INLINE uint32_t magnitude_of(float x)
{
    return ech_bits_of_float(x) & 0x7fffffffu;
}

static void sift(float *heap, int64_t n, int64_t at)
{
    float own = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && magnitude_of(heap[child + 1]) < magnitude_of(heap[child])) child++;
        if (magnitude_of(heap[child]) >= magnitude_of(own)) break;
        heap[at] = heap[child];
    }
    heap[at] = own;
}

/* Numbers of a line that is a row, or of TOGETHER columns: number i of line l is x[i * step +
 * l]. */
typedef struct lines {
    const float *x;
    int64_t n, step;
    int lines;
    uint32_t least[TOGETHER]; /* of the chosen magnitudes */
    int64_t equal[TOGETHER];  /* how many of the equally large ones are chosen */
    int64_t taken[TOGETHER];
} lines;

/* Not inlined: where gcc splits the loop around it, a copy of this loop is not vectorized. */
ECH_OUTLINE bool any_above(const float *x, int64_t n, uint32_t least)
{
    uint32_t above = 0;
#pragma omp simd reduction(| : above)
    for (int64_t i = 0; i < n; i++) above |= magnitude_of(x[i]) > least ? 1 : 0;
    return above != 0;
}

ECH_OUTLINE bool any_above_each(const float *x, const uint32_t *least)
{
    uint32_t above = 0;
#pragma omp simd reduction(| : above)
    for (int l = 0; l < TOGETHER; l++) above |= magnitude_of(x[l]) > least[l] ? 1 : 0;
    return above != 0;
}

static void replace(lines *of, int l, float x, float *heap, int64_t K)
{
    if (magnitude_of(x) <= of->least[l]) return;
    heap[0] = x;
    sift(heap, K, 0);
    of->least[l] = magnitude_of(heap[0]);
}

static void find(lines *of, int64_t K, float *values)
{
    for (int l = 0; l < of->lines; l++) {
        float *heap = values + l * K;
        for (int64_t i = 0; i < K; i++) heap[i] = of->x[i * of->step + l];
        for (int64_t i = K / 2; i-- > 0;) sift(heap, K, i);
        of->least[l] = magnitude_of(heap[0]);
    }
    if (of->step == 1) {
        for (int64_t i = K; i < of->n; i += TOGETHER) {
            int64_t end = i + ech_part(of->n, i, TOGETHER);
            if (!any_above(of->x + i, end - i, of->least[0])) continue;
            for (int64_t k = i; k < end; k++) replace(of, 0, of->x[k], values, K);
        }
    } else {
        for (int64_t i = K; i < of->n; i++) {
            const float *x = of->x + i * of->step;
            if (of->lines == TOGETHER && !any_above_each(x, of->least)) continue;
            for (int l = 0; l < of->lines; l++) replace(of, l, x[l], values + l * K, K);
        }
    }
    for (int l = 0; l < of->lines; l++) {
        of->equal[l] = 0;
        for (int64_t i = 0; i < K; i++)
            of->equal[l] += magnitude_of(values[l * K + i]) == of->least[l];
    }
}

/* Handles number i of line l, if it is chosen. */
static void take(lines *of, int l, int64_t i, int64_t K, float *values, float *indices)
{
    float x = of->x[i * of->step + l];
    uint32_t own = magnitude_of(x);
    if (own < of->least[l] || (own == of->least[l] && of->equal[l]-- <= 0)) return;
    values[l * K + of->taken[l]] = x;
    indices[l * K + of->taken[l]++] = (float)i;
}

static void take_all(lines *of, int64_t K, float *values, float *indices)
{
    uint32_t below[TOGETHER]; /* numbers above this may be chosen */
    bool passes = of->step == 1 || of->lines == TOGETHER;
    int64_t at_once = of->step == 1 ? TOGETHER : 1;
    for (int l = 0; l < of->lines; l++) {
        passes &= of->least[l] > 0;
        below[l] = of->least[l] - 1;
    }
    for (int64_t i = 0; i < of->n; i += at_once) {
        const float *x = of->x + i * of->step;
        int64_t n = ech_part(of->n, i, at_once);
        if (passes && !(of->step == 1 ? any_above(x, n, below[0]) : any_above_each(x, below)))
            continue;
        for (int64_t k = i; k < i + n; k++)
            for (int l = 0; l < of->lines; l++) take(of, l, k, K, values, indices);
    }
}

void ECH_CPU(choose)(ech_kernel_context *context, const ech_tensor *x, bool columns,
                     const ech_tensor *values, const ech_tensor *indices)
{
    ECH_SHAPES(choose, ECH_REAL, x, values, indices);
    int64_t R = x->shape[0], C = x->shape[1], L = values->shape[0], K = values->shape[1];
    int64_t together = columns && C > 1 ? TOGETHER : 1; /* a single column is like a row */
    ECH_ASSERT(L == (columns ? C : R) && K > 0 && K <= (columns ? R : C));
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t l = 0; l < L; l += together) {
        lines of = {.x = (const float *)x->data + l * (columns ? 1 : C),
                    .n = columns ? R : C,
                    .step = columns ? C : 1,
                    .lines = (int)ech_part(L, l, together)};
        float *to = (float *)values->data + l * K;
        find(&of, K, to);
        take_all(&of, K, to, (float *)indices->data + l * K);
    }
}

void ECH_CPU(add_chosen)(ech_kernel_context *context, const ech_tensor *values,
                         const ech_tensor *indices, bool columns, double factor,
                         const ech_tensor *y)
{
    ECH_SHAPES(add_chosen, ECH_REAL, values, indices, y);
    int64_t C = y->shape[1], L = values->shape[0], K = values->shape[1];
    const float *value = values->data, *index = indices->data, by = (float)factor;
    ECH_ASSERT(L == (columns ? C : y->shape[0]));
#pragma omp parallel for num_threads(context->threads) if (L * K > ECH_CHUNK)
    for (int64_t l = 0; l < L; l++) {
        float *to = (float *)y->data + (columns ? l : l * C);
        for (int64_t i = l * K; i < (l + 1) * K; i++)
            to[(int64_t)index[i] * (columns ? C : 1)] += by * value[i];
    }
}
