/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a plugin's tensors between guard pages, so that a function that accesses memory outside
 * of its tensors is found.
 */
#ifndef ECH_KERNEL_GUARDED_H
#define ECH_KERNEL_GUARDED_H

#include "kernel/kernel.h"

/* Calls call->run with copies of the tensors. Each copy ends at a page that cannot be accessed.
 * Copies back the tensors that `run` may write. An access after a tensor ends the process; so do
 * writes before a tensor and writes of tensors that it may only read, when `run` returns. The
 * errors name the function. */
void ech_guarded_run(const ech_user_call *call);

#endif
