/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that a browser is: one core, to which nothing can be bound, in place of
 * device/cores.c; and no transports between processes, in place of comm/mpi.c and comm/nccl.c. A
 * plan names its transport and opens none.
 */
#include "comm/backend.h"
#include "device/cores.h"

ech_core_set ech_cores_mine(void)
{
    return (ech_core_set){.word = {1}};
}

int ech_cores_count(const ech_core_set *set)
{
    return (int)(set->word[0] & 1);
}

void ech_cores_release(void)
{
}

static const char *lacks(void)
{
    return "a browser sends no messages; it only plans";
}

const ech_comm_backend ech_comm_mpi = {.name = "mpi", .lacks = lacks};
const ech_comm_backend ech_comm_nccl = {.name = "nccl", .lacks = lacks};
