/* SPDX-License-Identifier: Apache-2.0
 *
 * The real type of the CUDA kernels. Every file of cuda/ is compiled once per type, with
 * ECH_REAL_F32, _F64, _BF16 or _F16. Arithmetic is in `wide`, and in double for long sums; results
 * are rounded once, to nearest even. Tensors are read and written in their dtype, which is `real`
 * or `wide`; in fp32 and fp64 these are equal, and nothing is checked. Functions whose names do not
 * contain the type are in anonymous namespaces: otherwise a linker would use one type's version for
 * all.
 */
#ifndef ECH_KERNEL_CUDA_REAL_H
#define ECH_KERNEL_CUDA_REAL_H

#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/rows.h"

namespace
{

#ifdef ECH_REAL_F64
typedef double wide;
#else
typedef float wide;
#endif

/* A number of 16 bits, as in memory. */
struct half16 {
    uint16_t bits;
};
#if defined ECH_REAL_BF16 || defined ECH_REAL_F16
typedef half16 real;
#else
typedef wide real;
#endif
static const bool ech_has_halves = sizeof(real) == sizeof(half16);

static __device__ inline wide ech_widen(wide x)
{
    return x;
}

static __device__ inline wide ech_widen(half16 x)
{
#if defined ECH_EMULATED && defined ECH_REAL_BF16
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (wide)value;
#elif defined ECH_EMULATED
    wide value;
    ech_convert(&x, ECH_F16, &value, sizeof value == 8 ? ECH_F64 : ECH_F32, 1);
    return value;
#elif defined ECH_REAL_BF16
    return (wide)__uint_as_float((unsigned)x.bits << 16);
#else
    return (wide)__half2float(__ushort_as_half(x.bits));
#endif
}

static __device__ inline void ech_narrow(wide value, wide *to)
{
    *to = value;
}

static __device__ inline void ech_narrow(wide value, half16 *to)
{
#ifdef ECH_EMULATED
    ech_convert(&value, sizeof value == 8 ? ECH_F64 : ECH_F32, to,
                ECH_REAL == ECH_BF16 ? ECH_BF16 : ECH_F16, 1);
#elif defined ECH_REAL_BF16
    to->bits = __bfloat16_as_ushort(__float2bfloat16_rn((float)value));
#else
    to->bits = __half_as_ushort(__float2half_rn((float)value));
#endif
}

/* A number after being stored as `real`. */
static __device__ inline wide ech_rounded(wide value)
{
    real stored;
    ech_narrow(value, &stored);
    return ech_widen(stored);
}

/* Elements per thread at a time: 16 bytes of the narrowest type. */
enum { ECH_PART = 8 };

static __device__ inline int ech_part_count(int64_t left)
{
    return left < ECH_PART ? (int)left : (int)ECH_PART;
}

struct alignas(16) ech_chunk {
    uint32_t word[4];
};

/* Stores in one piece to device memory: for an assignment the compiler generates four stores if it
 * knows the words' contents. */
static __device__ inline void ech_store_chunk(void *to, const ech_chunk &c)
{
#ifdef ECH_EMULATED
    *static_cast<ech_chunk *>(to) = c;
#else
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(c.word[0]), "r"(c.word[1]), "r"(c.word[2]), "r"(c.word[3])
                 : "memory");
#endif
}

/* A part in registers. */
template <typename T> union ech_part {
    ech_chunk chunk[ECH_PART * sizeof(T) / sizeof(ech_chunk)];
    T value[ECH_PART];
};

static __device__ inline bool ech_is_aligned(const void *at)
{
    return (reinterpret_cast<uintptr_t>(at) & (sizeof(ech_chunk) - 1)) == 0;
}

/* The first n of a part's numbers, others 0: in their memory format, so that nothing waits for them
 * yet. */
template <typename T>
static __device__ inline void ech_fetch_part(const T *from, int n, ech_part<T> *to)
{
    if (n == ECH_PART && ech_is_aligned(from)) {
#pragma unroll
        for (unsigned j = 0; j < sizeof *to / sizeof(ech_chunk); j++)
            to->chunk[j] = reinterpret_cast<const ech_chunk *>(from)[j];
    } else {
#pragma unroll
        for (int k = 0; k < ECH_PART; k++) to->value[k] = k < n ? from[k] : T{};
    }
}

template <typename T>
static __device__ inline void ech_widen_part(const ech_part<T> &from, wide *to)
{
#pragma unroll
    for (int k = 0; k < ECH_PART; k++) to[k] = ech_widen(from.value[k]);
}

/* A part of either type that was fetched. */
union ech_fetched {
    ech_part<half16> halves;
    ech_part<wide> wides;
};

template <typename T> static __device__ inline void ech_store_part(T *to, int n, const wide *from)
{
    ech_part<T> part;
#pragma unroll
    for (int k = 0; k < ECH_PART; k++) ech_narrow(from[k], &part.value[k]);
    if (n == ECH_PART && ech_is_aligned(to)) {
#pragma unroll
        for (unsigned j = 0; j < sizeof part / sizeof(ech_chunk); j++)
            ech_store_chunk(reinterpret_cast<ech_chunk *>(to) + j, part.chunk[j]);
    } else {
#pragma unroll
        for (int k = 0; k < ECH_PART; k++)
            if (k < n) to[k] = part.value[k];
    }
}

/* As ech_fetch_part and ech_store_part, for numbers with a stride. n: the number of elements from
 * the first on, including those between. */
template <typename T>
static __device__ inline void ech_fetch_apart(const T *from, int apart, int64_t n, ech_part<T> *to)
{
    if (apart == 1) return ech_fetch_part(from, n < 0 ? 0 : ech_part_count(n), to);
#pragma unroll
    for (int k = 0; k < ECH_PART; k++) to->value[k] = k * apart < n ? from[k * apart] : T{};
}

template <typename T>
static __device__ inline void ech_store_apart(T *to, int apart, int64_t n, const wide *from)
{
    if (apart == 1) return ech_store_part(to, n < 0 ? 0 : ech_part_count(n), from);
#pragma unroll
    for (int k = 0; k < ECH_PART; k++)
        if (k * apart < n) ech_narrow(from[k], to + k * apart);
}

/* A tensor's memory, of `real` or `wide` numbers; NULL for an absent optional tensor. */
struct ech_numbers {
    void *data;
    bool is_half;

    ech_numbers(const ech_tensor *x)
        : data(x ? x->data : NULL), is_half(ech_has_halves && x && x->dtype == ECH_REAL)
    {
    }
    __device__ bool is_here() const
    {
        return data != NULL;
    }
    __device__ bool is_aligned(int64_t i) const
    {
        return ech_is_aligned(static_cast<const char *>(data) +
                              i * (int64_t)(has_halves() ? sizeof(half16) : sizeof(wide)));
    }
    __device__ bool has_halves() const
    {
        return ech_has_halves && is_half;
    }
    __device__ wide get(int64_t i) const
    {
        if (has_halves()) return ech_widen(static_cast<const half16 *>(data)[i]);
        return static_cast<const wide *>(data)[i];
    }
    __device__ void put(int64_t i, wide value) const
    {
        if (has_halves())
            ech_narrow(value, static_cast<half16 *>(data) + i);
        else
            static_cast<wide *>(data)[i] = value;
    }
    __device__ void fetch(int64_t i, int n, ech_fetched *to) const
    {
        if (has_halves())
            ech_fetch_part(static_cast<const half16 *>(data) + i, n, &to->halves);
        else
            ech_fetch_part(static_cast<const wide *>(data) + i, n, &to->wides);
    }
    __device__ void fetch_apart(int64_t i, int apart, int64_t n, ech_fetched *to) const
    {
        if (has_halves())
            ech_fetch_apart(static_cast<const half16 *>(data) + i, apart, n, &to->halves);
        else
            ech_fetch_apart(static_cast<const wide *>(data) + i, apart, n, &to->wides);
    }
    __device__ void widen(const ech_fetched &from, wide *to) const
    {
        if (has_halves())
            ech_widen_part(from.halves, to);
        else
            ech_widen_part(from.wides, to);
    }
    __device__ void load(int64_t i, int n, wide *to) const
    {
        ech_fetched part;
        fetch(i, n, &part);
        widen(part, to);
    }
    __device__ void store(int64_t i, int n, const wide *from) const
    {
        if (has_halves())
            ech_store_part(static_cast<half16 *>(data) + i, n, from);
        else
            ech_store_part(static_cast<wide *>(data) + i, n, from);
    }
};

/* A tensor as an argument of a kernel, which may be absent. */
struct ech_maybe {
    ech_tensor tensor;
    bool is_here;

    ech_maybe(const ech_tensor *x) : tensor(x ? *x : ech_tensor{}), is_here(x != NULL)
    {
    }
    __device__ const ech_tensor *get() const
    {
        return is_here ? &tensor : NULL;
    }
};

/* Calls f(i, count) for elements i .. i + count - 1, parts of n elements. */
template <typename F> static __global__ void ech_each_kernel(int64_t n, F f)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x * ECH_PART;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * ECH_PART; i < n; i += step)
        f(i, ech_part_count(n - i));
}

template <typename F> static void ech_each(const ech_kernel_context *context, int64_t n, F f)
{
    dim3 blocks = ech_blocks(ech_ceil(n, ECH_PART), ECH_BLOCK);
    ech_launch(context, ech_each_kernel<F>, blocks, ECH_BLOCK, 0, n, f);
}

/* n / by and the remainder, neither negative: in 32 bits if both fit, which takes a fraction of the
 * time. */
static __device__ inline int64_t ech_divide(int64_t n, int64_t by, int64_t *rest)
{
    bool fits = (n | by) >> 32 == 0;
    int64_t quotient = fits ? (int64_t)((uint32_t)n / (uint32_t)by) : n / by;
    *rest = n - quotient * by;
    return quotient;
}

/* The location of a view's row: its sample in the view, and the position in it. */
struct ech_row_place {
    int64_t sample, position;

    __device__ ech_row_place(const ech_rows &rows, int64_t row)
    {
        int64_t token;
        sample = ech_divide(rows.first + row, rows.tokens, &token);
        position = ech_rows_token_position(&rows, token);
    }
    __device__ int64_t whole(const ech_rows &rows) const /* as ech_row_whole */
    {
        return (rows.first_sample + sample) * rows.whole + position;
    }
    __device__ int64_t in_document(const ech_tensor *starts) const /* as ech_row_in_document */
    {
        return position - ech_document_start(starts, sample, position);
    }
};

/* Calls f(row, first column, count) for parts of the rows of a matrix (R, C): `parts` of a row, n
 * of all. */
template <typename F>
static __global__ void ech_each_of_rows_kernel(int64_t C, int64_t parts, int64_t n, F f)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t part, r = ech_divide(i, parts, &part), c = part * ECH_PART;
        f(r, c, ech_part_count(C - c));
    }
}

template <typename F>
static void ech_each_of_rows(const ech_kernel_context *context, int64_t R, int64_t C, F f)
{
    int64_t parts = ech_ceil(C, ECH_PART), n = R * parts;
    ech_launch(context, ech_each_of_rows_kernel<F>, ech_blocks(n, ECH_BLOCK), ECH_BLOCK, 0, C,
               parts, n, f);
}

/* y = f(a, b), element by element; y may be a or b. */
template <typename F>
static void ech_each_pair(const ech_kernel_context *context, const ech_tensor *a,
                          const ech_tensor *b, const ech_tensor *y, F f)
{
    const ech_numbers from = a, more = b, to = y;
    ech_each(context, ech_tensor_count(a), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART], w[ECH_PART];
        from.load(i, n, v);
        more.load(i, n, w);
        for (int k = 0; k < ECH_PART; k++) v[k] = f(v[k], w[k]);
        to.store(i, n, v);
    });
}

/* As ech_each, f(state, i, count), with the state that prepare() computes from numbers on the
 * device: once per block, since it may be slow. */
template <typename State, typename Prepare, typename F>
static __global__ void ech_each_prepared_kernel(int64_t n, Prepare prepare, F f)
{
    ECH_SHARED(State, state, 1);
    int64_t step = (int64_t)gridDim.x * blockDim.x * ECH_PART;
    if (threadIdx.x == 0) prepare(state);
    __syncthreads();
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * ECH_PART; i < n; i += step)
        f(*state, i, ech_part_count(n - i));
}

template <typename State, typename Prepare, typename F>
static void ech_each_prepared(const ech_kernel_context *context, int64_t n, Prepare prepare, F f)
{
    dim3 blocks = ech_blocks(ech_ceil(n, ECH_PART), ECH_BLOCK);
    ech_launch(context, ech_each_prepared_kernel<State, Prepare, F>, blocks, ECH_BLOCK, 0, n,
               prepare, f);
}

/* f() in one thread. */
template <typename F> static __global__ void ech_once_kernel(F f)
{
    if (threadIdx.x == 0) f();
}

template <typename F> static void ech_once(const ech_kernel_context *context, F f)
{
    ech_launch(context, ech_once_kernel<F>, dim3(1), ECH_WARP, 0, f);
}

} // namespace

#endif
