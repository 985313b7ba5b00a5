/* SPDX-License-Identifier: Apache-2.0
 *
 * Builders of codes. Each adds a node that encodes the value and one that decodes the code right
 * before each reader in B and W. Private to src/layer.
 */
#ifndef ECH_LAYER_ENCODE_H
#define ECH_LAYER_ENCODE_H

#include "layer/layers.h"

void ech_block_encode_bits(ech_block *block, int value);
/* Room for non-zeros: block->options.encode_density. */
void ech_block_encode_sparse(ech_block *block, int value);
void ech_block_encode_places(ech_block *block, int value); /* a table of numbers below 16 */
void ech_block_encode_narrow(ech_block *block, int value, int bits); /* 16, 10 or 8 */

#endif
