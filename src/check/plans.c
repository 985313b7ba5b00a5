/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of all ranks' lists: messages match, collectives come in the same order, versions of
 * weights agree, and a rehearsal in which every message waits for both ends does not deadlock.
 */
#include "check/promise.h"
#include "schedule/print.h"
#include "schedule/reject.h"
#include "simulate/rehearsal.h"

typedef struct plans {
    const ech_plan *const *at;
    int n;
    ech_list_kind kind;
} plans;

/* Of the i-th plan. */
static const ech_list *list_of(const plans *p, int rank)
{
    return &p->at[rank]->list[p->kind];
}

/* The index of the plan that stands for a rank. */
static int plan_of(const plans *p, int rank)
{
    return ech_layout_plan_of(p->at[0]->layout, p->n, rank);
}

#define REJECT(p, rank, step, ...)                                                                 \
    ech_plans_reject((p)->at, (p)->n, (p)->kind, rank, step, NULL, __VA_ARGS__)

static void print(const plans *p, ech_wait at, ech_text *out)
{
    ech_list_print_step(list_of(p, at.rank), &list_of(p, at.rank)->step.at[at.step], out);
}

/* ---- collectives ---- */

/* The next collective from step *s on over that channel, *s after it; -1 at the end. */
static int next_collective(const ech_list *list, int channel, int *s)
{
    for (; *s < (int)list->step.n; (*s)++) {
        const ech_step *step = &list->step.at[*s];
        if (ech_step_gathers(step) && ech_step_channel(step) == channel) return (*s)++;
    }
    return -1;
}

bool ech_buckets_meet(const ech_plan *a, const ech_step *x, const ech_plan *b, const ech_step *y)
{
    if (x->index < 0 || x->index >= (int)a->bucket.n) return false;
    if (y->index < 0 || y->index >= (int)b->bucket.n) return false;
    const ech_bucket *one = &a->bucket.at[x->index], *other = &b->bucket.at[y->index];
    if (one->elements != other->elements || one->params != other->params) return false;
    for (int i = 0; i < one->params; i++)
        if (a->bucket_param.at[one->first_param + i] != b->bucket_param.at[other->first_param + i])
            return false;
    return true;
}

static bool is_same_collective(const plans *p, ech_wait a, ech_wait b)
{
    if (a.step < 0 || b.step < 0) return false;
    const ech_step *x = &list_of(p, a.rank)->step.at[a.step];
    const ech_step *y = &list_of(p, b.rank)->step.at[b.step];
    bool same = x->kind == y->kind && x->turn == y->turn && x->collective == y->collective &&
                x->block == y->block && x->phase == y->phase && x->first_call == y->first_call &&
                x->calls == y->calls && x->micro == y->micro && x->count == y->count &&
                x->maximum == y->maximum;
    return same && (ech_step_has_bucket(x) ? ech_buckets_meet(p->at[a.rank], x, p->at[b.rank], y)
                                           : x->index == y->index);
}

/* Compares all collectives of two members over a channel, one by one. */
static ech_status check_pair(const plans *p, int rank_a, int rank_b, int channel)
{
    int i = 0, j = 0;
    for (;;) {
        ech_wait a = {rank_a, next_collective(list_of(p, rank_a), channel, &i)};
        ech_wait b = {rank_b, next_collective(list_of(p, rank_b), channel, &j)};
        if (a.step < 0 && b.step < 0) return ECH_OK;
        if (is_same_collective(p, a, b)) continue;
        ech_wait at = b.step < 0 ? a : b, met = b.step < 0 ? b : a;
        ECH_FREED_TEXT name = {0};
        ech_text_append(&name, "%s", met.step < 0 ? "no collective" : "another collective, ");
        if (met.step >= 0) print(p, met, &name);
        return REJECT(p, at.rank, at.step, "meets %s, on rank %d", name.at, p->at[met.rank]->rank);
    }
}

/* Number of collectives over that channel in each of `turns` turns. */
static int *count_turns(const ech_list *list, int channel, int turns)
{
    int *count = ech_calloc((size_t)turns + 1, sizeof *count);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool counts = ech_step_gathers(step) && ech_step_channel(step) == channel;
        if (counts && step->turn >= 0 && step->turn < turns) count[step->turn]++;
    }
    return count;
}

/* The most pushes of a span: for a server, all; for a worker, all but one of each other worker, or
 * an even share if no worker gets ahead for long, or its pushes count for clocks. */
static int count_pushes(const ech_plan *plan)
{
    int workers = ech_layout_workers(plan->layout), span = plan->schedule->turns;
    if (ech_layout_serves(plan->layout, plan->rank)) return workers * span;
    bool even = plan->schedule->staleness < INT64_MAX ||
                ech_protocol_promise_of(plan)->norms == ECH_NORMS_SUM;
    return even ? span : workers * span - (workers - 1);
}

/* A server's turns are the workers' turns, in any order: all are alike. For bound lists
 * ech_check_served has checked the order. */
static ech_status check_pushed(const plans *p, int rank, int channel)
{
    const ech_list *list = list_of(p, rank), *theirs = list_of(p, 0);
    int turns = count_pushes(p->at[rank]), turn = 0;
    ECH_FREED int *count = count_turns(list, channel, turns);
    ECH_FREED int *wanted = count_turns(theirs, channel, 1);
    while (turn < turns && count[turn] == wanted[0]) turn++;
    if (turn == turns && turns == list->turns) return ECH_OK;
    return REJECT(p, rank, (int)list->step.n - 1,
                  "ends a list with %d pushes alike, and there may be %d", turn, turns);
}

/* All plans with members are compared with the plan of the first member. */
static ech_status check_channel(const plans *p, int rank, int channel, int *members)
{
    const ech_plan *plan = p->at[rank];
    int s = 0, step = next_collective(list_of(p, rank), channel, &s);
    int n = ech_layout_members(plan->layout, plan->model, plan->rank, ech_channel_group(channel),
                               members);
    if (ech_channel_group(channel) == ECH_GROUP_PUSHED) return check_pushed(p, rank, channel);
    if (n == 0 && step >= 0)
        return REJECT(p, rank, step, "is over a group that this rank is not in");
    int first = n ? plan_of(p, members[0]) : rank;
    return first == rank ? ECH_OK : check_pair(p, first, rank, channel);
}

static void find_channels(const plans *p, bool *used)
{
    for (int rank = 0; rank < p->n; rank++)
        for (size_t s = 0; s < list_of(p, rank)->step.n; s++) {
            const ech_step *step = &list_of(p, rank)->step.at[s];
            if (ech_step_gathers(step)) used[ech_step_channel(step)] = true;
        }
}

static ech_status check_collectives(const plans *p)
{
    bool used[ECH_CHANNELS] = {false};
    ECH_FREED int *members = ech_calloc((size_t)p->at[0]->layout->world, sizeof *members);
    find_channels(p, used);
    for (int rank = 0; rank < p->n; rank++)
        for (int channel = 0; channel < ECH_CHANNELS; channel++)
            if (used[channel]) ECH_TRY(check_channel(p, rank, channel, members));
    return ECH_OK;
}

/* ---- messages ---- */

/* -1: the message belongs to no micro-batch, such as the ring token, which is sent in one turn and
 * received in a later one (check/shared.c). */
static int64_t micro_of(const plans *p, int rank, const ech_step *step)
{
    if (step->micro < 0) return -1;
    return ech_list_global_micro(p->at[rank], list_of(p, rank), step->micro);
}

static ech_status check_message(const plans *p, const ech_pairing *pairing, int rank, int s)
{
    const ech_step *step = &list_of(p, rank)->step.at[s];
    int partner = pairing->partner[rank][s], peer = ech_list_peer(list_of(p, rank), step);
    ECH_FREED_TEXT why = {0};
    if (partner < 0)
        return REJECT(p, rank, s, "meets no %s on rank %d",
                      ech_step_sends(step) ? "receive" : "send", peer);
    int i = plan_of(p, peer);
    const ech_step *other = &list_of(p, i)->step.at[partner];
    int64_t q = micro_of(p, rank, step), met = micro_of(p, i, other);
    if (step->bytes != other->bytes)
        ech_text_append(&why, "has %lld bytes and meets %lld, ", (long long)step->bytes,
                        (long long)other->bytes);
    else if (q != met || (q >= 0 && step->turn != other->turn))
        ech_text_append(&why,
                        "is of the step's micro-batch %lld (turn %d) and meets micro-batch %lld "
                        "(turn %d), ",
                        (long long)q, step->turn, (long long)met, other->turn);
    else
        return ECH_OK;
    print(p, (ech_wait){i, partner}, &why);
    return REJECT(p, rank, s, "%s, on rank %d", why.at, peer);
}

/* Both ends of each pair agree, so it is enough to check sends, and unpaired receives. */
static ech_status check_messages(const plans *p, const ech_pairing *pairing)
{
    for (int rank = 0; rank < p->n; rank++)
        for (int s = 0; s < (int)list_of(p, rank)->step.n; s++) {
            const ech_step *step = &list_of(p, rank)->step.at[s];
            bool alone = ech_step_receives(step) && pairing->partner[rank][s] < 0;
            if (ech_step_sends(step) || alone) ECH_TRY(check_message(p, pairing, rank, s));
        }
    return ECH_OK;
}

/* ---- versions ---- */

/* The number of a step's micro-batch over all ranks and turns. */
static int64_t number_of(const plans *p, int rank, const ech_step *step)
{
    const ech_list *list = list_of(p, rank);
    int64_t turn = ech_micro_at(list->numbering, step->micro).turn;
    return turn * p->at[rank]->layout->micro_batches +
           ech_list_global_micro(p->at[rank], list, step->micro);
}

/* Vertical sync: each forward of a micro-batch reads the version that the first stage read for
 * it. */
static ech_status check_vertical(const plans *p, int rank, const int *wanted)
{
    const ech_list *list = list_of(p, rank);
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_FORWARD) continue;
        int version = wanted[number_of(p, rank, step)];
        if (step->version == version) continue;
        return REJECT(p, rank, s,
                      "reads version %d of the weights; the first stage read version %d for this "
                      "micro-batch",
                      step->version, version);
    }
    return ECH_OK;
}

static ech_status check_versions(const plans *p)
{
    const ech_layout *layout = p->at[0]->layout;
    if (!ech_list_trains(list_of(p, 0)) || !p->at[0]->schedule->vertical_sync) return ECH_OK;
    size_t micro_batches = (size_t)layout->micro_batches * (size_t)list_of(p, 0)->turns;
    ECH_FREED int *wanted = ech_calloc(micro_batches, sizeof *wanted);
    int first = layout->virtual_stage[0].stage;
    for (int rank = 0; rank < p->n; rank++) {
        const ech_list *list = list_of(p, rank);
        bool is_first = layout->coordinates[p->at[rank]->rank].stage == first;
        for (size_t s = 0; s < list->step.n && is_first; s++) {
            const ech_step *step = &list->step.at[s];
            if (step->kind == ECH_STEP_FORWARD && step->chunk == 0)
                wanted[number_of(p, rank, step)] = step->version;
        }
    }
    for (int rank = 0; rank < p->n; rank++) ECH_TRY(check_vertical(p, rank, wanted));
    return ECH_OK;
}

ech_status ech_check_plans(const ech_plan *const *plans_of_all, int n, ech_list_kind list)
{
    plans p = {.at = plans_of_all, .n = n, .kind = list};
    ECH_TRY(ech_check_served(plans_of_all, n, list));
    if (ech_list_trains(list_of(&p, 0))) ECH_TRY(ech_check_shares(plans_of_all, n));
    ech_costs unit = {.seconds = false};
    ECH_CLEANUP(ech_rehearsal_free) ech_rehearsal rehearsal = {0};
    ech_rehearse(p.at, n, list, &unit, 0, &rehearsal);
    ECH_TRY(check_collectives(&p));
    ECH_TRY(check_messages(&p, &rehearsal.pairing));
    ECH_TRY(check_versions(&p));
    return rehearsal.missing ? ech_rehearsal_fail(&rehearsal) : ECH_OK;
}

ech_status ech_check_queues(const ech_plan *const *plans_of_all, int n, ech_list_kind list)
{
    ech_costs unit = {.seconds = false};
    ECH_CLEANUP(ech_rehearsal_free) ech_rehearsal rehearsal = {0};
    ech_rehearse(plans_of_all, n, list, &unit, ECH_REHEARSE_QUEUES, &rehearsal);
    return rehearsal.missing ? ech_rehearsal_fail(&rehearsal) : ECH_OK;
}
