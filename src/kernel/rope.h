/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary position embeddings (RoPE): Su et al. 2021, arXiv:2104.09864; with Llama
 * 3.1's scaling for long contexts (Dubey et al. 2024, arXiv:2407.21783; `llama3` in Hugging Face's
 * modeling_rope_utils.py).
 */
#ifndef ECH_KERNEL_ROPE_H
#define ECH_KERNEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ech_rope {
    double theta;                                     /* base of the angles */
    bool scaled;                                      /* like Llama 3.1, with the fields below */
    double factor, low_freq_factor, high_freq_factor; /* low < high */
    double original_positions;                        /* original_max_position_embeddings */
} ech_rope;

/* Writes frequency[D/2], in radians per position. Unscaled it is f_i = theta^(-2i/D). Scaled it
 * depends on the full rotations n = original_positions f_i / 2 pi: f_i if n > high_freq_factor, f_i
 * / factor if n < low_freq_factor, linear in n between the two. */
void ech_rope_frequencies(const ech_rope *rope, int64_t D, double *frequency);

#endif
