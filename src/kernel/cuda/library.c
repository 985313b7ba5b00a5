/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by cuBLASLt, which is loaded at the first one. It expects matrices by columns: our
 * matrices by rows are their transposes, so it computes c' = op(b)' op(a)'. The heuristic is called
 * once per shape; nothing is allocated after that.
 */
#include "kernel/cuda/library.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "device/cuda.h"
#include "device/cuda_library.h"
#include "kernel/cuda/rows.h"

/* Number of cached shapes of a process: for further ones the heuristic is called each time. No
 * algorithm requires more than the largest alignment, so bits do not depend on additional alignment
 * of memory; a bias has it, since the library does not check. */
enum { WAYS = 2048, GPUS = 64, MOST_ALIGNMENT = 16 };

#define FUNCTIONS(X)                                                                               \
    X(Create)                                                                                      \
    X(GetStatusString)                                                                             \
    X(Matmul)                                                                                      \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulDescInit_internal)                                                                     \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatmulPreferenceInit_internal)                                                               \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatrixLayoutInit_internal)
static struct {
#define X(name) __typeof__(cublasLt##name) *name;
    FUNCTIONS(X)
#undef X
} lt;

/* All inputs of the choice of an algorithm; all are compared. */
typedef struct key {
    int64_t M, N, K, a_stride, b_stride, add_stride, c_stride, flags;
} key;

typedef struct way {
    key key;
    bool is_known, is_there; /* queried; the library has one */
    cublasLtMatmulAlgo_t algorithm;
} way;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu {
    cublasLtHandle_t handle; /* NULL: not made yet */
    way *way;
} gpus[GPUS];

/* A call in the library's terms. */
typedef struct call {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t b, a, add, c;
} call;

/* ---- the library ---- */

/* Only the first failure is reported: after a fault of the device all fail. */
static bool fails(cublasStatus_t status, const char *what)
{
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    if (status == CUBLAS_STATUS_SUCCESS) return false;
    if (!atomic_flag_test_and_set(&is_told))
        ech_log_line("error: ", "cuBLASLt fails at %s: %s", what, lt.GetStatusString(status));
    ech_device_cuda_check(cudaErrorUnknown, what);
    return true;
}

/* True if the device has failed before: a kernel's fault is not the library's. */
static bool device_fails(cudaStream_t stream, const char *what)
{
#ifdef ECH_EMULATED
    (void)stream, (void)what;
    return false;
#else
    cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) (void)cudaGetLastError();
    return !ech_device_cuda_check((int)(error == cudaErrorNotReady ? cudaSuccess : error), what);
#endif
}

static void open_library(void)
{
    const ech_library_symbol symbols[] = {
#define X(name) {"cublasLt" #name, &lt.name},
        FUNCTIONS(X)
#undef X
    };
    const char *path = NULL;
    if (ech_library_open(&ech_library_cublaslt, symbols, sizeof symbols / sizeof *symbols, &path))
        ech_device_cuda_check(cudaErrorSharedObjectSymbolNotFound, "opening cuBLASLt");
}

static bool is_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return lt.MatrixLayoutInit_internal;
}

/* The calling thread's GPU. Under the lock. NULL: the library has failed. */
static struct gpu *gpu_now(void)
{
    int index = 0;
#ifndef ECH_EMULATED
    if (!ech_device_cuda_check((int)cudaGetDevice(&index), "cudaGetDevice")) return NULL;
#endif
    ECH_ASSERT(index < GPUS);
    struct gpu *gpu = &gpus[index];
    if (!gpu->handle && fails(lt.Create(&gpu->handle), "cublasLtCreate")) return NULL;
    if (!gpu->way) gpu->way = ech_calloc(WAYS, sizeof *gpu->way);
    return gpu;
}

/* ---- a product ---- */

static bool fits(int64_t rows, int64_t columns, int64_t stride)
{
    return rows > 0 && columns > 0 && rows <= INT32_MAX && columns <= INT32_MAX &&
           (rows == 1 || stride >= columns);
}

bool ECH_CUDA_LIBRARY(takes)(const ech_cuda_product *p)
{
#ifdef ECH_EMULATED
    if (!getenv("ECHELON_EMULATED_LIBRARY")) return false;
#endif
    const int64_t M = p->M, N = p->N, K = p->K;
    bool in_place = p->add && p->add == p->c;
    return (p->a_transposed ? fits(K, M, p->a_stride) : fits(M, K, p->a_stride)) &&
           (p->b_transposed ? fits(N, K, p->b_stride) : fits(K, N, p->b_stride)) &&
           fits(M, N, p->c_stride) && (!p->add || fits(M, N, p->add_stride)) &&
           (!in_place || M == 1 || p->add_stride == p->c_stride) &&
           (!p->bias || (uintptr_t)p->bias % MOST_ALIGNMENT == 0);
}

static cudaDataType_t type_of(ech_dtype dtype)
{
    return dtype == ECH_F64    ? CUDA_R_64F
           : dtype == ECH_F32  ? CUDA_R_32F
           : dtype == ECH_BF16 ? CUDA_R_16BF
                               : CUDA_R_16F;
}

/* Its alignment in bytes: a power of two. */
static uint32_t alignment_of(const void *at)
{
    uintptr_t bits = (uintptr_t)at | MOST_ALIGNMENT;
    return (uint32_t)(bits & -bits);
}

/* A single row may have any stride. */
static int64_t stride_of(int64_t rows, int64_t columns, int64_t stride)
{
    return rows == 1 ? columns : stride;
}

/* The addend, or the memory that it would replace: the library is not told before the call whether
 * it is read. */
static const void *added(const ech_cuda_product *p)
{
    return p->add ? p->add : p->c;
}

static key key_of(const ech_cuda_product *p, bool tf32)
{
    const int64_t M = p->M, N = p->N, K = p->K;
    const bool at = p->a_transposed, bt = p->b_transposed;
    const void *const memory[] = {p->a, p->b, added(p), p->c};
    int64_t flags = (int64_t)p->operands << 8 | (int64_t)p->results << 4 | at | bt << 1 |
                    (p->bias != NULL) << 2 | tf32 << 3;
    for (int i = 0; i < 4; i++) flags = flags << 9 | alignment_of(memory[i]);
    return (key){M,
                 N,
                 K,
                 stride_of(at ? K : M, at ? M : K, p->a_stride),
                 stride_of(bt ? N : K, bt ? K : N, p->b_stride),
                 stride_of(M, N, p->add ? p->add_stride : p->c_stride),
                 stride_of(M, N, p->c_stride),
                 flags};
}

/* A matrix of `rows` rows in our order: by columns it is its transpose. */
static bool lay_out(cublasLtMatrixLayoutOpaque_t *layout, ech_dtype dtype, int64_t rows,
                    int64_t columns, int64_t stride)
{
    return !fails(lt.MatrixLayoutInit_internal(layout, sizeof *layout, type_of(dtype),
                                               (uint64_t)columns, (uint64_t)rows, stride),
                  "a matrix' layout");
}

static bool set(call *to, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    return !fails(lt.MatmulDescSetAttribute(&to->product, attribute, value, bytes),
                  "a product's attribute");
}

static bool describe(const ech_cuda_product *p, const key *k, bool tf32, call *to)
{
    const bool is_double = p->operands == ECH_F64;
    const int32_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int64_t M = p->M, N = p->N, K = p->K;
    if (fails(lt.MatmulDescInit_internal(&to->product, sizeof to->product,
                                         is_double ? CUBLAS_COMPUTE_64F
                                         : tf32    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                   : CUBLAS_COMPUTE_32F,
                                         is_double ? CUDA_R_64F : CUDA_R_32F),
              "a product's description"))
        return false;
    if (p->bias && (!set(to, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) ||
                    !set(to, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias)))
        return false;
    return set(to, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
           set(to, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
           lay_out(&to->b, p->operands, p->b_transposed ? N : K, p->b_transposed ? K : N,
                   k->b_stride) &&
           lay_out(&to->a, p->operands, p->a_transposed ? K : M, p->a_transposed ? M : K,
                   k->a_stride) &&
           lay_out(&to->add, p->results, M, N, k->add_stride) &&
           lay_out(&to->c, p->results, M, N, k->c_stride);
}

/* ---- choice of an algorithm ---- */

static bool prefer(cublasLtMatmulPreferenceOpaque_t *to, cublasLtMatmulPreferenceAttributes_t what,
                   const void *value, size_t bytes)
{
    return !fails(lt.MatmulPreferenceSetAttribute(to, what, value, bytes), "a preference");
}

static void ask(cublasLtHandle_t handle, const ech_cuda_product *p, const call *of, way *out)
{
    cublasLtMatmulPreferenceOpaque_t to;
    cublasLtMatmulHeuristicResult_t result = {0};
    const uint64_t workspace = ECH_CUDA_WORKSPACE;
    /* Partial sums are added in a fixed order, in the type in which they are computed. */
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t b = alignment_of(p->b), a = alignment_of(p->a), c = alignment_of(p->c);
    const uint32_t add = alignment_of(added(p));
    int n = 0;
    if (fails(lt.MatmulPreferenceInit_internal(&to, sizeof to), "preferences") ||
        !prefer(&to, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace) ||
        !prefer(&to, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme) ||
        !prefer(&to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b) ||
        !prefer(&to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a) ||
        !prefer(&to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &add, sizeof add) ||
        !prefer(&to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c))
        return;
    cublasStatus_t status = lt.MatmulAlgoGetHeuristic(
        handle, (cublasLtMatmulDesc_t)&of->product, (cublasLtMatrixLayout_t)&of->b,
        (cublasLtMatrixLayout_t)&of->a, (cublasLtMatrixLayout_t)&of->add,
        (cublasLtMatrixLayout_t)&of->c, &to, 1, &result, &n);
    /* It reports unsupported products in one of these ways. */
    out->is_there = status == CUBLAS_STATUS_SUCCESS && n == 1 &&
                    result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace;
    out->algorithm = result.algo;
    bool is_no = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (!is_no) (void)fails(status, "the choice of an algorithm");
}

/* The cached entry of a key, or a free one; NULL: the cache is full. */
static way *find(struct gpu *gpu, const key *k)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof *k / sizeof(int64_t); i++)
        hash =
            (hash ^ (uint64_t)((const int64_t *)k)[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
    for (uint64_t i = 0; i < WAYS; i++) {
        way *w = &gpu->way[(hash + i) % WAYS];
        if (!w->is_known || memcmp(&w->key, k, sizeof *k) == 0) return w;
    }
    return NULL;
}

static bool choose(const ech_cuda_product *p, const key *k, const call *of,
                   cublasLtHandle_t *handle, way *out)
{
    *out = (way){.is_there = false};
    pthread_mutex_lock(&lock);
    struct gpu *gpu = gpu_now();
    way *w = gpu ? find(gpu, k) : NULL;
    if (w && w->is_known)
        *out = *w;
    else if (gpu)
        ask(gpu->handle, p, of, out);
    out->key = *k;
    out->is_known = true;
    if (w) *w = *out;
    if (gpu) *handle = gpu->handle;
    pthread_mutex_unlock(&lock);
    return out->is_there;
}

/* A shape that the library should support, and does not. */
static void drop(const key *k)
{
    pthread_mutex_lock(&lock);
    struct gpu *gpu = gpu_now();
    way *w = gpu ? find(gpu, k) : NULL;
    if (w) *w = (way){.key = *k, .is_known = true};
    pthread_mutex_unlock(&lock);
}

bool ECH_CUDA_LIBRARY(multiply)(const ech_kernel_context *context, const ech_cuda_product *p,
                                void *workspace)
{
    const bool tf32 = context->tf32 && p->operands == ECH_F32;
    const key k = key_of(p, tf32);
    const float one = 1, add = p->add ? 1 : 0;
    const double one64 = 1, add64 = p->add ? 1 : 0;
    const bool is_double = p->operands == ECH_F64;
    cudaStream_t stream = NULL;
    cublasLtHandle_t handle = NULL;
    call of;
    way chosen;
#ifndef ECH_EMULATED
    stream = ech_device_cuda_stream(context->queue); /* and its GPU is the thread's */
#endif
    if (!is_open() || !describe(p, &k, tf32, &of) || !choose(p, &k, &of, &handle, &chosen))
        return false;
    cublasStatus_t status =
        lt.Matmul(handle, &of.product, is_double ? (const void *)&one64 : &one, p->b, &of.b, p->a,
                  &of.a, is_double ? (const void *)&add64 : &add, added(p), &of.add, p->c, &of.c,
                  &chosen.algorithm, workspace, ECH_CUDA_WORKSPACE, stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
        drop(&k); /* the heuristic was wrong: nothing was queued */
        return false;
    }
    if (status != CUBLAS_STATUS_SUCCESS && !device_fails(stream, "cublasLtMatmul"))
        (void)fails(status, "cublasLtMatmul");
    return true;
}
