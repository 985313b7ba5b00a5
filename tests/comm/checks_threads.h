/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds when two threads of every rank use its endpoint at once, over any backend: one reduces
 * and folds over a group, the other sends messages, or uses a group or a lane of its own. Run by
 * test_threads.c and mpi_reduce.c.
 */
#ifndef ECH_TESTS_COMM_CHECKS_THREADS_H
#define ECH_TESTS_COMM_CHECKS_THREADS_H

#include <sched.h>

#include "base/clock.h"
#include "comm/checks.h"

/* ---- a second thread of a rank ---- */

typedef struct checks_second {
    pthread_t thread;
    ech_comm *comm;
    ranks_body body;
    void *context;
    bool raises; /* the abort flag, when it fails */
    ech_status result;
} checks_second;

static inline void *checks_second_start(void *argument)
{
    checks_second *s = argument;
    ech_log_set_rank(ech_comm_rank(s->comm));
    s->result = s->body(s->comm, s->context);
    if (s->result != ECH_OK && s->raises) ech_comm_raise(s->comm);
    return NULL;
}

static inline void checks_second_begin(checks_second *s, ech_comm *comm, ranks_body body,
                                       void *context, bool raises)
{
    *s = (checks_second){.comm = comm, .body = body, .context = context, .raises = raises};
    ECH_ASSERT(pthread_create(&s->thread, NULL, checks_second_start, s) == 0);
}

static inline ech_status checks_second_end(checks_second *s)
{
    pthread_join(s->thread, NULL);
    return s->result;
}

/* Both at once; the first failure that is no consequence of the other. */
static inline ech_status checks_both(ech_comm *comm, ranks_body first, void *first_context,
                                     ranks_body second, void *second_context)
{
    checks_second other;
    checks_second_begin(&other, comm, second, second_context, true);
    ech_status st = first(comm, first_context);
    if (st != ECH_OK) ech_comm_raise(comm);
    ech_status its = checks_second_end(&other);
    return st == ECH_OK || st == ECH_EABORTED ? (its == ECH_OK ? st : its) : st;
}

/* ---- what a thread does with a group ---- */

enum { CHECKS_TURNS = 12, CHECKS_LONGEST = 40000 };

/* Reductions of all kinds but `mpi`'s, folds and barriers, again and again. */
static inline ech_status checks_group_turn(ech_group *group, int turn, char *x, char *expected)
{
    static const ech_reduction kinds[] = {ECH_REDUCTION_DIRECT, ECH_REDUCTION_RING,
                                          ECH_REDUCTION_NAIVE};
    static const int64_t counts[] = {1, 7, 1000, CHECKS_LONGEST};
    for (int i = 0; i < 12; i++) {
        checks_case c = {.reduction = kinds[i % 3],
                         .dtype = (turn + i) % 2 ? ECH_F32 : ECH_F64,
                         .wire = (turn + i) % 2 ? ECH_F32 : ECH_F64,
                         .n = counts[i / 3],
                         .whole = kinds[i % 3] == ECH_REDUCTION_RING};
        ECH_TRY(checks_one_reduce(group, &c, x, expected));
    }
    int N = ech_group_size(group), index = ech_group_index(group);
    double values[100];
    for (int i = 0; i < 100; i++) values[i] = index * (turn + 1) + i;
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, values, 100));
    for (int i = 0; i < 100; i++) RANKS_CHECK(values[i] == N * (N - 1) / 2.0 * (turn + 1) + N * i);
    return ech_group_barrier(group);
}

static inline ech_status checks_use_group(ech_comm *comm, void *context)
{
    (void)comm;
    char *x = malloc(CHECKS_LONGEST * 8 + CHECKS_CANARY), *expected = malloc(CHECKS_LONGEST * 8);
    ech_status st = ECH_OK;
    for (int turn = 0; turn < CHECKS_TURNS && st == ECH_OK; turn++)
        st = checks_group_turn(context, turn, x, expected);
    free(x);
    free(expected);
    return st;
}

/* ---- what a thread does with messages ---- */

enum { CHECKS_FLIGHT = 24, CHECKS_ROUNDS = 40, CHECKS_BYTES = 200000 };

/* Message k of a round: some of no bytes, most short, one long. Three share a tag. */
static inline size_t checks_message_bytes(int round, int k)
{
    if (k == round % CHECKS_FLIGHT) return CHECKS_BYTES;
    return (size_t)((k * 37 + round * 11) % 64 * (k % 4) * 20);
}

static inline unsigned char checks_message_byte(int source, int round, int k, size_t i)
{
    return (unsigned char)((size_t)(source * 91 + round * 17 + k * 5) + i * 7 + i / 251);
}

typedef struct checks_flight {
    unsigned char *out[CHECKS_FLIGHT], *in[CHECKS_FLIGHT];
    ech_request request[2 * CHECKS_FLIGHT]; /* sends, then receives */
    int round;
} checks_flight;

static inline ech_status checks_start(ech_comm *comm, checks_flight *f, int k, bool sends)
{
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    size_t bytes = checks_message_bytes(f->round, k);
    if (!sends)
        return ech_comm_receive_start(comm, (rank + N - 1) % N, k / 3, f->in[k], bytes,
                                      &f->request[CHECKS_FLIGHT + k]);
    for (size_t i = 0; i < bytes; i++) f->out[k][i] = checks_message_byte(rank, f->round, k, i);
    return ech_comm_send_start(comm, (rank + 1) % N, k / 3, f->out[k], bytes, &f->request[k]);
}

/* Polls, the last ones first, as who has other things to do in between. */
static inline ech_status checks_poll(ech_comm *comm, checks_flight *f)
{
    double began = ech_clock_now();
    for (int left = 2 * CHECKS_FLIGHT; left > 0;) {
        left = 0;
        for (int i = 2 * CHECKS_FLIGHT - 1; i >= 0; i--) {
            bool done = false;
            ECH_TRY(ech_comm_test(comm, &f->request[i], &done));
            ECH_TRY(ech_comm_overdue(comm, &f->request[i], ech_clock_now() - began));
            if (!done) left++;
        }
        ech_comm_set_wait(comm, left > 0 ? f->request[0].peer : -1);
        sched_yield();
    }
    return ECH_OK;
}

static inline ech_status checks_fly(ech_comm *comm, checks_flight *f)
{
    int N = ech_comm_size(comm), previous = (ech_comm_rank(comm) + N - 1) % N;
    for (int k = 0; k < CHECKS_FLIGHT; k++) {
        memset(f->in[k], 0xee, CHECKS_BYTES);
        ECH_TRY(checks_start(comm, f, k, f->round % 2));
    }
    for (int k = 0; k < CHECKS_FLIGHT; k++) ECH_TRY(checks_start(comm, f, k, f->round % 2 == 0));
    if (f->round % 4 < 2)
        ECH_TRY(checks_poll(comm, f));
    else
        ECH_TRY(ech_comm_wait(comm, f->request, 2 * CHECKS_FLIGHT));
    bool right = true;
    for (int k = 0; k < CHECKS_FLIGHT; k++) {
        size_t bytes = checks_message_bytes(f->round, k);
        for (size_t i = 0; i < bytes; i++)
            right &= f->in[k][i] == checks_message_byte(previous, f->round, k, i);
        if (bytes < CHECKS_BYTES) right &= f->in[k][bytes] == 0xee;
    }
    RANKS_CHECK(right);
    return ECH_OK;
}

static inline ech_status checks_use_messages(ech_comm *comm, void *context)
{
    (void)context;
    checks_flight f = {0};
    for (int k = 0; k < CHECKS_FLIGHT; k++) {
        f.out[k] = malloc(CHECKS_BYTES);
        f.in[k] = malloc(CHECKS_BYTES);
    }
    ech_status st = ECH_OK;
    for (; f.round < CHECKS_ROUNDS && st == ECH_OK; f.round++) st = checks_fly(comm, &f);
    for (int k = 0; k < CHECKS_FLIGHT; k++) {
        free(f.out[k]);
        free(f.in[k]);
    }
    return st;
}

/* ---- the checks ---- */

static inline ech_status checks_threads(ech_comm *comm)
{
    ech_group *one, *other;
    ECH_TRY(checks_world(comm, &one));
    ECH_TRY(checks_world(comm, &other));
    ech_group *lane = ech_group_open(one, ECH_GROUP_LANES - 1);
    ech_status st = checks_both(comm, checks_use_group, one, checks_use_messages, NULL);
    if (st == ECH_OK) st = checks_both(comm, checks_use_group, one, checks_use_group, other);
    if (st == ECH_OK) st = checks_both(comm, checks_use_group, one, checks_use_group, lane);
    ech_group_destroy(other);
    ech_group_destroy(one); /* its lane goes on */
    if (st == ECH_OK) st = ech_group_barrier(lane);
    ech_group_destroy(lane);
    return st;
}

#endif
