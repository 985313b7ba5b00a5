/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product by oneDNN's matmul primitive. Primitives are made once a shape and kept; their
 * scratchpads come from the caller. Shapes are fixed per list of steps, so the cache stays small;
 * should it fill up nevertheless, the oldest product makes room.
 */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/cpu/library.h"
#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

/* What makes a product another one; strides are those between rows in memory. */
typedef struct product {
    int64_t M, N, K, a_stride, b_stride, c_stride;
    int64_t a_transposed, b_transposed, has_bias, accumulate;
} product;

enum { A, B, BIAS, C, SCRATCH, OPERANDS };
static const int dnnl_names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                         DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};

typedef struct entry {
    product key;
    dnnl_primitive_t primitive;
    dnnl_memory_t operand[OPERANDS]; /* handles without memory: set at each call */
    size_t scratch_bytes;
} entry;

enum { MAX_ENTRIES = 256, SCRATCH_ALIGN = 64 };

typedef struct library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int entries, oldest;
    entry entry[MAX_ENTRIES];
} library;

/* oneDNN fails here only on wrong arguments or without memory for small structures. */
static void must(dnnl_status_t status)
{
    ECH_ASSERT(status == dnnl_success);
}

static dnnl_memory_desc_t describe(int64_t rows, int64_t columns, int64_t stride, bool transposed)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {rows, columns}, strides = {stride, 1}, swapped = {1, stride};
    must(dnnl_memory_desc_init_by_strides(&md, 2, dims, dnnl_f32, transposed ? swapped : strides));
    return md;
}

/* The product's implementation, chosen for the calling thread's OpenMP threads. */
static dnnl_primitive_desc_t choose(dnnl_engine_t engine, const product *p)
{
    dnnl_memory_desc_t a = describe(p->M, p->K, p->a_stride, p->a_transposed);
    dnnl_memory_desc_t b = describe(p->K, p->N, p->b_stride, p->b_transposed);
    dnnl_memory_desc_t c = describe(p->M, p->N, p->c_stride, false);
    dnnl_memory_desc_t bias = describe(1, p->N, p->N, false);
    dnnl_matmul_desc_t operation;
    must(dnnl_matmul_desc_init(&operation, &a, &b, p->has_bias ? &bias : NULL, &c));
    dnnl_primitive_attr_t attributes;
    must(dnnl_primitive_attr_create(&attributes));
    must(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    if (p->accumulate) {
        dnnl_post_ops_t after;
        must(dnnl_post_ops_create(&after));
        must(dnnl_post_ops_append_sum(after, 1.0F));
        must(dnnl_primitive_attr_set_post_ops(attributes, after));
        must(dnnl_post_ops_destroy(after));
    }
    dnnl_primitive_desc_t chosen;
    must(dnnl_primitive_desc_create(&chosen, &operation, attributes, engine, NULL));
    must(dnnl_primitive_attr_destroy(attributes));
    return chosen;
}

static size_t scratch_of(const_dnnl_primitive_desc_t chosen)
{
    return dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0));
}

static void make_entry(library *lib, entry *made, const product *key)
{
    static const dnnl_query_t query[OPERANDS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                 dnnl_query_weights_md, dnnl_query_dst_md,
                                                 dnnl_query_scratchpad_md};
    dnnl_primitive_desc_t chosen = choose(lib->engine, key);
    made->key = *key;
    made->scratch_bytes = scratch_of(chosen);
    for (int o = 0; o < OPERANDS; o++)
        must(dnnl_memory_create(&made->operand[o],
                                dnnl_primitive_desc_query_md(chosen, query[o], o == BIAS),
                                lib->engine, DNNL_MEMORY_NONE));
    must(dnnl_primitive_create(&made->primitive, chosen));
    must(dnnl_primitive_desc_destroy(chosen));
}

static void destroy_entry(entry *made)
{
    for (int o = 0; o < OPERANDS; o++) dnnl_memory_destroy(made->operand[o]);
    dnnl_primitive_destroy(made->primitive);
}

static library *open_library(ech_kernel_context *context)
{
    if (!context->library) {
        library *lib = ech_calloc(1, sizeof *lib);
        must(dnnl_engine_create(&lib->engine, dnnl_cpu, 0));
        must(dnnl_stream_create(&lib->stream, lib->engine, dnnl_stream_default_flags));
        context->library = lib;
    }
    return context->library;
}

void ech_cpu_library_destroy(void *opened)
{
    library *lib = opened;
    if (!lib) return;
    for (int e = 0; e < lib->entries; e++) destroy_entry(&lib->entry[e]);
    dnnl_stream_destroy(lib->stream);
    dnnl_engine_destroy(lib->engine);
    free(lib);
}

static entry *find_entry(library *lib, const product *key)
{
    for (int e = 0; e < lib->entries; e++)
        if (memcmp(&lib->entry[e].key, key, sizeof *key) == 0) return &lib->entry[e];
    entry *made;
    if (lib->entries < MAX_ENTRIES) {
        made = &lib->entry[lib->entries++];
    } else {
        made = &lib->entry[lib->oldest];
        lib->oldest = (lib->oldest + 1) % MAX_ENTRIES;
        destroy_entry(made);
    }
    make_entry(lib, made, key);
    return made;
}

/* A matrix of one row may carry any stride; its width is the one that oneDNN knows best. */
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

static void clear(const ech_tensor *c)
{
    for (int64_t m = 0; m < c->shape[0]; m++)
        memset((float *)c->data + m * c->stride[0], 0, (size_t)c->shape[1] * sizeof(float));
}

static void multiply(ech_kernel_context *context, const product *key, void *const data[SCRATCH])
{
    library *lib = open_library(context);
    entry *made = find_entry(lib, key);
    dnnl_exec_arg_t arguments[OPERANDS];
    int n = 0;
    for (int o = 0; o < OPERANDS; o++) {
        if (o == BIAS && !key->has_bias) continue;
        void *memory = o == SCRATCH ? ech_scratch(context, made->scratch_bytes) : data[o];
        must(dnnl_memory_set_data_handle(made->operand[o], memory));
        arguments[n++] = (dnnl_exec_arg_t){dnnl_names[o], made->operand[o]};
    }
    must(dnnl_primitive_execute(made->primitive, lib->stream, n, arguments));
    must(dnnl_stream_wait(lib->stream));
}

void ech_cpu_matmul(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                    const ech_tensor *b, bool b_transposed, const ech_tensor *bias, bool accumulate,
                    const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    ECH_SHAPE_STRIDED(a, ECH_F32, a_transposed ? K : M, a_transposed ? M : K);
    ECH_SHAPE_STRIDED(b, ECH_F32, b_transposed ? N : K, b_transposed ? K : N);
    ECH_SHAPE_STRIDED(c, ECH_F32, M, N);
    ECH_SHAPE_OPTIONAL(bias, ECH_F32, N);
    if (M == 0 || N == 0) return;
    product key = {
        M, N,         K, row_stride(a), row_stride(b), row_stride(c), a_transposed, b_transposed,
        0, accumulate};
    /* oneDNN's version for spaced rows keeps a copy of c where it adds a bias itself. */
    key.has_bias = bias && key.a_stride == a->shape[1] && key.b_stride == b->shape[1] &&
                   key.c_stride == N && K > 0;
    void *data[SCRATCH] = {
        [A] = a->data, [B] = b->data, [BIAS] = bias ? bias->data : NULL, [C] = c->data};
    if (K > 0)
        multiply(context, &key, data);
    else if (!accumulate)
        clear(c);
    if (bias && !key.has_bias) add_bias(context, bias, c);
}

/* dims: M, N, K, a_transposed, b_transposed, has_bias, accumulate. Dense matrices need most: for
 * spaced rows oneDNN takes an implementation without a scratchpad. */
size_t ech_cpu_scratch_matmul(ech_dtype dtype, int threads, const int64_t *dims)
{
    (void)dtype;
    int64_t M = dims[0], N = dims[1], K = dims[2];
    if (M == 0 || N == 0 || K == 0) return 0;
    product key = {M, N,       K,       dims[3] ? M : K, dims[4] ? K : N,
                   N, dims[3], dims[4], dims[5],         dims[6]};
    int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    dnnl_engine_t engine;
    must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    dnnl_primitive_desc_t chosen = choose(engine, &key);
    size_t bytes = scratch_of(chosen);
    must(dnnl_primitive_desc_destroy(chosen));
    must(dnnl_engine_destroy(engine));
    omp_set_num_threads(before);
    return bytes;
}
