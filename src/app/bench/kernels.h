/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the bench's tables of matrix products and of kernels.
 */
#ifndef ECH_APP_BENCH_KERNELS_H
#define ECH_APP_BENCH_KERNELS_H

#include "app/bench/bench.h"

/* The arguments of a kernel's call. */
typedef struct ech_bench_call {
    const ech_kernels *kernels;
    ech_kernel_context *context;
    const ech_bench_sizes *sizes;
    ech_tensor t[ECH_BENCH_TENSORS];
    ech_rows rows; /* all B x T rows */
    ech_attention_shard shard;
    const double *frequency;         /* (D/2), of rotary */
    bool a_transposed, b_transposed; /* of products */
} ech_bench_call;

/* A row of a table: a kernel with its sizes, operands and counts as text (text.h). To add one: a row and its
 * call. */
typedef struct ech_bench_kernel {
    ech_bench_group group;
    ech_op op;
    const char *name;
    const char *sizes;
    const char *tensors; /* operands, ech_bench_call.t in order */
    const char
        *flops; /* FLOPs of the formula; an exponential, a root or a logarithm counts as one */
    const char *bytes; /* NULL: those of the tensors */
    void (*call)(ech_bench_call *c);
    const char *phase;    /* of products: "F", "B" or "W"; else NULL */
    const char *switches; /* the scratch dimensions of kernel.def that are on */
} ech_bench_kernel;

extern const ech_bench_kernel ech_bench_kernel_rows[];
extern const int ech_bench_kernel_count;

/* Fills a result's name, shape, FLOPs and bytes. `most`: see ech_bench_options. */
void ech_bench_kernel_describe(const ech_bench_kernel *row, int64_t most, ech_bench_result *out);

#endif
