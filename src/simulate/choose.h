/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition = auto: stages, replicas and cuts by rehearsal.
 */
#ifndef ECH_SIMULATE_CHOOSE_H
#define ECH_SIMULATE_CHOOSE_H

#include "layout/cost.h"
#include "schedule/schedule.h"

/* Replaces parallel.partition = auto by what takes the shortest step: of what the partitioner finds and of
 * all grids that are cut evenly, each planned for all ranks and simulated as `echelon plan --simulate` does,
 * whatever the schedule refuses left out, and what does not fit a memory.device_limit that is set. Where
 * ranks and micro-batches are too many to simulate all that in seconds, the partitioner's own count of
 * seconds decides. Another parallel.partition is left as it is.
 * `model` is uncut; `profile`: what blocks cost (NULL: not known); `kernels`: of the run's type; `choice`: of
 * parallel.schedule. Errors: those of ech_layout_propose; nothing that is proposed can be run. */
ech_status ech_simulate_choice(ech_config *config, const ech_model *model,
                               const ech_profile *profile, const ech_kernels *kernels, int world,
                               ech_simulated_choice *choice);

#endif
