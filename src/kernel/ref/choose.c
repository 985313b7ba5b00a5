/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest numbers of lines. The least chosen magnitude is found bit by bit: the greatest that
 * at least K numbers reach. Magnitudes are compared as integers, their bits without the sign.
 */
#include <string.h>

#include "kernel/ref/real.h"

#ifdef ECH_REAL_F64
typedef uint64_t magnitude;
#else
typedef uint32_t magnitude;
#endif
enum { BITS = 8 * sizeof(magnitude) - 1 };

/* Number i of it is x[i * step]. */
typedef struct line {
    const wide *x;
    int64_t n, step;
} line;

static magnitude magnitude_of(const line *of, int64_t i)
{
    magnitude bits;
    memcpy(&bits, &of->x[i * of->step], sizeof bits);
    return bits & (((magnitude)1 << BITS) - 1);
}

static int64_t count_from(const line *of, magnitude least)
{
    int64_t n = 0;
    for (int64_t i = 0; i < of->n; i++) n += magnitude_of(of, i) >= least;
    return n;
}

static magnitude least_chosen(const line *of, int64_t K)
{
    magnitude least = 0;
    for (int bit = BITS - 1; bit >= 0; bit--) {
        magnitude higher = least | (magnitude)1 << bit;
        if (count_from(of, higher) >= K) least = higher;
    }
    return least;
}

static void choose_line(const line *of, int64_t K, wide *values, wide *indices)
{
    magnitude least = least_chosen(of, K);
    int64_t equal = K - count_from(of, least + 1), n = 0;
    for (int64_t i = 0; i < of->n; i++) {
        magnitude own = magnitude_of(of, i);
        if (own < least || (own == least && equal-- <= 0)) continue;
        memcpy(&values[n], &of->x[i * of->step], sizeof *values);
        indices[n++] = (wide)i;
    }
}

void ECH_REF(choose)(ech_kernel_context *context, const ech_tensor *x, bool columns,
                     const ech_tensor *values, const ech_tensor *indices)
{
    ECH_SHAPES(choose, ECH_REAL, x, values, indices);
    int64_t R = x->shape[0], C = x->shape[1], K = values->shape[1];
    ECH_ASSERT(values->shape[0] == (columns ? C : R) && K > 0 && K <= (columns ? R : C));
    for (int64_t l = 0; l < values->shape[0]; l++) {
        line of = {(const wide *)x->data + l * (columns ? 1 : C), columns ? R : C, columns ? C : 1};
        choose_line(&of, K, (wide *)values->data + l * K, (wide *)indices->data + l * K);
    }
}

void ECH_REF(add_chosen)(ech_kernel_context *context, const ech_tensor *values,
                         const ech_tensor *indices, bool columns, double factor,
                         const ech_tensor *y)
{
    ECH_SHAPES(add_chosen, ECH_REAL, values, indices, y);
    int64_t C = y->shape[1], L = values->shape[0], K = values->shape[1];
    const wide *value = values->data, *index = indices->data;
    ECH_ASSERT(L == (columns ? C : y->shape[0]));
    for (int64_t i = 0; i < L * K; i++) {
        int64_t at = (int64_t)index[i];
        wide *to = (wide *)y->data + (columns ? at * C + i / K : i / K * C + at);
        *to = (wide)(*to + factor * value[i]);
    }
}
