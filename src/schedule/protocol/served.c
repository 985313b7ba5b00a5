/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the lists of workers that push, and of the servers that apply one push in each turn.
 */
#include "schedule/protocol/roles.h"

void ech_push_serve(ech_framing *f, int turn)
{
    f->begun = ech_frame_add(f, ECH_STEP_SERVE, turn, -1, -1);
}

/* Servers sum the workers' shares of the mean of layer states. Returns the step after which servers
 * have, and workers may receive, the mean. */
static int average(ech_framing *f, int bucket, int tally)
{
    bool serves = ech_layout_serves(f->plan->layout, f->plan->rank);
    int ready = tally;
    if (!serves) ready = ech_frame_average(f, ECH_STEP_DIFFERENCE, bucket, f->list->updates, tally);
    int sum = ech_frame_average(f, ECH_STEP_SCATTER_GRADS, bucket, 0, ready);
    f->list->step.at[sum].group = ECH_GROUP_SERVED;
    return serves ? ech_frame_average(f, ECH_STEP_OUTER_UPDATE, bucket, 1, sum) : sum;
}

/* After a span all ranks get the weights with all pushes applied, as `version`, and the mean of
 * layer states. It is the first version of them that servers make. */
static int meet(ech_framing *f, int version)
{
    int tally = ech_frame_add(f, ECH_STEP_TALLY, 0, -1, -1), buckets = (int)f->plan->bucket.n;
    bool serves = ech_layout_serves(f->plan->layout, f->plan->rank);
    ECH_FREED int *ready = ech_calloc((size_t)buckets + 1, sizeof *ready);
    for (int b = 0; b < buckets; b++) {
        bool averages = ech_protocol_averages(f->plan, &f->plan->bucket.at[b]);
        ready[b] = averages ? average(f, b, tally) : tally;
    }
    for (int b = 0; b < buckets; b++) {
        int gather = ech_frame_add(f, ECH_STEP_GATHER_WEIGHTS, 0, b, ready[b]);
        f->list->step.at[gather].group = ECH_GROUP_SERVED;
        f->list->step.at[gather].version = serves && ready[b] != tally ? 1 : version;
    }
    return ech_frame_reduce_span(f);
}

/* A worker's version follows the one that it has read. */
int ech_push_end_worker(ech_framing *f)
{
    return meet(f, f->list->updates + 1);
}

int ech_push_end_server(ech_framing *f)
{
    return meet(f, f->list->updates);
}

int ech_push_turns_of_server(const ech_schedule *schedule, const ech_layout *layout)
{
    return schedule->turns * ech_layout_workers(layout);
}

ech_joining ech_push_gathers(const ech_bucket *bucket)
{
    (void)bucket;
    return (ech_joining){ECH_STEP_GATHER_WEIGHTS, ECH_GROUP_SERVED};
}
