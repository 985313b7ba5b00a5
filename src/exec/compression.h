/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two files of compressed gradients share. Private to exec.
 */
#ifndef ECH_EXEC_COMPRESSION_H
#define ECH_EXEC_COMPRESSION_H

#include "exec/state.h"

/* A parameter's whole gradient, as this rank has it, in the bucket's value. */
ech_tensor ech_compression_gradient(ech_exec *exec, const ech_step *step, int param);
/* The bucket's factors, or selections. */
char *ech_compression_sent(ech_exec *exec, const ech_step *step);

/* ---- chosen.c: parameters whose gradients are sent as selections; x: their numbers, matrices one
 * after the other ---- */

/* x loses what this rank has chosen of it. */
void ech_chosen_take(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x);
/* x becomes what all have chosen, in member order. */
void ech_chosen_sum(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x);
/* NORM: of that. */
void ech_chosen_norm(ech_exec *exec, const ech_step *step, int param);

#endif
