/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of one kind across one boundary keep their order, on both sides: the n-th send is the n-th
 * receive. So both find the same number without a word to each other.
 */
#include "app/trace/perfetto_arrows.h"

#include <stdlib.h>

typedef struct message {
    int64_t boundary; /* between this block and the one before */
    int peer, gradient;
    size_t step;
} message;

/* ech_step_boundary, of numbers that nobody vouches for. */
static message message_of(const ech_traced_step *step, size_t index)
{
    bool gradient = step->kind == ECH_STEP_SEND_GRAD || step->kind == ECH_STEP_RECV_GRAD;
    bool before = step->kind == ECH_STEP_SEND_ACT || step->kind == ECH_STEP_RECV_GRAD;
    return (message){.boundary = (int64_t)step->block + before,
                     .peer = step->peer,
                     .gradient = gradient,
                     .step = index};
}

static bool is_message(const ech_traced_step *step)
{
    bool receive = step->kind == ECH_STEP_RECV_ACT || step->kind == ECH_STEP_RECV_GRAD;
    return step->peer >= 0 && step->block >= 0 && (receive || ech_perfetto_is_send(step));
}

/* Sends before receives of the same boundary and peer: a rank may be on both sides of two. */
static int compare_rows(const ech_rank_trace *trace, const message *a, const message *b)
{
    bool sends[2] = {ech_perfetto_is_send(&trace->step.at[a->step]),
                     ech_perfetto_is_send(&trace->step.at[b->step])};
    if (a->peer != b->peer) return a->peer < b->peer ? -1 : 1;
    if (a->boundary != b->boundary) return a->boundary < b->boundary ? -1 : 1;
    if (a->gradient != b->gradient) return a->gradient - b->gradient;
    return sends[1] - sends[0];
}

static int compare(const void *x, const void *y, void *trace)
{
    const message *a = x, *b = y;
    int row = compare_rows(trace, a, b);
    return row ? row : (a->step > b->step) - (a->step < b->step);
}

/* splitmix64's mixing: numbers that differ stay apart but for one pair in 2^53. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash + value + 1) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    return hash ^ (hash >> 31);
}

static int64_t number_of(const ech_rank_trace *trace, const message *m, uint64_t count)
{
    bool sends = ech_perfetto_is_send(&trace->step.at[m->step]);
    uint64_t hash = mix((uint64_t)m->boundary, (uint64_t)m->gradient);
    hash = mix(hash, (uint64_t)(sends ? trace->rank : m->peer));
    hash = mix(hash, (uint64_t)(sends ? m->peer : trace->rank));
    hash = mix(hash, count) >> 11;
    return hash ? (int64_t)hash : 1;
}

int64_t *ech_perfetto_arrows(const ech_rank_trace *trace)
{
    int64_t *number = ech_calloc(trace->step.n + 1, sizeof *number);
    ECH_LIST(message) messages = {0};
    for (size_t s = 0; s < trace->step.n; s++)
        if (is_message(&trace->step.at[s])) ECH_PUSH(messages, message_of(&trace->step.at[s], s));
    if (messages.n)
        qsort_r(messages.at, messages.n, sizeof *messages.at, compare, (void *)(uintptr_t)trace);
    uint64_t count = 0;
    for (size_t i = 0; i < messages.n; i++) {
        const message *m = &messages.at[i];
        count = i && compare_rows(trace, m - 1, m) == 0 ? count + 1 : 0;
        number[m->step] = number_of(trace, m, count);
    }
    free(messages.at);
    return number;
}
