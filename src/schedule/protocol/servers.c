/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter servers: w(t+1) = w(t) - v (1/T) sum_r g_r(w(t)). Each server stores a shard of w and
 * of the optimizer's states; workers send it their gradients of that shard, and get w(t+1) (Li et
 * al. 2014).
 */
#include "schedule/protocol/roles.h"

static const ech_bucket_stage worker[] = {
    ECH_BUCKET_WRITE,
    ECH_BUCKET_SCATTER,
    ECH_BUCKET_GATHER,
};
static const ech_bucket_stage server[] = {
    ECH_BUCKET_WRITE,      ECH_BUCKET_SCATTER, ECH_BUCKET_NORM,
    ECH_STAGES_STATISTICS, ECH_BUCKET_UPDATE,  ECH_BUCKET_GATHER,
};

const ech_protocol ech_protocol_servers = {
    .worker = {ECH_STAGES(worker), ECH_COUNTED_TURNS, .update = ech_frame_update_all},
    .server = {ECH_STAGES(server), ECH_COUNTED_TURNS, .update = ech_frame_update_all},
    .space = ECH_SPACE_DEVICE,
    ECH_SHARED_BY_SERVERS,
    .joining = ech_protocol_gathers,
    ECH_NEVER_APART,
    ECH_SAME_STEP,
    .skipping = {.remedy = ECH_SKIPS},
    .alike = ECH_GROUP_EXPERT_DATA,
    .serial = {.keeper = ECH_KEPT_BY_SERVERS,
               .equal = ECH_EQUAL_ALONE,
               .train = ech_serial_synchronous},
};
