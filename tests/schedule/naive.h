/* SPDX-License-Identifier: Apache-2.0
 *
 * A slow second opinion on all ranks' lists, without what the checker is made of: it goes round and
 * round, and each rank does what it can do next. Messages stand in queues, one for each pair of
 * ranks, kind and boundary; both ends must be there. Times are those of the simulator's unit: F, B
 * and W take one, all else nothing.
 */
#ifndef ECH_TESTS_SCHEDULE_NAIVE_H
#define ECH_TESTS_SCHEDULE_NAIVE_H

#include "schedule/lists.h"

typedef struct naive {
    const lists *all;
    double **begun, **ended; /* [ranks][steps]; below 0: not yet */
    bool wrong;              /* ends met that do not belong together */
} naive;

static inline double naive_later(double a, double b)
{
    return a > b ? a : b;
}

/* When the steps that it waits for have all ended; below 0: not yet. */
static inline double naive_ready(const naive *n, int rank, int s)
{
    const ech_list *list = lists_of(n->all, rank);
    const ech_step *step = &list->step.at[s];
    double time = 0;
    for (int i = 0; i < step->afters; i++) {
        double ended = n->ended[rank][list->after.at[step->first_after + i]];
        if (ended < 0) return -1;
        time = naive_later(time, ended);
    }
    return time;
}

/* The step before in its lane, or -1. */
static inline int naive_before(const ech_list *list, int s)
{
    ech_lane lane = list->step.at[s].lane;
    do s--;
    while (s >= 0 && list->step.at[s].lane != lane);
    return s;
}

static inline bool naive_begin(naive *n, int rank, int s)
{
    const ech_list *list = lists_of(n->all, rank);
    const ech_step *step = &list->step.at[s];
    int before = naive_before(list, s);
    bool message = ech_step_sends(step) || ech_step_receives(step);
    double ready = naive_ready(n, rank, s), free_at = 0;
    if (before >= 0) free_at = message ? n->begun[rank][before] : n->ended[rank][before];
    if (n->begun[rank][s] >= 0 || ready < 0 || free_at < 0) return false;
    n->begun[rank][s] = naive_later(ready, free_at);
    if (step->lane == ECH_LANE_COMPUTE)
        n->ended[rank][s] = n->begun[rank][s] + (step->kind == ECH_STEP_FORWARD ||
                                                 step->kind == ECH_STEP_BACKWARD_INPUT ||
                                                 step->kind == ECH_STEP_BACKWARD_WEIGHT);
    return true;
}

/* What the message has, told by both ends' kinds. */
static inline int naive_class(const ech_step *step)
{
    static const ech_step_kind ends[][2] = {{ECH_STEP_SEND_ACT, ECH_STEP_RECV_ACT},
                                            {ECH_STEP_SEND_GRAD, ECH_STEP_RECV_GRAD},
                                            {ECH_STEP_SEND_KEPT, ECH_STEP_RECV_KEPT},
                                            {ECH_STEP_SEND_BACK, ECH_STEP_RECV_BACK}};
    int i = 0;
    while (ends[i][0] != step->kind && ends[i][1] != step->kind) i++;
    return i;
}

/* The first message in the queue of a send at the other end, or -1. */
static inline int naive_front(const naive *n, int from, int to, const ech_step *like, bool sends)
{
    int rank = sends ? from : to, peer = sends ? to : from;
    const ech_list *list = lists_of(n->all, rank);
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if ((sends ? ech_step_sends(step) : ech_step_receives(step)) && step->peer == peer &&
            naive_class(step) == naive_class(like) &&
            ech_step_boundary(step) == ech_step_boundary(like) && n->begun[rank][s] >= 0 &&
            n->ended[rank][s] < 0)
            return s;
    }
    return -1;
}

static inline bool naive_deliver(naive *n, int from, int s)
{
    const ech_step *send = &lists_of(n->all, from)->step.at[s];
    int to = send->peer;
    if (!ech_step_sends(send) || n->begun[from][s] < 0 || n->ended[from][s] >= 0) return false;
    if (to < 0 || to >= n->all->ranks || naive_front(n, from, to, send, true) != s) return false;
    int r = naive_front(n, from, to, send, false);
    if (r < 0) return false;
    const ech_step *receive = &lists_of(n->all, to)->step.at[r];
    const ech_layout *layout = n->all->layout;
    int replicas_from = layout->replicas[layout->coordinates[from].stage];
    int replicas_to = layout->replicas[layout->coordinates[to].stage];
    int q = send->micro * replicas_from + layout->coordinates[from].data;
    int wanted = receive->micro * replicas_to + layout->coordinates[to].data;
    n->wrong |= q != wanted || send->bytes != receive->bytes;
    n->ended[from][s] = n->ended[to][r] = naive_later(n->begun[from][s], n->begun[to][r]);
    return true;
}

static inline bool naive_in_group(const ech_layout *layout, ech_layout_group group, int a, int b)
{
    const ech_coordinates *x = &layout->coordinates[a], *y = &layout->coordinates[b];
    bool replica = x->data == y->data, context = x->context == y->context;
    if (group == ECH_GROUP_WORLD) return true;
    if (x->stage != y->stage) return false;
    if (group == ECH_GROUP_DATA) return x->tensor == y->tensor;
    if (group == ECH_GROUP_CONTEXT) return replica && x->tensor == y->tensor;
    return group == ECH_GROUP_PARTIAL || (replica && context);
}

static inline bool naive_is_same(const ech_step *a, const ech_step *b)
{
    return a->kind == b->kind && a->index == b->index && a->count == b->count &&
           a->turn == b->turn && a->micro == b->micro && a->block == b->block &&
           a->phase == b->phase && a->first_call == b->first_call && a->calls == b->calls &&
           a->collective == b->collective;
}

/* All members have begun a collective over their group: they must be the same ones. */
static inline bool naive_reduce(naive *n, int rank, int s)
{
    const ech_step *step = &lists_of(n->all, rank)->step.at[s];
    double time = 0;
    int met[64];
    if ((step->lane != ECH_LANE_REDUCE && step->lane != ECH_LANE_COLLECTIVE) ||
        n->begun[rank][s] < 0 || n->ended[rank][s] >= 0)
        return false;
    for (int r = 0; r < n->all->ranks; r++) {
        const ech_list *list = lists_of(n->all, r);
        met[r] = -1;
        if (!naive_in_group(n->all->layout, step->group, rank, r)) continue;
        for (int i = 0; i < (int)list->step.n; i++)
            if (list->step.at[i].lane == step->lane && n->begun[r][i] >= 0 && n->ended[r][i] < 0 &&
                list->step.at[i].group == step->group)
                met[r] = i;
        if (met[r] < 0) return false;
        time = naive_later(time, n->begun[r][met[r]]);
    }
    for (int r = 0; r < n->all->ranks; r++) {
        if (met[r] < 0) continue;
        n->wrong |= !naive_is_same(&lists_of(n->all, r)->step.at[met[r]], step);
        n->ended[r][met[r]] = time;
    }
    return true;
}

static inline bool naive_round(naive *n)
{
    bool moved = false;
    for (int rank = 0; rank < n->all->ranks; rank++)
        for (int s = 0; s < (int)lists_of(n->all, rank)->step.n; s++) {
            moved |= naive_begin(n, rank, s);
            moved |= naive_deliver(n, rank, s);
            moved |= naive_reduce(n, rank, s);
        }
    return moved;
}

/* True: every step has ended and met what it should. Free it in either case. */
static inline bool naive_run(const lists *all, naive *n)
{
    *n = (naive){.all = all};
    n->begun = ech_calloc((size_t)all->ranks, sizeof *n->begun);
    n->ended = ech_calloc((size_t)all->ranks, sizeof *n->ended);
    for (int rank = 0; rank < all->ranks; rank++) {
        size_t steps = lists_of(all, rank)->step.n;
        n->begun[rank] = ech_calloc(steps, sizeof **n->begun);
        n->ended[rank] = ech_calloc(steps, sizeof **n->ended);
        for (size_t s = 0; s < steps; s++) n->begun[rank][s] = n->ended[rank][s] = -1;
    }
    while (naive_round(n)) continue;
    bool done = !n->wrong;
    for (int rank = 0; rank < all->ranks; rank++)
        for (size_t s = 0; s < lists_of(all, rank)->step.n; s++) done &= n->ended[rank][s] >= 0;
    return done;
}

static inline void naive_free(naive *n)
{
    for (int rank = 0; rank < n->all->ranks; rank++) {
        free(n->begun[rank]);
        free(n->ended[rank]);
    }
    free(n->begun);
    free(n->ended);
}

#endif
