/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight versions, from the papers' equations.
 */
#include "app/verify/replay.h"

#include <math.h>

#include "schedule/numbering.h"

/* Micro-batches that a rank of the stage begins before its first backward ends. Their number is the
 * workers of this and the later stages, divided by the stage's replicas. Narayanan et al. 2019,
 * section 3.2: NOAM for the input stage, d - i for stage i of d. */
static int64_t in_flight(const ech_layout *layout, int stage)
{
    double workers = 0;
    for (int s = stage; s < layout->stages; s++) workers += layout->replicas[s];
    return (int64_t)ceil(workers / layout->replicas[stage]);
}

/* The newest version when the stage begins the micro-batch, its replica's k-th: w_i(t - n + i). An
 * update is made when all micro-batches of a training step have ended. */
static int newest_at_forward(const ech_layout *layout, int turn, int64_t q, int stage)
{
    int rank = layout->first_rank[stage]; /* of the stage's replicas any does as many */
    ech_numbering own = {ech_layout_micro_batches(layout, rank), 1};
    int k = ech_micro_number(own, (ech_micro){turn, (int)ech_layout_own_micro(layout, rank, q), 0});
    int64_t through = k - (in_flight(layout, stage) - 1);
    return through > 0 ? ech_micro_at(own, (int)through).turn : 0;
}

int ech_replay_version(const ech_layout *layout, const ech_schedule *schedule, int turn, int64_t q,
                       int stage, bool backward)
{
    if (schedule->weights == ECH_WEIGHTS_FLUSHED) return turn;
    if (ech_weights_keep_previous(schedule->weights)) return turn - 1; /* W(t - 1) */
    if (backward && !schedule->stashing) return turn; /* all steps before it have ended */
    return newest_at_forward(layout, turn, q, schedule->vertical_sync ? 0 : stage);
}
