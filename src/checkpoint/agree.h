/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement of the ranks that save a checkpoint. All calls but ech_joint_begin are collective over
 * their group.
 */
#ifndef ECH_CHECKPOINT_AGREE_H
#define ECH_CHECKPOINT_AGREE_H

#include <stdbool.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "checkpoint/stored.h"
#include "comm/comm.h"

/* Checks that the training step and the headers of the files, by ech_checkpoint_file, are equal on
 * all members. If members disagree, here and below, member 0 logs how and returns ECH_EINTERNAL,
 * and the others return ECH_EABORTED. */
ech_status ech_agree_on_files(ech_group *world, int64_t step,
                              const ech_stored files[ECH_FIRST_TEXT]);
/* Checks that the boxes of all members together cover each element of each tensor exactly once. */
ech_status ech_agree_on_boxes(ech_group *world, const ech_saved_tensor *tensors, int n);
/* All-reduces `sums` in place: each of the n numbers becomes the sum of all members', modulo 2^64.
 * Compares nothing. */
ech_status ech_agree_on_sums(ech_group *world, uint64_t *sums, int64_t n);

/* ---- joint work ---- Between begin and end each member works on files on its own; no member
 * leaves the end before all have reached it. The work can take longer than the group's deadline. So
 * members do a small all-reduce every quarter of the deadline: a working member in the calls of
 * ech_tick that file functions make (base/tick.h), a finished one in ech_joint_end. The deadline
 * passes only if a single system call of a member (a write of 64 MiB, an fsync) takes that long. */

typedef struct ech_joint {
    ech_group *group;
    double every;   /* seconds between two all-reduces */
    double next;    /* time of the next one, in seconds of ech_clock_now */
    bool failed;    /* some member's work has failed; the others continue to their end */
    ech_status met; /* the first error of an all-reduce, or ECH_OK */
} ech_joint;

/* Sets this thread's ech_tick and sends nothing; all members must call it. Until the end *joint
 * must not move, and this thread must not use the group for anything else. */
void ech_joint_begin(ech_joint *joint, ech_group *group);
/* Collective. work: the status of this member's work. Returns ECH_OK if all succeeded; else this
 * member's failure, or ECH_EABORTED if only others failed; ECH_ECOMM if the deadline passed. */
ech_status ech_joint_end(ech_joint *joint, ech_status work);
/* The same for work whose failure ends the job: the others learn of it by the job's end. */
ech_status ech_joint_end_or_fail(ech_joint *joint, ech_status work);

#endif
