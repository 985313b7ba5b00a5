/* SPDX-License-Identifier: Apache-2.0
 *
 * Central storage: w(t+1) = w(t) - v (1/T) sum_r g_r(w(t)), with one copy of w in shared memory,
 * which all ranks read. Each rank has the sum of its shard of the gradients and updates that shard
 * (tf.distribute's CentralStorageStrategy).
 */
#include "schedule/protocol/roles.h"

static const ech_bucket_stage stages[] = {
    ECH_BUCKET_WRITE,  ECH_STAGES_COMPRESS,   ECH_BUCKET_REDUCE, ECH_BUCKET_SCATTER,
    ECH_BUCKET_NORM,   ECH_BUCKET_DECOMPRESS, ECH_BUCKET_STASH,  ECH_STAGES_STATISTICS,
    ECH_BUCKET_UPDATE, ECH_BUCKET_PUBLISH,
};

/* Members update their shards with any parallel.zero. */
static void shares(const ech_plan *plan, ech_bucket *bucket, bool members)
{
    ech_protocol_shares_by_zero(plan, bucket, members);
    if (members) bucket->of_states.whose = ECH_WHOSE_SHARD;
}

static ech_joining publishes(const ech_bucket *bucket)
{
    return (ech_joining){ECH_STEP_PUBLISH, bucket->group};
}

const ech_protocol ech_protocol_central = {
    .worker = {ECH_STAGES(stages), ECH_COUNTED_TURNS, .update = ech_frame_update_all},
    .space = ECH_SPACE_SHARED,
    .owner = ech_protocol_each_owns,
    .share = shares,
    .joining = publishes,
    ECH_NEVER_APART,
    ECH_SAME_STEP,
    .skipping = {.remedy = ECH_SKIPS},
    .alike = ECH_GROUP_EXPERT_DATA,
    .serial = {.keeper = ECH_KEPT_BY_ALL,
               .equal = ECH_EQUAL_ALONE,
               .train = ech_serial_synchronous},
};
