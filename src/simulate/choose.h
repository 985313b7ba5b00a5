/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition = auto: stages, replicas and partition, chosen by simulation.
 */
#ifndef ECH_SIMULATE_CHOOSE_H
#define ECH_SIMULATE_CHOOSE_H

#include "layout/cost.h"
#include "schedule/schedule.h"

/* Replaces parallel.partition = auto by the candidate of ech_layout_propose with the shortest
 * training step; leaves any other value unchanged. Plans and simulates each candidate for all ranks
 * in this process, like `echelon plan --simulate`, and with virtual stages also cuts near the
 * fastest. Skips candidates that the schedule refuses or that exceed memory.device_limit, if set.
 * If there are too many ranks and micro-batches to simulate within seconds, the partitioner's
 * estimate decides. `model` is unsharded; `profile`: NULL: none, an error with "auto"; `kernels`:
 * of the run's type; `choice`: of parallel.schedule. Errors: as for ech_layout_propose; no
 * candidate can be run. */
ech_status ech_simulate_choice(ech_config *config, const ech_model *model,
                               const ech_profile *profile, const ech_kernels *kernels, int world,
                               ech_schedule_choice *choice);

#endif
