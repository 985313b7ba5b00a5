/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring what the blocks of a run cost.
 */
#ifndef ECH_APP_PLAN_MEASURE_H
#define ECH_APP_PLAN_MEASURE_H

#include "app/setup/setup.h"

/* Every rank trains the whole model alone, all at the same time, so that they disturb each other as
 * in the run; medians and quartiles over steps and micro-batches are averaged over the ranks. Then ranks 0
 * and 1 send each other messages. `design`: of the run's ranks. Collective. *out: on every rank.
 * The run's data is read, nothing is written. */
ech_status ech_measure_blocks(const ech_design *design, ech_comm *comm, int64_t steps,
                              ech_profile **out);

#endif
