/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embeddings. Cosine and sine are computed exactly at every BLOCK-th position;
 * between these they are rotated by one position at a time, in fp64, with an error below 1e-13. A
 * row's angle depends on its position in its document alone.
 */
#include <math.h>
#include <omp.h>

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

enum { BLOCK = 64 };

/* One call's numbers, and the angles' steps: frequency, its cosine and sine (width/2 each). */
typedef struct rotation {
    const ech_tensor *x, *y, *starts;
    const ech_rows *rows;
    int64_t half;
    const double *frequency;
    double *step_cos, *step_sin, factor;
    bool inverse, neighbours;
} rotation;

/* A position in a document, and cosine and sine of its angles (half each). */
typedef struct cursor {
    int64_t position;
    double *cosine, *sine;
} cursor;

static void advance(int64_t half, const double *step_cos, const double *step_sin, double *cosine,
                    double *sine)
{
    for (int64_t i = 0; i < half; i++) {
        double c = cosine[i] * step_cos[i] - sine[i] * step_sin[i];
        sine[i] = sine[i] * step_cos[i] + cosine[i] * step_sin[i];
        cosine[i] = c;
    }
}

enum { PART = 128 };

/* A head of x and of y, from these elements on: pairs of neighbours. */
static void rotate_neighbours(const rotation *at, const cursor *angles, int64_t x, int64_t y)
{
    ECH_ALIGNED float part[2][2 * PART];
    float sign = at->inverse ? -1.0F : 1.0F;
    for (int64_t first = 0, half = at->half; first < half; first += PART) {
        int64_t n = ech_part(half, first, PART);
        const float *in = ech_part_of(at->x, x + 2 * first, 2 * n, part[0]);
        float *to = ech_part_to(at->y, y + 2 * first, part[1]);
        for (int64_t i = 0; i < n; i++) {
            float c = (float)(at->factor * angles->cosine[first + i]);
            float s = sign * (float)(at->factor * angles->sine[first + i]);
            float a = in[2 * i], b = in[2 * i + 1];
            to[2 * i] = a * c - b * s;
            to[2 * i + 1] = b * c + a * s;
        }
        ech_part_done(at->y, y + 2 * first, 2 * n, to);
    }
}

/* Pairs of halves. */
static void rotate_halves(const rotation *at, const cursor *angles, int64_t x, int64_t y)
{
    ECH_ALIGNED float part[4][PART];
    float sign = at->inverse ? -1.0F : 1.0F;
    for (int64_t first = 0, half = at->half; first < half; first += PART) {
        int64_t n = ech_part(half, first, PART);
        const float *low = ech_part_of(at->x, x + first, n, part[0]);
        const float *high = ech_part_of(at->x, x + first + half, n, part[1]);
        float *to_low = ech_part_to(at->y, y + first, part[2]);
        float *to_high = ech_part_to(at->y, y + first + half, part[3]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float c = (float)(at->factor * angles->cosine[first + i]);
            float s = sign * (float)(at->factor * angles->sine[first + i]);
            float a = low[i], b = high[i];
            to_low[i] = a * c - b * s;
            to_high[i] = b * c + a * s;
        }
        ech_part_done(at->y, y + first, n, to_low);
        ech_part_done(at->y, y + first + half, n, to_high);
    }
}

/* And what is not rotated. */
static void rotate_head(const rotation *at, const cursor *angles, int64_t x, int64_t y)
{
    int64_t width = 2 * at->half, rest = at->x->shape[3] - width;
    if (at->neighbours)
        rotate_neighbours(at, angles, x, y);
    else
        rotate_halves(at, angles, x, y);
    if (rest > 0 && ech_either_at(at->x, x) != ech_either_at(at->y, y))
        ech_part_copy(at->x, x + width, rest, at->y, y + width);
}

/* On by one position, or to any other from the beginning of its block. */
static void go_to(const rotation *at, cursor *to, int64_t position)
{
    bool next = position == to->position + 1 && position % BLOCK;
    int64_t begin = position / BLOCK * BLOCK;
    for (int64_t i = 0; i < at->half && !next; i++) {
        double angle = (double)begin * at->frequency[i];
        to->cosine[i] = cos(angle);
        to->sine[i] = sin(angle);
    }
    for (int64_t p = next ? to->position : begin; p < position; p++)
        advance(at->half, at->step_cos, at->step_sin, to->cosine, to->sine);
    to->position = position;
}

/* Tokens [token, end) of samples [first, last): with documents one sample, else all of them, whose
 * angles are the same. */
static void rotate_tokens(const rotation *at, int64_t token, int64_t end, int64_t first,
                          int64_t last, cursor *to)
{
    const int64_t *sx = at->x->stride, *sy = at->y->stride;
    for (int64_t t = token; t < end; t++) {
        int64_t position = ech_rows_token_position(at->rows, t);
        go_to(at, to, position - ech_document_start(at->starts, first, position));
        for (int64_t b = first; b < last; b++)
            for (int64_t h = 0; h < at->x->shape[2]; h++)
                rotate_head(at, to, b * sx[0] + t * sx[1] + h * sx[2],
                            b * sy[0] + t * sy[1] + h * sy[2]);
    }
}

void ECH_CPU(rotary)(ech_kernel_context *context, const ech_tensor *x, const double *frequency,
                     int64_t width, bool neighbours, double factor, const ech_rows *rows,
                     const ech_tensor *starts, bool inverse, const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3], half = width / 2;
    ECH_SHAPES(rotary, ECH_REAL, x, y);
    ECH_SAMPLES(rows, starts, B, T);
    ECH_ASSERT(width % 2 == 0 && width >= 0 && width <= D);
    int threads = context->threads;
    double *memory = ech_scratch(context, (size_t)((2 + 2 * threads) * half) * sizeof *memory);
    rotation at = {x,      y,       starts,    rows, half, frequency, memory, memory + half,
                   factor, inverse, neighbours};
    for (int64_t i = 0; i < half; i++) {
        at.step_cos[i] = cos(frequency[i]);
        at.step_sin[i] = sin(frequency[i]);
    }
    int64_t blocks = (T + BLOCK - 1) / BLOCK, apart = starts ? B : 1, together = B / apart;
#pragma omp parallel for num_threads(threads) if (B * T * H * D > ECH_CHUNK)
    for (int64_t unit = 0; unit < blocks * apart; unit++) {
        int64_t token = unit % blocks * BLOCK, b = unit / blocks * together;
        double *own = memory + (2 + 2 * omp_get_thread_num()) * half;
        rotate_tokens(&at, token, token + BLOCK < T ? token + BLOCK : T, b, b + together,
                      &(cursor){-2, own, own + half}); /* -2: next to none */
    }
}

/* dims: T, D. Steps of the angles, and cosines and sines of each thread. */
size_t ECH_CPU(scratch_rotary)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)((2 + 2 * threads) * (dims[1] / 2)) * sizeof(double);
}
