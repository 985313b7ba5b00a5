/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of squares in blocks, the search for the first NaN or infinity, and hashes.
 */
#include <string.h>

#include "kernel/cpu/part.h"
#include "kernel/hash.h"
#include "kernel/listed.h"
#include "kernel/shape.h"

/* The definition's order: element i goes to lane i mod LANES. Squares of fp32 are exact in fp64. */
enum { LANES = 16, VECTORS = LANES / ECH_LONGS };

/* For x's n elements; the first goes to lane `at` mod LANES. */
static void add_squares(double lane[LANES], int64_t at, int64_t n, const float *x)
{
    int64_t i = 0;
    for (; i < n && (at + i) % LANES; i++) lane[(at + i) % LANES] += (double)x[i] * x[i];
    ech_wide_double sum[VECTORS]; /* stay in registers */
    memcpy(sum, lane, sizeof sum);
    for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            ech_wide_double own = ech_wide_doubles(*(const ech_wide_half *)(x + i + v * ECH_LONGS));
            sum[v] += own * own;
        }
    memcpy(lane, sum, sizeof sum);
    for (int l = 0; i < n; i++, l++) lane[l] += (double)x[i] * x[i];
}

static double sum_of(const double lane[LANES])
{
    double sum = 0;
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

void ECH_CPU(square_sums)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *sums)
{
    int64_t n = ech_tensor_count(x), blocks = (n + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK;
    ECH_SHAPES(square_sums, ECH_REAL, x, sums);
    ECH_ASSERT(sums->shape[0] == blocks);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t j = 0; j < blocks; j++) {
        ECH_ALIGNED float part[ECH_NORM_BLOCK];
        int64_t first = j * ECH_NORM_BLOCK, count = ech_part(n, first, ECH_NORM_BLOCK);
        double lane[LANES] = {0};
        add_squares(lane, 0, count, ech_part_of(x, first, count, part));
        ((double *)sums->data)[j] = sum_of(lane);
    }
}

/* The sum of squares of block j, which has listed row k and perhaps rows after it. Returns the
 * first row that ends after the block, or begins after it. */
static int64_t sum_rows(const ech_tensor *x, const int32_t *row, int64_t listed, int64_t j,
                        int64_t k, double *sum)
{
    ECH_ALIGNED float part[ECH_NORM_BLOCK];
    int64_t C = x->shape[1], first = j * ECH_NORM_BLOCK, end = first + ECH_NORM_BLOCK;
    double lane[LANES] = {0};
    for (; k < listed && row[k] * C < end; k++) {
        int64_t from = row[k] * C < first ? first : row[k] * C;
        int64_t to = (row[k] + 1) * C < end ? (row[k] + 1) * C : end;
        int64_t before = (row[k] - k) * C; /* from the row in x to its place in the table */
        if (C < LANES)
            for (int64_t i = from; i < to; i++) {
                double number = (double)ech_number(x, i - before);
                lane[(i - first) % LANES] += number * number;
            }
        else
            add_squares(lane, from - first, to - from,
                        ech_part_of(x, from - before, to - from, part));
        if ((row[k] + 1) * C > end) break; /* the next block has the rest */
    }
    *sum = sum_of(lane);
    return k;
}

/* Blocks [from, to). Most have no listed row if the list is short. */
static void sum_blocks(const ech_tensor *x, const int32_t *row, int64_t listed, int64_t from,
                       int64_t to, double *sums)
{
    int64_t C = x->shape[1], k = ech_listed_from(row, listed, from * ECH_NORM_BLOCK / C);
    for (int64_t j = from; j < to; j++) {
        int64_t next = k < listed ? row[k] * C / ECH_NORM_BLOCK : to;
        for (; j < to && j < next; j++) sums[j] = 0;
        if (j < to) k = sum_rows(x, row, listed, j, k, &sums[j]);
    }
}

void ECH_CPU(square_sums_rows)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *rows, const ech_tensor *sums)
{
    ECH_SHAPES(square_sums_rows, ECH_REAL, x, rows, sums);
    const int32_t *row = rows->data;
    int64_t C = x->shape[1], listed = ech_listed(row, rows->shape[0]), blocks = sums->shape[0];
    int64_t shares = listed * C > ECH_CHUNK ? context->threads : 1;
#pragma omp parallel for num_threads(context->threads) if (shares > 1)
    for (int64_t s = 0; s < shares; s++)
        sum_blocks(x, row, listed, blocks * s / shares, blocks * (s + 1) / shares, sums->data);
}

/* True if all exponents are below the one of NaN and infinity. */
static bool all_finite(int64_t n, const float *x)
{
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = ech_bits_of_float(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7f800000u;
}

void ECH_CPU(find_nonfinite)(ech_kernel_context *context, const ech_tensor *x,
                             const ech_tensor *first)
{
    ECH_SHAPES(find_nonfinite, ECH_REAL, x, first);
    int64_t n = ech_tensor_count(x), found = n;
#pragma omp parallel for num_threads(context->threads) reduction(min : found) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i += ECH_PART) {
        ECH_ALIGNED float part[ECH_PART];
        int64_t count = ech_part(n, i, ECH_PART), at = 0;
        const float *in = i > found ? NULL : ech_part_of(x, i, count, part);
        if (!in || all_finite(count, in)) continue;
        while ((ech_bits_of_float(in[at]) & 0x7f800000u) != 0x7f800000u) at++;
        found = i + at < found ? i + at : found;
    }
    *(double *)first->data = found < n ? (double)found : -1;
}

/* Elements of 4 or 2 bytes; in any order, since sums modulo 2^64 do not depend on it. */
void ECH_CPU(hash)(ech_kernel_context *context, const ech_tensor *x, int64_t first,
                   const ech_tensor *sum)
{
    int64_t n = ech_tensor_count(x);
    uint64_t hash = 0;
    ECH_SHAPES(hash, ECH_REAL, x, sum);
    if (ech_dtype_bytes(x->dtype) == sizeof(uint32_t)) {
        const uint32_t *bits = x->data;
#pragma omp parallel for simd num_threads(context->threads) reduction(+ : hash) if (n > ECH_CHUNK)
        for (int64_t i = 0; i < n; i++) hash += ech_hash_of(first + i, bits[i]);
    } else {
        const uint16_t *bits = x->data;
#pragma omp parallel for simd num_threads(context->threads) reduction(+ : hash) if (n > ECH_CHUNK)
        for (int64_t i = 0; i < n; i++) hash += ech_hash_of(first + i, bits[i]);
    }
    *(uint64_t *)sum->data += hash;
}
