/* SPDX-License-Identifier: Apache-2.0
 *
 * Lock-free ranks, as verify sees them. In which order they add lies between numbers, so which weights a rank reads nobody can replay: verify takes
 * them from the rank. One rank computes each gradient of the weights that its rank had read; and what all have made of the weights
 * with which a span began is the sum of all that they have added, of which nothing is lost.
 */
#ifndef ECH_APP_VERIFY_ADDED_H
#define ECH_APP_VERIFY_ADDED_H

#include "app/verify/verifier.h"

/* On rank 0, when the layout, the single rank and its twin are open: makes v->added. Destroy it,
 * also after an error. */
ech_status ech_added_create(ech_verifier *v);
void ech_added_destroy(ech_added *added); /* accepts NULL */

/* Whether the token of a ring comes and goes amid a span: what it meets is open, and so is the span's end. Otherwise it goes around
 * once behind all turns. */
bool ech_added_is_carried(const ech_design *design);
/* When the layout has run the span that begins with training step `step`: compares losses, gradients, and the weights at its
 * end, which the single rank then has. Collective. */
ech_status ech_verifier_compare_added(ech_verifier *v, int64_t step);

#endif
