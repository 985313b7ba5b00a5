/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition as cuts between blocks. Private to this room.
 */
#ifndef ECH_LAYOUT_CUT_H
#define ECH_LAYOUT_CUT_H

#include "config/config.h"
#include "model/model.h"

/* The model's first and last blocks (embedding, head) are no transformer layers; cut[stages + 1]. The
 * configuration is resolved: a list, or "even" in multiply-adds. */
void ech_cut_blocks(const ech_config *config, const ech_model *model, ech_extent extent, int stages,
                    int *cut);
/* Blocks of those weights, none below 0, into stages of at least one block each: the heaviest stage is as
 * light as can be; of these cuts, the sum of the squares of the stages' weights is smallest; of
 * these, the first stage has the fewest blocks, then the second, and so on. Weights are told apart to one
 * part in 10^9 of all blocks together. */
void ech_cut_evenly(const double *weight, int blocks, int stages, int *cut);
/* The other way: layers[stages], the transformer layers between those cuts. */
void ech_cut_layers(const int *cut, int stages, int64_t *layers);

#endif
