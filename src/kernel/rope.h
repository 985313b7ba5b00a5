/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary position embeddings (RoPE): Su et al. 2021, arXiv:2104.09864; and the ways
 * to scale them for sequences that are longer than in pretraining, by the formulas of Hugging
 * Face's modeling_rope_utils.py:
 *   LINEAR    all are divided by `factor`; Chen et al. 2023, arXiv:2306.15595
 *   DYNAMIC   the base grows with the ratio of a sequence's length to the original positions; up to
 *             these nothing changes. A run takes all its sequences to be as long as the longest,
 *             `positions`: a position's angle then depends neither on the batch nor on its layout
 *   LLAMA3    slow ones are divided by `factor`; Dubey et al. 2024, arXiv:2407.21783
 *   YARN      the same by pairs of dimensions, and queries and keys are multiplied; Peng et al.
 *             2023, arXiv:2309.00071
 *   LONGROPE  each is divided by a number of its own; Ding et al. 2024, arXiv:2402.13753
 */
#ifndef ECH_KERNEL_ROPE_H
#define ECH_KERNEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ech_rope_scaling {
    ECH_ROPE_UNSCALED,
    ECH_ROPE_LINEAR,
    ECH_ROPE_DYNAMIC,
    ECH_ROPE_LLAMA3,
    ECH_ROPE_YARN,
    ECH_ROPE_LONGROPE
} ech_rope_scaling;

typedef struct ech_rope {
    double theta;    /* base of the angles */
    int64_t width;   /* numbers of a head that are rotated, even; 0: all */
    bool neighbours; /* pairs are (2 i, 2 i + 1); otherwise (i, i + width/2) */
    ech_rope_scaling scaling;
    double factor;                            /* all but LONGROPE's frequencies */
    double original_positions;                /* original_max_position_embeddings; all but LINEAR */
    double positions;                         /* DYNAMIC: the longest sequence */
    double low_freq_factor, high_freq_factor; /* LLAMA3: low < high */
    double beta_fast, beta_slow;              /* YARN: rotations over the original positions */
    bool truncate;                            /* YARN: the bounds between pairs are whole numbers */
    double mscale, mscale_all_dim;            /* YARN: of attention_factor 0; 0: not given */
    const double *divisors;                   /* LONGROPE: (width/2), of short or of long texts */
    /* YARN, LONGROPE: factor of rotated queries and keys; 0: it follows from `factor`. */
    double attention_factor;
} ech_rope;

/* Writes frequency[width/2], in radians per position. Unscaled it is f_i = theta^(-2i/width).
 * LLAMA3 looks at the full rotations n = original_positions f_i / 2 pi: f_i if n >
 * high_freq_factor, f_i / factor if n < low_freq_factor, linear in n between the two. */
void ech_rope_frequencies(const ech_rope *rope, int64_t width, double *frequency);
/* What rotated numbers are multiplied by: 1 unless YARN or LONGROPE scales. */
double ech_rope_factor(const ech_rope *rope);
/* The factor of scores of multi-head latent attention: that of YARN's mscale_all_dim, squared, for
 * numbers that are not rotated, too. */
double ech_rope_scores_factor(const ech_rope *rope);

#endif
