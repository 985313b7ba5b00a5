/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's matmul primitives, created once per shape and cached; their scratchpads come from the
 * caller. A plan has few shapes; if the cache is full nevertheless, it is emptied.
 */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/cpu/library.h"
#include "kernel/cpu/objects.h"
#include "kernel/shape.h"

enum { SCRATCH = ECH_OPERANDS, OPERANDS }; /* the library's operands: the product's, and scratch */
static const int dnnl_names[OPERANDS] = {
    DNNL_ARG_SRC,  DNNL_ARG_WEIGHTS,
    DNNL_ARG_BIAS, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
    DNNL_ARG_DST,  DNNL_ARG_SCRATCHPAD};

typedef struct entry {
    ech_product key;
    dnnl_primitive_t primitive;
    dnnl_memory_t operand[OPERANDS]; /* handles without memory: set at each call */
    size_t scratch_bytes;
} entry;

enum { MAX_ENTRIES = 256, LINE = 64 }; /* LINE: bytes of a cache line */

/* For one OpenMP thread. */
typedef struct library {
    ech_cpu_objects objects; /* the first member: ech_cpu_library_open returns its address */
    int entries;
    entry entry[MAX_ENTRIES];
} library;

typedef struct libraries {
    int threads;
    library of[];
} libraries;

static dnnl_memory_desc_t describe(const ech_product *p, int operand)
{
    const struct {
        int64_t rows, columns, stride;
        bool transposed;
    } shapes[] = {
        [ECH_IN_A] = {p->M, p->K, p->a_stride, p->a_transposed},
        [ECH_IN_B] = {p->K, p->N, p->b_stride, p->b_transposed},
        [ECH_IN_BIAS] = {1, p->N, p->N, false},
        [ECH_IN_ADD] = {p->M, p->N, p->N, false},
        [ECH_OUT_C] = {p->M, p->N, p->c_stride, false},
    };
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {shapes[operand].rows, shapes[operand].columns};
    dnnl_dims_t strides = {shapes[operand].stride, 1}, swapped = {1, shapes[operand].stride};
    dnnl_data_type_t type = p->dtype[operand] == ECH_BF16 ? dnnl_bf16 : dnnl_f32;
    ech_cpu_must(dnnl_memory_desc_init_by_strides(&md, 2, dims, type,
                                                  shapes[operand].transposed ? swapped : strides));
    return md;
}

/* Operations after the product. GELU could be one, but its backward needs its input. */
static dnnl_primitive_attr_t choose_attributes(const ech_product *p)
{
    dnnl_primitive_attr_t attributes;
    ech_cpu_must(dnnl_primitive_attr_create(&attributes));
    ech_cpu_must(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    if (p->add == ECH_ADD_NOTHING) return attributes;
    dnnl_post_ops_t after;
    dnnl_memory_desc_t other = describe(p, ECH_IN_ADD);
    ech_cpu_must(dnnl_post_ops_create(&after));
    if (p->add == ECH_ADD_C)
        ech_cpu_must(dnnl_post_ops_append_sum(after, 1.0F));
    else
        ech_cpu_must(dnnl_post_ops_append_binary(after, dnnl_binary_add, &other));
    ech_cpu_must(dnnl_primitive_attr_set_post_ops(attributes, after));
    ech_cpu_must(dnnl_post_ops_destroy(after));
    return attributes;
}

static bool is_gemm(const_dnnl_primitive_desc_t chosen)
{
    const char *name = "";
    ech_cpu_must(dnnl_primitive_desc_query(chosen, dnnl_query_impl_info_str, 0, &name));
    return strncmp(name, "gemm", 4) == 0;
}

/* The product's implementation for `threads` OpenMP threads: the first of the library's list, which
 * is sorted by preference; for a part the first GEMM, if there is one. */
static dnnl_primitive_desc_t choose(dnnl_engine_t engine, const ech_product *p, int threads)
{
    int before = omp_get_max_threads();
    dnnl_memory_desc_t a = describe(p, ECH_IN_A), b = describe(p, ECH_IN_B);
    dnnl_memory_desc_t c = describe(p, ECH_OUT_C), bias = describe(p, ECH_IN_BIAS);
    dnnl_matmul_desc_t operation;
    ech_cpu_must(dnnl_matmul_desc_init(&operation, &a, &b, p->has_bias ? &bias : NULL, &c));
    dnnl_primitive_attr_t attributes = choose_attributes(p);
    dnnl_primitive_desc_iterator_t every;
    omp_set_num_threads(threads);
    ech_cpu_must(dnnl_primitive_desc_iterator_create(&every, &operation, attributes, engine, NULL));
    dnnl_primitive_desc_t chosen = dnnl_primitive_desc_iterator_fetch(every);
    while (p->part && !is_gemm(chosen) &&
           dnnl_primitive_desc_iterator_next(every) == dnnl_success) {
        ech_cpu_must(dnnl_primitive_desc_destroy(chosen));
        chosen = dnnl_primitive_desc_iterator_fetch(every);
    }
    omp_set_num_threads(before);
    ech_cpu_must(dnnl_primitive_desc_iterator_destroy(every));
    ech_cpu_must(dnnl_primitive_attr_destroy(attributes));
    return chosen;
}

static const dnnl_memory_desc_t *scratch_of(const_dnnl_primitive_desc_t chosen)
{
    return dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
}

static bool takes(const ech_product *p, int operand)
{
    return (operand != ECH_IN_BIAS || p->has_bias) &&
           (operand != ECH_IN_ADD || p->add == ECH_ADD_OTHER);
}

static void make_entry(library *lib, entry *made, const ech_product *key, int threads)
{
    dnnl_primitive_desc_t chosen = choose(lib->objects.engine, key, key->part ? 1 : threads);
    made->key = *key;
    made->scratch_bytes = dnnl_memory_desc_get_size(scratch_of(chosen));
    for (int o = 0; o < OPERANDS; o++) {
        if (!takes(key, o)) continue;
        dnnl_memory_desc_t md = o == SCRATCH ? *scratch_of(chosen) : describe(key, o);
        ech_cpu_must(
            dnnl_memory_create(&made->operand[o], &md, lib->objects.engine, DNNL_MEMORY_NONE));
    }
    ech_cpu_must(dnnl_primitive_create(&made->primitive, chosen));
    ech_cpu_must(dnnl_primitive_desc_destroy(chosen));
}

static void destroy_entries(library *lib)
{
    for (; lib->entries > 0; lib->entries--) {
        entry *made = &lib->entry[lib->entries - 1];
        for (int o = 0; o < OPERANDS; o++) dnnl_memory_destroy(made->operand[o]);
        dnnl_primitive_destroy(made->primitive);
        memset(made, 0, sizeof *made);
    }
}

/* The calling thread's objects. */
static library *open_library(ech_kernel_context *context)
{
#pragma omp critical(ech_open_library)
    if (!context->library) {
        libraries *all = ech_calloc(1, sizeof *all + (size_t)context->threads * sizeof *all->of);
        all->threads = context->threads;
        context->library = all;
    }
    library *lib = &((libraries *)context->library)->of[omp_get_thread_num()];
    if (!lib->objects.engine) {
        ech_cpu_must(dnnl_engine_create(&lib->objects.engine, dnnl_cpu, 0));
        ech_cpu_must(dnnl_stream_create(&lib->objects.stream, lib->objects.engine,
                                        dnnl_stream_default_flags));
    }
    return lib;
}

ech_cpu_objects *ech_cpu_library_open(ech_kernel_context *context)
{
    return &open_library(context)->objects;
}

void ech_cpu_library_destroy(void *opened)
{
    libraries *all = opened;
    for (int t = 0; all && t < all->threads; t++) {
        library *lib = &all->of[t];
        if (!lib->objects.engine) continue;
        destroy_entries(lib);
        ech_cpu_convolutions_destroy(lib->objects.convolutions);
        dnnl_stream_destroy(lib->objects.stream);
        dnnl_engine_destroy(lib->objects.engine);
    }
    free(all);
}

static entry *find_entry(library *lib, const ech_product *key, int threads)
{
    for (int e = 0; e < lib->entries; e++)
        if (memcmp(&lib->entry[e].key, key, sizeof *key) == 0) return &lib->entry[e];
    if (lib->entries == MAX_ENTRIES) destroy_entries(lib);
    make_entry(lib, &lib->entry[lib->entries], key, threads);
    return &lib->entry[lib->entries++];
}

/* The calling thread's share of `threads` equal shares, each of whole cache lines. */
static void *share_scratch(const ech_kernel_context *context, size_t bytes)
{
    size_t share = context->scratch_bytes / (size_t)context->threads / LINE * LINE;
    ECH_ASSERT(bytes <= share);
    return (char *)context->scratch + (size_t)omp_get_thread_num() * share;
}

void ech_cpu_primitive(ech_kernel_context *context, const ech_product *product,
                       void *const operands[ECH_OPERANDS])
{
    library *lib = open_library(context);
    entry *made = find_entry(lib, product, context->threads);
    void *scratch = product->part ? share_scratch(context, made->scratch_bytes)
                                  : ech_scratch(context, made->scratch_bytes);
    dnnl_exec_arg_t arguments[OPERANDS];
    int n = 0;
    for (int o = 0; o < OPERANDS; o++) {
        if (!takes(product, o)) continue;
        ech_cpu_must(
            dnnl_memory_set_data_handle(made->operand[o], o == SCRATCH ? scratch : operands[o]));
        arguments[n++] = (dnnl_exec_arg_t){dnnl_names[o], made->operand[o]};
    }
    ech_cpu_must(dnnl_primitive_execute(made->primitive, lib->objects.stream, n, arguments));
    ech_cpu_must(dnnl_stream_wait(lib->objects.stream));
}

size_t ech_cpu_primitive_scratch(int threads, const ech_product *product)
{
    dnnl_engine_t engine;
    ech_cpu_must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    dnnl_primitive_desc_t chosen = choose(engine, product, product->part ? 1 : threads);
    size_t bytes = dnnl_memory_desc_get_size(scratch_of(chosen));
    ech_cpu_must(dnnl_primitive_desc_destroy(chosen));
    ech_cpu_must(dnnl_engine_destroy(engine));
    if (!product->part) return bytes;
    return (bytes + LINE - 1) / LINE * LINE * (size_t)threads;
}
