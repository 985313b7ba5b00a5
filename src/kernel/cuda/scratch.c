/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the kernels of NVIDIA GPUs. Their scratch functions are pure and in every build, so
 * that plans for a GPU can be made without one; the kernels (ECH_CUDA_ROWS) exist only in builds
 * with their compiler.
 */
#include "kernel/cuda/rows.h"

/* Partial sums in fp64: one number per column and part of the rows. */
static size_t sums_of_rows(int64_t R, int64_t C)
{
    return ech_cuda_align((size_t)ech_cuda_column_parts(R, C) * sizeof(double));
}

/* The library's workspace, followed by the bias in the type of a narrow result. */
static size_t scratch_matmul(ech_dtype dtype, int threads, const int64_t *dims)
{
    bool narrows = dims[5] && ech_dtype_wide(dtype) != dtype;
    size_t bias = narrows ? (size_t)dims[1] * ech_dtype_bytes(dtype) : 0;
    (void)threads;
    return ECH_CUDA_WORKSPACE + ech_cuda_align(bias);
}

static size_t scratch_sums_of_rows(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return sums_of_rows(dims[0], dims[1]);
}

/* For gain, for bias if there is one, and for rows. */
static size_t scratch_norm_backward(const int64_t *dims, int sums)
{
    int64_t R = dims[0], C = dims[1];
    int64_t numbers = sums * ech_cuda_column_parts(R, C) + ech_cuda_norm_sums(R, C);
    return ech_cuda_align((size_t)numbers * sizeof(double));
}

static size_t scratch_layernorm_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return scratch_norm_backward(dims, 2);
}

static size_t scratch_rmsnorm_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return scratch_norm_backward(dims, 1);
}

/* For every query (B, H, Tq): two indices and two wide numbers, ech_query_facts. */
static size_t scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)threads;
    size_t facts = ECH_CUDA_FACTS_BYTES(ech_dtype_bytes(ech_dtype_wide(dtype)));
    return ech_cuda_align((size_t)(dims[0] * dims[1] * dims[3]) * facts);
}

static size_t scratch_table_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return ech_cuda_table_scratch_of(dims[0], dims[2]).bytes;
}

/* Sums over S rows for each of the E x C elements. */
static size_t scratch_router_backward_weight(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return sums_of_rows(dims[0], dims[1] * dims[2]);
}

/* Sums of columns, and a number per row: of squares. */
static size_t scratch_sums_and_squares(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return sums_of_rows(dims[0], dims[1]) + ech_cuda_align((size_t)dims[0] * sizeof(double));
}

/* A number per row. */
static size_t scratch_squares(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return ech_cuda_align((size_t)dims[0] * sizeof(double));
}

static size_t scratch_gate_forward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return ech_cuda_gate_scratch_of(dims).bytes;
}

static size_t scratch_gate_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return ech_cuda_gate_room(dims[1], dims[2]);
}

#define SCRATCH_1(name)                                                                            \
    [ECH_OP_matmul_##name] = scratch_matmul, [ECH_OP_##name##_backward_bias] = scratch_sums_of_rows,
#define SCRATCH_2(name)
#define SCRATCH(NAME, name, operands, ...) SCRATCH_##operands(name)

/* What all types have. */
#define COMMON(type, wide_type)                                                                    \
    .name = "cuda", .architecture = "sm_80", .dtype = type, .wide = &tables[wide_type],            \
    .scratch = {                                                                                   \
        [ECH_OP_matmul] = scratch_matmul,                                                          \
        [ECH_OP_bias_backward] = scratch_sums_of_rows,                                             \
        ECH_ACTIVATIONS(SCRATCH)[ECH_OP_layernorm_backward] = scratch_layernorm_backward,          \
        [ECH_OP_rmsnorm_backward] = scratch_rmsnorm_backward,                                      \
        [ECH_OP_attention_backward] = scratch_attention_backward,                                  \
        [ECH_OP_embedding_backward] = scratch_table_backward,                                      \
        [ECH_OP_position_backward] = scratch_table_backward,                                       \
        [ECH_OP_router_backward_weight] = scratch_router_backward_weight,                          \
        [ECH_OP_gate_forward] = scratch_gate_forward,                                              \
        [ECH_OP_gate_backward] = scratch_gate_backward,                                            \
        [ECH_OP_adafactor_sums] = scratch_sums_and_squares,                                        \
        [ECH_OP_adafactor_squares] = scratch_squares,                                              \
        [ECH_OP_sm3_maxima] = scratch_sums_of_rows,                                                \
    }
/* Rows of images, which GPUs do not have yet. */
#define ABSENT_smooth_statistics      , NULL
#define ABSENT_smooth_gradient        , NULL
#define ABSENT_class_hits             , NULL
#define ABSENT_conv2d_forward         , NULL
#define ABSENT_conv2d_backward_input  , NULL
#define ABSENT_conv2d_backward_weight , NULL
#define ABSENT_max_pool_forward       , NULL
#define ABSENT_max_pool_backward      , NULL
#define ABSENT_mean_pool_forward      , NULL
#define ABSENT_mean_pool_backward     , NULL
#define ABSENT_transpose              , NULL
#define ABSENT_batch_norm_statistics  , NULL
#define ABSENT_batch_norm_forward     , NULL
#define ABSENT_batch_norm_backward    , NULL
#define ABSENT_batch_norm_merge       , NULL
#define ABSENT_batch_norm_sums        , NULL
#define ABSENT_batch_norm_input       , NULL
#define ABSENT_batch_norm_partial     , NULL
#define ABSENT_batch_norm_commit      , NULL
#ifdef ECH_CUDA_ROWS
/* Without an ABSENT_op the third argument of ROW_BY is the row's function. */
#define ROW(op, real)             ROW_OF(op, ABSENT_##op, ECH_CUDA_NAME(op, real), )
#define ROW_OF(op, ...)           ROW_BY(op, __VA_ARGS__)
#define ROW_BY(op, none, by, ...) .op = by
#else
#define ROW(op, real) .op = NULL
#endif
/* fp16 is an option of the build; the emulation always has it. */
#if defined ECH_CUDA_F16 || defined ECH_EMULATED
#define F16_ROW(op) HALF_ROW(op, f16)
#else
#define F16_ROW(op) .op = NULL
#endif

/* Rows without tensors of the table's own type: 16-bit types use fp32's, since their files,
 * ECH_CUDA_WIDE (cmake/cuda.cmake), are compiled only for fp32 and fp64. */
#define WIDE_choose        , f32
#define WIDE_add_chosen    , f32
#define WIDE_orthogonalize , f32
#define WIDE_clear_columns , f32
#define WIDE_count_columns , f32
#define WIDE_gate_forward  , f32
#define WIDE_gate_backward , f32
#define WIDE_gate_load     , f32
#define WIDE_gate_balance  , f32
/* For a 16-bit type; without a WIDE_op the second argument of the second macro is the type
 * itself. */
#define HALF_ROW(op, real)             HALF_ROW_OF(op, WIDE_##op, real, )
#define HALF_ROW_OF(op, ...)           HALF_ROW_BY(op, __VA_ARGS__)
#define HALF_ROW_BY(op, none, by, ...) ROW(op, by)

static const ech_kernels tables[] = {
    [ECH_F32] =
        {
            COMMON(ECH_F32, ECH_F32),
#define X(op, ...) ROW(op, f32),
#include "kernel/kernel.def"
#undef X
        },
    [ECH_F64] =
        {
            COMMON(ECH_F64, ECH_F64),
#define X(op, ...) ROW(op, f64),
#include "kernel/kernel.def"
#undef X
        },
    [ECH_BF16] =
        {
            COMMON(ECH_BF16, ECH_F32),
#define X(op, ...) HALF_ROW(op, bf16),
#include "kernel/kernel.def"
#undef X
        },
    [ECH_F16] =
        {
            COMMON(ECH_F16, ECH_F32),
#define X(op, ...) F16_ROW(op),
#include "kernel/kernel.def"
#undef X
        },
};

const ech_kernels *ECH_CUDA_TABLE(ech_dtype dtype)
{
    return ech_dtype_is_real(dtype) ? &tables[dtype] : NULL;
}
