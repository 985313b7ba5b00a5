/* SPDX-License-Identifier: Apache-2.0
 *
 * The token that goes around the ring of clusters (HogWild++; Zhang, Hsieh, Akella 2016). Its visit v is at cluster v mod n. There the
 * cluster's first rank relays what all its ranks have added, and sends the token on. The next visit begins behind as many turns more as
 * parallel.token_updates makes. So visits begin behind the same turns on all ranks, and a list says which are its rank's; and the token
 * waits for ranks, not they for it or each other, unless they are so many turns apart.
 *
 * What has been added behind a cluster's last visit no other has: so behind the last turn, when all ranks have met, the token goes
 * around once more.
 */
#include "schedule/framing.h"

static int clusters_of(const ech_framing *f)
{
    return f->plan->layout->clusters;
}

/* Whether the list's rank has the token then. */
static bool leads(const ech_framing *f, int visit)
{
    return ech_layout_leader(f->plan->layout, visit) == f->plan->rank;
}

static int add_message(ech_framing *f, ech_step_kind kind, int turn, int peer, int after)
{
    int here = ech_frame_add(f, kind, turn, -1, after);
    ech_step *step = &f->list->step.at[here];
    step->peer = ech_layout_leader(f->plan->layout, peer);
    step->bytes = f->plan->persistent.at[f->plan->token].bytes;
    return here;
}

/* The token comes from the visit before, and what the cluster has added goes on. */
static void take(ech_framing *f, int visit, int turn, int after)
{
    int before = clusters_of(f) + visit - 1, received = -1;
    if (visit > 0) received = add_message(f, ECH_STEP_RECV_TOKEN, turn, before, f->passed);
    for (int b = 0; b < (int)f->plan->bucket.n; b++) {
        int relay = ech_frame_add(f, ECH_STEP_RELAY, turn, b, b ? -1 : after);
        if (b == 0 && received >= 0) ech_list_add_after(f->list, received);
        if (b == 0 && f->passed >= 0) ech_list_add_after(f->list, f->passed);
        f->list->step.at[relay].count = visit;
    }
}

/* Behind the last visit it stays. */
static void visit_next(ech_framing *f, int turn, int after)
{
    int visit = f->visits++, turns = f->plan->layout->token_turns;
    if (!leads(f, visit)) return;
    take(f, visit, turn, after);
    if (f->visits < f->list->turns / turns + clusters_of(f))
        f->passed =
            add_message(f, ECH_STEP_SEND_TOKEN, turn, visit + 1, ech_frame_last_compute(f->list));
}

void ech_frame_token(ech_framing *f, int turn)
{
    bool goes_on = (turn + 1) % f->plan->layout->token_turns == 0;
    if (clusters_of(f) > 1 && goes_on) visit_next(f, turn, -1);
}

void ech_frame_last_round(ech_framing *f, int met)
{
    for (int i = 0; i < clusters_of(f); i++) visit_next(f, f->list->turns - 1, met);
}
