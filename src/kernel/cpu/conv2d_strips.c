/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of the weights of convolutions of 3 x 3, of larger images with many channels. Each
 * thread copies a few images at a time between pixels of zeros, so that the three pixels of a
 * window's row are adjacent numbers. These are rows of one matrix: windows that begin at each third
 * pixel do not overlap, so three products for each of the three rows of the window give the
 * gradient. An image's last pixel of a row and the next row's first share the zeros between them.
 * There are products with these zeros: 6% of all in images of 32 x 32.
 *
 * GFLOP/s by processor time of one thread on a Zen 3 core of 103, 64 images, oneDNN 2.6.3's
 * convolution / here:
 *
 *     32 x 32, 64 to 64    58 / 76        16 x 16, 64 to 128    60 / 71
 *     16 x 16, 128 to 128  48 / 65         8 x 8, 256 to 256    67 / 56
 */
#include <omp.h>
#include <string.h>

#include "kernel/cpu/conv2d.h"
#include "kernel/cpu/gemm.h"
#include "kernel/shape.h"

enum { WINDOW = 3, PLACES = WINDOW * WINDOW };
/* Channels, and pixels of an image, with which this way was measured to be the faster one. With
 * more channels each thread's sum would need much memory. PIXELS: copied by a thread at a time;
 * UNIT: the numbers in a cache line. */
enum { LEAST_CHANNELS = 64, MOST_CHANNELS = 128, LEAST_PIXELS = 144, PIXELS = 1024, UNIT = 16 };

static bool has_channels(int64_t n)
{
    return n >= LEAST_CHANNELS && n <= MOST_CHANNELS;
}

bool ech_cpu_conv2d_strips_is(const ech_conv2d *of)
{
    const ech_filter same = {{WINDOW, WINDOW}, {1, 1}, {1, 1}};
    return of->phase == ECH_CONV2D_BACKWARD_WEIGHT && memcmp(&of->at, &same, sizeof same) == 0 &&
           has_channels(of->C) && has_channels(of->O) && of->H * of->W >= LEAST_PIXELS;
}

/* Sizes of what a thread has: images at a time, pixels of these with zeros, and numbers. */
typedef struct strip {
    int64_t images, pitch, pixels; /* pitch: pixels of a row with its zeros */
    int64_t x, dy, sum;
} strip;

static int64_t round_up(int64_t n)
{
    return (n + UNIT - 1) / UNIT * UNIT;
}

static strip strip_of(const ech_conv2d *of)
{
    int64_t fit = PIXELS / (of->H * of->W), images = fit < 1 ? 1 : fit < of->B ? fit : of->B;
    strip s = {.images = images, .pitch = of->W + 1};
    s.pixels = images * (of->H + 1) * s.pitch;
    s.x = round_up((s.pixels + (WINDOW - 1) * (s.pitch + 1)) * of->C);
    s.dy = round_up(s.pixels * of->O);
    s.sum = round_up(PLACES * of->O * of->C);
    return s;
}

/* Copies images (n,H,W,channels) so that pixel (0, 0) of the first is pixel `first`. */
static void spread(const ech_conv2d *of, const strip *s, const float *images, int64_t n,
                   int64_t channels, int64_t first, float *to)
{
    int64_t line = of->W * channels;
    for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < of->H; h++)
            memcpy(to + (first + (i * (of->H + 1) + h) * s->pitch) * channels,
                   images + (i * of->H + h) * line, (size_t)line * sizeof *to);
}

/* sum (3, O, 3 C): += what the spread images say. */
static void add_products(const ech_conv2d *of, const strip *s, const float *x, const float *dy,
                         float *sum)
{
    int64_t C = of->C, O = of->O;
    for (int64_t row = 0; row < WINDOW; row++)
        for (int64_t begin = 0; begin < WINDOW; begin++) {
            int64_t windows = (s->pixels - begin + WINDOW - 1) / WINDOW;
            const ech_gemm product = {.M = O,
                                      .N = WINDOW * C,
                                      .K = windows,
                                      .a_stride = WINDOW * O,
                                      .b_stride = WINDOW * C,
                                      .c_stride = WINDOW * C,
                                      .a_transposed = true,
                                      .add = true};
            ech_cpu_gemm(&product, dy + begin * O, x + (row * s->pitch + begin) * C,
                         sum + row * O * WINDOW * C);
        }
}

/* The calling thread's part of all images. Its zeros are written once, between which all copies
 * lie; the last images may be fewer. */
static void add_images(const ech_conv2d *of, const strip *s, const float *x, const float *dy,
                       float *room)
{
    float *spread_x = room, *spread_dy = room + s->x, *sum = spread_dy + s->dy;
    int64_t threads = omp_get_num_threads(), t = omp_get_thread_num();
    int64_t begin = of->B * t / threads, end = of->B * (t + 1) / threads, pixels = of->H * of->W;
    memset(room, 0, (size_t)(s->x + s->dy + s->sum) * sizeof *room);
    for (int64_t i = begin; i < end; i += s->images) {
        int64_t n = end - i < s->images ? end - i : s->images;
        if (n < s->images) memset(spread_dy, 0, (size_t)s->dy * sizeof *spread_dy);
        spread(of, s, x + i * pixels * of->C, n, of->C, s->pitch + 1, spread_x);
        spread(of, s, dy + i * pixels * of->O, n, of->O, 0, spread_dy);
        add_products(of, s, spread_x, spread_dy, sum);
    }
}

/* dweight (O,C,3,3), the sum of all threads' sums. */
static void add_sums(const ech_conv2d *of, const float *sums, int64_t each, int threads,
                     float *dweight)
{
#pragma omp parallel for num_threads(threads)
    for (int64_t o = 0; o < of->O; o++)
        for (int64_t c = 0; c < of->C; c++)
            for (int64_t place = 0; place < PLACES; place++) {
                float *to = dweight + (o * of->C + c) * PLACES + place;
                int64_t row = place / WINDOW * of->O + o;
                const float *from = sums + (row * WINDOW + place % WINDOW) * of->C + c;
                float sum = of->adds ? *to : 0;
                for (int t = 0; t < threads; t++) sum += from[t * each];
                *to = sum;
            }
}

size_t ech_cpu_conv2d_strips_scratch(const ech_conv2d *of, int threads)
{
    const strip s = strip_of(of);
    return (size_t)(threads * (s.x + s.dy + s.sum)) * sizeof(float);
}

void ech_cpu_conv2d_strips(ech_kernel_context *context, const ech_conv2d *of,
                           void *const operands[ECH_CONV2D_OPERANDS])
{
    const strip s = strip_of(of);
    int64_t each = s.x + s.dy + s.sum;
    float *room = ech_scratch(context, ech_cpu_conv2d_strips_scratch(of, context->threads));
#pragma omp parallel num_threads(context->threads)
    add_images(of, &s, operands[ECH_CONV2D_X], operands[ECH_CONV2D_Y],
               room + omp_get_thread_num() * each);
    add_sums(of, room + s.x + s.dy, each, context->threads, operands[ECH_CONV2D_WEIGHT]);
}
