/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition as the first block of each virtual stage. Private to this room.
 *
 * cut[stages + 1]: virtual stage s is blocks cut[s] .. cut[s + 1] - 1.
 */
#ifndef ECH_LAYOUT_CUT_H
#define ECH_LAYOUT_CUT_H

#include "config/config.h"
#include "model/model.h"

/* Partitions the model's blocks as the resolved configuration says: by a list of transformer layers (embedding
 * and head are none), or "even" in multiply-adds. */
void ech_cut_blocks(const ech_config *config, const ech_model *model, ech_extent extent, int stages,
                    int *cut);
/* Partitions blocks of weights >= 0 into stages of at least one block each. The heaviest stage is as light as can
 * be; among those partitions the sum of the squares of the stages' weights is smallest; among those the first
 * stage has the fewest blocks, then the second, and so on. Weights that differ by less than 10^-9 of the sum of
 * all are equal. */
void ech_cut_evenly(const double *weight, int blocks, int stages, int *cut);
/* The inverse: the number of transformer layers of each stage, into layers[stages]. */
void ech_cut_layers(const int *cut, int stages, int64_t *layers);

#endif
