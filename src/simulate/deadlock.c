/* SPDX-License-Identifier: Apache-2.0
 *
 * Explains a deadlock: follows waits from a step that never ended, until a step repeats (a cycle)
 * or the awaited step does not exist.
 */
#include "schedule/print.h"
#include "schedule/reject.h"
#include "schedule/protocol/serving.h"
#include "simulate/rehearsal.h"

enum { MOST_SHOWN = 12 }; /* steps of a cycle in the message */

typedef ECH_LIST(ech_wait) chain;

static const ech_step *step_of(const ech_rehearsal *r, ech_wait at)
{
    return &ech_rehearsal_list(r, at.rank)->step.at[at.step];
}

/* The current step of a lane or queue: the first that has not ended, or in a message lane has not
 * begun; -1: it is done. */
static int head_of(const ech_rehearsal *r, int rank, int queue)
{
    const ech_list *list = ech_rehearsal_list(r, rank);
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (ech_rehearsal_queue(r, step) != queue) continue;
        bool begins = !r->in_queues && ech_rehearsal_is_link(step->lane);
        if ((begins ? r->begin : r->finish)[rank][s] < 0) return s;
    }
    return -1;
}

/* The n-th collective (from 1) of that channel in a rank's list, or -1. */
static int find_collective(const ech_list *list, int channel, int n)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (ech_step_gathers(step) && ech_step_channel(step) == channel && --n == 0) return s;
    }
    return -1;
}

/* The member of a collective that has not begun it. */
static ech_wait absent_member(const ech_rehearsal *r, ech_wait at)
{
    const ech_plan *plan = r->plans[at.rank];
    const ech_list *list = ech_rehearsal_list(r, at.rank);
    int channel = ech_step_channel(step_of(r, at));
    ECH_FREED int *members = ech_calloc((size_t)plan->layout->world, sizeof *members);
    int index = 0;
    int n = ech_layout_members(plan->layout, plan->model, plan->rank, ech_channel_group(channel),
                               members);
    for (int s = 0; s <= at.step; s++)
        index +=
            ech_step_gathers(&list->step.at[s]) && ech_step_channel(&list->step.at[s]) == channel;
    for (int i = 0; i < n; i++) {
        int member = ech_layout_plan_of(plan->layout, r->ranks, members[i]);
        int step = find_collective(ech_rehearsal_list(r, member), channel, index);
        if (step >= 0 && r->begin[member][step] >= 0) continue;
        return (ech_wait){.rank = member, .step = step};
    }
    return (ech_wait){.rank = at.rank, .step = -1};
}

/* ---- pushes ---- */

/* The rank's step of that kind in a turn, or -1. */
static int find_of_turn(const ech_list *list, ech_step_kind kind, int turn)
{
    for (int s = 0; s < (int)list->step.n; s++)
        if (list->step.at[s].kind == kind && list->step.at[s].turn == turn) return s;
    return -1;
}

/* The n-th collective (from 0) of that channel in a rank's turn, or -1. */
static int find_pushed(const ech_list *list, int channel, int turn, int n)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool is_one = ech_step_gathers(step) && ech_step_channel(step) == channel;
        if (is_one && step->turn == turn && n-- == 0) return s;
    }
    return -1;
}

/* The turn in which a server has served that push (from 0) of the worker, or -1. */
static int turn_of(const ech_rehearsal *r, int server, int worker, int push)
{
    for (int turn = 0; turn < ech_rehearsal_list(r, server)->turns; turn++)
        if (r->served[server][turn] == worker && push-- == 0) return turn;
    return -1;
}

/* Number of the worker's pushes that a server has served before that turn. */
static int count_before(const ech_rehearsal *r, int server, int worker, int turn)
{
    int n = 0;
    while (--turn >= 0) n += r->served[server][turn] == worker;
    return n;
}

/* For a SERVE that has begun: the step that makes the push it waits for, or with which the first
 * server accepts it. */
static ech_wait absent_push(const ech_rehearsal *r, ech_wait at)
{
    const ech_list *list = ech_rehearsal_list(r, at.rank);
    int turn = step_of(r, at)->turn, workers = ech_layout_workers(r->plans[at.rank]->layout);
    if (at.rank > workers && r->served[workers][turn] < 0)
        return (ech_wait){workers,
                          find_of_turn(ech_rehearsal_list(r, workers), ECH_STEP_SERVE, turn)};
    if (list->bound) {
        int worker = list->bound[turn].worker, k = ech_serve_number(list->bound, turn);
        return (ech_wait){worker,
                          find_of_turn(ech_rehearsal_list(r, worker), ECH_STEP_ANNOUNCE, k)};
    }
    for (int w = 0; w < workers; w++) /* any push is acceptable */
        for (int s = 0; s < (int)ech_rehearsal_list(r, w)->step.n; s++)
            if (ech_rehearsal_list(r, w)->step.at[s].kind == ECH_STEP_ANNOUNCE &&
                r->begin[w][s] < 0)
                return (ech_wait){w, s};
    return (ech_wait){.rank = 0, .step = -1};
}

/* For an ANNOUNCE that has begun: the step with which the first server would accept the push. */
static ech_wait absent_answer(const ech_rehearsal *r, ech_wait at)
{
    int first = ech_layout_workers(r->plans[at.rank]->layout), turn = 0;
    const ech_list *list = ech_rehearsal_list(r, first);
    while (turn < list->turns && r->served[first][turn] >= 0) turn++;
    return (ech_wait){first, find_of_turn(list, ECH_STEP_SERVE, turn)};
}

/* What a worker's collective with servers waits for: a server that has not begun its own, or not
 * served the push. */
static ech_wait absent_server(const ech_rehearsal *r, ech_wait at, int n)
{
    const ech_step *step = step_of(r, at);
    int channel = ech_step_channel(step);
    for (int server = ech_layout_workers(r->plans[at.rank]->layout); server < r->ranks; server++) {
        const ech_list *list = ech_rehearsal_list(r, server);
        int turn = turn_of(r, server, at.rank, step->turn), s = -1;
        if (turn >= 0) s = find_pushed(list, channel, turn, n);
        for (int t = 0; t < list->turns && turn < 0 && s < 0; t++)
            if (r->served[server][t] < 0) s = find_of_turn(list, ECH_STEP_SERVE, t);
        if (s < 0 || turn < 0 || r->begin[server][s] < 0) return (ech_wait){server, s};
    }
    return (ech_wait){.rank = at.rank, .step = -1};
}

/* The same for a collective over ECH_GROUP_PUSHED that has begun. */
static ech_wait absent_partner(const ech_rehearsal *r, ech_wait at)
{
    const ech_list *list = ech_rehearsal_list(r, at.rank);
    const ech_step *step = step_of(r, at);
    int channel = ech_step_channel(step), turn = step->turn, n = 0;
    while (find_pushed(list, channel, turn, n) != at.step) n++;
    if (!r->served[at.rank]) return absent_server(r, at, n);
    int worker = r->served[at.rank][turn];
    if (worker < 0) return (ech_wait){at.rank, find_of_turn(list, ECH_STEP_SERVE, turn)};
    return (ech_wait){worker, find_pushed(ech_rehearsal_list(r, worker), channel,
                                          count_before(r, at.rank, worker, turn), n)};
}

/* ---- waits ---- */

/* The step that a waiting step waits for. step -1: the rank's list has no such step. */
static ech_wait waits_for(const ech_rehearsal *r, ech_wait at)
{
    const ech_list *list = ech_rehearsal_list(r, at.rank);
    const ech_step *step = step_of(r, at);
    if (r->begin[at.rank][at.step] >= 0) {
        if (step->kind == ECH_STEP_SERVE) return absent_push(r, at);
        if (step->kind == ECH_STEP_ANNOUNCE) return absent_answer(r, at);
        if (ech_step_gathers(step) && step->group == ECH_GROUP_PUSHED) return absent_partner(r, at);
        if (ech_step_gathers(step)) return absent_member(r, at);
        return (ech_wait){.rank = ech_rehearsal_peer(r, at.rank, step),
                          .step = r->pairing.partner[at.rank][at.step]};
    }
    int head = head_of(r, at.rank, ech_rehearsal_queue(r, step));
    if (head != at.step) return (ech_wait){.rank = at.rank, .step = head};
    int i = 0;
    while (r->finish[at.rank][list->after.at[step->first_after + i]] >= 0) i++;
    return (ech_wait){.rank = at.rank, .step = list->after.at[step->first_after + i]};
}

/* Each rank's current step: of its compute lane, else of any lane; -1: it is done. */
static int *find_standing(const ech_rehearsal *r)
{
    int *standing = ech_calloc((size_t)r->ranks, sizeof *standing);
    for (int rank = 0; rank < r->ranks; rank++) {
        standing[rank] = head_of(r, rank, ECH_LANE_COMPUTE);
        for (int s = 0; standing[rank] < 0 && s < (int)ech_rehearsal_list(r, rank)->step.n; s++)
            if (r->finish[rank][s] < 0) standing[rank] = s;
    }
    return standing;
}

static int find_in(const chain *c, ech_wait at)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i].rank == at.rank && c->at[i].step == at.step) return (int)i;
    return -1;
}

/* Follows waits from `at`. Returns the index in the chain to which the last wait leads back, or -1
 * if it leads to a step that does not exist, on rank `*lacks`. */
static int follow(const ech_rehearsal *r, ech_wait at, chain *c, int *lacks)
{
    for (;;) {
        ECH_PUSH(*c, at);
        at = waits_for(r, at);
        if (at.step < 0) {
            *lacks = at.rank;
            return -1;
        }
        int again = find_in(c, at);
        if (again >= 0) return again;
    }
}

static void print_wait(const ech_rehearsal *r, ech_wait at, ech_text *out)
{
    ech_text_append(out, "rank %d's ", r->plans[at.rank]->rank);
    ech_list_print_step(ech_rehearsal_list(r, at.rank), step_of(r, at), out);
}

static void print_missing(const ech_rehearsal *r, const chain *c, int first, int lacks,
                          ech_text *out)
{
    for (size_t i = (size_t)first + 1; i < c->n; i++) {
        ech_text_append(out, "%s", i == (size_t)first + 1 ? "waits for " : ", which waits for ");
        print_wait(r, c->at[i], out);
    }
    const ech_step *last = step_of(r, c->at[c->n - 1]);
    ech_text_append(out, "%swaits for rank %d to %s", c->n > (size_t)first + 1 ? ", which " : "",
                    r->plans[lacks]->rank,
                    ech_step_gathers(last)            ? "join"
                    : ech_step_sends(last)            ? "receive it"
                    : last->kind == ECH_STEP_ANNOUNCE ? "serve it"
                    : last->kind == ECH_STEP_SERVE    ? "push"
                                                      : "send it");
    ech_text_append(out, "; its list has no such step");
}

/* Prints the chain from `first` on, a cycle. */
static void print_circle(const ech_rehearsal *r, const chain *c, int first, int again,
                         ech_text *out)
{
    int round = (int)c->n - again;
    for (int i = 1; i <= round; i++) {
        if (i == MOST_SHOWN && round > MOST_SHOWN) {
            ech_text_append(out, ", ... (%d more)", round - i);
            i = round;
        }
        ech_text_append(out, "%s", i == 1 ? "waits for " : ", which waits for ");
        print_wait(r, c->at[again + (first - again + i) % round], out);
    }
    ech_text_append(out, " again: a circle");
}

/* The member of the cycle that is most familiar to users: a step of the compute lane. */
static int find_compute(const ech_rehearsal *r, const chain *c, int again)
{
    for (size_t i = (size_t)again; i < c->n; i++)
        if (step_of(r, c->at[i])->lane == ECH_LANE_COMPUTE) return (int)i;
    return again;
}

ech_status ech_rehearsal_fail(const ech_rehearsal *r)
{
    ECH_FREED chain c = {0};
    ECH_FREED_TEXT why = {0};
    ECH_FREED int *standing = find_standing(r);
    int rank = 0, lacks = -1;
    while (standing[rank] < 0) rank++;
    int again = follow(r, (ech_wait){.rank = rank, .step = standing[rank]}, &c, &lacks), first;
    if (again < 0) {
        first = (int)c.n > MOST_SHOWN ? (int)c.n - MOST_SHOWN : 0;
        print_missing(r, &c, first, lacks, &why);
    } else {
        first = find_compute(r, &c, again);
        print_circle(r, &c, first, again, &why);
    }
    ech_wait at = c.at[first];
    return ech_plans_reject(r->plans, r->ranks, r->kind, at.rank, at.step, standing, "%s", why.at);
}
