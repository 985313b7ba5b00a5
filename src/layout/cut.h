/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition as cuts between blocks. Private to this room.
 */
#ifndef ECH_LAYOUT_CUT_H
#define ECH_LAYOUT_CUT_H

#include "config/config.h"

/* Of a model of `blocks` blocks, the first and last of which (embedding, head) are no transformer
 * layers; cut[stages + 1]. The configuration is resolved: "even" or a list. */
void ech_cut_blocks(const ech_config *config, int blocks, int stages, int *cut);
/* The other way: the list of transformer layers for those cuts. */
void ech_cut_print(const int *cut, int stages, ech_text *out);

#endif
