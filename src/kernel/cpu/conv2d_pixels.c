/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of small images with many channels. A pixel of the output and a place in its window
 * name a pixel of the input, or one outside of the image. Each pair inside is a product of matrices
 * with a row for each image of the batch; rows of one pixel have gaps, so no image is copied. Pairs
 * outside are left out: with windows of 3 x 3, 20 of 36 in images of 2 x 2, and 44 of 144 in images
 * of 4 x 4. oneDNN's convolution (conv2d.c) multiplies them by zero.
 *
 * GFLOP/s, with pairs outside counted, by processor time of one thread on a Zen 3 core of 103 that
 * shares its cache with a busy one. F, B, W: phases, oneDNN 2.6.3's convolution / here; 3 x 3, C to
 * O channels, `batch` images.
 *
 *     image   C to O   batch       F          B           W
 *     2 x 2   512      128     41 / 142    28 / 135    18 / 116
 *     2 x 2   512       64     36 / 116    67 / 111    22 / 116
 *     2 x 2   512       16     50 / 48     54 / 47     17 / 87
 *     4 x 4   512       64     70 / 100    78 / 99     42 / 80
 *     4 x 4   256       32     69 / 97     85 / 93     55 / 102
 *     4 x 4   256        8     75 / 53     90 / 50     59 / 85
 *     4 x 4    64       32     82 / 88    106 / 86     64 / 103
 *     8 x 8   256       64     74 / 95     92 / 94     67 / 83
 *     8 x 8    64       64        -           -        66 / 60
 *     8 x 8    16      128     65 / 44     96 / 48     78 / 39
 *    16 x 16  128       64     70 / 76     85 / 79     48 / 52
 */
#include <omp.h>
#include <string.h>

#include "kernel/cpu/conv2d.h"
#include "kernel/cpu/gemm.h"
#include "kernel/shape.h"

/* Images of a batch, channels, and pixels of the output with which this way is the faster one; rows
 * whose pixels are copied at a time for the gradient of the weights; bytes of a cache line. */
enum { LEAST_BATCH = 32, LEAST_CHANNELS = 64, MANY_CHANNELS = 128 };
enum { MOST_PIXELS = 16, MOST_PIXELS_OF_MANY = 64, ROWS = 512, LINE = 64 };

bool ech_cpu_conv2d_pixels_is(const ech_conv2d *of)
{
    int64_t channels = of->C < of->O ? of->C : of->O, pixels = of->P * of->Q;
    if (of->B < LEAST_BATCH || channels < LEAST_CHANNELS) return false;
    if (pixels <= MOST_PIXELS) return true;
    return pixels <= MOST_PIXELS_OF_MANY && channels >= MANY_CHANNELS &&
           of->phase != ECH_CONV2D_BACKWARD_INPUT;
}

static int64_t places(const ech_conv2d *of)
{
    return of->at.size[0] * of->at.size[1];
}

/* The pixel of the input that output pixel `pixel` has at `place` of its window; -1: it is outside
 * of the image. */
static int64_t input_pixel(const ech_conv2d *of, int64_t pixel, int64_t place)
{
    const ech_filter *at = &of->at;
    int64_t h = pixel / of->Q * at->stride[0] + place / at->size[1] - at->padding[0];
    int64_t w = pixel % of->Q * at->stride[1] + place % at->size[1] - at->padding[1];
    return h < 0 || h >= of->H || w < 0 || w >= of->W ? -1 : h * of->W + w;
}

/* A matrix with a row for each image: some channels of one pixel. */
typedef struct pixel_rows {
    float *at;
    int64_t stride;
} pixel_rows;

static pixel_rows input_rows(const ech_conv2d *of, float *x, int64_t pixel, int64_t channel)
{
    return (pixel_rows){x + pixel * of->C + channel, of->H * of->W * of->C};
}

static pixel_rows output_rows(const ech_conv2d *of, float *y, int64_t pixel, int64_t channel)
{
    return (pixel_rows){y + pixel * of->O + channel, of->P * of->Q * of->O};
}

/* c += op(a) op(b), by the calling thread. */
static void add_product(bool a_transposed, bool b_transposed, int64_t M, int64_t N, int64_t K,
                        pixel_rows a, pixel_rows b, pixel_rows c)
{
    const ech_gemm product = {M,   N, K, a.stride, b.stride, c.stride, a_transposed, b_transposed,
                              true};
    ech_cpu_gemm(&product, a.at, b.at, c.at);
}

/* The channels [begin, end) of n that the calling thread computes: at most n / threads + UNIT. */
enum { UNIT = 16 };
typedef struct share {
    int64_t begin, end;
} share;

static share own_share(int64_t n)
{
    int64_t threads = omp_get_num_threads(), t = omp_get_thread_num();
    int64_t begin = n * t / threads / UNIT * UNIT, end = n * (t + 1) / threads / UNIT * UNIT;
    return (share){begin, t + 1 == threads ? n : end};
}

/* ---- forward, and backward of the input ---- */

/* to (places, rows, columns): of weight (O,C, places), where O is rows or, turned, columns. */
static void pack(const ech_conv2d *of, int threads, const float *weight, bool turned, float *to)
{
    int64_t n = places(of), size = of->O * of->C;
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < (turned ? of->C : of->O); row++)
        for (int64_t column = 0; column < (turned ? of->O : of->C); column++) {
            int64_t o = turned ? column : row, c = turned ? row : column;
            const float *from = weight + (o * of->C + c) * n;
            float *into = to + (turned ? c * of->O + o : o * of->C + c);
            for (int64_t place = 0; place < n; place++) into[place * size] = from[place];
        }
}

/* Sets the channels of all pixels to their bias (NULL: to 0). */
static void begin_sums(float *y, int64_t pixels, int64_t channels, share own, const float *bias)
{
    size_t bytes = (size_t)(own.end - own.begin) * sizeof *y;
    for (int64_t i = 0; i < pixels; i++) {
        float *to = y + i * channels + own.begin;
        if (bias)
            memcpy(to, bias + own.begin, bytes);
        else
            memset(to, 0, bytes);
    }
}

static void forward(const ech_conv2d *of, float *x, const float *bias, float *y, float *packed)
{
    share own = own_share(of->O);
    if (own.begin == own.end) return;
    begin_sums(y, of->B * of->P * of->Q, of->O, own, bias);
    for (int64_t pixel = 0; pixel < of->P * of->Q; pixel++)
        for (int64_t place = 0; place < places(of); place++) {
            int64_t in = input_pixel(of, pixel, place);
            const pixel_rows weight = {packed + (place * of->O + own.begin) * of->C, of->C};
            if (in < 0) continue;
            add_product(false, true, of->B, own.end - own.begin, of->C, input_rows(of, x, in, 0),
                        weight, output_rows(of, y, pixel, own.begin));
        }
}

static void backward_input(const ech_conv2d *of, float *dx, float *dy, float *packed)
{
    share own = own_share(of->C);
    if (own.begin == own.end) return;
    begin_sums(dx, of->B * of->H * of->W, of->C, own, NULL);
    for (int64_t pixel = 0; pixel < of->P * of->Q; pixel++)
        for (int64_t place = 0; place < places(of); place++) {
            int64_t in = input_pixel(of, pixel, place);
            const pixel_rows weight = {packed + (place * of->C + own.begin) * of->O, of->O};
            if (in < 0) continue;
            add_product(false, true, of->B, own.end - own.begin, of->O,
                        output_rows(of, dy, pixel, 0), weight, input_rows(of, dx, in, own.begin));
        }
}

/* ---- backward of the weights ---- */

/* Copies of the rows of some pairs, so that one product sums over more than a batch. */
typedef struct gathered {
    float *x, *dy;
    int64_t rows, most;
} gathered;

static void gather_rows(const pixel_rows *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * columns, from->at + i * from->stride, (size_t)columns * sizeof *to);
}

static void multiply_gathered(const ech_conv2d *of, gathered *g, int64_t columns, float *gradient)
{
    if (g->rows > 0)
        add_product(true, false, columns, of->C, g->rows, (pixel_rows){g->dy, columns},
                    (pixel_rows){g->x, of->C}, (pixel_rows){gradient, of->C});
    g->rows = 0;
}

/* gradient (places, O, C) */
static void backward_weight(const ech_conv2d *of, float *x, float *dy, gathered *g, float *gradient)
{
    share own = own_share(of->O);
    int64_t columns = own.end - own.begin;
    if (columns == 0) return;
    for (int64_t place = 0; place < places(of); place++) {
        float *sum = gradient + (place * of->O + own.begin) * of->C;
        memset(sum, 0, (size_t)(columns * of->C) * sizeof *sum);
        for (int64_t pixel = 0; pixel < of->P * of->Q; pixel++) {
            int64_t in = input_pixel(of, pixel, place);
            if (in < 0) continue;
            if (g->rows + of->B > g->most) multiply_gathered(of, g, columns, sum);
            const pixel_rows from = input_rows(of, x, in, 0);
            const pixel_rows to = output_rows(of, dy, pixel, own.begin);
            gather_rows(&from, of->B, of->C, g->x + g->rows * of->C);
            gather_rows(&to, of->B, columns, g->dy + g->rows * columns);
            g->rows += of->B;
        }
        multiply_gathered(of, g, columns, sum);
    }
}

static void unpack(const ech_conv2d *of, int threads, const float *gradient, float *dweight)
{
    int64_t n = places(of), size = of->O * of->C;
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < size; i++)
        for (int64_t place = 0; place < n; place++) {
            float *to = dweight + i * n + place;
            *to = gradient[place * size + i] + (of->adds ? *to : 0);
        }
}

/* ---- calls ---- */

static int64_t round_up(int64_t n)
{
    const int64_t unit = LINE / (int64_t)sizeof(float);
    return (n + unit - 1) / unit * unit;
}

/* Numbers in scratch: the weights or their gradient, and each thread's gathered rows, of all
 * channels of x and of its share of dy's. */
typedef struct room {
    int64_t packed, rows, x, dy;
} room;

static room room_of(const ech_conv2d *of, int threads)
{
    room needed = {.packed = round_up(places(of) * of->O * of->C)};
    if (of->phase != ECH_CONV2D_BACKWARD_WEIGHT) return needed;
    needed.rows = of->B > ROWS ? of->B : ROWS / of->B * of->B;
    needed.x = round_up(needed.rows * of->C);
    needed.dy = round_up(needed.rows * (of->O / threads + UNIT));
    return needed;
}

size_t ech_cpu_conv2d_pixels_scratch(const ech_conv2d *of, int threads)
{
    const room needed = room_of(of, threads);
    return (size_t)(needed.packed + threads * (needed.x + needed.dy)) * sizeof(float);
}

void ech_cpu_conv2d_pixels(ech_kernel_context *context, const ech_conv2d *of,
                           void *const operands[ECH_CONV2D_OPERANDS])
{
    const room needed = room_of(of, context->threads);
    float *packed = ech_scratch(context, ech_cpu_conv2d_pixels_scratch(of, context->threads));
    float *x = operands[ECH_CONV2D_X], *y = operands[ECH_CONV2D_Y];
    float *weight = operands[ECH_CONV2D_WEIGHT], *bias = operands[ECH_CONV2D_BIAS];
    ech_conv2d_phase phase = (ech_conv2d_phase)of->phase;
    if (phase != ECH_CONV2D_BACKWARD_WEIGHT)
        pack(of, context->threads, weight, phase == ECH_CONV2D_BACKWARD_INPUT, packed);
#pragma omp parallel num_threads(context->threads)
    {
        float *own = packed + needed.packed + omp_get_thread_num() * (needed.x + needed.dy);
        gathered g = {.x = own, .dy = own + needed.x, .most = needed.rows};
        if (phase == ECH_CONV2D_FORWARD) forward(of, x, bias, y, packed);
        if (phase == ECH_CONV2D_BACKWARD_INPUT) backward_input(of, x, y, packed);
        if (phase == ECH_CONV2D_BACKWARD_WEIGHT) backward_weight(of, x, y, &g, packed);
    }
    if (phase == ECH_CONV2D_BACKWARD_WEIGHT) unpack(of, context->threads, packed, weight);
}
