/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a bench are texts: sizes by the letters of docs/design.md, tensors, and counts.
 *
 *     sizes    "B=16 T=1024 C=768"   R is B x T unless it is given; S: the blocks of N numbers that
 *                                    norms are summed over
 *     tensors  "<RC <C >RC =RC"      read, written, or both; a number instead of a letter is an extent.
 *                                    "i" or "d" before the extents: int32 or fp64 instead of fp32.
 *                                    "~" instead of "<": read, but not counted
 *     counts   "7RC 2C"              sums of products
 */
#ifndef ECH_APP_BENCH_TEXT_H
#define ECH_APP_BENCH_TEXT_H

#include "tensor/tensor.h"

enum { ECH_BENCH_LETTERS = 26, ECH_BENCH_TENSORS = 12 };

typedef struct ech_bench_sizes {
    int64_t of[ECH_BENCH_LETTERS]; /* 'A' first; 0: not given */
} ech_bench_sizes;

/* What a call gets: views without memory. */
typedef struct ech_bench_operands {
    int n;
    ech_tensor tensor[ECH_BENCH_TENSORS];
    bool reads[ECH_BENCH_TENSORS]; /* so it holds numbers before the call */
    double bytes;                  /* read and written by one call, each element once */
} ech_bench_operands;

/* No size is above `most` (0: any): for tests, which want every row in no time. */
ech_bench_sizes ech_bench_parse_sizes(const char *text, int64_t most);
/* The size of a letter, which must be given. */
int64_t ech_bench_size(const ech_bench_sizes *sizes, char letter);
/* The tensors of a text, in its order. */
ech_bench_operands ech_bench_parse_operands(const char *text, const ech_bench_sizes *sizes);
/* The value of a text of counts; "" is 0. */
double ech_bench_count(const char *text, const ech_bench_sizes *sizes);

#endif
