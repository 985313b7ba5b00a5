/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks one rank's messages: if the neighbouring virtual stage is on another rank, each activation
 * and each gradient is sent and received once.
 */
#include "check/checker.h"

typedef struct mail {
    const ech_plan *plan;
    const ech_list *list;
    const ech_block_steps *blocks;
    int *message; /* [(kind * chunks + chunk) * micro_batches + micro], or -1 */
    int *waiter;  /* [steps] the first compute step that waits for it, or the list's length */
} mail;

/* Messages between neighbours; check/held.c and check/shared.c check the others. */
static bool is_message(ech_step_kind kind)
{
    return (ech_step_kind_sends(kind) || ech_step_kind_receives(kind)) &&
           ech_step_kind_is_of_blocks(kind);
}

static int *message_of(const mail *m, ech_step_kind kind, int chunk, int micro)
{
    return &m->message[((int)kind * m->blocks->chunks + chunk) * m->blocks->micro_batches + micro];
}

/* True if nothing before the boundary is trained, so that no gradient crosses it. */
static bool is_frozen_below(const mail *m, ech_step_kind kind, int chunk)
{
    const ech_block_steps *b = m->blocks;
    int block = ech_step_kind_is_at_output(kind) ? b->end[chunk] : b->first[chunk];
    return m->plan->model->block.at[block]->frozen_below;
}

/* The rank at the other end; -1: there is none, or it is this one. */
static int find_peer(const mail *m, ech_step_kind kind, int chunk, int micro)
{
    const ech_layout *layout = m->plan->layout;
    int stage =
        ech_layout_neighbour(layout, m->plan->rank, chunk, ech_step_kind_is_at_output(kind));
    if (stage < 0 || (ech_step_kind_is_gradient(kind) && is_frozen_below(m, kind, chunk)))
        return -1;
    int peer = ech_layout_rank_of(layout, stage, ech_list_global_micro(m->plan, m->list, micro),
                                  m->plan->rank);
    return peer == m->plan->rank ? -1 : peer;
}

/* The compute step that makes what is sent (its last), or needs what is received (its first). */
static int find_user(const mail *m, ech_step_kind kind, int chunk, int micro)
{
    const ech_block_steps *b = m->blocks;
    int block = ech_step_kind_is_at_output(kind) ? b->end[chunk] - 1 : b->first[chunk];
    bool sends = ech_step_kind_sends(kind), forward = !ech_step_kind_is_gradient(kind);
    ech_phase phase = forward ? ECH_FORWARD : ECH_BACKWARD_INPUT;
    int step = sends ? ech_block_step(b, chunk, micro, block, phase)
                     : ech_block_step_first(b, chunk, micro, block, phase);
    if (step >= 0 || forward || sends) return step;
    return ech_block_step_first(b, chunk, micro, block, ECH_BACKWARD_WEIGHT);
}

static ech_status enter(mail *m, int s)
{
    const ech_step *step = &m->list->step.at[s];
    const ech_block_steps *b = m->blocks;
    if (ech_step_kind_is_gradient(step->kind) && !ech_list_trains(m->list))
        return ECH_REJECT(m, s, "has nothing to carry in this list");
    if (step->chunk < 0 || step->chunk >= b->chunks || step->micro < 0 ||
        step->micro >= b->micro_batches)
        return ECH_REJECT(m, s, "is of no micro-batch of this rank");
    if (step->block !=
        (ech_step_kind_is_at_output(step->kind) ? b->end[step->chunk] - 1 : b->first[step->chunk]))
        return ECH_REJECT(m, s, "is of a block that has no neighbour there");
    if (step->turn != ech_micro_at(m->list->numbering, step->micro).turn)
        return ECH_REJECT(m, s, "is counted to turn %d", step->turn);
    int peer = find_peer(m, step->kind, step->chunk, step->micro);
    if (peer != step->peer)
        return ECH_REJECT(m, s, "has peer %d; its micro-batch is rank %d's", step->peer, peer);
    if (step->bytes <= 0) return ECH_REJECT(m, s, "has no bytes");
    int *slot = message_of(m, step->kind, step->chunk, step->micro);
    if (*slot >= 0) return ECH_REJECT(m, s, "is the same message as step %d", *slot);
    *slot = s;
    return ECH_OK;
}

/* Waiting for a collective includes the collective's dependencies. */
static void find_waiters(mail *m)
{
    const ech_list *list = m->list;
    for (size_t s = 0; s < list->step.n; s++) m->waiter[s] = (int)list->step.n;
    for (size_t s = list->step.n; s-- > 0;) {
        const ech_step *step = &list->step.at[s];
        int waiter = step->lane == ECH_LANE_COMPUTE ? (int)s : m->waiter[s];
        bool counts = step->lane == ECH_LANE_COMPUTE || step->lane == ECH_LANE_COLLECTIVE;
        for (int i = 0; i < step->afters && counts; i++) {
            int *waited = &m->waiter[list->after.at[step->first_after + i]];
            if (waiter < *waited) *waited = waiter;
        }
    }
}

/* True if the step waits for `other` of the compute lane, or for a later step there. */
static bool is_behind(const ech_list *list, const ech_step *step, int other)
{
    for (int i = 0; i < step->afters; i++) {
        int after = list->after.at[step->first_after + i];
        if (list->step.at[after].lane == ECH_LANE_COMPUTE && after >= other) return true;
    }
    return false;
}

static ech_status check_message(const mail *m, ech_step_kind kind, int chunk, int micro)
{
    int s = *message_of(m, kind, chunk, micro);
    int user = find_user(m, kind, chunk, micro), last = (int)m->list->step.n - 1;
    if (find_peer(m, kind, chunk, micro) < 0) return ECH_OK;
    bool sends = ech_step_kind_sends(kind);
    if (s < 0) return ECH_REJECT(m, user < 0 ? last : user, "has no %s", ech_step_name(kind));
    const ech_step *step = &m->list->step.at[s];
    if (user < 0) return ECH_REJECT(m, s, "belongs to no step");
    if (sends && !is_behind(m->list, step, user))
        return ECH_REJECT(m, s, "does not wait for step %d, which makes it", user);
    if (!sends && m->waiter[s] > user)
        return ECH_REJECT(m, user, "does not wait for step %d, which brings what it reads", s);
    return ECH_OK;
}

static ech_status check_all(mail *m)
{
    for (int s = 0; s < (int)m->list->step.n; s++) {
        const ech_step *step = &m->list->step.at[s];
        if (is_message(step->kind)) ECH_TRY(enter(m, s));
    }
    for (ech_step_kind kind = 0; kind < ECH_STEPS; kind++) {
        if (!is_message(kind) || (ech_step_kind_is_gradient(kind) && !ech_list_trains(m->list)))
            continue;
        for (int chunk = 0; chunk < m->blocks->chunks; chunk++)
            for (int micro = 0; micro < m->blocks->micro_batches; micro++)
                ECH_TRY(check_message(m, kind, chunk, micro));
    }
    return ECH_OK;
}

ech_status ech_check_messages(const ech_plan *plan, const ech_list *list,
                              const ech_block_steps *blocks)
{
    size_t slots = (size_t)ECH_STEPS * (size_t)blocks->chunks * (size_t)blocks->micro_batches;
    ECH_FREED int *message = ech_calloc(slots, sizeof *message);
    ECH_FREED int *waiter = ech_calloc(list->step.n, sizeof *waiter);
    mail m = {plan, list, blocks, message, waiter};
    for (size_t i = 0; i < slots; i++) m.message[i] = -1;
    find_waiters(&m);
    return check_all(&m);
}
