/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that save together agree on. All calls are collective. Where ranks do not agree,
 * member 0 says what about and the others return ECH_EABORTED.
 */
#ifndef ECH_CHECKPOINT_AGREE_H
#define ECH_CHECKPOINT_AGREE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "checkpoint/stored.h"

/* All mean the same step and the same two files. */
ech_status ech_agree_on_files(ech_group *world, int64_t step, const ech_stored files[2]);
/* The boxes of all members together have every element of each tensor once. */
ech_status ech_agree_on_boxes(ech_group *world, const ech_saved_tensor *tensors, int n);
/* Each hash was made by one member and is zero on the others; then all have all. */
ech_status ech_agree_on_hashes(ech_group *world, ech_hash *hashes, int64_t n);
/* Adds up each member's, modulo 2^64. */
ech_status ech_agree_on_sums(ech_group *world, uint64_t *sums, int64_t n);

#endif
