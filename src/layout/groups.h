/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stages hold a parameter, for groups of ranks. Private to this room.
 */
#ifndef ECH_LAYOUT_GROUPS_H
#define ECH_LAYOUT_GROUPS_H

#include "layout/layout.h"

/* Whether `stage` holds the parameter; *first and *last: the first and the last stage that do. */
bool ech_layout_stages_of_param(const ech_layout *layout, int param, int stage, int *first,
                                int *last);

#endif
