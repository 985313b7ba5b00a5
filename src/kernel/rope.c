/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary position embeddings.
 */
#include "kernel/rope.h"

#include <math.h>

static const double circle = 2 * 3.14159265358979323846;

static double clamped(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Between divided (0) and whole (1) by rotations over the original positions. */
static double scale_llama3(const ech_rope *rope, double frequency)
{
    double rotations = rope->original_positions * frequency / circle;
    double high =
        (rotations - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    high = clamped(high, 0, 1);
    return frequency * (high + (1 - high) / rope->factor);
}

/* The pair, not a whole number, that makes so many rotations over the original positions. */
static double pair_of(const ech_rope *rope, int64_t width, double rotations)
{
    return (double)width * log(rope->original_positions / (rotations * circle)) /
           (2 * log(rope->theta));
}

static double scale_yarn(const ech_rope *rope, int64_t width, int64_t i, double frequency)
{
    double low = pair_of(rope, width, rope->beta_fast),
           high = pair_of(rope, width, rope->beta_slow);
    if (rope->truncate) low = floor(low), high = ceil(high);
    low = low < 0 ? 0 : low;
    high = high > (double)width - 1 ? (double)width - 1 : high;
    if (low == high) high += 0.001;
    double divided = clamped(((double)i - low) / (high - low), 0, 1);
    return frequency / rope->factor * divided + frequency * (1 - divided);
}

/* DYNAMIC's base. */
static double base_of(const ech_rope *rope, int64_t width)
{
    double longer = rope->positions / rope->original_positions;
    if (rope->scaling != ECH_ROPE_DYNAMIC || longer <= 1) return rope->theta;
    return rope->theta *
           pow(rope->factor * longer - (rope->factor - 1), (double)width / (double)(width - 2));
}

static double scale(const ech_rope *rope, int64_t width, int64_t i, double frequency)
{
    switch (rope->scaling) {
    case ECH_ROPE_LINEAR:
        return frequency / rope->factor;
    case ECH_ROPE_LLAMA3:
        return scale_llama3(rope, frequency);
    case ECH_ROPE_YARN:
        return scale_yarn(rope, width, i, frequency);
    case ECH_ROPE_LONGROPE:
        return frequency / rope->divisors[i];
    case ECH_ROPE_UNSCALED:
    case ECH_ROPE_DYNAMIC:
        break; /* it has another base */
    }
    return frequency;
}

void ech_rope_frequencies(const ech_rope *rope, int64_t width, double *frequency)
{
    double base = base_of(rope, width);
    for (int64_t i = 0; i < width / 2; i++)
        frequency[i] = scale(rope, width, i, pow(base, -2.0 * (double)i / (double)width));
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double ech_rope_factor(const ech_rope *rope)
{
    bool yarn = rope->scaling == ECH_ROPE_YARN, longrope = rope->scaling == ECH_ROPE_LONGROPE;
    if (!yarn && !longrope) return 1;
    if (rope->attention_factor > 0) return rope->attention_factor;
    if (longrope)
        return rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_positions));
    if (rope->mscale > 0 && rope->mscale_all_dim > 0)
        return yarn_scale(rope->factor, rope->mscale) /
               yarn_scale(rope->factor, rope->mscale_all_dim);
    return yarn_scale(rope->factor, 1);
}

double ech_rope_scores_factor(const ech_rope *rope)
{
    if (rope->scaling != ECH_ROPE_YARN || !(rope->mscale_all_dim > 0)) return 1;
    double factor = yarn_scale(rope->factor, rope->mscale_all_dim);
    return factor * factor;
}
