/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions on channels-last images: of small ones by products of pixels, some gradients of
 * weights by strips of larger ones, and all others by oneDNN. Its primitives want weights in an
 * order of their own. So a call first copies the weights to scratch in that order; the gradient of
 * the weights is made there, and then copied or added to its tensor. Primitives are created once
 * per shape and cached. A model has few shapes; if the cache is full nevertheless, it is emptied.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/cpu/conv2d.h"
#include "kernel/cpu/library.h"
#include "kernel/cpu/objects.h"
#include "kernel/cpu/rows.h"
#include "kernel/filter.h"
#include "kernel/shape.h"

enum {
    X = ECH_CONV2D_X,
    WEIGHT = ECH_CONV2D_WEIGHT,
    BIAS = ECH_CONV2D_BIAS,
    Y = ECH_CONV2D_Y,
    SCRATCH = ECH_CONV2D_OPERANDS,
    OPERANDS
};
enum { MAX_ENTRIES = 128, LINE = 64 };

/* Bytes of the parts of scratch, in this order: the weights as the library orders them, and the
 * library's own for the convolution and for the copy. */
typedef struct parts {
    size_t packed, library, copy;
} parts;

typedef struct entry {
    ech_conv2d key;
    dnnl_primitive_t primitive, copy; /* copy: NULL where both orders of the weights are the same */
    dnnl_memory_t operand[OPERANDS], plain; /* handles without memory: set at each call */
    dnnl_memory_t copy_scratch;
    parts scratch;
} entry;

struct ech_cpu_convolutions {
    int entries;
    entry entry[MAX_ENTRIES];
};

static const int names[3][OPERANDS] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD}};

/* ---- descriptions ---- */

static dnnl_memory_desc_t describe(int dims, const dnnl_dims_t sizes, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    ech_cpu_must(dnnl_memory_desc_init_by_tag(&md, dims, sizes, dnnl_f32, tag));
    return md;
}

/* The weights as a tensor has them. */
static dnnl_memory_desc_t describe_plain(const ech_conv2d *of)
{
    const dnnl_dims_t sizes = {of->O, of->C, of->at.size[0], of->at.size[1]};
    return describe(4, sizes, dnnl_oihw);
}

static dnnl_primitive_attr_t make_attributes(bool adds)
{
    dnnl_primitive_attr_t attributes;
    ech_cpu_must(dnnl_primitive_attr_create(&attributes));
    ech_cpu_must(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    if (!adds) return attributes;
    dnnl_post_ops_t after;
    ech_cpu_must(dnnl_post_ops_create(&after));
    ech_cpu_must(dnnl_post_ops_append_sum(after, 1.0F));
    ech_cpu_must(dnnl_primitive_attr_set_post_ops(attributes, after));
    ech_cpu_must(dnnl_post_ops_destroy(after));
    return attributes;
}

/* jit_1x1 with a stride writes beyond its scratch, and gives a wrong gradient of the weights, if a
 * pixel has fewer channels than a vector has numbers: uxlfoundation/oneDNN, issue 6035. */
static bool breaks_library(const ech_conv2d *of)
{
    enum { WIDEST = 16 };
    const ech_filter *at = &of->at;
    return of->phase == ECH_CONV2D_BACKWARD_WEIGHT && at->size[0] == 1 && at->size[1] == 1 &&
           (at->stride[0] > 1 || at->stride[1] > 1) && of->C < WIDEST;
}

/* The library's first implementation but jit_1x1. */
static dnnl_primitive_desc_t choose_other(dnnl_engine_t engine, const dnnl_convolution_desc_t *of,
                                          const_dnnl_primitive_attr_t attributes,
                                          const_dnnl_primitive_desc_t forward)
{
    static const char avoided[] = "jit_1x1";
    dnnl_primitive_desc_iterator_t all;
    const char *name;
    ech_cpu_must(dnnl_primitive_desc_iterator_create(&all, of, attributes, engine, forward));
    for (;;) {
        dnnl_primitive_desc_t chosen = dnnl_primitive_desc_iterator_fetch(all);
        ech_cpu_must(dnnl_primitive_desc_query(chosen, dnnl_query_impl_info_str, 0, (void *)&name));
        if (strncmp(name, avoided, strlen(avoided)) != 0) {
            ech_cpu_must(dnnl_primitive_desc_iterator_destroy(all));
            return chosen;
        }
        ech_cpu_must(dnnl_primitive_desc_destroy(chosen));
        ech_cpu_must(dnnl_primitive_desc_iterator_next(all));
    }
}

/* The library's choice among its implementations, whose backwards need the forward's. */
static dnnl_primitive_desc_t choose(dnnl_engine_t engine, const ech_conv2d *of)
{
    const ech_filter *at = &of->at;
    const dnnl_dims_t xs = {of->B, of->C, of->H, of->W}, ys = {of->B, of->O, of->P, of->Q};
    const dnnl_dims_t ws = {of->O, of->C, at->size[0], at->size[1]}, bs = {of->O};
    const dnnl_dims_t stride = {at->stride[0], at->stride[1]};
    const dnnl_dims_t before = {at->padding[0], at->padding[1]};
    const dnnl_dims_t after = {(of->P - 1) * stride[0] + at->size[0] - of->H - before[0],
                               (of->Q - 1) * stride[1] + at->size[1] - of->W - before[1]};
    dnnl_memory_desc_t x = describe(4, xs, dnnl_nhwc), y = describe(4, ys, dnnl_nhwc);
    dnnl_memory_desc_t w = describe(4, ws, dnnl_format_tag_any), b = describe(1, bs, dnnl_a);
    dnnl_primitive_attr_t attributes = make_attributes(false);
    dnnl_convolution_desc_t forward, backward;
    dnnl_primitive_desc_t first, chosen;
    ech_cpu_must(dnnl_convolution_forward_desc_init(
        &forward, dnnl_forward_training, dnnl_convolution_direct, &x, &w, of->has_bias ? &b : NULL,
        &y, stride, before, after));
    ech_cpu_must(dnnl_primitive_desc_create(&first, &forward, attributes, engine, NULL));
    chosen = first;
    if (of->phase == ECH_CONV2D_BACKWARD_INPUT)
        ech_cpu_must(dnnl_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct,
                                                              &x, &w, &y, stride, before, after));
    if (of->phase == ECH_CONV2D_BACKWARD_WEIGHT)
        ech_cpu_must(dnnl_convolution_backward_weights_desc_init(
            &backward, dnnl_convolution_direct, &x, &w, NULL, &y, stride, before, after));
    if (breaks_library(of))
        chosen = choose_other(engine, &backward, attributes, first);
    else if (of->phase != ECH_CONV2D_FORWARD)
        ech_cpu_must(dnnl_primitive_desc_create(&chosen, &backward, attributes, engine, first));
    if (of->phase != ECH_CONV2D_FORWARD) ech_cpu_must(dnnl_primitive_desc_destroy(first));
    ech_cpu_must(dnnl_primitive_attr_destroy(attributes));
    return chosen;
}

static const dnnl_memory_desc_t *scratch_of(const_dnnl_primitive_desc_t chosen)
{
    return dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
}

static const dnnl_memory_desc_t *packed_of(const ech_conv2d *of, const_dnnl_primitive_desc_t chosen)
{
    bool back = of->phase == ECH_CONV2D_BACKWARD_WEIGHT;
    return dnnl_primitive_desc_query_md(
        chosen, back ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

/* The copy of the weights from the tensor's order, or of their gradient into it. NULL: the orders
 * are the same, and nothing is added. */
static dnnl_primitive_desc_t choose_copy(dnnl_engine_t engine, const ech_conv2d *of,
                                         const_dnnl_primitive_desc_t chosen)
{
    dnnl_memory_desc_t plain = describe_plain(of);
    const dnnl_memory_desc_t *packed = packed_of(of, chosen);
    bool back = of->phase == ECH_CONV2D_BACKWARD_WEIGHT;
    if (!of->adds && dnnl_memory_desc_equal(&plain, packed)) return NULL;
    dnnl_primitive_attr_t attributes = make_attributes(of->adds);
    dnnl_primitive_desc_t copy;
    ech_cpu_must(dnnl_reorder_primitive_desc_create(&copy, back ? packed : &plain, engine,
                                                    back ? &plain : packed, engine, attributes));
    ech_cpu_must(dnnl_primitive_attr_destroy(attributes));
    return copy;
}

static size_t round_up(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* ---- cached primitives ---- */

static dnnl_memory_t wrap(dnnl_engine_t engine, const dnnl_memory_desc_t *md)
{
    dnnl_memory_t made;
    ech_cpu_must(dnnl_memory_create(&made, md, engine, DNNL_MEMORY_NONE));
    return made;
}

static const dnnl_memory_desc_t *operand_of(const ech_conv2d *of,
                                            const_dnnl_primitive_desc_t chosen, int operand)
{
    static const dnnl_query_t x[] = {dnnl_query_src_md, dnnl_query_diff_src_md, dnnl_query_src_md};
    static const dnnl_query_t y[] = {dnnl_query_dst_md, dnnl_query_diff_dst_md,
                                     dnnl_query_diff_dst_md};
    if (operand == WEIGHT) return packed_of(of, chosen);
    if (operand == SCRATCH) return scratch_of(chosen);
    if (operand == BIAS) return dnnl_primitive_desc_query_md(chosen, dnnl_query_weights_md, 1);
    return dnnl_primitive_desc_query_md(chosen, operand == X ? x[of->phase] : y[of->phase], 0);
}

/* The primitives of a convolution, for `threads` OpenMP threads. Returns its parts of scratch. */
static parts choose_both(dnnl_engine_t engine, const ech_conv2d *of, int threads,
                         dnnl_primitive_desc_t *chosen, dnnl_primitive_desc_t *copy)
{
    int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    *chosen = choose(engine, of);
    *copy = choose_copy(engine, of, *chosen);
    omp_set_num_threads(before);
    parts needed = {.library = round_up(dnnl_memory_desc_get_size(scratch_of(*chosen)))};
    if (!*copy) return needed;
    needed.packed = round_up(dnnl_memory_desc_get_size(packed_of(of, *chosen)));
    needed.copy = dnnl_memory_desc_get_size(scratch_of(*copy));
    return needed;
}

static void make_entry(dnnl_engine_t engine, const ech_conv2d *key, int threads, entry *made)
{
    dnnl_primitive_desc_t chosen, copy;
    dnnl_memory_desc_t plain = describe_plain(key);
    made->key = *key;
    made->scratch = choose_both(engine, key, threads, &chosen, &copy);
    made->plain = wrap(engine, &plain);
    for (int o = 0; o < OPERANDS; o++)
        if (o != BIAS || key->has_bias) made->operand[o] = wrap(engine, operand_of(key, chosen, o));
    ech_cpu_must(dnnl_primitive_create(&made->primitive, chosen));
    ech_cpu_must(dnnl_primitive_desc_destroy(chosen));
    if (!copy) return;
    made->copy_scratch = wrap(engine, scratch_of(copy));
    ech_cpu_must(dnnl_primitive_create(&made->copy, copy));
    ech_cpu_must(dnnl_primitive_desc_destroy(copy));
}

static void destroy_entry(entry *made)
{
    for (int o = 0; o < OPERANDS; o++) dnnl_memory_destroy(made->operand[o]);
    dnnl_memory_destroy(made->plain);
    dnnl_memory_destroy(made->copy_scratch);
    if (made->copy) dnnl_primitive_destroy(made->copy);
    dnnl_primitive_destroy(made->primitive);
    memset(made, 0, sizeof *made);
}

static void destroy_entries(ech_cpu_convolutions *all)
{
    for (; all->entries > 0; all->entries--) destroy_entry(&all->entry[all->entries - 1]);
}

void ech_cpu_convolutions_destroy(ech_cpu_convolutions *convolutions)
{
    if (convolutions) destroy_entries(convolutions);
    free(convolutions);
}

static entry *find_entry(ech_cpu_objects *objects, const ech_conv2d *key, int threads)
{
    if (!objects->convolutions)
        objects->convolutions = ech_calloc(1, sizeof *objects->convolutions);
    ech_cpu_convolutions *all = objects->convolutions;
    for (int e = 0; e < all->entries; e++)
        if (memcmp(&all->entry[e].key, key, sizeof *key) == 0) return &all->entry[e];
    if (all->entries == MAX_ENTRIES) destroy_entries(all);
    make_entry(objects->engine, key, threads, &all->entry[all->entries]);
    return &all->entry[all->entries++];
}

/* ---- calls ---- */

static void set(dnnl_memory_t memory, void *at)
{
    ech_cpu_must(dnnl_memory_set_data_handle(memory, at));
}

static void copy_weights(const ech_cpu_objects *objects, const entry *made)
{
    bool back = made->key.phase == ECH_CONV2D_BACKWARD_WEIGHT;
    dnnl_memory_t packed = made->operand[WEIGHT], plain = made->plain;
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, back ? packed : plain},
                                         {DNNL_ARG_TO, back ? plain : packed},
                                         {DNNL_ARG_SCRATCHPAD, made->copy_scratch}};
    ech_cpu_must(dnnl_primitive_execute(made->copy, objects->stream, 3, arguments));
    ech_cpu_must(dnnl_stream_wait(objects->stream));
}

static size_t sum_of(const parts *needed)
{
    return needed->packed + needed->library + needed->copy;
}

/* The other ways, which were measured with AVX2 alone. NULL: the library computes. */
typedef struct way {
    bool (*is)(const ech_conv2d *of);
    void (*run)(ech_kernel_context *context, const ech_conv2d *of,
                void *const operands[ECH_CONV2D_OPERANDS]);
    size_t (*scratch)(const ech_conv2d *of, int threads);
} way;

static const way ways[] = {
    {ech_cpu_conv2d_pixels_is, ech_cpu_conv2d_pixels, ech_cpu_conv2d_pixels_scratch},
    {ech_cpu_conv2d_strips_is, ech_cpu_conv2d_strips, ech_cpu_conv2d_strips_scratch}};

static const way *find_way(const ech_conv2d *of)
{
    ech_isa isa;
    if (ech_isa_decide(&isa) != ECH_OK || isa != ECH_ISA_AVX2) return NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i].is(of)) return &ways[i];
    return NULL;
}

/* operands: of the library, but for SCRATCH; NULL where it is absent. */
static void run(ech_kernel_context *context, const ech_conv2d *key, void *const operands[OPERANDS])
{
    const way *other = find_way(key);
    if (other) {
        other->run(context, key, operands);
        return;
    }
    ech_cpu_objects *objects = ech_cpu_library_open(context);
    entry *made = find_entry(objects, key, context->threads);
    char *scratch = ech_scratch(context, sum_of(&made->scratch));
    dnnl_exec_arg_t arguments[OPERANDS];
    int n = 0;
    for (int o = 0; o < OPERANDS; o++) {
        if (!made->operand[o]) continue;
        set(made->operand[o], o == SCRATCH ? scratch + made->scratch.packed : operands[o]);
        arguments[n++] = (dnnl_exec_arg_t){names[key->phase][o], made->operand[o]};
    }
    if (made->copy) {
        set(made->operand[WEIGHT], scratch);
        set(made->plain, operands[WEIGHT]);
        set(made->copy_scratch, scratch + made->scratch.packed + made->scratch.library);
    }
    if (made->copy && key->phase != ECH_CONV2D_BACKWARD_WEIGHT) copy_weights(objects, made);
    ech_cpu_must(dnnl_primitive_execute(made->primitive, objects->stream, n, arguments));
    ech_cpu_must(dnnl_stream_wait(objects->stream));
    if (made->copy && key->phase == ECH_CONV2D_BACKWARD_WEIGHT) copy_weights(objects, made);
}

static ech_conv2d describe_call(ech_conv2d_phase phase, const ech_filter *at, const ech_tensor *x,
                                const ech_tensor *y)
{
    const int64_t *xs = x->shape, *ys = y->shape;
    ech_filter_check(at, x, y);
    return (ech_conv2d){.phase = phase,
                        .B = xs[0],
                        .H = xs[1],
                        .W = xs[2],
                        .C = xs[3],
                        .O = ys[3],
                        .P = ys[1],
                        .Q = ys[2],
                        .at = *at};
}

void ech_cpu_conv2d_forward(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *weight, const ech_tensor *bias, const ech_filter *at,
                            const ech_tensor *y)
{
    ECH_SHAPES(conv2d_forward, ECH_F32, x, weight, bias, y);
    ech_conv2d key = describe_call(ECH_CONV2D_FORWARD, at, x, y);
    key.has_bias = bias != NULL;
    run(context, &key,
        (void *const[OPERANDS]){x->data, weight->data, bias ? bias->data : NULL, y->data, NULL});
}

void ech_cpu_conv2d_backward_input(ech_kernel_context *context, const ech_tensor *dy,
                                   const ech_tensor *weight, const ech_filter *at,
                                   const ech_tensor *dx)
{
    ECH_SHAPES(conv2d_backward_input, ECH_F32, dy, weight, dx);
    ech_conv2d key = describe_call(ECH_CONV2D_BACKWARD_INPUT, at, dx, dy);
    run(context, &key, (void *const[OPERANDS]){dx->data, weight->data, NULL, dy->data, NULL});
}

void ech_cpu_conv2d_backward_weight(ech_kernel_context *context, const ech_tensor *dy,
                                    const ech_tensor *x, const ech_filter *at, bool accumulate,
                                    const ech_tensor *dweight)
{
    ECH_SHAPES(conv2d_backward_weight, ECH_F32, dy, x, dweight);
    ech_conv2d key = describe_call(ECH_CONV2D_BACKWARD_WEIGHT, at, x, dy);
    key.adds = accumulate;
    run(context, &key, (void *const[OPERANDS]){x->data, dweight->data, NULL, dy->data, NULL});
}

/* ---- scratch; dims as in kernel.def ---- */

static size_t scratch(ech_conv2d_phase phase, int threads, const int64_t *dims, bool adds)
{
    ech_conv2d key = {.phase = phase,
                      .B = dims[0],
                      .H = dims[1],
                      .W = dims[2],
                      .C = dims[3],
                      .O = dims[4],
                      .has_bias = dims[11],
                      .adds = adds,
                      .at = {{dims[5], dims[6]}, {dims[7], dims[8]}, {dims[9], dims[10]}}};
    key.P = ech_filter_output(&key.at, 0, key.H);
    key.Q = ech_filter_output(&key.at, 1, key.W);
    const way *other = find_way(&key);
    if (other) return other->scratch(&key, threads);
    dnnl_engine_t engine;
    dnnl_primitive_desc_t chosen, copy;
    ech_cpu_must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    parts needed = choose_both(engine, &key, threads, &chosen, &copy);
    ech_cpu_must(dnnl_primitive_desc_destroy(chosen));
    if (copy) ech_cpu_must(dnnl_primitive_desc_destroy(copy));
    ech_cpu_must(dnnl_engine_destroy(engine));
    return sum_of(&needed);
}

size_t ech_cpu_scratch_conv2d_forward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return scratch(ECH_CONV2D_FORWARD, threads, dims, false);
}

size_t ech_cpu_scratch_conv2d_backward_input(ech_dtype dtype, int threads, const int64_t *dims)
{
    return scratch(ECH_CONV2D_BACKWARD_INPUT, threads, dims, false);
}

/* A gradient that is added to never needs less. */
size_t ech_cpu_scratch_conv2d_backward_weight(ech_dtype dtype, int threads, const int64_t *dims)
{
    return scratch(ECH_CONV2D_BACKWARD_WEIGHT, threads, dims, true);
}
