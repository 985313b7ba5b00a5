/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary position embeddings.
 */
#include "kernel/rope.h"

#include <math.h>

static double scale(const ech_rope *rope, double frequency)
{
    const double circle = 2 * 3.14159265358979323846;
    double turns = rope->original_positions * frequency / circle;
    double high =
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    if (high > 1) high = 1;
    if (high < 0) high = 0;
    return frequency * (high + (1 - high) / rope->factor);
}

void ech_rope_frequencies(const ech_rope *rope, int64_t D, double *frequency)
{
    for (int64_t i = 0; i < D / 2; i++) {
        double unscaled = pow(rope->theta, -2.0 * (double)i / (double)D);
        frequency[i] = rope->scaled ? scale(rope, unscaled) : unscaled;
    }
}
