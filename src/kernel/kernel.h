/* SPDX-License-Identifier: Apache-2.0
 *
 * The mathematics: one operation a row of kernel.def, one row a file.
 *
 * kernel/ref/ is the definition: plain loops, compiled in fp32 and in fp64. kernel/cpu/ overrides
 * rows with fast versions, which tests compare with ref row by row. Kernels take views
 * (tensor/tensor.h), check the shapes that their comments state, allocate nothing, and know nothing
 * of ranks, layouts or schedules. Scratch comes from the caller, as many bytes as the row's scratch
 * function asks for.
 *
 * Shapes use the letters of docs/design.md: B batch, T tokens, C model width, H heads, G key/value
 * heads, D head width, F ffn width, V vocabulary, R = B·T rows. "real" is the table's dtype.
 */
#ifndef ECH_KERNEL_KERNEL_H
#define ECH_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "base/status.h"
#include "tensor/tensor.h"

/* What a call runs with. One per rank and compute lane; never shared between threads. */
typedef struct ech_kernel_context {
    int threads;          /* OpenMP threads a kernel may use: set by ech_kernel_context_create */
    void *library;        /* the rank's cached library primitives */
    void *scratch;        /* set by the caller before each call */
    size_t scratch_bytes; /* at least what the row's scratch function answered */
} ech_kernel_context;

enum { ECH_MAX_THREADS = 1024 };

/* Prepares the calling thread to run kernels with that many threads (each rank's compute thread
 * does this for itself: OpenMP counts are per thread). */
ech_status ech_kernel_context_create(int threads, ech_kernel_context **out);
void ech_kernel_context_destroy(ech_kernel_context *context); /* accepts NULL */

/* Which elements a dropout drops. Element i of the uncut logical tensor is dropped where
 * ech_random_unit(ech_random_word(key, i)) < p; the others are scaled by 1/(1-p). */
typedef struct ech_dropout {
    double p; /* 0: nothing is dropped, nothing is drawn */
    ech_random_key key;
    int64_t first_sample; /* the view's first sample's index in the global batch */
} ech_dropout;

/* Element-wise optimizer updates: what one call needs besides the tensors. */
typedef struct ech_update {
    double learning_rate, weight_decay; /* weight_decay 0 where the parameter has none */
    double beta1, beta2, eps;           /* AdamW */
    double momentum;                    /* SGD */
    bool nesterov;
    int64_t count;     /* this update's number, from 1: AdamW's bias correction */
    double grad_scale; /* the clip factor; gradients are multiplied by it */
} ech_update;

/* The rows as an enum, as function types, and as one table per (device, dtype). */
typedef enum ech_op {
#define X(name, arguments, scratch_dims) ECH_OP_##name,
#include "kernel/kernel.def"
#undef X
    ECH_OPS
} ech_op;

#define ECH_UNPACK(...) __VA_ARGS__
#define X(name, arguments, scratch_dims)                                                           \
    typedef void (*ech_##name##_fn)(ech_kernel_context * context, ECH_UNPACK arguments);
#include "kernel/kernel.def"
#undef X

/* Scratch bytes of a row for these dimensions (in the order of the row's third column). */
typedef size_t (*ech_scratch_fn)(ech_dtype dtype, int threads, const int64_t *dims);

typedef struct ech_kernels {
    const char *name; /* "ref", "cpu" */
    ech_dtype dtype;
#define X(op, arguments, scratch_dims) ech_##op##_fn op;
#include "kernel/kernel.def"
#undef X
    ech_scratch_fn scratch[ECH_OPS]; /* NULL: the row needs none */
} ech_kernels;

/* The definition, for fp32 and fp64; NULL for other types. */
const ech_kernels *ech_kernels_ref(ech_dtype dtype);
/* ref overridden by what this build and this machine have. NULL for other types. */
const ech_kernels *ech_kernels_fast(ech_dtype dtype);

const char *ech_op_name(ech_op op);
size_t ech_kernel_scratch(const ech_kernels *kernels, ech_op op, int threads, const int64_t *dims);
/* One line for logs: libraries and instruction sets in use. Valid until this thread's next call. */
const char *ech_kernels_describe(void);

/* Norms are summed over blocks of this many elements of whole tensors. */
enum { ECH_NORM_BLOCK = 4096 };
/* Softmax and loss statistics of one cross_entropy call are added to sums[...]. */
enum { ECH_LOSS_SUM, ECH_LOSS_WEIGHT, ECH_LOSS_SUMS };

#endif
