/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement of the ranks that save a checkpoint. All calls are collective. If ranks disagree, member 0 logs the
 * difference and the others return ECH_EABORTED.
 */
#ifndef ECH_CHECKPOINT_AGREE_H
#define ECH_CHECKPOINT_AGREE_H

#include <stdbool.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "checkpoint/stored.h"
#include "comm/comm.h"

/* Checks that step and headers of both files are equal on all members. */
ech_status ech_agree_on_files(ech_group *world, int64_t step, const ech_stored files[2]);
/* Checks that the boxes of all members together cover each element of each tensor exactly once. */
ech_status ech_agree_on_boxes(ech_group *world, const ech_saved_tensor *tensors, int n);
/* All-reduce: sums modulo 2^64. */
ech_status ech_agree_on_sums(ech_group *world, uint64_t *sums, int64_t n);

/* ---- joint work ----
 *
 * File work that each member of a group does on its own between begin and end, and that ends on all together. It can
 * take longer than the group's deadline. So members do a small all-reduce every quarter of the deadline: working
 * ones at ticks (base/tick.h), finished ones until all have finished. The deadline then passes only if a single
 * system call of a member (a write of 64 MiB, an fsync) takes that long. */

typedef struct ech_joint {
    ech_group *group;
    double every, next; /* seconds between two all-reduces; time of the next */
    bool failed;        /* another member's work has failed */
    ech_status met;     /* status of the all-reduces */
} ech_joint;

/* Collective, like the end. Until the end this thread must not use the group for anything else. */
void ech_joint_begin(ech_joint *joint, ech_group *group);
/* work: the status of this member's work. Returns ECH_OK if all succeeded; else this member's failure, or
 * ECH_EABORTED if only others failed; ECH_ECOMM if the deadline passed. */
ech_status ech_joint_end(ech_joint *joint, ech_status work);

#endif
