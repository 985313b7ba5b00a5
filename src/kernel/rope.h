/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the pairs of a head turn with the position: Su et al. 2021, arXiv:2104.09864; for texts
 * longer than those of the first training as Llama 3.1 scales it (Dubey et al. 2024, arXiv:2407.21783,
 * and `llama3` in Hugging Face's modeling_rope_utils.py).
 */
#ifndef ECH_KERNEL_ROPE_H
#define ECH_KERNEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ech_rope {
    double theta;
    bool scaled;                                      /* like Llama 3.1, with: */
    double factor, low_freq_factor, high_freq_factor; /* low below high */
    double original_positions;                        /* of the first training */
} ech_rope;

/* frequency (D/2), in radians per position. Unscaled f_i = theta^(-2i/D). Scaled: with the turns
 * n = positions f_i / 2 pi that the original positions make, f_i where n is above high_freq_factor,
 * f_i / factor where it is below low_freq_factor, and a straight line in n between the two. */
void ech_rope_frequencies(const ech_rope *rope, int64_t D, double *frequency);

#endif
