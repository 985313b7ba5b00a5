/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts a layout's virtual stages where the placement says. Private to this room.
 */
#ifndef ECH_LAYOUT_VIRTUAL_STAGE_H
#define ECH_LAYOUT_VIRTUAL_STAGE_H

#include "layout/layout.h"

void ech_layout_fill_virtual_stages(ech_layout *layout, ech_placement placement);

#endif
