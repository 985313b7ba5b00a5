/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a function as N ranks, each in a thread of its own over `local`. For tests of any room.
 *
 * cmocka's asserts work in the main thread only: bodies use RANKS_CHECK and return a status, and
 * the test asserts on what ranks_run returns.
 */
#ifndef ECH_TESTS_COMM_RANKS_H
#define ECH_TESTS_COMM_RANKS_H

#include <pthread.h>
#include <stdio.h>

#include "base/log.h"
#include "comm/comm.h"

enum { RANKS_MOST = 16 };
/* Up to how many ranks all is checked. Work grows with their square, and races between five are
 * races between three. */
#ifdef __SANITIZE_THREAD__
enum { RANKS_OF_CHECKS = 3 };
#else
enum { RANKS_OF_CHECKS = 5 };
#endif

/* Ends a body with ECH_EINTERNAL and says where, if cond is false. */
#define RANKS_CHECK(cond)                                                                          \
    do {                                                                                           \
        if (cond) break;                                                                           \
        fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, ech_log_rank(),        \
                #cond);                                                                            \
        return ECH_EINTERNAL;                                                                      \
    } while (0)

typedef ech_status (*ranks_body)(ech_comm *comm, void *context);

typedef struct ranks_thread {
    pthread_t thread;
    ech_comm *comm;
    ranks_body body;
    void *context;
    ech_status result;
} ranks_thread;

static inline void *ranks_start(void *argument)
{
    ranks_thread *t = argument;
    ech_log_set_rank(ech_comm_rank(t->comm));
    t->result = t->body(t->comm, t->context);
    if (t->result != ECH_OK) ech_comm_abort(t->comm, t->result);
    ech_comm_close(t->comm);
    return NULL;
}

/* Every rank's status goes to results[n], unless that is NULL. Returns the first failure that is no
 * consequence of another one. A rank whose body fails aborts the others. */
static inline ech_status ranks_run_over(const char *backend, int n, double deadline_seconds,
                                        ranks_body body, void *context, ech_status *results)
{
    ech_comm *endpoints[RANKS_MOST];
    ranks_thread threads[RANKS_MOST];
    ECH_ASSERT(n <= RANKS_MOST);
    ECH_TRY(ech_comm_open(ech_comm_find(backend), n, deadline_seconds, endpoints));
    for (int r = 0; r < n; r++) {
        threads[r] = (ranks_thread){.comm = endpoints[r], .body = body, .context = context};
        ECH_ASSERT(pthread_create(&threads[r].thread, NULL, ranks_start, &threads[r]) == 0);
    }
    ech_status first = ECH_OK;
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r].thread, NULL);
        ech_status st = threads[r].result;
        if (results) results[r] = st;
        if (first == ECH_OK || (first == ECH_EABORTED && st != ECH_OK)) first = st;
    }
    return first;
}

static inline ech_status ranks_run(int n, double deadline_seconds, ranks_body body, void *context,
                                   ech_status *results)
{
    return ranks_run_over("local", n, deadline_seconds, body, context, results);
}

#endif
