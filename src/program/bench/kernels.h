/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the bench's tables of matrix products and of kernels, and the notation of their sizes
 * (with the letters of kernel/kernel.h), operands and counts.
 *
 *     sizes    "B=16 T=1024 C=768"  R is B x T unless given; S: in how many parts norms sum N
 *     tensors  "<RC <C >RC =RC"     how a tensor is used, then its extents, as letters or numbers
 *     counts   "7RC 2C"             sums of products
 *
 * How a tensor is used: "<" it is read; ">" written; "=" both; "~" read, but not counted as bytes.
 * A small letter before the extents replaces the measured type: "i" is int32, "l" int64, "d" fp64,
 * "w" fp32, and "b" bytes. The letters "n" and "c" are int32 tables of experts: "n" has rows 0, 1,
 * and so on below N, and then -1; "c" has counts, an equal share of R rows each. The letter
 * "e" stands for int32 ends of a sparse code's runs, each half full.
 */
#ifndef ECH_PROGRAM_BENCH_KERNELS_H
#define ECH_PROGRAM_BENCH_KERNELS_H

#include "program/bench/bench.h"

enum { ECH_BENCH_LETTERS = 26, ECH_BENCH_TENSORS = 12 };

typedef struct ech_bench_sizes {
    int64_t of[ECH_BENCH_LETTERS]; /* size of each letter, from 'A'; 0: not given */
} ech_bench_sizes;

/* The operands of a row: tensors without data. */
typedef struct ech_bench_operands {
    int n;
    ech_tensor tensor[ECH_BENCH_TENSORS];
    bool reads[ECH_BENCH_TENSORS]; /* the call reads the tensor, so it must be filled */
    char table[ECH_BENCH_TENSORS]; /* 'n', 'c', 'e': the content; '\0': numbers or ids */
    double bytes;                  /* that one call reads and writes; "=" counts twice */
} ech_bench_operands;

/* Parses sizes, each reduced to at most `most` (0: as given), for tests. */
ech_bench_sizes ech_bench_parse_sizes(const char *text, int64_t most);
/* The size of a letter; the program ends if it is missing. */
int64_t ech_bench_size(const ech_bench_sizes *sizes, char letter);
/* Parses operands, for a table of the type `real`. */
ech_bench_operands ech_bench_parse_operands(const char *text, const ech_bench_sizes *sizes,
                                            ech_dtype real);
/* Evaluates a sum of products; "" is 0. */
double ech_bench_count(const char *text, const ech_bench_sizes *sizes);

enum { ECH_BENCH_BATCH = 3 }; /* calls that are put on the queue before the host waits */

/* The arguments of a kernel's call. */
typedef struct ech_bench_call {
    const ech_kernels *kernels;
    ech_kernel_context *context; /* its calls are put on the device's queue */
    ech_event *const *between;   /* [ECH_BENCH_BATCH + 1], around calls */
    const ech_bench_sizes *sizes;
    ech_tensor t[ECH_BENCH_TENSORS];
    ech_rows rows; /* all B x T rows */
    ech_attention_rule rule;
    ech_attention_shard shard;
    const double *frequency;               /* (D/2), of rotary */
    bool a_transposed, b_transposed, adds; /* of products */
    int copies, copy;                      /* of all operands; the one that the next call uses */
    size_t stride;                         /* bytes from one copy to the next */
    bool without_library;
} ech_bench_call;

/* A row of a table: a kernel with its sizes, operands and counts in the notation above. A new
 * kernel needs a row and its `call`. */
typedef struct ech_bench_kernel {
    ech_bench_group group;
    ech_op op;
    const char *name;
    const char *sizes;
    const char *tensors; /* operands, ech_bench_call.t in order */
    /* FLOPs of the formula; an exponential, a root or a logarithm counts as one */
    const char *flops;
    const char *bytes;               /* count; NULL: ech_bench_operands.bytes */
    void (*call)(ech_bench_call *c); /* calls the kernel once */
    const char *phase;               /* of products: "F", "B" or "W"; else NULL */
    const char *switches;            /* the scratch dimensions of kernel.def that are true */
} ech_bench_kernel;

extern const ech_bench_kernel ech_bench_kernel_rows[];
extern const int ech_bench_kernel_count;
/* What a cluster file is made from, in fp32. Their names say what for: product, attention, kernel,
 * launch. */
extern const ech_bench_kernel ech_bench_cluster_rows[];
extern const int ech_bench_cluster_count;

/* True if a device's row is measured in a type: in fp32, if the device has it, and in others if it
 * is not the reference's row. */
bool ech_bench_kernel_has(const char *device, const ech_bench_kernel *row, ech_dtype dtype);
/* Fills a result's name, type, shape, FLOPs and bytes. `most`: see ech_bench_options. */
void ech_bench_kernel_describe(const ech_bench_kernel *row, ech_dtype dtype, int64_t most,
                               ech_bench_result *out);

#endif
