/* SPDX-License-Identifier: Apache-2.0
 *
 * What groups of ranks ask of the table of ranks. Private to this room.
 */
#ifndef ECH_LAYOUT_GROUPS_H
#define ECH_LAYOUT_GROUPS_H

#include "layout/layout.h"

/* Whether a stage holds the parameter, and the first and last stage that do. */
bool ech_layout_stages_of_param(const ech_layout *layout, int param, int stage, int *first,
                                int *last);

#endif
