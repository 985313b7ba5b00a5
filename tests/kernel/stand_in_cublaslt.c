/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for cuBLASLt, of the functions that kernel/cuda/library.c calls: holds their arguments
 * to the library's rules, and multiplies on the processor, matrices by columns. It refuses some
 * shapes, as the library may. Where a rule is broken the process ends; otherwise it says at the end
 * how much it was asked for.
 */
#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

typedef struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld;
} layout;

typedef struct product {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t transposed[2];
    uint32_t epilogue;
    const void *bias;
} product;

typedef struct preference {
    uint64_t workspace;
    uint32_t scheme, alignment[4];
} preference;

/* What an algorithm was chosen for. */
typedef struct chosen {
    layout matrix[4];
    product of; /* without the address of the bias */
    uint32_t alignment[4];
} chosen;

/* The library has 64 bytes for an algorithm: the number of what it was chosen for. */
enum { MOST = 1 << 16 };
static chosen known[MOST];
static size_t products, algorithms, again, refused, refused_late, in_tf32;
static int the_handle;

static void fail(const char *rule, int line)
{
    fprintf(stderr, "stand-in cuBLASLt: line %d: %s does not hold\n", line, rule);
    abort();
}

__attribute__((destructor)) static void tell(void)
{
    if (products + refused == 0) return;
    printf(
        "stand-in cuBLASLt: %zu products by %zu algorithms, %zu asked for again; %zu refused, %zu "
        "late; %zu in TF32\n",
        products, algorithms, again, refused, refused_late, in_tf32);
}

static const layout *layout_of(const void *opaque)
{
    return opaque;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "none" : "an error";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)&the_handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t to, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld)
{
    layout is;
    memset(&is, 0, sizeof is); /* what is compared has no other padding */
    is.type = type, is.rows = rows, is.columns = columns, is.ld = ld;
    HOLDS(size == sizeof(cublasLtMatrixLayoutOpaque_t) && sizeof is <= size);
    HOLDS(rows > 0 && columns > 0 && ld >= (int64_t)rows);
    memset(to, 0, size);
    memcpy(to, &is, sizeof is);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t to, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    product is;
    memset(&is, 0, sizeof is);
    is.compute = compute, is.scale = scale;
    HOLDS(size == sizeof(cublasLtMatmulDescOpaque_t) && sizeof is <= size);
    memset(to, 0, size);
    memcpy(to, &is, sizeof is);
    return CUBLAS_STATUS_SUCCESS;
}

static void take(void *to, const void *value, size_t bytes, size_t expected)
{
    HOLDS(bytes == expected);
    memcpy(to, value, bytes);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    product *is = (product *)(void *)of;
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
        take(&is->transposed[0], value, bytes, sizeof(int32_t));
    else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
        take(&is->transposed[1], value, bytes, sizeof(int32_t));
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
        take(&is->epilogue, value, bytes, sizeof(uint32_t));
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        take(&is->bias, value, bytes, sizeof(void *));
    else
        HOLDS(attribute == CUBLASLT_MATMUL_DESC_TRANSA);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t to, size_t size)
{
    const preference is = {.alignment = {256, 256, 256, 256}};
    HOLDS(size == sizeof(cublasLtMatmulPreferenceOpaque_t) && sizeof is <= size);
    memset(to, 0, size);
    memcpy(to, &is, sizeof is);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    preference *is = (preference *)(void *)of;
    int which = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        take(&is->workspace, value, bytes, sizeof(uint64_t));
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        take(&is->scheme, value, bytes, sizeof(uint32_t));
    else {
        HOLDS(which >= 0 && which < 4);
        take(&is->alignment[which], value, bytes, sizeof(uint32_t));
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- what a product may be ---- */

static void check(const product *p, const layout *a, const layout *b, const layout *c,
                  const layout *d)
{
    bool is_double = a->type == CUDA_R_64F,
         is_half = a->type == CUDA_R_16BF || a->type == CUDA_R_16F;
    uint64_t m = d->rows, n = d->columns;
    bool at = p->transposed[0] == CUBLAS_OP_T, bt = p->transposed[1] == CUBLAS_OP_T;
    uint64_t k = at ? a->rows : a->columns;
    HOLDS((at ? a->columns : a->rows) == m && (bt ? b->rows : b->columns) == n);
    HOLDS((bt ? b->columns : b->rows) == k && c->rows == m && c->columns == n);
    HOLDS(p->compute == (is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F) ||
          (p->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type == CUDA_R_32F));
    HOLDS(p->scale == (is_double ? CUDA_R_64F : CUDA_R_32F));
    HOLDS(b->type == a->type && c->type == d->type);
    HOLDS(d->type == a->type || (is_half && d->type == CUDA_R_32F));
    HOLDS((p->epilogue == CUBLASLT_EPILOGUE_BIAS) == (p->bias != NULL));
    HOLDS(p->bias || p->epilogue == 0);
}

static chosen chosen_for(const product *p, const layout *a, const layout *b, const layout *c,
                         const layout *d)
{
    chosen is;
    memset(&is, 0, sizeof is);
    const layout *const matrix[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) memcpy(&is.matrix[i], matrix[i], sizeof is.matrix[i]);
    memcpy(&is.of, p, sizeof is.of);
    is.of.bias = p->bias ? &the_handle : NULL;
    return is;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t of,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t prefers, int wanted,
                                              cublasLtMatmulHeuristicResult_t *result, int *n)
{
    const product *p = (const product *)(const void *)of;
    const preference *to = (const preference *)(const void *)prefers;
    chosen is = chosen_for(p, layout_of(a), layout_of(b), layout_of(c), layout_of(d));
    HOLDS(handle == (cublasLtHandle_t)&the_handle && wanted == 1);
    HOLDS(to->scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE); /* in a fixed order */
    HOLDS(to->workspace > 0 && to->workspace % 256 == 0);
    check(p, layout_of(a), layout_of(b), layout_of(c), layout_of(d));
    memcpy(is.alignment, to->alignment, sizeof is.alignment);
    *n = 0;
    if (layout_of(d)->columns % 5 == 3) {
        refused++;
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < algorithms; i++) again += memcmp(&known[i], &is, sizeof is) == 0;
    HOLDS(algorithms < MOST);
    known[algorithms] = is;
    *result = (cublasLtMatmulHeuristicResult_t){.workspaceSize = to->workspace};
    result->algo.data[0] = algorithms++;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- it multiplies ---- */

/* Numbers of 16 bits: so many of the mantissa, and the exponent's bias. */
static double decode(uint16_t bits, int mantissa, int bias)
{
    int exponent = (bits & 0x7fff) >> mantissa, part = bits & ((1 << mantissa) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 2 * bias + 1) return part ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(part, 1 - bias - mantissa);
    return sign * ldexp(part + (1 << mantissa), exponent - bias - mantissa);
}

static uint16_t encode(double x, int mantissa, int bias)
{
    int infinity = (2 * bias + 1) << mantissa, sign = signbit(x) ? 1 << 15 : 0;
    if (isnan(x)) return 0x7fff;
    int exponent = x == 0 || ilogb(x) < 1 - bias ? 1 - bias : ilogb(x);
    if (exponent > bias) return (uint16_t)(sign | infinity);
    int bits = (int)rint(ldexp(fabs(x), mantissa - exponent)) + ((exponent + bias - 1) << mantissa);
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

/* TF32 keeps 10 bits after the point of an fp32 operand. */
static double operand(double x, bool tf32)
{
    int exponent = 0;
    double part = frexp(x, &exponent);
    return tf32 && isfinite(x) ? ldexp(rint(ldexp(part, 11)), exponent - 11) : x;
}

static double number(const void *at, cudaDataType type, int64_t i)
{
    if (type == CUDA_R_64F) return ((const double *)at)[i];
    if (type == CUDA_R_32F) return (double)((const float *)at)[i];
    bool is_bf16 = type == CUDA_R_16BF;
    return decode(((const uint16_t *)at)[i], is_bf16 ? 7 : 10, is_bf16 ? 127 : 15);
}

static void put(void *at, cudaDataType type, int64_t i, double value)
{
    bool is_bf16 = type == CUDA_R_16BF;
    if (type == CUDA_R_64F)
        ((double *)at)[i] = value;
    else if (type == CUDA_R_32F)
        ((float *)at)[i] = (float)value;
    else
        ((uint16_t *)at)[i] = encode(value, is_bf16 ? 7 : 10, is_bf16 ? 127 : 15);
}

static double factor(const void *at, bool is_double)
{
    return is_double ? *(const double *)at : (double)*(const float *)at;
}

static void check_memory(const chosen *is, const void *const *matrix)
{
    for (int i = 0; i < 4; i++) HOLDS((uintptr_t)matrix[i] % is->alignment[i] == 0);
    if (matrix[2] == matrix[3])
        HOLDS(memcmp(&is->matrix[2], &is->matrix[3], sizeof is->matrix[2]) == 0);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t of, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    const product *p = (const product *)(const void *)of;
    const layout *al = layout_of(a_layout), *bl = layout_of(b_layout), *cl = layout_of(c_layout);
    const layout *dl = layout_of(d_layout);
    chosen is = chosen_for(p, al, bl, cl, dl);
    const void *const matrix[] = {a, b, c, d};
    const bool at = p->transposed[0] == CUBLAS_OP_T, bt = p->transposed[1] == CUBLAS_OP_T;
    const bool is_double = al->type == CUDA_R_64F;
    const bool tf32 = p->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const double by = factor(alpha, is_double), keep = factor(beta, is_double);
    HOLDS(handle == (cublasLtHandle_t)&the_handle && !stream && algorithm->data[0] < algorithms);
    memcpy(is.alignment, known[algorithm->data[0]].alignment, sizeof is.alignment);
    HOLDS(memcmp(&known[algorithm->data[0]], &is, sizeof is) == 0); /* chosen for this one */
    HOLDS(by == 1 && (keep == 0 || keep == 1));
    HOLDS((uintptr_t)p->bias % 16 == 0); /* which the library takes for granted */
    check_memory(&is, matrix);
    if (dl->rows % 7 == 5) { /* what the heuristic has offered */
        refused_late++;
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    memset(workspace, 0xff, bytes); /* it is the library's */
    for (int64_t j = 0; j < (int64_t)dl->columns; j++)
        for (int64_t i = 0; i < (int64_t)dl->rows; i++) {
            double sum = 0;
            for (int64_t k = 0, K = (int64_t)(at ? al->rows : al->columns); k < K; k++)
                sum += operand(number(a, al->type, at ? k + i * al->ld : i + k * al->ld), tf32) *
                       operand(number(b, bl->type, bt ? j + k * bl->ld : k + j * bl->ld), tf32);
            if (keep != 0) sum += number(c, cl->type, i + j * cl->ld);
            if (p->bias) sum += number(p->bias, dl->type, i);
            put(d, dl->type, i + j * dl->ld, sum);
        }
    products++;
    in_tf32 += tf32;
    return CUBLAS_STATUS_SUCCESS;
}
