/* SPDX-License-Identifier: Apache-2.0
 *
 * Logistic regression: logits of samples of weighted features, and the loss.
 */
#include "kernel/cuda/reduce.cuh"

void ECH_CUDA(sparse_logits)(ech_kernel_context *context, const ech_tensor *x,
                             const ech_tensor *values, const ech_tensor *bias, const ech_tensor *z)
{
    ech_cuda_check(ECH_OP_sparse_logits, ECH_REAL, x, values, bias, z);
    int64_t K = x->shape[1];
    const ech_numbers from = x, shift = bias, to = z;
    const float *by = static_cast<const float *>(values->data);
    ech_fold_rows(
        context, x->shape[0], K, ech_plus(),
        [=] __device__(int64_t r, int64_t k) {
            return (double)from.get(r * K + k) * (double)by[r * K + k];
        },
        [=] __device__(int64_t r, double sum) { to.put(r, (wide)(sum + (double)shift.get(0))); });
}

/* The sum of n numbers, by one block. */
static __global__ void add_all(ech_numbers x, int64_t n, bool accumulate, ech_numbers to)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)x.get(i);
    sum = ech_block_fold(ech_plus(), sum, room);
    if (threadIdx.x == 0) to.put(0, (wide)(accumulate ? sum + (double)to.get(0) : sum));
}

void ECH_CUDA(sparse_logits_backward)(ech_kernel_context *context, const ech_tensor *dz,
                                      const ech_tensor *values, bool accumulate,
                                      const ech_tensor *dx, const ech_tensor *dbias)
{
    ech_cuda_check(ECH_OP_sparse_logits_backward, ECH_REAL, dz, values, dx, dbias);
    int64_t R = dx->shape[0], K = dx->shape[1];
    const ech_numbers slope = dz, to = dx;
    const float *by = static_cast<const float *>(values->data);
    ech_each(context, R * K, [=] __device__(int64_t i, int n) {
        wide part[ECH_PART];
        for (int k = 0; k < ECH_PART; k++)
            part[k] = k < n ? slope.get((i + k) / K) * (wide)by[i + k] : 0;
        to.store(i, n, part);
    });
    if (dbias)
        ech_launch(context, add_all, dim3(1), ECH_BLOCK, 0, slope, R, accumulate,
                   ech_numbers(dbias));
}

/* log(1 + exp(x)), accurate for large x. */
static __device__ double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* By one block, with one thread per position. */
static __global__ void add_logistic_losses(ech_numbers z, const int32_t *targets,
                                           const float *weights, int64_t K, int64_t n, double *sums)
{
    ECH_SHARED(double, room, 2 * ECH_BLOCK / ECH_WARP);
    double loss = 0, weight = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        double w = weights[i], logit = z.get(i / K);
        if (w == 0) continue;
        loss += w * softplus(targets[i] ? -logit : logit);
        weight += w;
    }
    loss = ech_block_fold(ech_plus(), loss, room);
    weight = ech_block_fold(ech_plus(), weight, room + ECH_BLOCK / ECH_WARP);
    if (threadIdx.x != 0) return;
    sums[ECH_LOSS_SUM] += loss;
    sums[ECH_LOSS_WEIGHT] += weight;
}

void ECH_CUDA(logistic_loss)(ech_kernel_context *context, const ech_tensor *z,
                             const ech_tensor *targets, const ech_tensor *weights,
                             const ech_tensor *sums)
{
    ech_cuda_check(ECH_OP_logistic_loss, ECH_REAL, z, targets, weights, sums);
    ech_launch(context, add_logistic_losses, dim3(1), ECH_BLOCK, 0, ech_numbers(z),
               static_cast<const int32_t *>(targets->data),
               static_cast<const float *>(weights->data), targets->shape[1],
               ech_tensor_count(targets), static_cast<double *>(sums->data));
}

void ECH_CUDA(logistic_loss_backward)(ech_kernel_context *context, const ech_tensor *z,
                                      const ech_tensor *targets, const ech_tensor *weights,
                                      const ech_tensor *scale, const ech_tensor *dz)
{
    ech_cuda_check(ECH_OP_logistic_loss_backward, ECH_REAL, z, targets, weights, dz);
    ECH_ASSERT(scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1);
    const ech_numbers logits = z, to = dz;
    const int32_t *target = static_cast<const int32_t *>(targets->data);
    const float *weight = static_cast<const float *>(weights->data);
    const double *factor = static_cast<const double *>(scale->data);
    int64_t K = targets->shape[1];
    ech_each(context, targets->shape[0], [=] __device__(int64_t first, int n) {
        for (int64_t r = first; r < first + n; r++) {
            double logit = logits.get(r), slope = 0;
            for (int64_t i = r * K; i < (r + 1) * K; i++) {
                double w = weight[i], sign = target[i] ? -1 : 1;
                if (w != 0) slope += w * sign / (1 + exp(-sign * logit));
            }
            to.put(r, (wide)(slope * *factor));
        }
    });
}
