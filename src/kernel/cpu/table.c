/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of this instruction set and type; kernel/table.c adds the reference's for missing ones.
 * And reference speeds: multiply-adds without memory, in the widest registers, and the triad of
 * STREAM.
 */
#include "kernel/cpu/rows.h"
#include "kernel/cpu/tile.h"

/* Independent registers: enough for the latency of two units, and with the two constants at most
 * sixteen; for pairs, which take longer, at most the thirty-two of their set. */
#ifdef ECH_PAIRS
enum { CHAINS = 24 };
#else
enum { CHAINS = 12 };
#endif

/* Each x becomes x a + b, or for pairs x + a b, repeatedly. The compiler knows neither number. */
static float multiply_add(int64_t rounds, float a, float b)
{
    ech_wide chain[CHAINS], factor = ech_wide_all(a), term = ech_wide_all(b), sum = {0};
    for (int c = 0; c < CHAINS; c++) chain[c] = ech_wide_all((float)(c + 1));
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++)
#ifdef ECH_PAIRS
            chain[c] =
                (ech_wide)_mm512_dpbf16_ps((__m512)chain[c], (__m512bh)factor, (__m512bh)term);
#else
            chain[c] = chain[c] * factor + term;
#endif
    for (int c = 0; c < CHAINS; c++) sum += chain[c];
    return sum[0];
}

static double multiply_adds(const ech_kernel_context *context, int64_t rounds)
{
    const float half = ECH_DEPTH > 1 ? 0x1.007ep-1F : 0.5F; /* both numbers of a pair */
    volatile float a = half, b = half, sink = 0;
    float factor = a, term = b, sum = 0;
#pragma omp parallel num_threads(context->threads) reduction(+ : sum)
    sum += multiply_add(rounds, factor, term);
    sink = sum;
    (void)sink;
    return 2.0 * ECH_DEPTH * ECH_WIDE * CHAINS * (double)rounds * context->threads;
}

static void triad(const ech_kernel_context *context, double *a, const double *b, const double *c,
                  int64_t n)
{
#pragma omp parallel for simd schedule(static) num_threads(context->threads)
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
}

const ech_kernels ECH_CPU(kernels) = {
    .name = "cpu",
    .dtype = ECH_REAL,
    .multiply_adds = multiply_adds,
    .triad = triad,
    .library_product = ECH_CPU_LIBRARY_PRODUCT,
#define X(op, function, scratch_function) .op = function, .scratch[ECH_OP_##op] = scratch_function,
#include "kernel/cpu/rows.def"
#undef X
};
