/* SPDX-License-Identifier: Apache-2.0
 *
 * The notation of the bench's rows: sizes by the letters of docs/design.md, operands, and counts.
 *
 *     sizes    "B=16 T=1024 C=768"   R is B x T unless given; S: number of blocks in which norms sum N
 *                                    numbers
 *     tensors  "<RC <C >RC =RC"      "<" read, ">" written, "=" both, "~" read but not counted as bytes;
 *                                    then the extents, letters or numbers. "i" or "d" before them: int32
 *                                    or fp64 instead of fp32
 *     counts   "7RC 2C"              sums of products
 */
#ifndef ECH_APP_BENCH_TEXT_H
#define ECH_APP_BENCH_TEXT_H

#include "tensor/tensor.h"

enum { ECH_BENCH_LETTERS = 26, ECH_BENCH_TENSORS = 12 };

typedef struct ech_bench_sizes {
    int64_t of[ECH_BENCH_LETTERS]; /* 'A' first; 0: not given */
} ech_bench_sizes;

/* The operands of a row: tensors without data. */
typedef struct ech_bench_operands {
    int n;
    ech_tensor tensor[ECH_BENCH_TENSORS];
    bool reads[ECH_BENCH_TENSORS]; /* the call reads it, so it must be filled */
    double bytes;                  /* read and written by one call; "=" counts twice */
} ech_bench_operands;

/* Parses sizes, each reduced to at most `most` (0: as given), for tests. */
ech_bench_sizes ech_bench_parse_sizes(const char *text, int64_t most);
/* The size of a letter; the program ends if it is not given. */
int64_t ech_bench_size(const ech_bench_sizes *sizes, char letter);
/* Parses operands. */
ech_bench_operands ech_bench_parse_operands(const char *text, const ech_bench_sizes *sizes);
/* Evaluates a sum of products; "" is 0. */
double ech_bench_count(const char *text, const ech_bench_sizes *sizes);

#endif
