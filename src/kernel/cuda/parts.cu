/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of reductions over ranks.
 */
#include "kernel/cuda/real.cuh"
#include "tensor/half.h"

/* ---- numbers of any type ---- */

/* Element i of memory of any type that ech_convert accepts. */
static __device__ double number_at(const void *x, ech_dtype dtype, int64_t i)
{
    if (dtype == ECH_F64) return static_cast<const double *>(x)[i];
    if (dtype == ECH_F32) return (double)static_cast<const float *>(x)[i];
    const uint16_t *half = static_cast<const uint16_t *>(x) + i;
#ifdef ECH_EMULATED
    double value;
    ech_convert(half, dtype, &value, ECH_F64, 1);
    return value;
#else
    if (dtype == ECH_E6M9) return ech_half_widen(*half, ECH_E6M9_EXPONENT, ECH_E6M9_SIGNIFICAND);
    if (dtype == ECH_F16) return (double)__half2float(__ushort_as_half(*half));
    return (double)__uint_as_float((unsigned)*half << 16);
#endif
}

static __device__ void put_number(void *x, ech_dtype dtype, int64_t i, double value)
{
#ifdef ECH_EMULATED
    ech_convert(&value, ECH_F64, static_cast<char *>(x) + i * (int64_t)ech_dtype_bytes(dtype),
                dtype, 1);
#else
    if (dtype == ECH_F64) static_cast<double *>(x)[i] = value;
    if (dtype == ECH_F32) static_cast<float *>(x)[i] = (float)value;
    if (dtype == ECH_E6M9)
        static_cast<uint16_t *>(x)[i] =
            ech_half_narrow(value, ECH_E6M9_EXPONENT, ECH_E6M9_SIGNIFICAND);
    if (dtype == ECH_F16) static_cast<__half *>(x)[i] = __double2half(value);
    if (dtype == ECH_BF16) static_cast<__nv_bfloat16 *>(x)[i] = __double2bfloat16(value);
#endif
}

/* ---- sums ---- */

/* For a type in which no kernel computes: in fp32, and rounded once. */
static void add_travelling(ech_kernel_context *context, const ech_tensor *own,
                           const ech_tensor *parts, int64_t index, const ech_tensor *sum)
{
    const ech_dtype dtype = own->dtype;
    const void *mine = own->data, *others = parts->data;
    void *to = sum->data;
    const int64_t P = parts->shape[0], N = own->shape[0];
    ech_each(context, N, [=] __device__(int64_t first, int n) {
        for (int64_t i = first; i < first + n; i++) {
            float all = 0;
            for (int64_t member = 0; member <= P; member++) {
                int64_t at = (member - (member > index)) * N + i;
                float part = (float)(member == index ? number_at(mine, dtype, i)
                                                     : number_at(others, dtype, at));
                all = member == 0 ? part : all + part;
            }
            put_number(to, dtype, i, (double)all);
        }
    });
}

/* Sums in member order: member `index` has own, the others the parts. */
void ECH_CUDA(add_parts)(ech_kernel_context *context, const ech_tensor *own,
                         const ech_tensor *parts, int64_t index, const ech_tensor *sum)
{
    ech_cuda_check(ECH_OP_add_parts, ECH_REAL, own, parts, sum);
    if (own->dtype != ECH_REAL) {
        add_travelling(context, own, parts, index, sum);
        return;
    }
    const ech_numbers mine = own, others = parts, to = sum;
    const int64_t P = parts->shape[0], N = own->shape[0];
    ech_each(context, N, [=] __device__(int64_t i, int n) {
        wide all[ECH_PART] = {}, part[ECH_PART];
        for (int64_t member = 0; member <= P; member++) {
            if (member == index)
                mine.load(i, n, part);
            else
                others.load((member - (member > index)) * N + i, n, part);
            for (int k = 0; k < ECH_PART; k++) all[k] = member == 0 ? part[k] : all[k] + part[k];
        }
        to.store(i, n, all);
    });
}

/* ---- changes of type, in place ---- */

/* Elements [first, end). One block may have all of them: then they are read before any is
 * written. */
static __global__ void convert_range(void *memory, ech_dtype from, ech_dtype to, int64_t first,
                                     int64_t end)
{
    int64_t i = first + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double value = i < end ? number_at(memory, from, i) : 0;
    __syncthreads();
    if (i < end) put_number(memory, to, i, value);
}

/* For elements [s, 2 s) the bytes read and written do not overlap, if one type is at least twice as
 * wide. So ranges double: from the first on to narrow, from the last on to widen, so that nothing
 * is overwritten before it has been read. */
void ECH_CUDA(convert)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    enum { MOST_RANGES = 64 };
    ech_cuda_check(ECH_OP_convert, ECH_REAL, x, y);
    ECH_ASSERT(x->data == y->data);
    size_t from = ech_dtype_bytes(x->dtype), to = ech_dtype_bytes(y->dtype);
    int64_t n = x->shape[0], end[MOST_RANGES];
    int ranges = 0;
    if (x->dtype == y->dtype) return;
    if (from == to) end[ranges++] = n; /* element by element */
    for (int64_t e = ECH_BLOCK; from != to && ranges < MOST_RANGES - 1; e *= 2) {
        end[ranges++] = e < n ? e : n;
        if (e >= n) break;
    }
    for (int r = 0; r < ranges; r++) {
        int at = from < to ? ranges - 1 - r : r;
        int64_t first = at > 0 ? end[at - 1] : 0;
        ech_launch(context, convert_range, dim3((unsigned)ech_ceil(end[at] - first, ECH_BLOCK)),
                   ECH_BLOCK, 0, x->data, x->dtype, y->dtype, first, end[at]);
    }
}
