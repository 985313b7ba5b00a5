/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid in words.
 */
#ifndef ECH_APP_PLAN_AXES_TEXT_H
#define ECH_APP_PLAN_AXES_TEXT_H

#include "app/setup/setup.h"

/* "2 stages of 2 chunks x 3 replicas x 2 context (ring) x 2 tensor, sequence parallel". Axes along which
 * there is one rank are left out: of one rank nothing is said but how it cuts sequences. */
void ech_print_axes(const ech_design *design, ech_text *out);

#endif
