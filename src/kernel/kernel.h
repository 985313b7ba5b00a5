/* SPDX-License-Identifier: Apache-2.0
 *
 * The mathematics: one operation a row of kernel.def.
 *
 * kernel/ref/ is the definition: plain loops, compiled in fp32, in fp64 and, for some rows, in bf16.
 * kernel/cpu/ overrides fp32 rows with fast versions, compiled once per instruction set (kernel/isa.h),
 * which tests compare with ref row by row. Kernels take views
 * (tensor/tensor.h), check the shapes that their comments state, allocate nothing, and know nothing
 * of ranks, layouts or schedules. Scratch comes from the caller, as many bytes as the row's scratch
 * function asks for.
 *
 * Shapes use the letters of docs/design.md: B batch, T tokens, C model width, H heads, G key/value
 * heads, D head width, F ffn width, V vocabulary, R = B·T rows. "real" is the table's dtype. All of
 * them may be a rank's share: kernels take from the view how much there is, and from ech_rows, first_head
 * and first_id which part of the uncut tensor that is.
 */
#ifndef ECH_KERNEL_KERNEL_H
#define ECH_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "base/status.h"
#include "kernel/isa.h"
#include "kernel/rope.h"
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
/* By the thread that made the context: its OpenMP threads run on core[context->threads], one each. */
void ech_kernel_context_bind(const ech_kernel_context *context, const int *core);
/* Has the threads write zeros to whole pages of memory that is zero: each to the part that it gets of a
 * tensor that lies there, so that the pages are near the cores that compute on them, and no page is handed
 * out while they do. */
void ech_kernel_context_touch(const ech_kernel_context *context, void *memory, size_t bytes);

/* Where the rows (tokens) of a view lie in the uncut logical tensor. A rank may work on a share of each
 * sample's tokens: one piece of it, or under context parallelism two (an early and a late one), or one
 * token beside a cache; and its rows may be shared out once more over tensor ranks. Whatever depends on
 * a position or draws a random number asks here, so it comes out as in the uncut tensor. Positions
 * ascend within a sample and are below `whole`. */
typedef struct ech_rows {
    int64_t first_sample; /* index in the global batch of this rank's first sample */
    int64_t whole;        /* T: tokens of a whole sample */
    int64_t tokens;       /* T': tokens of a sample as this rank works on them */
    int64_t first; /* the view's first row among the rank's B x T' rows: 0 unless these are cut */
    int64_t split; /* token t < split is at position start[0] + t, */
    int64_t start[2]; /* any other at start[1] + t - split */
} ech_rows;

/* The position of token t of T'. */
static inline int64_t ech_token_position(const ech_rows *rows, int64_t t)
{
    return t < rows->split ? rows->start[0] + t : rows->start[1] + t - rows->split;
}

/* The position within its sample of a view's row. */
static inline int64_t ech_row_position(const ech_rows *rows, int64_t row)
{
    return ech_token_position(rows, (rows->first + row) % rows->tokens);
}

/* The row of the uncut (samples x T) rows that a view's row is. */
static inline int64_t ech_row_whole(const ech_rows *rows, int64_t row)
{
    int64_t sample = rows->first_sample + (rows->first + row) / rows->tokens;
    return sample * rows->whole + ech_row_position(rows, row);
}

/* Where the document begins to which a position of the view's sample `sample` belongs. */
static inline int64_t ech_document_start(const ech_tensor *starts, int64_t sample, int64_t position)
{
    return starts ? ((const int32_t *)starts->data)[sample * starts->shape[1] + position] : 0;
}

/* The position within its document of a view's row. */
static inline int64_t ech_row_in_document(const ech_rows *rows, const ech_tensor *starts,
                                          int64_t row)
{
    int64_t position = ech_row_position(rows, row);
    return position - ech_document_start(starts, (rows->first + row) / rows->tokens, position);
}

/* Where queries, keys and heads of one attention call lie: two sets of rows of the same samples, and a
 * share of the heads. */
typedef struct ech_attention_shard {
    ech_rows query, key;
    int64_t first_head; /* the first local query head's number */
    int64_t heads;      /* query heads of the uncut tensor */
} ech_attention_shard;

/* Which elements a dropout drops. Element i of the uncut logical tensor is dropped where
 * ech_random_unit(ech_random_word(key, i)) < p; the others are scaled by 1/(1-p). */
typedef struct ech_dropout {
    double p; /* 0: nothing is dropped, nothing is drawn */
    ech_random_key key;
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

/* The rows as an enum, as function types, and as one table per (instruction set, dtype). */
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

/* The definition, for fp32, fp64 and bf16 (some of the rows, for runs to come); NULL for other types. */
const ech_kernels *ech_kernels_ref(ech_dtype dtype);
/* ref overridden by what this build has for an instruction set. NULL for other types, and where this
 * machine lacks the set. For tests and benches; oneDNN is held down by ech_isa_decide alone. */
const ech_kernels *ech_kernels_of(ech_isa isa, ech_dtype dtype);
/* Those of the process's instruction set. NULL for other types, and where ech_isa_decide fails: it has
 * logged why. */
const ech_kernels *ech_kernels_fast(ech_dtype dtype);

const char *ech_op_name(ech_op op);
/* Whether the table has the row: fp32 and fp64 have all, bf16 those of ref/bf16.def, the others' pointers are
 * NULL. A plan asks before it counts on a row; the scratch of one that is not there is a broken promise. */
bool ech_kernels_have(const ech_kernels *kernels, ech_op op);
size_t ech_kernel_scratch(const ech_kernels *kernels, ech_op op, int threads, const int64_t *dims);
/* One line for logs: libraries and instruction sets in use, which ech_isa_decide has decided. Valid until
 * this thread's next call. */
const char *ech_kernels_describe(void);

/* Norms are summed over blocks of this many elements of what a rank has of a tensor. */
enum { ECH_NORM_BLOCK = 4096 };
/* What loss_gradient adds to sums[...]. */
enum { ECH_LOSS_SUM, ECH_LOSS_WEIGHT, ECH_LOSS_SUMS };
/* What loss_statistics says of a row of logits, or of a share of it: the largest (-infinity of none),
 * the sum of exp(logit - largest), and the target's logit (0 where it is not among them). */
enum { ECH_STAT_MAX, ECH_STAT_SUM, ECH_STAT_TARGET, ECH_LOSS_STATS };

/* Statistics (N,R,ECH_LOSS_STATS) of N shares of R rows of logits, in the order of the shares, to those
 * of the whole rows: stats (R,ECH_LOSS_STATS). The same numbers in the same order give the same bits. */
void ech_loss_combine(const double *parts, int N, int64_t R, double *stats);

#endif
