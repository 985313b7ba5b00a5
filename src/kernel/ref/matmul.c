/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product, and the gradient of its bias.
 */
#include "kernel/ref/real.h"

#if defined(ECH_REAL_F64) && defined(ECH_HAS_BLAS)
#include <cblas.h>
#include <string.h>

static int as_int(int64_t n)
{
    ECH_ASSERT(n >= 0 && n <= INT32_MAX);
    return (int)n;
}

/* A matrix of one row may have any stride; BLAS requires at least its width. */
static int row_stride(const ech_tensor *x)
{
    return as_int(x->stride[0] > x->shape[1] ? x->stride[0] : x->shape[1]);
}

static void multiply(const ech_tensor *a, bool a_transposed, const ech_tensor *b, bool b_transposed,
                     const ech_tensor *bias, int64_t K, const ech_tensor *add, const ech_tensor *c)
{
    size_t width = (size_t)c->shape[1] * sizeof(double);
    for (int64_t m = 0; add && add->data != c->data && m < c->shape[0]; m++)
        memcpy((double *)c->data + m * c->stride[0], (double *)add->data + m * add->stride[0],
               width);
    cblas_dgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                b_transposed ? CblasTrans : CblasNoTrans, as_int(c->shape[0]), as_int(c->shape[1]),
                as_int(K), 1.0, a->data, row_stride(a), b->data, row_stride(b), add ? 1.0 : 0.0,
                c->data, row_stride(c));
    for (int64_t m = 0; m < c->shape[0] && bias; m++)
        for (int64_t n = 0; n < c->shape[1]; n++)
            ((double *)c->data)[m * c->stride[0] + n] += ((const double *)bias->data)[n];
}
#else
static void multiply(const ech_tensor *a, bool a_transposed, const ech_tensor *b, bool b_transposed,
                     const ech_tensor *bias, int64_t K, const ech_tensor *add, const ech_tensor *c)
{
    int64_t a_row = a_transposed ? 1 : a->stride[0], a_column = a_transposed ? a->stride[0] : 1;
    int64_t b_row = b_transposed ? 1 : b->stride[0], b_column = b_transposed ? b->stride[0] : 1;
    for (int64_t m = 0; m < c->shape[0]; m++)
        for (int64_t n = 0; n < c->shape[1]; n++) {
            double sum = add ? ech_value(add, m * add->stride[0] + n) : 0.0;
            if (bias) sum += ech_value(bias, n);
            for (int64_t k = 0; k < K; k++)
                sum +=
                    ech_value(a, m * a_row + k * a_column) * ech_value(b, k * b_row + n * b_column);
            ech_store(c, m * c->stride[0] + n, sum);
        }
}
#endif

void ECH_REF(matmul)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                     const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                     const ech_tensor *add, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    const ech_tensor op_a = ech_shape_transposed(a, a_transposed);
    const ech_tensor op_b = ech_shape_transposed(b, b_transposed);
    ECH_SHAPES(matmul, ECH_REAL, &op_a, &op_b, bias, add, c);
    if (M == 0 || N == 0) return;
    multiply(a, a_transposed, b, b_transposed, bias, K, add, c);
}

void ECH_REF(bias_backward)(ech_kernel_context *context, const ech_tensor *dy, bool accumulate,
                            const ech_tensor *dbias)
{
    int64_t R = dy->shape[0], N = dy->shape[1];
    ECH_SHAPES(bias_backward, ECH_REAL, dy, dbias);
    double *sum = ech_scratch(context, (size_t)N * sizeof *sum);
    for (int64_t n = 0; n < N; n++) sum[n] = accumulate ? ech_value(dbias, n) : 0.0;
    for (int64_t r = 0; r < R; r++)
        for (int64_t n = 0; n < N; n++) sum[n] += ech_value(dy, r * dy->stride[0] + n);
    for (int64_t n = 0; n < N; n++) ech_store(dbias, n, sum[n]);
}
