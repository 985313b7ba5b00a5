/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's practice before the first step.
 */
#ifndef ECH_APP_SETUP_PRACTICE_H
#define ECH_APP_SETUP_PRACTICE_H

#include "app/setup/setup.h"

/* Runs each of the rank's training and validation lists once, on an arena of its own and without
 * messages, if a library's kernels will move messages on a GPU. A kernel's first call loads it, a
 * library's first product chooses an algorithm and may allocate memory, and both wait until the GPU
 * is idle. Before the first step it is; later, kernels that receive may wait there for ranks that
 * wait for this one. Errors of a kernel that the build lacks appear here, too. Other runs: does
 * nothing. Servers take pushes in turn here. Not collective. */
ech_status ech_practise(const ech_design *design, const ech_comm *comm);

#endif
