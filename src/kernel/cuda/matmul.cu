/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: by cuBLASLt, or with any strides and types by tiles: 16-bit types on tensor
 * cores, others by multiply-adds.
 */
#include "kernel/cuda/tiles.cuh"

extern "C" {
#include "kernel/cuda/library.h"
}

template <bool TA, bool TB>
static __global__ void __launch_bounds__(ECH_TILE_THREADS, 1) multiply(const ech_tile_product at)
{
    int64_t m = (int64_t)blockIdx.y * ECH_TILE, n = (int64_t)blockIdx.x * ECH_TILE;
    ECH_SHARED(ech_chunk, a, ECH_TILE_ROOM);
    ECH_SHARED(ech_chunk, b, ECH_TILE_ROOM);
    ech_sums<ECH_TILE> sum;
    ech_clear(sum);
    ech_add_tile<TA, TB>(at, m, n, a, b, sum);
    ech_store_tile(at, m, n, sum);
}

/* False: not supported by the library. */
static bool multiply_by_library(const ech_kernel_context *context, const ech_tile_product &at,
                                bool b_transposed, const ech_tensor *bias, const ech_tensor *add,
                                const ech_tensor *c)
{
#if defined ECH_EMULATED && !defined ECH_EMULATED_LIBRARY
    return false;
#else
    int64_t N = at.N;
    bool narrows = bias && bias->dtype != c->dtype;
    ech_cuda_product product = {ECH_REAL,
                                c->dtype,
                                at.M,
                                N,
                                at.K,
                                at.a_stride,
                                at.b_stride,
                                at.add_stride,
                                at.c_stride,
                                at.a_transposed,
                                b_transposed,
                                at.a,
                                at.b,
                                bias && !narrows ? bias->data : NULL,
                                add ? add->data : NULL,
                                c->data};
    if ((add && add->dtype != c->dtype) || !ECH_CUDA_LIBRARY(takes)(&product)) return false;
    size_t bytes = narrows ? (size_t)N * sizeof(real) : 0;
    char *scratch = static_cast<char *>(ech_scratch(context, ECH_CUDA_WORKSPACE + bytes));
    ECH_ASSERT(reinterpret_cast<uintptr_t>(scratch) % ECH_CUDA_ALIGNMENT == 0);
    if (narrows) { /* the library needs it in the result's type */
        const ech_tensor narrow = ech_tensor_view(scratch + ECH_CUDA_WORKSPACE, ECH_REAL, 1, &N);
        const ech_numbers from = bias, to = &narrow;
        ech_each(context, N, [=] __device__(int64_t i, int n) {
            wide part[ECH_PART];
            from.load(i, n, part);
            to.store(i, n, part);
        });
        product.bias = narrow.data;
    }
    return ECH_CUDA_LIBRARY(multiply)(context, &product, scratch);
#endif
}

void ECH_CUDA(matmul)(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                      const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                      const ech_tensor *add, const ech_tensor *c)
{
    const ech_tensor op_a = ech_shape_transposed(a, a_transposed);
    const ech_tensor op_b = ech_shape_transposed(b, b_transposed);
    ech_cuda_check(ECH_OP_matmul, ECH_REAL, &op_a, &op_b, bias, add, c);
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    const ech_tile_product at = {static_cast<const real *>(a->data),
                                 static_cast<const real *>(b->data),
                                 M,
                                 N,
                                 K,
                                 a->stride[0],
                                 b->stride[0],
                                 add ? add->stride[0] : 0,
                                 c->stride[0],
                                 a_transposed,
                                 bias,
                                 add,
                                 c};
    if (multiply_by_library(context, at, b_transposed, bias, add, c)) return;
    ech_launch(context,
               a_transposed ? (b_transposed ? multiply<true, true> : multiply<true, false>)
                            : (b_transposed ? multiply<false, true> : multiply<false, false>),
               dim3((unsigned)ech_ceil(N, ECH_TILE), (unsigned)ech_ceil(M, ECH_TILE)),
               ECH_TILE_THREADS, 0, at);
}
