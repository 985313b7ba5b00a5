/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that the two files of gradient compression share. Private to exec.
 */
#ifndef ECH_EXEC_COMPRESSION_H
#define ECH_EXEC_COMPRESSION_H

#include "exec/state.h"

/* A parameter's full gradient on this rank, in the bucket's value. */
ech_tensor ech_compression_gradient(ech_exec *exec, const ech_step *step, int param);
/* A contiguous gradient or residual of a parameter as rows of its matrix, those of a stack one
 * after the other. */
ech_tensor ech_compression_rows(const ech_exec *exec, int param, const ech_tensor *x);

/* ---- chosen.c: parameters whose gradients are sent as selections; x: the gradient, matrix by
 * matrix ---- */

/* Subtracts this rank's selection from x: the rest is the residual. */
void ech_chosen_take(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x);
/* Sets x to the sum of all ranks' selections, in member order. */
void ech_chosen_sum(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x);
/* NORM: computes the norm of that sum. */
void ech_chosen_norm(ech_exec *exec, const ech_step *step, int param);

#endif
