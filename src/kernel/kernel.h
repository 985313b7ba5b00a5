/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: the mathematical operations. Each is a row of kernel.def.
 *
 * kernel/ref/ defines them: plain loops, compiled in fp32, fp64, bf16 and fp16. kernel/cpu/ and
 * kernel/cuda/ override rows with fast versions; kernel/cpu/ is compiled once per instruction set
 * (kernel/isa.h) and type. Tests compare each with ref. Kernels take views (tensor/tensor.h), check
 * shapes, allocate nothing, and know nothing about ranks, layouts or schedules. The caller provides
 * scratch: as many bytes as the row's scratch function returns. Kernels cannot fail: wrong
 * arguments abort the process (kernel/shape.h).
 *
 * Letters of shapes: B batch, T tokens, C model width, H heads, G key/value heads, D head width, F
 * ffn width, V vocabulary, R = B·T rows. "real" is the table's dtype, "wide" its ech_dtype_wide.
 * Any tensor may be a rank's shard: it has the sizes of its view, and ech_rows, first_head and
 * first_id locate it in the whole (unsharded) tensor.
 */
#ifndef ECH_KERNEL_KERNEL_H
#define ECH_KERNEL_KERNEL_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/inline.h"
#include "base/random.h"
#include "base/status.h"
#include "kernel/activations.h"
#include "kernel/gate.h"
#include "kernel/isa.h"
#include "kernel/rope.h"
#include "tensor/tensor.h"

/* The context of kernel calls. One per thread that calls kernels. */
typedef struct ech_kernels ech_kernels;
typedef struct ech_kernel_context ech_kernel_context;
struct ech_kernel_context {
    int threads;   /* OpenMP threads that a kernel may use: set by ech_kernel_context_create */
    void *library; /* oneDNN's objects (cpu/library.h), made at first use; the context owns them */
    void *scratch; /* set by the caller before each call */
    size_t scratch_bytes; /* at least what the row's scratch function returned */
    bool tf32;            /* set by the caller: products of fp32 may round their operands to TF32 */
    /* For deferred tables (ech_kernels_deferred); NULL until ech_kernel_context_defer. */
    const struct ech_device *device;
    struct ech_queue *queue;
    ech_kernel_context *inner; /* with which the queue calls fast kernels; owned */
    bool guarded; /* plugins' functions get copies of their tensors, between guard pages */
};

enum { ECH_MAX_THREADS = 1024 };

/* Prepares the calling thread to run kernels with `threads` OpenMP threads. Each thread that
 * computes must call it, since OpenMP's settings are per thread. Errors: ECH_EUSAGE, `threads` or
 * ECHELON_ISA. */
ech_status ech_kernel_context_create(int threads, ech_kernel_context **out);
/* Prepares another thread to run this context's kernels, one thread at a time. */
void ech_kernel_context_enter(const ech_kernel_context *context);
void ech_kernel_context_destroy(ech_kernel_context *context); /* accepts NULL */
/* Binds OpenMP thread i > 0 to core[i], and the calling thread, which must have made the context,
 * to all cores of the list. core: [context->threads]. */
void ech_kernel_context_bind(const ech_kernel_context *context, const int *core);
/* Puts calls of deferred tables (ech_kernels_on) with this context on that queue. */
void ech_kernel_context_defer(ech_kernel_context *context, const struct ech_device *device,
                              struct ech_queue *queue);
/* First touch of zeroed memory: the OpenMP threads write zeros to its full pages, divided as
 * kernels divide tensors. So pages are on the NUMA node that uses them, and kernels have no page
 * faults. Does nothing for a device other than the processor. */
void ech_kernel_context_touch(const ech_kernel_context *context, void *memory, size_t bytes);

/* The rows (tokens) of the whole tensor that a view has. A rank may have part of each sample's
 * tokens: one contiguous range, or under context parallelism two (an early and a late one), or one
 * token next to a KV cache. Under sequence parallelism its rows are also sharded over tensor ranks.
 * Kernels that use positions or random numbers take them from here, so results equal the whole
 * tensor's. Positions ascend within a sample and are below `whole`. */
typedef struct ech_rows {
    int64_t first_sample; /* index in the global batch of this rank's first sample */
    int64_t whole;        /* T: tokens of a whole sample */
    int64_t tokens;       /* T': tokens t = 0 .. T' - 1 of each sample that this rank has */
    int64_t first;        /* the view's first row among the rank's B x T' rows; 0 unless sharded */
    int64_t split;        /* tokens in the early range; T' if there is only one range */
    int64_t start[2];     /* token t < split has position start[0] + t, else start[1] + t - split */
    /* on the device, read when the kernel runs, and added to start[0]: the position of a token next
     * to a KV cache; NULL: nothing is added */
    const int64_t *position;
} ech_rows;

/* The same rows with known positions. Call it only inside kernels: it may read device memory. */
ECH_EVERYWHERE ech_rows ech_rows_now(const ech_rows *rows)
{
    ech_rows now = *rows;
    if (now.position) now.start[0] += *now.position;
    now.position = NULL;
    return now;
}

/* The position within its sample of token t < T'. */
ECH_EVERYWHERE int64_t ech_rows_token_position(const ech_rows *rows, int64_t t)
{
    return t < rows->split ? rows->start[0] + t : rows->start[1] + t - rows->split;
}

/* The position within its sample of a view's row. */
ECH_EVERYWHERE int64_t ech_row_position(const ech_rows *rows, int64_t row)
{
    return ech_rows_token_position(rows, (rows->first + row) % rows->tokens);
}

/* The rows of context rank `index` of `context`, in samples from first_sample on. The rank has
 * `tokens` of each sample's `whole` tokens. zigzag: a sample's rows are two runs, one from its
 * front and one from its back, to balance causal work; else one run. */
ECH_EVERYWHERE ech_rows ech_rows_context(int64_t first_sample, int64_t whole, int64_t tokens,
                                         int64_t context, int64_t index, bool zigzag)
{
    int64_t half = tokens / 2;
    ech_rows rows = {first_sample, whole, tokens, 0, tokens, {index * tokens, 0}, 0};
    if (!zigzag) return rows;
    rows.split = half;
    rows.start[0] = index * half;
    rows.start[1] = (2 * context - 1 - index) * half;
    return rows;
}

/* The inverse: which rank has a position, and as which of its tokens. */
ECH_EVERYWHERE int64_t ech_rows_context_of(int64_t position, int64_t tokens, int64_t context,
                                           bool zigzag, int64_t *token)
{
    int64_t half = tokens / 2, run = zigzag ? position / half : position / tokens;
    *token = position - run * (zigzag ? half : tokens);
    if (!zigzag || run < context) return run;
    *token += half;
    return 2 * context - 1 - run;
}

/* The index of a view's row among the whole tensor's rows (samples x T). */
ECH_EVERYWHERE int64_t ech_row_whole(const ech_rows *rows, int64_t row)
{
    int64_t sample = rows->first_sample + (rows->first + row) / rows->tokens;
    return sample * rows->whole + ech_row_position(rows, row);
}

/* The position at which the document of a position begins; `starts` as in kernel.def; `sample` is
 * the sample's index in the view. */
ECH_EVERYWHERE int64_t ech_document_start(const ech_tensor *starts, int64_t sample,
                                          int64_t position)
{
    return starts ? ((const int32_t *)starts->data)[sample * starts->shape[1] + position] : 0;
}

/* The position within its document of a view's row. */
ECH_EVERYWHERE int64_t ech_row_in_document(const ech_rows *rows, const ech_tensor *starts,
                                           int64_t row)
{
    int64_t position = ech_row_position(rows, row);
    return position - ech_document_start(starts, (rows->first + row) / rows->tokens, position);
}

/* The part of the whole attention that one call computes: rows of queries and of keys of the same
 * samples, and a range of heads. */
typedef struct ech_attention_shard {
    ech_rows query, key;
    int64_t first_head; /* index of the first local query head */
    int64_t heads;      /* query heads of the whole tensor */
} ech_attention_shard;

/* How queries weigh keys. The score of a key is s = scale q·k, or with a cap, cap tanh(s / cap). */
typedef struct ech_attention_rule {
    double scale;
    double cap; /* 0: scores are not capped */
    /* keys that a query sees, itself included; 0: all of its document up to it */
    int64_t window;
} ech_attention_rule;

/* The first position that the query at `position` sees. */
ECH_EVERYWHERE int64_t ech_attention_first(const ech_attention_rule *rule, const ech_tensor *starts,
                                           int64_t sample, int64_t position)
{
    int64_t start = ech_document_start(starts, sample, position);
    int64_t first = position - rule->window + 1;
    return rule->window > 0 && first > start ? first : start;
}

/* The rule for the elements that a dropout drops. Element i of the whole tensor is dropped if
 * ech_random_unit(ech_random_word(ech_dropout_key, i)) < p; the others are scaled by 1/(1-p). */
typedef struct ech_dropout {
    double p; /* 0: nothing is dropped or drawn */
    ech_random_key key;
    const int64_t *step; /* on the device, read when the kernel runs, for key.step; NULL: none */
    /* Of the operation dropout: x has the columns from first_column on of rows of `columns`
     * numbers; columns 0: x has whole rows. */
    int64_t first_column, columns;
} ech_dropout;

/* Index in the whole tensor of the first of the C elements that x has of that row. */
ECH_EVERYWHERE int64_t ech_dropout_first(const ech_dropout *dropout, int64_t row, int64_t C)
{
    return row * (dropout->columns > 0 ? dropout->columns : C) + dropout->first_column;
}

/* Returns the key of dropout. Call it only inside kernels: it may read device memory. */
ECH_EVERYWHERE ech_random_key ech_dropout_key(const ech_dropout *dropout)
{
    ech_random_key key = dropout->key;
    if (dropout->step) key.step = (uint32_t)*dropout->step;
    return key;
}

/* The window of pixels from which an output's pixel (p, q) is computed. It has size[0] rows and
 * size[1] columns, and its first pixel is (p stride[0] - padding[0], q stride[1] - padding[1]). The
 * output has ech_filter_output rows and columns. */
typedef struct ech_filter {
    int64_t size[2], stride[2], padding[2];
} ech_filter;

/* Rows (d = 0) or columns (d = 1) of the output for `in` of the input; 0 or less: the padded input
 * is smaller than the window. */
ECH_EVERYWHERE int64_t ech_filter_output(const ech_filter *at, int d, int64_t in)
{
    int64_t last = in + 2 * at->padding[d] - at->size[d];
    return last < 0 ? 0 : last / at->stride[d] + 1;
}

/* Parameters of an element-wise optimizer update. */
typedef struct ech_update {
    double learning_rate, weight_decay; /* weight_decay is 0 for parameters without it */
    double adjust;                      /* muon: another factor of learning_rate; 0 stands for 1 */
    double beta1, beta2, eps; /* adamw, adamw8, muon */
    double momentum;          /* sgd, adafactor, sm3, muon */
    bool scale_parameter;     /* adafactor: the rate is relative to the weights' size */
    bool nesterov;            /* sgd, muon */
    bool match_adamw;         /* muon: the rate is for updates as large as AdamW's */
    int64_t block;            /* adamw8: elements per scale */
    int64_t count;            /* this update's number, from 1 */
    double grad_scale;        /* gradients are multiplied by it, and by *clip */
    /* On the device, read when the kernel runs; NULL: none. learning_rate is multiplied by *rate;
     * *number replaces count; clip: the gradient clipping factor, divided by the loss scale. If
     * *withheld > 0, parameter and states stay, and a kernel only writes its tensor `rounded`. */
    const double *rate, *clip, *withheld;
    const int64_t *number;
} ech_update;

/* A call of a function that a plugin adds. `run` computes from the tensors and numbers here on the
 * processor, and writes only the tensors whose bits are set in `writes`. */
enum { ECH_USER_TENSORS = 16, ECH_USER_NUMBERS = 8, ECH_USER_OWN = 3 };
typedef struct ech_user_call ech_user_call;
struct ech_user_call {
    const char *name; /* of the plugin's row, for messages; static */
    void (*run)(const ech_user_call *call);
    const void *own[ECH_USER_OWN]; /* of `run`; valid while the run lasts */
    int tensors;
    unsigned writes;
    ech_tensor tensor[ECH_USER_TENSORS]; /* contiguous, or data is NULL */
    int64_t number[ECH_USER_NUMBERS];
    bool updates; /* `update` is one of a parameter: if it is withheld, `run` is not called */
    ech_update update;
    int threads; /* set by the kernel */
};

/* The rows as an enum, as function types, and as one table per (instruction set, dtype). */
typedef enum ech_op {
#define X(name, arguments, ...) ECH_OP_##name,
#include "kernel/kernel.def"
#undef X
    ECH_OPS
} ech_op;

/* The column `arguments` of kernel.def expands to a function's parameters after the context while
 * ECH_ARGUMENT is ECH_PARAMETER. */
#define ECH_UNPACK(...)                   __VA_ARGS__
#define ECH_PARAMETER_VALUE(type, name)   , type name
#define ECH_PARAMETER_ADDRESS(type, name) , const type *name
#define ECH_PARAMETER_KEPT                ECH_PARAMETER_ADDRESS
#define ECH_PARAMETER(kind, type, name)   ECH_PARAMETER_##kind(type, name)
#define ECH_ARGUMENT                      ECH_PARAMETER
#define X(name, arguments, ...)                                                                    \
    typedef void (*ech_##name##_fn)(ech_kernel_context * context ECH_UNPACK arguments);
#include "kernel/kernel.def"
#undef X

/* Scratch bytes of a row. dims: the dimensions named in the row's last column of kernel.def, in
 * that order. */
typedef size_t (*ech_kernel_scratch_fn)(ech_dtype dtype, int threads, const int64_t *dims);

struct ech_kernels {
    const char *name;         /* "ref", "cpu", "cuda" */
    const char *architecture; /* NULL: the instruction set of the process */
    ech_dtype dtype;
    const struct ech_kernels *wide; /* the corresponding table for ech_dtype_wide(dtype) */
#define X(op, ...) ech_##op##_fn op;
#include "kernel/kernel.def"
#undef X
    ech_kernel_scratch_fn scratch[ECH_OPS]; /* NULL: the row needs none */
    /* Reference speeds for benchmarks. multiply_adds runs `rounds` rounds of independent
     * multiply-adds in the registers of each of the context's threads, and returns the
     * floating-point operations of all threads. They are fp32 operations. In the bf16 table of an
     * instruction set that supports it they are on pairs of bf16 with fp32 sums. The triad computes
     * a[i] = b[i] + 3 c[i] for n numbers, divided among the threads; b may be a. The
     * library_product is a product of contiguous fp32 matrices by one plain call of oneDNN; NULL:
     * this build lacks it, or the table is not the processor's. */
    double (*multiply_adds)(const ech_kernel_context *context, int64_t rounds);
    void (*triad)(const ech_kernel_context *context, double *a, const double *b, const double *c,
                  int64_t n);
    void (*library_product)(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                            bool b_transposed, const ech_tensor *c);
};

/* The reference kernels, for fp32, fp64, bf16 and fp16. NULL for other types. All tables are
 * static. */
const ech_kernels *ech_kernels_ref(ech_dtype dtype);
/* The reference kernels overridden by this build's fast kernels for an instruction set. NULL: no
 * such type, or the machine lacks the set. Only for tests and benchmarks: oneDNN may use other
 * instruction sets, which only ech_isa_decide prevents. */
const ech_kernels *ech_kernels_of(ech_isa isa, ech_dtype dtype);
/* ech_kernels_of the process's instruction set. NULL: no such type, or ech_isa_decide failed and
 * logged why. */
const ech_kernels *ech_kernels_fast(ech_dtype dtype);

/* The fast kernels for devices whose memory only queued work can access (ech_device.reach): each
 * row copies its arguments and puts the fast row on its context's queue (ech_kernel_context_defer).
 * NULL as for ech_kernels_fast. */
const ech_kernels *ech_kernels_deferred(ech_dtype dtype);
/* For tests: sets what the thread that puts a deferred call calls before that. NULL: nothing. */
void ech_kernels_watch(void (*before)(ech_op op, ech_dtype dtype));
/* The kernels of NVIDIA GPUs. A build without them, or without fp16 ones (ECH_CUDA_F16), has only
 * their scratch functions, which plans need. NULL: no such type. */
const ech_kernels *ech_kernels_cuda(ech_dtype dtype);
/* The table with which a device computes (device.def). NULL as for ech_kernels_fast. */
const ech_kernels *ech_kernels_on(const char *device, ech_dtype dtype);
/* Why this build has no kernels of a real type for a device that it supports. NULL: it has them. */
const char *ech_kernels_lack(const char *device, ech_dtype dtype);
/* The architecture for which a table's scratch sizes are: "avx512", "sm_80". Call ech_isa_decide
 * first. */
const char *ech_kernels_architecture(const ech_kernels *kernels);

const char *ech_op_name(ech_op op);
/* Scratch bytes of a row of this table: as ech_kernel_scratch_fn; 0 if it needs none. */
size_t ech_kernel_scratch(const ech_kernels *kernels, ech_op op, int threads, const int64_t *dims);
/* One line for logs: libraries and instruction sets in use. Call ech_isa_decide first. Valid until
 * this thread's next call. */
const char *ech_kernels_describe(void);

/* The factor of gradient clipping: min(1, limit / (norm + 1e-6)); 1 if limit is 0. Pascanu et al.
 * 2013; 1e-6 as in PyTorch and Megatron-LM. */
ECH_EVERYWHERE double ech_clip_factor(double norm, double limit)
{
    double factor = limit > 0 ? limit / (norm + 1e-6) : 1;
    return factor < 1 ? factor : 1;
}

/* Gradient norms are sums over blocks of this many contiguous elements of a rank's shard of a
 * tensor. */
enum { ECH_NORM_BLOCK = 4096 };

/* The sums to which count_columns adds for each matrix: its columns longer than a rounding error; 1
 * if it has shorter ones; and 1. */
enum { ECH_RANK_COLUMNS, ECH_RANK_SHORT, ECH_RANK_MATRICES, ECH_RANK_SUMS };

/* orthogonalize: each row of `work` has a column of p, and this many more numbers. */
enum { ECH_ORTHOGONAL_ROOM = 3 };
#define ECH_ORTHOGONAL_EPSILON 1e-6 /* Ramesh et al. 2021, arXiv:2102.12092, appendix E */
/* Returns a length: vectors up to it are rounding errors next to a vector of length `longest`. Each
 * number has the type `wide` and is a sum of at most `terms` products. 0 if `longest` is
 * infinite. */
ECH_EVERYWHERE double ech_rounding_error(ech_dtype wide, int64_t terms, double longest)
{
    double epsilon = wide == ECH_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    return longest <= DBL_MAX ? (double)terms * epsilon * longest : 0;
}
/* Entries of loss_gradient's sums: the weighted loss, and the weights. */
enum { ECH_LOSS_SUM, ECH_LOSS_WEIGHT, ECH_LOSS_SUMS };
/* Entries of class_hits' sums: weights of rows whose target has the largest logit, and one of the
 * five largest. */
enum { ECH_HITS_OF_1, ECH_HITS_OF_5, ECH_HITS };
/* loss_statistics' numbers for a row of logits, or of a vocabulary shard of it: the maximum
 * (-infinity if the shard is empty), the sum of exp(logit - maximum), and the target's logit (0 if
 * it is in another shard). */
enum { ECH_STAT_MAX, ECH_STAT_SUM, ECH_STAT_TARGET, ECH_LOSS_STATS };

#endif
