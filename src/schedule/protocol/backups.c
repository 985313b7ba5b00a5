/* SPDX-License-Identifier: Apache-2.0
 *
 * Backup workers: w(t+1) = w(t) - v (1/T) sum of the first N pushes of training step t, with N + b
 * workers, where T is the number of tokens of the N pushes. Later pushes of the step are dropped
 * (Chen et al. 2016).
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

static void announce(ech_framing *f, int turn)
{
    ech_frame_add(f, ECH_STEP_ANNOUNCE, turn, -1, -1);
    ech_frame_updates(f);
}

/* Servers clip their sum (gradient clipping). Each has the squares of its shard. */
static void update(ech_framing *f, int turn)
{
    int summed = ech_frame_add(f, ECH_STEP_NORM_SUM, turn, -1, -1);
    int folded = ech_frame_reduce(f, ECH_GROUP_SERVERS, turn, ECH_SCALAR_SQUARES_SUM, 1, summed);
    ech_frame_add(f, ECH_STEP_CLIP, turn, -1, folded);
    ech_frame_updates(f);
}

static void schedule(const ech_config *config, const ech_layout *layout, ech_schedule *out)
{
    ech_protocol_pulls(config, layout, out);
    out->backups = (int)config->parallel.backup_workers;
}

static const ech_serial_step serial[] = {
    ECH_OP(CHECK),  ECH_OP(SERVES),        ECH_OP(SUM_ORDER),
    ECH_OP(CHANGE), ECH_OP(EACH_STEP),     ECH_WITH(STORE, BEGUN),
    ECH_OP(CLEAR),  ECH_OP(EACH_SUMMAND),  ECH_WITH(RUN, NEWEST),
    ECH_OP(ADD),    ECH_WITH(LOAD, BEGUN), ECH_OP(END),
    ECH_OP(LOSS),   ECH_OP(MEAN),          ECH_WITH(RUN, NEWEST),
    ECH_OP(END),    ECH_OP(COMPARE),       ECH_OP(END)};

const ech_protocol ech_protocol_backups = {
    .worker = {ECH_STAGES(worker), ECH_PUSHING_WORKER, .update = announce,
               .sleeps = ECH_STEP_COUNT},
    .server = {ECH_STAGES(server), ECH_PUSHED_SERVER, .update = update},
    .schedule = schedule,
    ECH_SAME_STEP,
    .skipping = {"update skipped", "parallel.backup_workers=0", ECH_SKIPS},
    ECH_PUSHES,
    .serial = {.keeper = ECH_KEPT_BY_SERVERS, .train = serial},
};
