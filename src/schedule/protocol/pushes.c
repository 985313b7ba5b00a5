/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter servers that update at each push: w(k+1) = w(k) - v g_r(w(k')), where k' is the update
 * after which worker r last got the weights, and g_r is clipped by its own norm (ASP: Dean et al.
 * 2012, Downpour). Under bounded staleness no worker is more than parallel.staleness training steps
 * ahead of the slowest one (SSP: Ho et al. 2013). The choice of the next push is a pure function of
 * the arrivals (schedule/protocol/serving.h).
 *
 * Each worker commits layer states, such as batch norm's running statistics, by its own samples. At
 * a span's end servers make their mean, a shard each, and all workers receive it.
 */
#include "schedule/protocol/roles.h"

static const ech_bucket_stage worker[] = {
    ECH_BUCKET_WRITE,
    ECH_BUCKET_NORM,
    ECH_BUCKET_PUSH,
    ECH_BUCKET_GATHER,
};
static const ech_bucket_stage server[] = {
    ECH_BUCKET_WRITE, ECH_BUCKET_PUSH, ECH_STAGES_STATISTICS, ECH_BUCKET_UPDATE, ECH_BUCKET_GATHER,
};

/* A worker sends the clip factor of its push before the push. */
static void announce(ech_framing *f, int turn)
{
    ech_frame_clip(f, turn);
    ech_frame_add(f, ECH_STEP_ANNOUNCE, turn, -1, -1);
    ech_frame_updates(f);
}

static void update(ech_framing *f, int turn)
{
    (void)turn;
    ech_frame_updates(f);
}

/* Workers continue from the result of their pushes: w_k = w. Each has layer states of its own, and
 * the span ends with their mean. */
static const ech_serial_step serial[] = {ECH_OP(CHECK),
                                         ECH_OP(SERVES),
                                         ECH_OP(ORDER),
                                         ECH_OP(CHANGE),
                                         ECH_OP(EACH_WORKER),
                                         ECH_WITH(STORE, OWN),
                                         ECH_OP(END),
                                         ECH_OP(EACH_STEP),
                                         ECH_OP(EACH_PUSH),
                                         ECH_WITH(STATES, OWN),
                                         ECH_WITH(RUN, OWN),
                                         ECH_WITH(STORE, OWN),
                                         ECH_OP(END),
                                         ECH_OP(LOSS),
                                         ECH_OP(END),
                                         ECH_MEET(NULL, ech_serial_average),
                                         ECH_WITH(STATES, OWN),
                                         ECH_OP(COMPARE),
                                         ECH_OP(END)};

const ech_protocol ech_protocol_pushes = {
    .worker = {ECH_STAGES(worker), ECH_OWN_STATES, ECH_PUSHING_WORKER, .update = announce,
               .sleeps = ECH_STEP_ANNOUNCE},
    .server = {ECH_STAGES(server), ECH_PUSHED_SERVER, .update = update},
    .averages = true,
    .schedule = ech_protocol_pulls,
    .clocks = ech_layout_workers,
    .adders = ech_protocol_one_rank,
    .skipping = {"pushes in which it showed updated nothing", "parallel.strategy=parameter_server",
                 ECH_SKIPS},
    ECH_PUSHES,
    .serial = {.keeper = ECH_KEPT_BY_SERVERS, .equal = ECH_EQUAL_ALWAYS, .train = serial},
};
