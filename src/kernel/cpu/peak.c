/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiply-adds that touch no memory, in the widest registers of the instruction set.
 */
#include "kernel/peak.h"

#include "kernel/cpu/rows.h"

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
/* Registers that do not wait for each other: enough for the latency of two units, and with the two
 * constants not more than sixteen. */
enum { CHAINS = 12 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Each x becomes x a + b, over and over. The compiler knows neither number. */
static float multiply_add(int64_t rounds, float a, float b)
{
    lanes chain[CHAINS], factor = a + (lanes){0}, term = b + (lanes){0}, sum = {0};
    for (int c = 0; c < CHAINS; c++) chain[c] = (float)(c + 1) + (lanes){0};
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) chain[c] = chain[c] * factor + term;
    for (int c = 0; c < CHAINS; c++) sum += chain[c];
    return sum[0];
}

double ECH_CPU(multiply_adds)(const ech_kernel_context *context, int64_t rounds)
{
    volatile float a = 0.5F, b = 0.5F, kept = 0;
    float factor = a, term = b, sum = 0;
#pragma omp parallel num_threads(context->threads) reduction(+ : sum)
    sum += multiply_add(rounds, factor, term);
    kept = sum;
    (void)kept;
    return 2.0 * LANES * CHAINS * (double)rounds * context->threads;
}
