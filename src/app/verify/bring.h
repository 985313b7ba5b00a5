/* SPDX-License-Identifier: Apache-2.0
 *
 * For verify/ alone: tensors on their way from the layout's ranks to rank 0, as fp64 whatever they are.
 */
#ifndef ECH_APP_VERIFY_BRING_H
#define ECH_APP_VERIFY_BRING_H

#include "app/verify/verifier.h"

/* Between a tensor of fp32 or fp64 and numbers: from fp32, and back, no bit is lost. */
void ech_verifier_take(const ech_tensor *x, double *to);
void ech_verifier_give(const ech_tensor *x, const double *from);

/* A stage's slices of a parameter, or of what has its shape, make up `whole` on rank 0. `mine`: this rank's
 * (NULL where it holds none). Collective. */
ech_status ech_verifier_bring(ech_verifier *v, const ech_copy *copy, double *mine, double *whole);

#endif
