/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks one rank's messages of kept activations (memory.offload_activations = peer). For each
 * block and sequence chunk a rank has none of them, or two. These are SEND_KEPT and RECV_BACK if
 * the block is its own, else RECV_KEPT and SEND_BACK. check/races.c proves that steps wait for each
 * other, and check/plans.c that both ranks' messages match.
 */
#include "check/checker.h"
#include "schedule/operands.h"

typedef struct held_check {
    const ech_plan *plan;
    const ech_list *list;
    int *gone; /* [blocks * micro_batches] the step after which it is at the acceptor, + 1 */
    int *back; /* and the step that fetches it, or sends it back, + 1 */
    int *left; /* [values] of the evictor: the step that has sent it away, + 1; 0: none */
} held_check;

/* The rank with the same coordinates in the mirrored stage. */
static int find_peer(const ech_layout *layout, int rank)
{
    const ech_coordinates *at = &layout->coordinates[rank];
    return ech_layout_rank_at(layout, layout->stages - 1 - at->stage, at->data, at->context,
                              at->tensor);
}

static ech_status check_place(const held_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_layout *layout = c->plan->layout;
    int peer = find_peer(layout, c->plan->rank), blocks = (int)c->plan->model->block.n;
    bool evicts = step->kind == ECH_STEP_SEND_KEPT || step->kind == ECH_STEP_RECV_BACK;
    int rank = evicts ? c->plan->rank : peer, first, end;
    if (!ech_list_trains(c->list)) return ECH_REJECT(c, s, "has nothing to carry in this list");
    if (step->peer != peer || peer == c->plan->rank)
        return ECH_REJECT(c, s, "has peer %d, not %d", step->peer, peer);
    if (step->block < 0 || step->block >= blocks || step->micro < 0 ||
        step->micro >= c->list->micro_batches || step->chunk < 0 || step->chunk >= layout->chunks)
        return ECH_REJECT(c, s, "is of no micro-batch of this rank");
    ech_layout_blocks(layout, rank, step->chunk, &first, &end);
    if (step->block < first || step->block >= end)
        return ECH_REJECT(c, s, "is of a block that rank %d does not have", rank);
    if (step->turn != ech_micro_at(c->list->numbering, step->micro).turn)
        return ECH_REJECT(c, s, "is counted to turn %d", step->turn);
    return ECH_OK;
}

static ech_status check_bytes(const held_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int64_t bytes = 0;
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &c->list->access.at[step->first_access + i];
        if (access->write != ech_step_receives(step))
            return ECH_REJECT(c, s, "writes what it sends, or reads what comes");
        bytes += ech_plan_value(c->plan, c->list, access->value)->bytes;
    }
    if (step->bytes <= 0 || (c->list->access.n && bytes != step->bytes))
        return ECH_REJECT(c, s, "has %lld bytes, its values %lld", (long long)step->bytes,
                          (long long)bytes);
    return ECH_OK;
}

static int value_at(const held_check *c, const ech_step *step, int i)
{
    return c->list->access.at[step->first_access + i].value;
}

/* The returned values are those that were sent, value by value: on the evictor the other instance,
 * on the acceptor the value itself. */
static ech_status check_values(const held_check *c, int s, int gone)
{
    const ech_step *step = &c->list->step.at[s], *went = &c->list->step.at[gone];
    bool evicts = went->kind == ECH_STEP_SEND_KEPT;
    int persistent = (int)c->plan->persistent.n;
    bool same = step->accesses == went->accesses;
    for (int i = 0; i < step->accesses && same; i++) {
        int value = value_at(c, went, i);
        if (evicts && value < persistent) return ECH_REJECT(c, gone, "sends what always lives");
        int back = evicts ? c->list->value.at[value - persistent].returned : value;
        same = value_at(c, step, i) == back;
    }
    if (same) return ECH_OK;
    return ECH_REJECT(c, s, "brings back another value than step %d has taken", gone);
}

static ech_status check_message(held_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    ECH_TRY(check_place(c, s));
    ECH_TRY(check_bytes(c, s));
    int at = step->block * c->list->micro_batches + step->micro;
    bool back = ech_step_kind_message(step->kind) == ECH_MESSAGE_BACK;
    int *slot = back ? &c->back[at] : &c->gone[at];
    if (*slot) return ECH_REJECT(c, s, "is the same as step %d", *slot - 1);
    *slot = s + 1;
    if (!back) {
        for (int i = 0; i < step->accesses && ech_step_sends(step); i++)
            c->left[value_at(c, step, i)] = s + 1;
        return ECH_OK;
    }
    if (!c->gone[at]) return ECH_REJECT(c, s, "brings back what has not gone");
    return check_values(c, s, c->gone[at] - 1);
}

static ech_status check_step(held_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (ech_step_kind_is_held(step->kind)) return check_message(c, s);
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &c->list->access.at[step->first_access + i];
        if (access->write && c->left[access->value])
            return ECH_REJECT(c, s, "writes what step %d has sent away",
                              c->left[access->value] - 1);
    }
    return ECH_OK;
}

static ech_status check_ends(const held_check *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c->gone[i] && !c->back[i])
            return ECH_REJECT(c, c->gone[i] - 1, "takes what never comes back");
    return ECH_OK;
}

ech_status ech_check_held(const ech_plan *plan, const ech_list *list)
{
    size_t slots = plan->model->block.n * (size_t)list->micro_batches + 1;
    ECH_FREED int *gone = ech_calloc(slots, sizeof *gone);
    ECH_FREED int *back = ech_calloc(slots, sizeof *back);
    ECH_FREED int *left = ech_calloc(plan->persistent.n + list->value.n + 1, sizeof *left);
    held_check c = {plan, list, gone, back, left};
    for (int s = 0; s < (int)list->step.n; s++) ECH_TRY(check_step(&c, s));
    return check_ends(&c, slots);
}
