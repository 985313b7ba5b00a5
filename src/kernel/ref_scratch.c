/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch bytes of the reference kernels. dims are those of the row's third column in kernel.def.
 */
#include "kernel/ref/rows.h"

/* dims: R, N. One fp64 sum a column. */
size_t ech_ref_scratch_bias_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return (size_t)dims[1] * sizeof(double);
}

/* dims: R, C. Two fp64 sums a column: gain and bias. */
size_t ech_ref_scratch_layernorm_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return 2 * (size_t)dims[1] * sizeof(double);
}

/* dims: R, C. One fp64 sum a column. */
size_t ech_ref_scratch_rmsnorm_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return ech_ref_scratch_bias_backward(dtype, threads, dims);
}

/* dims: B, Tq, Tk, H, G, D. One row of probabilities and one of output. */
size_t ech_ref_scratch_attention_forward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return (size_t)(dims[2] + dims[5]) * sizeof(double);
}

/* dims: B, Tq, Tk, H, G, D. dout·out of every row, and two rows of sums. */
size_t ech_ref_scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype, (void)threads;
    return (size_t)(dims[0] * dims[1] * dims[3] + 2 * dims[5]) * sizeof(double);
}
