/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by libraries: choosing the implementation by shape.
 */
#include <oneapi/dnnl/dnnl.h>
#include <math.h>
#include <string.h>

#include "kernel/cpu/gemm.h"
#include "kernel/cpu/library.h"
#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

/* Parts are split between columns and rows of whole vectors; shorter sides would pack more than
 * they multiply. */
enum { VECTOR = 16, LEAST_SIDE = 64 };

/* A part of a 16-bit c has an fp32 sum in scratch, so its size is limited. */
enum { MOST_ROWS = 256, MOST_COLUMNS = 1024 };

/* The grid of parts of c: one per thread or, for a 16-bit c, several. */
typedef struct grid {
    int rows, columns;
} grid;

static bool is_half(const ech_product *p, int operand)
{
    return p->dtype[operand] != ECH_F32;
}

/* The grid with which threads read least: each packs its part's rows of a and columns of b. */
static grid split(const ech_product *p, int threads)
{
    grid best = {threads, 1};
    double least = INFINITY;
    for (int rows = 1; rows <= threads; rows++) {
        double reads = (double)p->M / rows + (double)p->N / (threads / rows);
        if (threads % rows || reads >= least) continue;
        best = (grid){rows, threads / rows};
        least = reads;
    }
    if (!is_half(p, ECH_OUT_C)) return best;
    while (p->M / best.rows > MOST_ROWS) best.rows *= 2;
    while (p->N / best.columns > MOST_COLUMNS) best.columns *= 2;
    return best;
}

static ech_gemm gemm_of(const ech_product *p)
{
    return (ech_gemm){.M = p->M,
                      .N = p->N,
                      .K = p->K,
                      .a_stride = p->a_stride,
                      .b_stride = p->b_stride,
                      .c_stride = p->c_stride,
                      .a_transposed = p->a_transposed,
                      .b_transposed = p->b_transposed,
                      .add = p->add == ECH_ADD_C};
}

/* True if c is made in parts, each by one thread with a library's GEMM (for fp32 ech_cpu_gemm);
 * false if the matmul primitive makes all of it. It depends on shapes, threads and the instruction
 * set alone, so that the same product has the same bits everywhere. In parts, since the GEMM's own
 * threads pack together and wait for each other.
 *
 * GFLOP/s of fp32 on two Zen 4 cores of 235 at their peak, with operands that are not in the cache,
 * 384 to 3072 wide, 1024 and 2048 rows; V = 50,257 is a head's width:
 *
 *                         primitive   sgemm     in parts
 *     dW = x^T dy         200-218     201-227   206-227
 *     dx = dy W           217-225     223-228   224-228
 *     dx of a head, V     190-200     227       228
 *     dW of a head, V     170-180     211-215   220
 *     y = x W + bias      215-222     -         -          the bias takes another pass
 *     b transposed        205-220     162-223   203-220
 *
 * bf16 (c too, except where it says fp32) on a Zen 5 core of 470 by processor time, two threads,
 * 512 to 3072 wide:
 *
 *                         primitive   GEMM      in parts
 *     dW = x^T dy         315-413     346-433   374-417
 *     dW in fp32          324-386     393-436   409-428
 *     dW += in fp32       314-356     372-418   376-411
 *     dx = dy W           388-440     403-428   402-424
 *     dx +=               352-392     401-435   392-423
 *     dx of a head, V     363         395       395
 *     dx, with gaps       none        388       374
 *     dW of a head, +=    238         352       380
 *     y = x W             408-455     387-440   382-429
 */
static bool in_parts(const ech_product *p, int threads, bool dense)
{
    bool plain = p->a_transposed || !p->b_transposed;
    if (is_half(p, ECH_IN_A))
        plain = (p->a_transposed || p->add == ECH_ADD_C || !dense) && p->add != ECH_ADD_OTHER;
    grid g = split(p, threads);
    if (!plain || p->K < LEAST_SIDE || p->M / g.rows < LEAST_SIDE || p->N / g.columns < LEAST_SIDE)
        return false;
    const ech_gemm whole = gemm_of(p);
    return !p->has_bias || (!is_half(p, ECH_IN_A) && ech_cpu_gemm_is_blas(&whole));
}

/* Where part `i` of n of `length` begins. */
static int64_t part_begin(int64_t length, int i, int n)
{
    return i == n ? length : length * i / n / VECTOR * VECTOR;
}

/* The length of the longest of n parts, or a little more. */
static int64_t part_most(int64_t length, int n)
{
    return n == 1 ? length : length / n + VECTOR;
}

static void *element(const ech_product *p, void *const at[ECH_OPERANDS], int operand, int64_t i)
{
    return (char *)at[operand] + (size_t)i * ech_dtype_bytes((ech_dtype)p->dtype[operand]);
}

static void multiply_part(ech_kernel_context *context, const ech_product *p,
                          void *const at[ECH_OPERANDS], grid g, int part)
{
    int row = part / g.columns, column = part % g.columns;
    int64_t m = part_begin(p->M, row, g.rows), n = part_begin(p->N, column, g.columns);
    ech_product own = *p;
    own.M = part_begin(p->M, row + 1, g.rows) - m;
    own.N = part_begin(p->N, column + 1, g.columns) - n;
    own.part = true;
    void *a = element(p, at, ECH_IN_A, p->a_transposed ? m : m * p->a_stride);
    void *b = element(p, at, ECH_IN_B, p->b_transposed ? n * p->b_stride : n);
    void *c = element(p, at, ECH_OUT_C, m * p->c_stride + n);
    if (is_half(p, ECH_IN_A)) {
        ech_cpu_primitive(context, &own, (void *const[ECH_OPERANDS]){a, b, NULL, c, c});
        return;
    }
    const ech_gemm floats = gemm_of(&own);
    ech_cpu_gemm(&floats, a, b, c);
}

/* Inside a parallel region the libraries use only the calling thread. */
static void multiply_parts(ech_kernel_context *context, const ech_product *p,
                           void *const at[ECH_OPERANDS])
{
    grid g = split(p, context->threads);
#pragma omp parallel for num_threads(context->threads) schedule(static)
    for (int part = 0; part < g.rows * g.columns; part++) multiply_part(context, p, at, g, part);
}

/* The scratch of the product or, if it is computed in parts, of their largest. */
static size_t product_scratch(const ech_product *p, int threads, bool dense)
{
    if (!in_parts(p, threads, dense)) return dense ? ech_cpu_primitive_scratch(threads, p) : 0;
    if (!is_half(p, ECH_OUT_C)) return 0; /* a GEMM that sums in c itself needs none */
    grid g = split(p, threads);
    ech_product part = *p;
    part.part = true;
    part.M = part_most(p->M, g.rows);
    part.N = part_most(p->N, g.columns);
    return ech_cpu_primitive_scratch(threads, &part);
}

/* A matrix of one row may have any stride; oneDNN is fastest if it equals the width. */
static int64_t row_stride(const ech_tensor *x)
{
    return x->shape[0] > 1 ? x->stride[0] : x->shape[1];
}

static void add_bias(const ech_kernel_context *context, const ech_tensor *bias, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1];
    const float *more = bias->data;
#pragma omp parallel for num_threads(context->threads) if (M * N > ECH_CHUNK)
    for (int64_t m = 0; m < M; m++) {
        float *row = (float *)c->data + m * c->stride[0];
#pragma omp simd
        for (int64_t n = 0; n < N; n++) row[n] += more[n];
    }
}

/* c = add, or 0. */
static void begin(const ech_kernel_context *context, const ech_tensor *add, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1];
    size_t bytes = (size_t)N * sizeof(float);
    if (add && add->data == c->data) return;
#pragma omp parallel for num_threads(context->threads) if (M * N > ECH_CHUNK)
    for (int64_t m = 0; m < M; m++) {
        float *row = (float *)c->data + m * c->stride[0];
        if (add)
            memcpy(row, (const float *)add->data + m * add->stride[0], bytes);
        else
            memset(row, 0, bytes);
    }
}

/* A row or column without gaps may be described as transposed or not. The cache of oneDNN 2.6 takes
 * the two for the same product, although their scratchpads can differ; so only one is used. x is
 * rows x columns after the transposition. */
static void describe_vector(int64_t rows, int64_t columns, int64_t *transposed, int64_t *stride)
{
    bool dense = *stride == (*transposed ? rows : columns);
    if (!dense || (rows > 1 && columns > 1)) return;
    *transposed = 0;
    *stride = columns;
}

static ech_product describe(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                            bool b_transposed, const ech_tensor *add, const ech_tensor *c)
{
    ech_product p = {.dtype = {a->dtype, b->dtype, ECH_F32, add ? add->dtype : ECH_F32, c->dtype},
                     .M = c->shape[0],
                     .N = c->shape[1],
                     .K = a->shape[a_transposed ? 0 : 1],
                     .a_stride = row_stride(a),
                     .b_stride = row_stride(b),
                     .c_stride = row_stride(c),
                     .a_transposed = a_transposed,
                     .b_transposed = b_transposed};
    describe_vector(p.M, p.K, &p.a_transposed, &p.a_stride);
    describe_vector(p.K, p.N, &p.b_transposed, &p.b_stride);
    if (add) p.add = add->data == c->data ? ECH_ADD_C : ECH_ADD_OTHER;
    return p;
}

/* True if rows have no gaps. */
static bool is_dense(const ech_product *p, const ech_tensor *add)
{
    return p->a_stride == (p->a_transposed ? p->M : p->K) &&
           p->b_stride == (p->b_transposed ? p->K : p->N) && p->c_stride == p->N &&
           (!add || row_stride(add) == p->N);
}

void ech_cpu_library_matmul(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                            const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                            const ech_tensor *add, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    const ech_tensor op_a = ech_shape_transposed(a, a_transposed);
    const ech_tensor op_b = ech_shape_transposed(b, b_transposed);
    ECH_SHAPES(matmul, ECH_F32, &op_a, &op_b, bias, add, c);
    if (M == 0 || N == 0) return;
    ech_product p = describe(a, a_transposed, b, b_transposed, add, c);
    /* oneDNN's version for strided rows copies c if it adds anything but c itself. */
    bool dense = is_dense(&p, add);
    p.has_bias = bias && dense && K > 0;
    bool parts = in_parts(&p, context->threads, dense);
    if (parts) p.has_bias = false;
    if (K == 0 || (p.add == ECH_ADD_OTHER && (parts || !dense))) {
        begin(context, add, c);
        p.add = ECH_ADD_C;
    }
    void *const at[ECH_OPERANDS] = {a->data, b->data, bias ? bias->data : NULL,
                                    add ? add->data : NULL, c->data};
    if (parts)
        multiply_parts(context, &p, at);
    else if (K > 0)
        ech_cpu_primitive(context, &p, at);
    if (bias && !p.has_bias) add_bias(context, bias, c);
}

/* dims: M, N, K, a_transposed, b_transposed, has_bias, has_add. Dense matrices need most: for
 * spaced rows oneDNN chooses an implementation without a scratchpad. */
size_t ech_cpu_library_scratch_matmul(ech_dtype dtype, int threads, const int64_t *dims)
{
    int64_t M = dims[0], N = dims[1], K = dims[2];
    if (M == 0 || N == 0 || K == 0) return 0;
    const ech_tensor a = ech_tensor_2d(NULL, dtype, dims[3] ? K : M, dims[3] ? M : K);
    const ech_tensor b = ech_tensor_2d(NULL, dtype, dims[4] ? N : K, dims[4] ? K : N);
    const ech_tensor c = ech_tensor_2d(NULL, dtype, M, N);
    ech_product p = describe(&a, dims[3], &b, dims[4], NULL, &c);
    p.has_bias = dims[5];
    p.add = dims[6] ? ECH_ADD_C : ECH_ADD_NOTHING;
    size_t bytes = product_scratch(&p, threads, true), other = 0;
    if (dims[6]) {
        p.add = ECH_ADD_OTHER;
        other = product_scratch(&p, threads, true);
    }
    return other > bytes ? other : bytes;
}

bool ech_cpu_library_multiplies(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                                const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                                const ech_tensor *add, const ech_tensor *c)
{
    ech_product p = describe(a, a_transposed, b, b_transposed, add, c);
    bool dense = is_dense(&p, add);
    p.has_bias = bias != NULL;
    bool parts = in_parts(&p, context->threads, dense);
    if (p.K == 0 || (!dense && !parts)) return false;
    void *const at[ECH_OPERANDS] = {a->data, b->data, bias ? bias->data : NULL,
                                    add ? add->data : NULL, c->data};
    if (parts)
        multiply_parts(context, &p, at);
    else
        ech_cpu_primitive(context, &p, at);
    return true;
}

size_t ech_cpu_library_scratch(ech_dtype dtype, int threads, const int64_t *dims)
{
    int64_t M = dims[0], N = dims[1], K = dims[2];
    if (M == 0 || N == 0 || K == 0) return 0;
    const ech_dtype types[] = {dtype, ECH_F32};
    const ech_tensor a = ech_tensor_2d(NULL, dtype, dims[3] ? K : M, dims[3] ? M : K);
    const ech_tensor b = ech_tensor_2d(NULL, dtype, dims[4] ? N : K, dims[4] ? K : N);
    size_t most = 0;
    /* c's type; added: c, or another's type; rows dense, or c sums of rows with gaps */
    for (int way = 0; way < (dims[6] ? 6 : 3); way++) {
        const ech_tensor c = ech_tensor_2d(NULL, types[way % 2], M, N);
        ech_product p = describe(&a, dims[3], &b, dims[4], NULL, &c);
        p.has_bias = dims[5];
        p.add = !dims[6] ? ECH_ADD_NOTHING : way < 2 ? ECH_ADD_C : ECH_ADD_OTHER;
        p.dtype[ECH_IN_ADD] = way < 2 ? p.dtype[ECH_OUT_C] : types[way / 4];
        size_t bytes = product_scratch(&p, threads, dims[6] || way < 2);
        if (bytes > most) most = bytes;
    }
    return most;
}

void ech_cpu_library_product(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                             bool b_transposed, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    dnnl_status_t status = dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', M, N, K,
                                      1, a->data, a->shape[1], b->data, b->shape[1], 0, c->data, N);
    ECH_ASSERT(status == dnnl_success);
}
