/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon profile`: measures the costs of a run's blocks.
 */
#ifndef ECH_APP_PLAN_MEASURE_H
#define ECH_APP_PLAN_MEASURE_H

#include "app/setup/setup.h"

/* Every rank trains the whole model alone for `steps` training steps after one that does not count, all ranks at
 * the same time, so that they contend for memory as in the run. Medians and quartiles over steps and
 * micro-batches are averaged over the ranks. Then ranks 0 and 1 measure the link between them. `design`: of the
 * run. *out: the same on every rank. Reads the run's data, writes nothing. Collective. */
ech_status ech_measure_blocks(const ech_design *design, ech_comm *comm, int64_t steps,
                              ech_profile **out);

#endif
