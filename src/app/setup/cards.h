/* SPDX-License-Identifier: Apache-2.0
 *
 * Which GPU each rank has. A number says nothing of it: a launcher may show each process another
 * one as GPU 0 (srun --gpus-per-task=1, CUDA_VISIBLE_DEVICES), or all the same one.
 */
#ifndef ECH_APP_SETUP_CARDS_H
#define ECH_APP_SETUP_CARDS_H

#include "comm/comm.h"
#include "config/config.h"
#include "device/device.h"

/* Ranks of `local_ranks` on a machine that share one device, by the run's keys: one unless
 * parallel.share_device is true, which ech_cards_check verifies. */
int ech_cards_sharers(const ech_config *config, const ech_device *device, int local_ranks);

/* Fails if two ranks have the same GPU and parallel.share_device is not true. mine: the machine and
 * the bus of this rank's, as "0000:3b:00.0 of node3". Collective over all ranks, with one result.
 * Errors: ECH_EUSAGE, with both ranks; the group's. */
ech_status ech_cards_check(const ech_config *config, ech_comm *comm, const char *mine);
/* The same for GPU `index` of a device; nothing for others. */
ech_status ech_cards_check_device(const ech_config *config, ech_comm *comm,
                                  const ech_device *device, int index);

#endif
