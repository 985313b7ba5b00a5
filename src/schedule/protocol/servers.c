/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter servers: w(t+1) = w(t) - v (1/T) sum_r g_r(w(t)). Each server keeps a shard of w and of
 * the optimizer's states; workers send it their gradients of that shard, and get w(t+1) (Li et al.
 * 2014).
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

static void update(ech_framing *f, int turn)
{
    ech_frame_update_summed(f, ECH_GROUP_WORLD, turn);
}

static int end(ech_framing *f)
{
    (void)f;
    return -1;
}

const ech_protocol ech_protocol_servers = {
    .worker = {ECH_STAGES(worker), ECH_COUNTED_TURNS, .update = update, .end = end},
    .server = {ECH_STAGES(server), ECH_COUNTED_TURNS, .update = update, .end = end},
    .schedule = ech_protocol_schedules_all,
    .space = ECH_SPACE_DEVICE,
    .lists_rows = ech_protocol_lists_no_rows,
    .joining = ech_protocol_gathers,
    .values = ech_protocol_no_values,
    .lists = ech_protocol_no_lists,
    .meets_every = ech_protocol_never,
    .mixes_every = ech_protocol_never,
    .clocks = ech_protocol_no_ranks,
    .adders = ech_protocol_one_rank,
    .skipping = {"update skipped", "parallel.strategy=synchronous", ECH_SKIPS},
    .alike = ECH_GROUP_EXPERT_DATA,
};
