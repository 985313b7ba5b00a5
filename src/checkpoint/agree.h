/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that save together agree on. All calls are collective. Where ranks do not agree,
 * member 0 says what about and the others return ECH_EABORTED.
 */
#ifndef ECH_CHECKPOINT_AGREE_H
#define ECH_CHECKPOINT_AGREE_H

#include <stdbool.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "checkpoint/stored.h"
#include "comm/comm.h"

/* All mean the same step and the same two files. */
ech_status ech_agree_on_files(ech_group *world, int64_t step, const ech_stored files[2]);
/* The boxes of all members together have every element of each tensor once. */
ech_status ech_agree_on_boxes(ech_group *world, const ech_saved_tensor *tensors, int n);
/* Each hash was made by one member and is zero on the others; then all have all. */
ech_status ech_agree_on_hashes(ech_group *world, ech_hash *hashes, int64_t n);
/* Adds up each member's, modulo 2^64. */
ech_status ech_agree_on_sums(ech_group *world, uint64_t *sums, int64_t n);

/* ---- work done together ----
 *
 * Work that members of a group do each for itself, and that ends for all of them together.
 * Disks differ, and what one member does alone others wait for: longer than a wait may last. So while
 * they work they meet every quarter of that time, at ticks (base/tick.h), and who has ended meets the
 * others until they have. A wait then lasts too long only if a member's work has stood still: a single
 * call of the system (a write of 64 MiB, an fsync) that takes as long. */

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
