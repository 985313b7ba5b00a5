/* SPDX-License-Identifier: Apache-2.0
 *
 * The cross-entropy of rows of logits, whole or of a vocabulary shard, with one block per row; and
 * the bias gradient.
 */
#include "kernel/cuda/reduce.cuh"

/* ---- statistics ---- */

namespace
{
/* Like fmax, which ignores NaN: the sums contain it anyway. */
struct most {
    __device__ wide operator()(wide a, wide b) const
    {
        return fmax(a, b);
    }
};
} // namespace

namespace
{
/* The maximum so far, and the sum of exp(logit - maximum), of one thread in a single pass. */
struct online {
    wide max, sum;
};
} // namespace

/* A maximum of -infinity is replaced by 0: each of its exponentials is then 0, and not NaN. */
static __device__ wide finite_shift(wide max)
{
    return max == -(wide)INFINITY ? 0 : max;
}

static __device__ void add_part(const wide *logit, int n, online *o)
{
    wide max = o->max;
    for (int k = 0; k < ECH_PART; k++)
        if (k < n) max = fmax(max, logit[k]);
    wide shift = finite_shift(max);
    if (max > o->max) o->sum *= exp(o->max - shift);
    for (int k = 0; k < ECH_PART; k++)
        if (k < n) o->sum += exp(logit[k] - shift);
    o->max = max;
}

static __global__ void row_statistics(ech_numbers logits, int64_t stride, int64_t n,
                                      const int32_t *targets, int64_t first_id, double *stats)
{
    ECH_SHARED(wide, max_room, ECH_BLOCK / ECH_WARP);
    ECH_SHARED(double, sum_room, ECH_BLOCK / ECH_WARP);
    int64_t r = blockIdx.x, row = r * stride, target = targets[r] - first_id;
    online own = {-(wide)INFINITY, 0};
    for (int64_t v = (int64_t)threadIdx.x * ECH_PART; v < n; v += blockDim.x * ECH_PART) {
        wide part[ECH_PART];
        int count = ech_part_count(n - v);
        logits.load(row + v, count, part);
        add_part(part, count, &own);
    }
    wide max = ech_block_fold(most(), own.max, max_room);
    double scaled = own.sum == 0 ? 0 : (double)(own.sum * exp(own.max - finite_shift(max)));
    double sum = ech_block_fold(ech_plus(), scaled, sum_room);
    if (threadIdx.x != 0) return;
    double *out = stats + r * ECH_LOSS_STATS;
    out[ECH_STAT_MAX] = (double)max;
    out[ECH_STAT_SUM] = n > 0 && max == -(wide)INFINITY ? (double)NAN : sum;
    out[ECH_STAT_TARGET] = target >= 0 && target < n ? (double)logits.get(row + target) : 0;
}

void ECH_CUDA(loss_statistics)(ech_kernel_context *context, const ech_tensor *logits,
                               const ech_tensor *targets, int64_t first_id, const ech_tensor *stats)
{
    ech_cuda_check(ECH_OP_loss_statistics, ECH_REAL, logits, targets, stats);
    int64_t n = logits->shape[1];
    ech_launch(context, row_statistics, dim3((unsigned)logits->shape[0]), ech_row_threads(n), 0,
               ech_numbers(logits), logits->stride[0], n, (const int32_t *)targets->data, first_id,
               (double *)stats->data);
}

/* ---- gradient ---- */

namespace
{
struct gradient_call {
    ech_numbers logits;
    real *gradient;
    int64_t n, logits_stride, gradient_stride, first_id;
    const int32_t *targets;
    const float *weights;
    const double *stats, *scale;
    double factor, cap;
};
} // namespace

/* A gradient may be narrower than the logits in whose memory it is: each part of a row is read by
 * all before any is written, and the next part lies after what is written. In a row that is not
 * aligned, adjacent numbers belong to different threads. */
static __global__ void row_gradient(gradient_call at)
{
    int64_t r = blockIdx.x, target = at.targets[r] - at.first_id;
    const double *known = at.stats + r * ECH_LOSS_STATS, weight = at.weights[r];
    double lse = known[ECH_STAT_MAX] + log(known[ECH_STAT_SUM]);
    wide factor = (wide)(weight * *at.scale * at.factor), cap = (wide)at.cap;
    real *gradient = at.gradient + r * at.gradient_stride;
    bool aligned = at.logits.is_aligned(r * at.logits_stride) && ech_is_aligned(gradient);
    int apart = aligned ? 1 : (int)blockDim.x, step = (int)blockDim.x * ECH_PART;
    int64_t v = threadIdx.x * (aligned ? ECH_PART : 1);
    ech_fetched next;
    at.logits.fetch_apart(r * at.logits_stride + v, apart, at.n - v, &next);
    for (int64_t first = 0; first < at.n; first += step, v += step) {
        wide part[ECH_PART];
        at.logits.widen(next, part);
        if (first + step < at.n)
            at.logits.fetch_apart(r * at.logits_stride + v + step, apart, at.n - v - step, &next);
        for (int k = 0; k < ECH_PART; k++) {
            wide probability = exp((wide)((double)part[k] - lse)), share = part[k] / cap;
            wide slope = cap > 0 ? 1 - share * share : 1;
            part[k] = weight == 0 ? 0 : (probability - (v + k * apart == target)) * factor * slope;
        }
        __syncthreads();
        ech_store_apart(gradient + v, apart, at.n - v, part);
    }
}

/* Sums the losses of all rows and their weights, with one block. */
static __global__ void add_losses(const double *stats, const float *weights, int64_t R,
                                  double *sums)
{
    ECH_SHARED(double, room, 2 * ECH_BLOCK / ECH_WARP);
    double loss = 0, weight = 0;
    for (int64_t r = threadIdx.x; r < R; r += blockDim.x) {
        const double *known = stats + r * ECH_LOSS_STATS, w = weights[r];
        if (w == 0) continue;
        loss += w * (known[ECH_STAT_MAX] + log(known[ECH_STAT_SUM]) - known[ECH_STAT_TARGET]);
        weight += w;
    }
    loss = ech_block_fold(ech_plus(), loss, room);
    weight = ech_block_fold(ech_plus(), weight, room + ECH_BLOCK / ECH_WARP);
    if (threadIdx.x != 0) return;
    sums[ECH_LOSS_SUM] += loss;
    sums[ECH_LOSS_WEIGHT] += weight;
}

void ECH_CUDA(loss_gradient)(ech_kernel_context *context, const ech_tensor *logits,
                             const ech_tensor *targets, const ech_tensor *weights, int64_t first_id,
                             const ech_tensor *stats, const ech_tensor *scale, double factor,
                             double cap, const ech_tensor *gradient, const ech_tensor *sums)
{
    ech_cuda_check(ECH_OP_loss_gradient, ECH_REAL, logits, targets, weights, stats, gradient, sums);
    int64_t R = logits->shape[0], n = logits->shape[1];
    const double *known = static_cast<const double *>(stats->data);
    const float *weight = static_cast<const float *>(weights->data);
    ECH_ASSERT(!gradient || (scale->dtype == ECH_F64 && ech_tensor_count(scale) == 1));
    if (gradient)
        ech_launch(context, row_gradient, dim3((unsigned)R), ech_row_threads(n), 0,
                   gradient_call{logits, static_cast<real *>(gradient->data), n, logits->stride[0],
                                 gradient->stride[0], first_id,
                                 static_cast<const int32_t *>(targets->data), weight, known,
                                 static_cast<const double *>(scale->data), factor, cap});
    ech_launch(context, add_losses, dim3(1), ECH_BLOCK, 0, known, weight, R,
               static_cast<double *>(sums->data));
}

/* ---- shards ---- */

/* A shard without columns has sum 0 and adds nothing. */
static __global__ void combine_rows(const double *parts, int64_t N, int64_t R, double *stats)
{
    int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, stride = R * ECH_LOSS_STATS;
    const double *part = parts + r * ECH_LOSS_STATS;
    double max = -INFINITY, sum = 0, target = 0;
    if (r >= R) return;
    for (int64_t i = 0; i < N; i++) {
        double largest = part[i * stride + ECH_STAT_MAX];
        max = largest > max || isnan(largest) ? largest : max;
    }
    for (int64_t i = 0; i < N; i++) {
        const double *known = part + i * stride;
        if (known[ECH_STAT_SUM] == 0) continue;
        sum += known[ECH_STAT_SUM] * exp(known[ECH_STAT_MAX] - max);
        target += known[ECH_STAT_TARGET];
    }
    stats[r * ECH_LOSS_STATS + ECH_STAT_MAX] = max;
    stats[r * ECH_LOSS_STATS + ECH_STAT_SUM] = sum;
    stats[r * ECH_LOSS_STATS + ECH_STAT_TARGET] = target;
}

void ECH_CUDA(loss_combine)(ech_kernel_context *context, const ech_tensor *parts,
                            const ech_tensor *stats)
{
    ech_cuda_check(ECH_OP_loss_combine, ECH_REAL, parts, stats);
    int64_t R = parts->shape[1];
    ech_launch(context, combine_rows, dim3((unsigned)ech_ceil(R, ECH_BLOCK)), ECH_BLOCK, 0,
               (const double *)parts->data, parts->shape[0], R, (double *)stats->data);
}

/* ---- bias ---- */

void ECH_CUDA(bias_backward)(ech_kernel_context *context, const ech_tensor *dy, bool accumulate,
                             const ech_tensor *dbias)
{
    ech_cuda_check(ECH_OP_bias_backward, ECH_REAL, dy, dbias);
    int64_t stride = dy->stride[0];
    const ech_numbers from = dy;
    ech_columns(
        context, dy->shape[0], dy->shape[1], ech_plus(),
        [=] __device__(int64_t r, int64_t c, int n, wide *value) {
            from.load(r * stride + c, n, value);
        },
        ech_put_sum{dbias, accumulate});
}
