/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest numbers of lines, one block per line, found as in ref/choose.c: the least chosen
 * magnitude is found bit by bit. Then each thread has its own part of the line, and knows how many
 * chosen numbers come before it.
 */
#include "kernel/cuda/reduce.cuh"

namespace
{
#ifdef ECH_REAL_F64
typedef unsigned long long magnitude;
#else
typedef unsigned magnitude;
#endif
enum { MAGNITUDE_BITS = 8 * sizeof(magnitude) - 1 };

/* Lines of a matrix: number i of line l. */
struct lines {
    const wide *x;
    int64_t n, step, next;

    __device__ wide get(int64_t l, int64_t i) const
    {
        return x[l * next + i * step];
    }
    __device__ magnitude of(int64_t l, int64_t i) const
    {
        union {
            wide value;
            magnitude bits;
        } both;
        both.value = get(l, i);
        return both.bits & (((magnitude)1 << MAGNITUDE_BITS) - 1);
    }
    /* How many of the numbers from `first` to `end`, every `by`-th, are at least as large. */
    __device__ int count(int64_t l, int64_t first, int64_t end, int64_t by, magnitude least) const
    {
        int n = 0;
        for (int64_t i = first; i < end; i += by) n += of(l, i) >= least;
        return n;
    }
};
} // namespace

static __global__ void choose_lines(lines x, int64_t K, wide *values, wide *indices)
{
    ECH_SHARED(int, room, ECH_BLOCK / ECH_WARP);
    ECH_SHARED(int, above, ECH_BLOCK + 1);
    ECH_SHARED(int, equal, ECH_BLOCK + 1);
    const int64_t l = blockIdx.x, n = x.n, part = (n + blockDim.x - 1) / blockDim.x;
    magnitude least = 0;
    for (int bit = MAGNITUDE_BITS - 1; bit >= 0; bit--) {
        magnitude higher = least | (magnitude)1 << bit;
        int found =
            ech_block_fold(ech_plus(), x.count(l, threadIdx.x, n, blockDim.x, higher), room);
        if (found >= K) least = higher;
    }
    int64_t first = threadIdx.x * part, end = first + part < n ? first + part : n;
    int own = x.count(l, first, end, 1, least + 1);
    above[threadIdx.x + 1] = own;
    equal[threadIdx.x + 1] = x.count(l, first, end, 1, least) - own;
    __syncthreads();
    if (threadIdx.x == 0) {
        above[0] = equal[0] = 0;
        for (unsigned t = 0; t < blockDim.x; t++)
            above[t + 1] += above[t], equal[t + 1] += equal[t];
    }
    __syncthreads();
    int64_t most = K - above[blockDim.x]; /* of the equal ones */
    int64_t before = equal[threadIdx.x], taken = before < most ? before : most;
    int64_t at = l * K + above[threadIdx.x] + taken;
    for (int64_t i = first; i < end; i++) {
        magnitude here = x.of(l, i);
        if (here < least || (here == least && before++ >= most)) continue;
        values[at] = x.get(l, i);
        indices[at++] = (wide)i;
    }
}

void ECH_CUDA(choose)(ech_kernel_context *context, const ech_tensor *x, bool columns,
                      const ech_tensor *values, const ech_tensor *indices)
{
    ech_cuda_check(ECH_OP_choose, ECH_REAL, x, values, indices);
    int64_t R = x->shape[0], C = x->shape[1], L = values->shape[0], K = values->shape[1];
    ECH_ASSERT(L == (columns ? C : R) && K > 0 && K <= (columns ? R : C));
    const lines of = {static_cast<const wide *>(x->data), columns ? R : C, columns ? C : 1,
                      columns ? 1 : C};
    ech_launch(context, choose_lines, dim3((unsigned)L), ECH_BLOCK, 0, of, K,
               static_cast<wide *>(values->data), static_cast<wide *>(indices->data));
}

void ECH_CUDA(add_chosen)(ech_kernel_context *context, const ech_tensor *values,
                          const ech_tensor *indices, bool columns, double factor,
                          const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_add_chosen, ECH_REAL, values, indices, y);
    int64_t C = y->shape[1], L = values->shape[0], K = values->shape[1];
    const wide *value = static_cast<const wide *>(values->data);
    const wide *index = static_cast<const wide *>(indices->data);
    wide *to = static_cast<wide *>(y->data), by = (wide)factor;
    ECH_ASSERT(L == (columns ? C : y->shape[0]));
    ech_each(context, L * K, [=] __device__(int64_t first, int n) {
        for (int64_t i = first; i < first + n; i++) {
            int64_t at = (int64_t)index[i], l = i / K;
            to[columns ? at * C + l : l * C + at] += by * value[i];
        }
    });
}
