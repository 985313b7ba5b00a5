/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the kernels of NVIDIA GPUs. What they need as scratch is pure and in every build, so that plans for a GPU
 * are made without one; the kernels (ECH_CUDA_ROWS) are where their compiler is.
 */
#include "kernel/cuda/rows.h"

/* Partial sums, fp64: of each part of the rows a number a column. */
static size_t sums_of_rows(int64_t R, int64_t C)
{
    return ech_cuda_align((size_t)(ech_cuda_row_parts(R) * C) * sizeof(double));
}

static size_t scratch_matmul(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads, (void)dims;
    return ECH_CUDA_WORKSPACE;
}

static size_t scratch_sums_of_rows(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return sums_of_rows(dims[0], dims[1]);
}

/* Gain and bias. */
static size_t scratch_layernorm_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return 2 * sums_of_rows(dims[0], dims[1]);
}

/* dout·out of every row (B, H, Tq), wide. */
static size_t scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)threads;
    size_t number = ech_dtype_bytes(ech_dtype_wide(dtype));
    return ech_cuda_align((size_t)(dims[0] * dims[1] * dims[3]) * number);
}

/* Rows sorted by their ids: ids and rows, each twice, as a sort moves them from one place to the other. */
static size_t scratch_embedding_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return 4 * ech_cuda_align((size_t)dims[0] * sizeof(int32_t));
}

/* Sums of columns, and a number a row: of squares. */
static size_t scratch_sums_and_squares(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return sums_of_rows(dims[0], dims[1]) + ech_cuda_align((size_t)dims[0] * sizeof(double));
}

/* A number a row. */
static size_t scratch_squares(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return ech_cuda_align((size_t)dims[0] * sizeof(double));
}

#ifdef ECH_CUDA_ROWS
#define ROW(op, real) .op = ECH_CUDA_NAME(op, real),
#define ROWS(real)                                                                                 \
    ROW(bias_backward, real)                                                                       \
    ROW(layernorm_forward, real)                                                                   \
    ROW(layernorm_backward, real)                                                                  \
    ROW(rmsnorm_forward, real)                                                                     \
    ROW(rmsnorm_backward, real)                                                                    \
    ROW(gelu_forward, real)                                                                        \
    ROW(gelu_backward, real)                                                                       \
    ROW(swiglu_forward, real)                                                                      \
    ROW(swiglu_backward, real)                                                                     \
    ROW(rotary, real)                                                                              \
    ROW(embedding_forward, real)                                                                   \
    ROW(embedding_backward, real)                                                                  \
    ROW(position_forward, real)                                                                    \
    ROW(position_backward, real)                                                                   \
    ROW(dropout, real)                                                                             \
    ROW(add, real)                                                                                 \
    ROW(subtract, real)                                                                            \
    ROW(copy, real)                                                                                \
    ROW(append, real)                                                                              \
    ROW(loss_statistics, real)                                                                     \
    ROW(loss_gradient, real)                                                                       \
    ROW(loss_combine, real)                                                                        \
    ROW(adamw, real)                                                                               \
    ROW(adamw8, real)                                                                              \
    ROW(sgd, real)                                                                                 \
    ROW(adafactor_sums, real)                                                                      \
    ROW(adafactor_factors, real)                                                                   \
    ROW(adafactor_squares, real)                                                                   \
    ROW(adafactor, real)                                                                           \
    ROW(sm3_maxima, real)                                                                          \
    ROW(sm3, real)                                                                                 \
    ROW(scaled_sum, real)                                                                          \
    ROW(square_sums, real)                                                                         \
    ROW(total, real)                                                                               \
    ROW(fold, real)                                                                                \
    ROW(clip, real)                                                                                \
    ROW(hash, real)                                                                                \
    ROW(hash_parts, real)                                                                          \
    ROW(find_nonfinite, real)                                                                      \
    ROW(fill_normal, real)                                                                         \
    ROW(fill, real)
#else
#define ROWS(real)
#endif
/* clang-format off */
#define TABLE(type, wide_type, real)                                                               \
    [type] = {.name = "cuda",                                                                      \
              .architecture = "sm_80",                                                             \
              .dtype = type,                                                                       \
              .wide = &tables[wide_type],                                                          \
              ROWS(real)                                                                           \
              .scratch = {                                                                         \
                  [ECH_OP_matmul] = scratch_matmul,                                                \
                  [ECH_OP_bias_backward] = scratch_sums_of_rows,                                   \
                  [ECH_OP_layernorm_backward] = scratch_layernorm_backward,                        \
                  [ECH_OP_rmsnorm_backward] = scratch_sums_of_rows,                                \
                  [ECH_OP_attention_backward] = scratch_attention_backward,                        \
                  [ECH_OP_embedding_backward] = scratch_embedding_backward,                        \
                  [ECH_OP_adafactor_sums] = scratch_sums_and_squares,                              \
                  [ECH_OP_adafactor_squares] = scratch_squares,                                    \
                  [ECH_OP_sm3_maxima] = scratch_sums_of_rows,                                      \
              }}
/* clang-format on */

static const ech_kernels tables[] = {TABLE(ECH_F32, ECH_F32, f32), TABLE(ECH_F64, ECH_F64, f64),
                                     TABLE(ECH_BF16, ECH_F32, bf16), TABLE(ECH_F16, ECH_F32, f16)};

const ech_kernels *ECH_CUDA_TABLE(ech_dtype dtype)
{
    return ech_dtype_is_real(dtype) ? &tables[dtype] : NULL;
}
