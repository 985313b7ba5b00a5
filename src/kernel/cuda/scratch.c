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

/* The frequencies of a head's pairs, which are host memory. */
static size_t scratch_rotary(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return ech_cuda_align((size_t)(dims[1] / 2) * sizeof(double));
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
#define ROW(op, name) .op = ECH_CUDA_NAME(op, name),
#define ROWS(name)                                                                                 \
    ROW(layernorm_forward, name)                                                                   \
    ROW(layernorm_backward, name) ROW(rmsnorm_forward, name) ROW(rmsnorm_backward, name)           \
        ROW(gelu_forward, name) ROW(gelu_backward, name) ROW(swiglu_forward, name)                 \
            ROW(swiglu_backward, name) ROW(dropout, name) ROW(add, name) ROW(subtract, name)       \
                ROW(copy, name) ROW(square_sums, name) ROW(total, name) ROW(fold, name)            \
                    ROW(clip, name) ROW(hash, name) ROW(hash_parts, name)                          \
                        ROW(find_nonfinite, name) ROW(fill_normal, name) ROW(fill, name)
#else
#define ROWS(name)
#endif
#define TABLE(type, wide_type, name)                                                               \
    [type] = {.name = "cuda",                                                                      \
              .architecture = "sm_80",                                                             \
              .dtype = type,                                                                       \
              .wide = &tables[wide_type],                                                          \
              ROWS(name).scratch = {                                                               \
                  [ECH_OP_matmul] = scratch_matmul,                                                \
                  [ECH_OP_bias_backward] = scratch_sums_of_rows,                                   \
                  [ECH_OP_layernorm_backward] = scratch_layernorm_backward,                        \
                  [ECH_OP_rmsnorm_backward] = scratch_sums_of_rows,                                \
                  [ECH_OP_rotary] = scratch_rotary,                                                \
                  [ECH_OP_attention_backward] = scratch_attention_backward,                        \
                  [ECH_OP_embedding_backward] = scratch_embedding_backward,                        \
                  [ECH_OP_adafactor_sums] = scratch_sums_and_squares,                              \
                  [ECH_OP_adafactor_squares] = scratch_squares,                                    \
                  [ECH_OP_sm3_maxima] = scratch_sums_of_rows,                                      \
              }}

static const ech_kernels tables[] = {TABLE(ECH_F32, ECH_F32, f32), TABLE(ECH_F64, ECH_F64, f64),
                                     TABLE(ECH_BF16, ECH_F32, bf16), TABLE(ECH_F16, ECH_F32, f16)};

const ech_kernels *ECH_CUDA_TABLE(ech_dtype dtype)
{
    return ech_dtype_is_real(dtype) ? &tables[dtype] : NULL;
}
