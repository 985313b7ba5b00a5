/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mesh as text.
 */
#ifndef ECH_APP_PLAN_AXES_TEXT_H
#define ECH_APP_PLAN_AXES_TEXT_H

#include "app/setup/setup.h"

/* Appends "2 stages of 2 chunks x 3 replicas x 2 context (ring) x 2 tensor, sequence parallel, 4 sequence
 * chunks". Axes of one rank, and what is not used, are left out. Unequal replicas are given per stage: "3 stages
 * of 3, 1 and 1 replicas". */
void ech_print_axes(const ech_design *design, ech_text *out);

#endif
