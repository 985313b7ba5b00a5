/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW with 8-bit states, a block of states in fp32 at a time.
 */
#include <math.h>

#include "kernel/cpu/part.h"
#include "kernel/dynamic_map.h"
#include "kernel/shape.h"

/* A thread's room for the state of a block of at most `columns` elements: whole vectors. */
static int64_t room_of(int64_t columns)
{
    return (columns + ECH_WIDE - 1) / ECH_WIDE * ECH_WIDE;
}

size_t ECH_CPU(scratch_adamw8)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return 2 * (size_t)threads * (size_t)room_of(dims[1]) * sizeof(float);
}

typedef struct rates {
    float grad_scale, beta1, rest1, beta2, rest2, m_scale, v_scale, rate, decay, eps;
} rates;

static rates rates_of(const ech_update *u)
{
    double count = (double)u->count;
    return (rates){.grad_scale = (float)u->grad_scale,
                   .beta1 = (float)u->beta1,
                   .rest1 = (float)(1 - u->beta1),
                   .beta2 = (float)u->beta2,
                   .rest2 = (float)(1 - u->beta2),
                   .m_scale = (float)(1 / (1 - pow(u->beta1, count))),
                   .v_scale = (float)(1 / (1 - pow(u->beta2, count))),
                   .rate = (float)u->learning_rate,
                   .decay = (float)u->weight_decay,
                   .eps = (float)u->eps};
}

/* The dynamic maps as arithmetic on vectors. Positive numbers are counted from 1: number 2^e + k, k
 * < 2^e, is part k of the 2^e parts of decade e. The signed map begins with e = 0 at 1e-6, the
 * other with e = 1, and with 0 as its number 1. 1 is a decade with one number. */
enum { DECADES = ECH_WIDE_TABLE };

typedef struct map {
    float base;         /* 10^e x base is the end of decade e */
    int32_t zero;       /* code of 0: number n has the code zero + n */
    int32_t first;      /* e of the first decade, and the largest number that stands for 0 */
    int32_t last;       /* the number of 1 */
    float lowest;       /* the least that has a number */
    float end[DECADES]; /* 10^e x base, at e + 7 modulo 8: the exponent's bits of 2^e */
    /* By decade, counted from the first: its least member, 10^-e, parts per 0.9, number of parts,
     * the last of them. */
    float least[DECADES], shrinks[DECADES], steps[DECADES], parts[DECADES];
} map;

/* 10^e for e from 0 to 7, and 10^-e. */
static float ten_to(int e)
{
    return (e & 1 ? 10.0F : 1.0F) * (e & 2 ? 100.0F : 1.0F) * (e & 4 ? 1e4F : 1.0F);
}

static float ten_to_minus(int e)
{
    return (e & 1 ? 0.1F : 1.0F) * (e & 2 ? 0.01F : 1.0F) * (e & 4 ? 1e-4F : 1.0F);
}

static map map_of(bool is_signed)
{
    const ech_dynamic_map *table = ech_dynamic_map_of(is_signed);
    map m = {.base = is_signed ? 1e-6F : 1e-7F,
             .zero = is_signed ? 127 : -1,
             .first = is_signed ? 0 : 1,
             .last = is_signed ? 128 : 256};
    for (int e = 0; e < DECADES; e++) m.end[(e + 7) % 8] = m.base * ten_to(e);
    for (int i = 0; i < DECADES; i++) {
        int parts = 1 << (m.first + i);
        bool is_one = parts == m.last;
        m.least[i] = table->middle[m.zero + parts];
        m.shrinks[i] = ten_to_minus(m.first + i);
        m.steps[i] = is_one ? 0 : (1.0F / 0.9F) * (float)parts;
        m.parts[i] = ech_float_of_bits((uint32_t)parts);
    }
    m.lowest = is_signed ? -nextafterf(m.least[DECADES - 1], 0) : 0;
    return m;
}

ECH_INLINE ech_wide values_of(const map *m, ech_wide_int code)
{
    ech_wide_int number = code - m->zero, below = number >> 31, size = (number ^ below) - below;
    ech_wide n = ech_wide_of_int(size);
    ech_wide_int exponent = (ech_wide_int)n & 0x7f800000;
    ech_wide parts = (ech_wide)((254 << 23) - exponent); /* 2^-e */
    ech_wide within = 0.1F + 0.9F * (n * parts - 1.0F) + 0.45F * parts;
    ech_wide value = ech_wide_pick(m->end, exponent >> 23) * within;
    value = (ech_wide)((ech_wide_int)value & (m->first - size) >> 31);
    value = ech_wide_select((m->last - 1 - size) >> 31, ech_wide_all(1), value);
    return (ech_wide)((ech_wide_int)value ^ (below & INT32_MIN));
}

/* Writes whole vectors, for which room_of has room. */
static void read_states(const map *of, int64_t n, const uint8_t *code, float most, float *x)
{
    const map m = *of;
    int64_t i = 0;
    for (; i + ECH_WIDE <= n; i += ECH_WIDE)
        ech_wide_store(x + i, values_of(&m, ech_wide_of_bytes(code + i)) * most);
    if (i == n) return;
    uint8_t rest[ECH_WIDE] = {0};
    memcpy(rest, code + i, (size_t)(n - i));
    ech_wide_store(x + i, values_of(&m, ech_wide_of_bytes(rest)) * most);
}

/* The codes of the nearest values. The decade is guessed from the logarithm, which its bits exceed
 * by 0.09 at most. A part of a decade ends at 0.8999 only after the last one's beginning. */
ECH_INLINE ech_wide_int codes_of(const map *m, bool is_signed, ech_wide x)
{
    x -= ECH_MAP_TIE * (ech_wide)((ech_wide_int)x & INT32_MAX);
    if (is_signed) x = ech_wide_max(ech_wide_all(m->lowest), x);
    ech_wide size = is_signed ? (ech_wide)((ech_wide_int)x & INT32_MAX) : x;
    ech_wide guess =
        ech_wide_of_int((ech_wide_int)size) * (0.30103F / (1 << 23)) + (7.3F - 127 * 0.30103F);
    ech_wide_int i = ech_wide_to_int(ech_wide_max(guess, ech_wide_all(0)));
    i += (ech_wide_int)(size < ech_wide_pick(m->least, i));
    ech_wide within = size * (1.0F / m->base) * ech_wide_pick(m->shrinks, i) - 0.1F;
    within = ech_wide_min(ech_wide_max(within, ech_wide_all(0)), ech_wide_all(0.8999F));
    ech_wide_int n = ech_wide_to_int(within * ech_wide_pick(m->steps, i)) +
                     (ech_wide_int)ech_wide_pick(m->parts, i);
    ech_wide_int has_number = (ech_wide_int)(size >= ech_wide_all(m->least[0]));
    if (!is_signed) return (n + m->zero) & has_number;
    ech_wide_int below = (ech_wide_int)(x < ech_wide_all(0));
    return m->zero + (((n & has_number) ^ below) - below);
}

static void update_part(const rates *k, int64_t n, float *p, const float *g, float *m, float *v)
{
    const rates r = *k;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float scaled = g[i] * r.grad_scale;
        m[i] = r.beta1 * m[i] + r.rest1 * scaled;
        v[i] = r.beta2 * v[i] + r.rest2 * scaled * scaled;
        float step = m[i] * r.m_scale / (sqrtf(v[i] * r.v_scale) + r.eps);
        p[i] -= r.rate * (step + r.decay * p[i]);
    }
}

/* Returns the largest magnitude. */
ECH_INLINE float write_states(const map *of, bool is_signed, int64_t n, float *x, uint8_t *code)
{
    const map m = *of;
    int64_t room = room_of(n), i = 0;
    ech_wide largest = ech_wide_all(0);
    for (int64_t k = n; k < room; k++) x[k] = 0;
    for (; i < room; i += ECH_WIDE)
        largest = ech_wide_max((ech_wide)((ech_wide_int)ech_wide_load(x + i) & INT32_MAX), largest);
    float most = 0;
    for (int k = 0; k < ECH_WIDE; k++) most = largest[k] > most ? largest[k] : most;
    const float scale = most > 0 ? most : 1;
    for (i = 0; i + ECH_WIDE <= n; i += ECH_WIDE)
        ech_wide_to_bytes(codes_of(&m, is_signed, ech_wide_load(x + i) / scale), code + i);
    if (i == n) return most;
    uint8_t rest[ECH_WIDE];
    ech_wide_to_bytes(codes_of(&m, is_signed, ech_wide_load(x + i) / scale), rest);
    memcpy(code + i, rest, (size_t)(n - i));
    return most;
}

/* One block: its states are temporarily in fp32 in m and v. */
static void update_block(const rates *k, const ech_tensor *param, const ech_tensor *grad,
                         const ech_tensor *rounded, int64_t first, int64_t n, float *m, float *v)
{
    for (int64_t i = 0; i < n; i += ECH_PART) {
        ECH_ALIGNED float part[ECH_PART];
        int64_t at = first + i, count = ech_part(n, i, ECH_PART);
        update_part(k, count, (float *)param->data + at, ech_part_of(grad, at, count, part), m + i,
                    v + i);
        if (rounded) ech_part_copy(param, at, count, rounded, at);
    }
}

void ECH_CPU(adamw8)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                     const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                     const ech_tensor *exp_avg_max, const ech_tensor *exp_avg_sq_max,
                     const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adamw8, ECH_REAL, param, grad, exp_avg, exp_avg_sq, exp_avg_max, exp_avg_sq_max,
               rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_round_param(param, rounded));
    int64_t C = grad->shape[1], block = update->block, blocks = (C + block - 1) / block,
            all = grad->shape[0] * blocks;
    ECH_ASSERT(update->count >= 1 && exp_avg_max->shape[1] == blocks);
    int threads = grad->shape[0] * C > ECH_CHUNK ? context->threads : 1;
    int64_t room = room_of(C);
    float *states = ech_scratch(context, 2 * (size_t)(context->threads * room) * sizeof *states);
    const map mean = map_of(true), square = map_of(false);
    const rates k = rates_of(update);
    float *m_most = exp_avg_max->data, *v_most = exp_avg_sq_max->data;
#pragma omp parallel for num_threads(threads)
    for (int64_t t = 0; t < threads; t++)
        for (int64_t b = all * t / threads; b < all * (t + 1) / threads; b++) {
            float *m = states + 2 * t * room, *v = m + room;
            int64_t column = b % blocks * block, n = C - column < block ? C - column : block;
            int64_t first = b / blocks * C + column;
            uint8_t *m_code = (uint8_t *)exp_avg->data + first;
            uint8_t *v_code = (uint8_t *)exp_avg_sq->data + first;
            read_states(&mean, n, m_code, m_most[b], m);
            read_states(&square, n, v_code, v_most[b], v);
            update_block(&k, param, grad, rounded, first, n, m, v);
            m_most[b] = write_states(&mean, true, n, m, m_code);
            v_most[b] = write_states(&square, false, n, v, v_code);
        }
}
