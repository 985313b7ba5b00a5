/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mesh as text.
 */
#ifndef ECH_APP_PLAN_AXES_TEXT_H
#define ECH_APP_PLAN_AXES_TEXT_H

#include "app/setup/setup.h"

/* Appends "2 stages of 2 chunks x 3 replicas x 2 context (ring) x 2 tensor, sequence parallel". Axes of one rank
 * are left out; for one rank only its sequence chunks are given. */
void ech_print_axes(const ech_design *design, ech_text *out);

#endif
