/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that members of a group do each for itself, and that ends for all of them together.
 * Disks differ, and what one member does alone others wait for: longer than a wait may last. So while
 * they work they meet every quarter of that time, at ticks (base/tick.h), and who has ended meets the
 * others until they have. A wait then lasts too long only if a member's work has stood still: a single
 * call of the system (a write of 64 MiB, an fsync) that takes as long.
 */
#ifndef ECH_CHECKPOINT_JOINT_H
#define ECH_CHECKPOINT_JOINT_H

#include <stdbool.h>

#include "comm/comm.h"

typedef struct ech_joint {
    ech_group *group;
    double every, next; /* seconds, and on the clock */
    bool failed;        /* another member's work */
    ech_status met;     /* how the meetings went */
} ech_joint;

/* Collective, as is the end: until then this thread uses the group for nothing else. */
void ech_joint_begin(ech_joint *joint, ech_group *group);
/* `work`: how it went on this member. OK if it went well on all; otherwise a member's own failure, or
 * ECH_EABORTED if another one failed; ECH_ECOMM past the deadline. */
ech_status ech_joint_end(ech_joint *joint, ech_status work);

#endif
