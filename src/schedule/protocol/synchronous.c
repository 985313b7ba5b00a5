/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronous training: w(t+1) = w(t) - v (1/T) sum_r g_r(w(t)), where v is the learning rate, g_r
 * the sum of the gradients of rank r's tokens, and T the number of all tokens. Under asynchronous
 * schedules each stage does that with the weight versions of the schedule. With parallel.zero each
 * rank updates its own shard of w.
 */
#include "schedule/protocol/roles.h"

static const ech_bucket_stage stages[] = {
    ECH_BUCKET_WRITE,
    ECH_BUCKET_SCATTER_EACH,
    ECH_STAGES_COMPRESS,
    ECH_BUCKET_REDUCE,
    ECH_BUCKET_SCATTER,
    ECH_BUCKET_NORM,
    ECH_BUCKET_GRADIENTS_OUT,
    ECH_BUCKET_OLD_WEIGHTS_OUT,
    ECH_BUCKET_STATES_IN,
    ECH_BUCKET_DECOMPRESS,
    ECH_BUCKET_STASH,
    ECH_BUCKET_STATISTICS,
    ECH_BUCKET_HOST_STATISTICS,
    ECH_BUCKET_STATISTICS_IN,
    ECH_BUCKET_FOLD_SHARDS,
    ECH_BUCKET_FOLD,
    ECH_BUCKET_STATISTICS_OUT,
    ECH_BUCKET_UPDATE,
    ECH_BUCKET_HOST_UPDATE,
    ECH_BUCKET_WEIGHTS_IN,
    ECH_BUCKET_MEET,
    ECH_BUCKET_WEIGHTS_OUT,
    ECH_BUCKET_STATES_OUT,
    ECH_BUCKET_ROOM,
    ECH_BUCKET_GATHER,
};

/* Stages of an asynchronous pipeline have not synchronized in the span. */
static int end(ech_framing *f)
{
    bool met = ech_weights_are_synchronous(f->plan->schedule->weights);
    return met ? -1 : ech_frame_reduce_span(f);
}

/* Asynchronous pipelines and delayed updates read past weights (app/verify/replay.h). */
const ech_serial_step ech_serial_synchronous[] = {
    ECH_OP(CHECK),           ECH_OP(EACH_STEP), ECH_OP(GATHER), ECH_OP(CHANGE),
    ECH_WITH(RUN, VERSIONS), ECH_OP(GRADIENTS), ECH_OP(LOSS),   ECH_OP(REPORTS),
    ECH_OP(COMPARE),         ECH_OP(END),       ECH_OP(END)};

const ech_protocol ech_protocol_synchronous = {
    .worker = {ECH_STAGES(stages), ECH_COUNTED_TURNS, .update = ech_frame_update_all, .end = end},
    .span = "an asynchronous schedule",
    .space = ECH_SPACE_DEVICE,
    ECH_SHARED_BY_MEMBERS,
    .joining = ech_protocol_gathers,
    ECH_NEVER_APART,
    ECH_SAME_STEP,
    .skipping = {"stages where it showed skipped their update",
                 "a synchronous schedule, such as parallel.schedule=1f1b", ECH_SKIPS},
    .alike = ECH_GROUP_EXPERT_DATA,
    .serial = {.equal = ECH_EQUAL_ALONE, .train = ech_serial_synchronous},
};
