/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast four ways convolve images. Kernels choose among these.
 *
 *     bench_convolutions SECONDS BATCH [HxWxC:OxK/S ...]
 *
 * Each convolution has BATCH images of H x W pixels and C channels, O filters of K x K, stride S
 * and padding (K - 1) / 2, in fp32, on as many threads as OMP_NUM_THREADS says. Without shapes:
 * those of VGG-16 and of a ResNet-18 with a 3 x 3 stem, for images of 32 x 32. Each phase, forward
 * (F), backward of the input (B) and of the weights (W), is timed for about SECONDS by each of
 *
 *     nhwc     a primitive on channels-last images; the weights are in the library's order
 *     blocked  one whose operands all are in the library's order, and are not reordered
 *     gemm     patches as rows of a matrix (im2col) for some images at a time, and dnnl_sgemm
 *     pixels   Echelon's products of pixels (kernel/cpu/conv2d_pixels.c), used or not
 *
 * and prints a line for each shape and phase: the median GFLOP/s of each way.
 */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kernel/cpu/conv2d.h"
#include "library_times.h"

typedef enum phase { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, PHASES } phase;

typedef struct shape {
    long B, H, W, C, O, K, S, P, Q; /* P x Q: pixels of the output */
} shape;

enum { SRC = 0, WEIGHTS, DST, OPERANDS };

/* ---- primitives ---- */

typedef struct execution {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t argument[OPERANDS];
} execution;

static void execute(void *with)
{
    execution *e = with;
    must(dnnl_primitive_execute(e->primitive, e->stream, OPERANDS, e->argument));
    must(dnnl_stream_wait(e->stream));
}

static dnnl_memory_desc_t describe(int dims, const dnnl_dims_t sizes, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    must(dnnl_memory_desc_init_by_tag(&md, dims, sizes, dnnl_f32, tag));
    return md;
}

static dnnl_primitive_desc_t choose(dnnl_engine_t engine, const shape *s, phase p, bool blocked)
{
    dnnl_dims_t x = {s->B, s->C, s->H, s->W}, w = {s->O, s->C, s->K, s->K};
    dnnl_dims_t y = {s->B, s->O, s->P, s->Q}, stride = {s->S, s->S};
    dnnl_dims_t before = {(s->K - 1) / 2, (s->K - 1) / 2}, after;
    dnnl_format_tag_t images = blocked ? dnnl_format_tag_any : dnnl_nhwc;
    dnnl_memory_desc_t src = describe(4, x, images), dst = describe(4, y, images);
    dnnl_memory_desc_t weights = describe(4, w, dnnl_format_tag_any);
    after[0] = (s->P - 1) * s->S + s->K - s->H - before[0];
    after[1] = (s->Q - 1) * s->S + s->K - s->W - before[1];
    dnnl_convolution_desc_t forward, operation;
    dnnl_primitive_desc_t hint, chosen;
    must(dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training,
                                            dnnl_convolution_direct, &src, &weights, NULL, &dst,
                                            stride, before, after));
    must(dnnl_primitive_desc_create(&hint, &forward, NULL, engine, NULL));
    if (p == FORWARD) return hint;
    if (p == BACKWARD_INPUT)
        must(dnnl_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, &src,
                                                      &weights, &dst, stride, before, after));
    else
        must(dnnl_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, &src,
                                                         &weights, NULL, &dst, stride, before,
                                                         after));
    must(dnnl_primitive_desc_create(&chosen, &operation, NULL, engine, hint));
    must(dnnl_primitive_desc_destroy(hint));
    return chosen;
}

static double time_primitive(double seconds, const shape *s, phase p, bool blocked)
{
    static const struct {
        dnnl_query_t query;
        int argument;
    } operands[PHASES][OPERANDS] = {{{dnnl_query_src_md, DNNL_ARG_SRC},
                                     {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                                     {dnnl_query_dst_md, DNNL_ARG_DST}},
                                    {{dnnl_query_diff_src_md, DNNL_ARG_DIFF_SRC},
                                     {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                                     {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST}},
                                    {{dnnl_query_src_md, DNNL_ARG_SRC},
                                     {dnnl_query_diff_weights_md, DNNL_ARG_DIFF_WEIGHTS},
                                     {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST}}};
    dnnl_engine_t engine;
    execution e;
    float *at[OPERANDS];
    must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    must(dnnl_stream_create(&e.stream, engine, dnnl_stream_default_flags));
    dnnl_primitive_desc_t chosen = choose(engine, s, p, blocked);
    for (int o = 0; o < OPERANDS; o++) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(chosen, operands[p][o].query, 0);
        at[o] = make_values(dnnl_memory_desc_get_size(md));
        e.argument[o].arg = operands[p][o].argument;
        must(dnnl_memory_create(&e.argument[o].memory, md, engine, at[o]));
    }
    must(dnnl_primitive_create(&e.primitive, chosen));
    double took = time_calls(seconds, execute, &e);
    for (int o = 0; o < OPERANDS; o++) {
        must(dnnl_memory_destroy(e.argument[o].memory));
        free(at[o]);
    }
    must(dnnl_primitive_destroy(e.primitive));
    must(dnnl_primitive_desc_destroy(chosen));
    must(dnnl_stream_destroy(e.stream));
    must(dnnl_engine_destroy(engine));
    return took;
}

/* ---- patches as rows of a matrix ---- */

typedef struct gemm {
    shape s;
    phase p;
    long images; /* whose patches are in `patch` at a time */
    float *x, *w, *y, *patch;
} gemm;

/* The patch of an output's pixel, (K,K,C), to or from the image (H,W,C). */
static void move_patch(const shape *s, float *image, float *patch, long p, long q, bool back)
{
    long pad = (s->K - 1) / 2;
    for (long i = 0; i < s->K; i++)
        for (long j = 0; j < s->K; j++, patch += s->C) {
            long h = p * s->S + i - pad, w = q * s->S + j - pad;
            bool inside = h >= 0 && h < s->H && w >= 0 && w < s->W;
            float *pixel = image + (h * s->W + w) * s->C;
            if (!back && inside) memcpy(patch, pixel, (size_t)s->C * sizeof *patch);
            if (!back && !inside) memset(patch, 0, (size_t)s->C * sizeof *patch);
            for (long c = 0; back && inside && c < s->C; c++) pixel[c] += patch[c];
        }
}

static void move_patches(const gemm *g, long first, bool back)
{
    const shape *s = &g->s;
    long size = s->K * s->K * s->C;
#pragma omp parallel for
    for (long b = first; b < first + g->images; b++) {
        float *image = g->x + b * s->H * s->W * s->C;
        if (back) memset(image, 0, (size_t)(s->H * s->W * s->C) * sizeof *image);
        for (long i = 0; i < s->P * s->Q; i++)
            move_patch(s, image, g->patch + ((b - first) * s->P * s->Q + i) * size, i / s->Q,
                       i % s->Q, back);
    }
}

static void multiply(void *with)
{
    const gemm *g = with;
    const shape *s = &g->s;
    long size = s->K * s->K * s->C, rows = g->images * s->P * s->Q;
    for (long b = 0; b < s->B; b += g->images) {
        float *y = g->y + b * s->P * s->Q * s->O;
        if (g->p != BACKWARD_INPUT) move_patches(g, b, false);
        if (g->p == FORWARD)
            must(dnnl_sgemm('N', 'T', rows, s->O, size, 1, g->patch, size, g->w, size, 0, y, s->O));
        if (g->p == BACKWARD_INPUT)
            must(dnnl_sgemm('N', 'N', rows, size, s->O, 1, y, s->O, g->w, size, 0, g->patch, size));
        if (g->p == BACKWARD_WEIGHT)
            must(dnnl_sgemm('T', 'N', s->O, size, rows, 1, y, s->O, g->patch, size, b ? 1 : 0, g->w,
                            size));
        if (g->p == BACKWARD_INPUT) move_patches(g, b, true);
    }
}

static double time_gemm(double seconds, const shape *s, phase p)
{
    enum { MOST = 8 << 20 }; /* bytes of patches at a time */
    size_t bytes = (size_t)(s->P * s->Q * s->K * s->K * s->C) * sizeof(float);
    gemm g = {.s = *s, .p = p, .images = s->B};
    while (g.images % 2 == 0 && (size_t)g.images * bytes > MOST) g.images /= 2;
    g.x = make_values((size_t)(s->B * s->H * s->W * s->C) * sizeof(float));
    g.w = make_values((size_t)(s->O * s->K * s->K * s->C) * sizeof(float));
    g.y = make_values((size_t)(s->B * s->P * s->Q * s->O) * sizeof(float));
    g.patch = make_values((size_t)g.images * bytes);
    double took = time_calls(seconds, multiply, &g);
    free(g.x), free(g.w), free(g.y), free(g.patch);
    return took;
}

/* ---- pixels ---- */

typedef struct pixels {
    ech_conv2d of;
    ech_kernel_context *context;
    float *at[ECH_CONV2D_OPERANDS];
} pixels;

static void convolve_pixels(void *with)
{
    pixels *p = with;
    void *const operands[ECH_CONV2D_OPERANDS] = {p->at[ECH_CONV2D_X], p->at[ECH_CONV2D_WEIGHT],
                                                 NULL, p->at[ECH_CONV2D_Y]};
    ech_cpu_conv2d_pixels(p->context, &p->of, operands);
}

static double time_pixels(double seconds, const shape *s, phase p)
{
    long pad = (s->K - 1) / 2;
    pixels with = {.of = {.phase = p,
                          .B = s->B,
                          .H = s->H,
                          .W = s->W,
                          .C = s->C,
                          .O = s->O,
                          .P = s->P,
                          .Q = s->Q,
                          .at = {{s->K, s->K}, {s->S, s->S}, {pad, pad}}}};
    if (ech_kernel_context_create(omp_get_max_threads(), &with.context)) fail(ech_last_error());
    size_t bytes = ech_cpu_conv2d_pixels_scratch(&with.of, with.context->threads);
    with.context->scratch = make_values(bytes);
    with.context->scratch_bytes = bytes;
    with.at[ECH_CONV2D_X] = make_values((size_t)(s->B * s->H * s->W * s->C) * sizeof(float));
    with.at[ECH_CONV2D_WEIGHT] = make_values((size_t)(s->O * s->K * s->K * s->C) * sizeof(float));
    with.at[ECH_CONV2D_Y] = make_values((size_t)(s->B * s->P * s->Q * s->O) * sizeof(float));
    double took = time_calls(seconds, convolve_pixels, &with);
    for (int i = 0; i < ECH_CONV2D_OPERANDS; i++) free(with.at[i]);
    free(with.context->scratch);
    ech_kernel_context_destroy(with.context);
    return took;
}

static void measure(double seconds, long batch, const char *text)
{
    shape s = {.B = batch};
    if (sscanf(text, "%ldx%ldx%ld:%ldx%ld/%ld", &s.H, &s.W, &s.C, &s.O, &s.K, &s.S) != 6)
        fail("a shape is HxWxC:OxK/S, as in 32x32x64:128x3/2");
    long pad = (s.K - 1) / 2;
    s.P = (s.H + 2 * pad - s.K) / s.S + 1;
    s.Q = (s.W + 2 * pad - s.K) / s.S + 1;
    double flops = 2.0 * (double)(s.B * s.P * s.Q * s.O) * (double)(s.K * s.K * s.C);
    for (phase p = FORWARD; p < PHASES; p++) {
        double nhwc = time_primitive(seconds, &s, p, false);
        double blocked = time_primitive(seconds, &s, p, true);
        double patches = time_gemm(seconds, &s, p);
        double own = time_pixels(seconds, &s, p);
        printf("%-20s %c %8.1f %8.1f %8.1f %8.1f\n", text, "FBW"[p], flops / nhwc / 1e9,
               flops / blocked / 1e9, flops / patches / 1e9, flops / own / 1e9);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {
        "32x32x3:64x3/1",    "32x32x64:64x3/1",  "16x16x64:128x3/1", "16x16x128:128x3/1",
        "8x8x128:256x3/1",   "8x8x256:256x3/1",  "4x4x256:512x3/1",  "4x4x512:512x3/1",
        "2x2x512:512x3/1",   "32x32x64:128x3/2", "32x32x64:128x1/2", "16x16x128:256x3/2",
        "16x16x128:256x1/2", "8x8x256:512x3/2",  "8x8x256:512x1/2",
    };
    if (argc < 3) fail("usage: bench_convolutions SECONDS BATCH [HxWxC:OxK/S ...]");
    ech_isa isa;
    if (ech_isa_decide(&isa)) fail(ech_last_error()); /* before oneDNN is used */
    double seconds = strtod(argv[1], NULL);
    long batch = strtol(argv[2], NULL, 10);
    if (seconds <= 0 || batch < 1) fail("SECONDS and BATCH must be above 0");
    printf("%-20s   %8s %8s %8s %8s   GFLOP/s\n", "shape", "nhwc", "blocked", "gemm", "pixels");
    for (int i = 3; i < argc; i++) measure(seconds, batch, argv[i]);
    for (size_t i = 0; argc == 3 && i < sizeof usual / sizeof *usual; i++)
        measure(seconds, batch, usual[i]);
    return 0;
}
