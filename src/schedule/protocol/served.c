/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the lists of workers that push, and of the servers that apply one push in each turn.
 */
#include "schedule/protocol/roles.h"

void ech_push_serve(ech_framing *f, int turn)
{
    f->begun = ech_frame_add(f, ECH_STEP_SERVE, turn, -1, -1);
}

/* After a span all ranks get the weights with all pushes applied, as `version`. */
static int meet(ech_framing *f, int version)
{
    int last = ech_frame_add(f, ECH_STEP_TALLY, 0, -1, -1);
    for (int b = 0; b < (int)f->plan->bucket.n; b++) {
        int gather = ech_frame_add(f, ECH_STEP_GATHER_WEIGHTS, 0, b, last);
        f->list->step.at[gather].group = ECH_GROUP_SERVED;
        f->list->step.at[gather].version = version;
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
