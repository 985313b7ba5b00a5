/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits and their deadline (a watchdog): polling loops that spin, then yield, then sleep. They
 * watch the abort flag and end at the deadline with an error that names the rank that holds up the
 * job.
 */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "comm/backend.h"

/* Seconds without progress until a wait yields its core, and until it sleeps. The first is short
 * because, if two members share a core, each exchange takes twice as long as it: one spins while
 * the other has the data. Members with a core each notice no difference. */
static const double spin_seconds = 5e-6;
static const double yield_seconds = 500e-6;
enum { FIRST_NAP_NS = 5000, LONGEST_NAP_NS = 1000000 };
/* A nap is at most this fraction of the wait so far, which bounds how late a wait ends: a lane that
 * waits for a slower member wakes up rarely, and leaves the core to the lane that computes. */
static const double nap_share = 1.0 / 16;

static const ech_wait_for point_to_point = {.thread = ECH_BOARD_RANK};

/* heard: ech_comm_heard before the last look. */
static void give_way(ech_comm *comm, double idle, unsigned heard, long *nap_ns)
{
    bool rings = ech_comm_rings(comm);
    if (idle < spin_seconds && !comm->crowded) return;
    if (idle < yield_seconds && !(rings && comm->crowded)) {
        sched_yield();
        return;
    }
    ech_comm_listen(comm, heard, rings ? ECH_COMM_LONG_NAP_NS : *nap_ns);
    double most = 1e9 * nap_share * idle;
    long longer = *nap_ns * 2;
    if (longer <= LONGEST_NAP_NS && (double)longer <= most) *nap_ns = longer;
}

/* Tests the requests that are not done, and counts those that remain. */
static ech_status test_all(ech_comm *comm, ech_request *requests, int n, int *left)
{
    *left = 0;
    for (int i = 0; i < n; i++) {
        ECH_TRY(ech_transfer_test(comm, &requests[i]));
        if (!requests[i].done) ++*left;
    }
    return ECH_OK;
}

/* The request to report: the first that is not done and whose peer does not wait, else the first
 * not done. */
static const ech_request *find_open(const ech_comm *comm, const ech_request *requests, int n,
                                    ech_board_thread thread)
{
    const ech_request *open = NULL;
    for (int i = 0; i < n; i++) {
        if (requests[i].done) continue;
        bool waits = ech_board_waits(comm->board, requests[i].peer, thread);
        if (!open || !waits) open = &requests[i];
        if (!waits) break;
    }
    return open;
}

static ech_status fail_deadline(ech_comm *comm, const ech_request *open, const ech_wait_for *why)
{
    if (ech_board_claim_report(comm->board)) ech_board_print(comm->board);
    int culprit = ech_board_culprit(comm->board, open->peer, why->thread);
    ECH_FREED_TEXT what = {0}, where = {0};
    if (why->call)
        ech_text_append(&what, "%s over group %s", why->call, why->group);
    else
        ech_text_append(&what, "tag %d", open->tag);
    ech_board_describe(comm->board, culprit, &where);
    ech_status st = ech_fail_at(
        __FILE__, __LINE__, ECH_ECOMM,
        "rank %d waited %g s to %s rank %d (%zu bytes, %s); held up by rank %d: %s; if %s "
        "that long, raise parallel.deadline",
        comm->rank, comm->deadline, open->sends ? "send to" : "receive from", open->peer,
        open->bytes, what.at, culprit, where.at,
        why->thread == ECH_BOARD_SAVER ? "a disk may stand still" : "a step may take");
    ech_comm_withdraw(comm);
    /* The mark stays, even if another thread of this rank has set it: reports of other ranks follow
     * it to the culprit. */
    ech_board_set_wait(comm->board, comm->local_rank, why->thread, open->peer);
    return st;
}

/* The loop of ech_wait_all. *mark: the peer that it has put on the board, if any; the caller clears
 * it. */
static ech_status wait_loop(ech_comm *comm, ech_request *requests, int n, const ech_wait_for *why,
                            int *mark)
{
    double progress_at = 0, looked_at = ech_clock_now();
    long nap_ns = FIRST_NAP_NS;
    int before = -1;
    for (;;) {
        int left;
        unsigned heard = ech_comm_heard(comm);
        bool over = ech_comm_is_over(comm); /* read first: what was done by then is done */
        ECH_TRY(test_all(comm, requests, n, &left));
        if (left == 0) return ECH_OK;
        if (over) return ECH_EABORTED;

        double now = ech_clock_now();
        progress_at += ech_clock_take_gap(&looked_at, now);
        if (left != before) {
            before = left;
            progress_at = now;
            nap_ns = FIRST_NAP_NS;
        }
        double idle = now - progress_at;
        if (idle > yield_seconds) {
            const ech_request *open = find_open(comm, requests, n, why->thread);
            *mark = open->peer;
            ech_board_set_wait(comm->board, comm->local_rank, why->thread, *mark);
            if (idle > comm->deadline) return fail_deadline(comm, open, why);
        }
        give_way(comm, idle, heard, &nap_ns);
    }
}

ech_status ech_wait_all(ech_comm *comm, ech_request *requests, int n, const ech_wait_for *why)
{
    int mark = -1;
    ech_status st = wait_loop(comm, requests, n, why, &mark);
    if (st != ECH_OK) ech_comm_withdraw(comm);
    int next = why->thread == ECH_BOARD_RANK ? atomic_load(&comm->polled) : -1;
    if (st != ECH_ECOMM && mark >= 0)
        ech_board_end_wait(comm->board, comm->local_rank, why->thread, mark, next);
    return st;
}

ech_status ech_comm_wait(ech_comm *comm, ech_request *requests, int n)
{
    return ech_wait_all(comm, requests, n, &point_to_point);
}

ech_status ech_comm_overdue(ech_comm *comm, const ech_request *request, double seconds)
{
    if (request->done || seconds <= comm->deadline) return ECH_OK;
    if (ech_comm_is_over(comm)) {
        ech_comm_withdraw(comm);
        return ECH_EABORTED;
    }
    ech_board_set_wait(comm->board, comm->local_rank, ECH_BOARD_RANK, request->peer);
    return fail_deadline(comm, request, &point_to_point);
}

/* Seconds after which, once the job is over, a device waits for other ranks in vain: ranks that
 * work complete what they have put. A rank's own work is awaited until the deadline, since it
 * touches memory that the rank then frees. */
static const double abort_patience = 4;

/* The first that does not wait itself, else the first of all; -1: there is none. */
static int choose_peer(const ech_comm *comm, const int *peers, int n)
{
    for (int i = 0; i < n; i++)
        if (!ech_board_waits(comm->board, peers[i], ECH_BOARD_RANK)) return peers[i];
    return n > 0 ? peers[0] : -1;
}

ech_status ech_comm_stalled(ech_comm *comm, const int *peers, int n, double seconds)
{
    int peer = choose_peer(comm, peers, n);
    ECH_FREED_TEXT where = {0};
    bool over = ech_comm_is_over(comm), in_vain = over && n > 0 && seconds > abort_patience;
    ech_comm_set_wait(comm, peer);
    if (seconds <= comm->deadline && !in_vain) return ECH_OK;
    if (over) {
        ech_comm_withdraw(comm);
        return ECH_EABORTED;
    }
    if (ech_board_claim_report(comm->board)) ech_board_print(comm->board);
    int culprit = peer < 0 ? comm->rank : ech_board_culprit(comm->board, peer, ECH_BOARD_RANK);
    ech_board_describe(comm->board, culprit, &where);
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_ECOMM,
                                "the device of rank %d has ended no work for %g s; held up by rank "
                                "%d: %s; if a step may take that long, raise parallel.deadline",
                                comm->rank, comm->deadline, culprit, where.at);
    ech_comm_withdraw(comm);
    return st;
}

ech_status ech_comm_settle(ech_comm *comm, const ech_comm_queue *on)
{
    if (on->device->is_immediate) return ECH_OK;
    on->device->record(on->mark, on->queue);
    double began = ech_clock_now(), looked_at = began;
    for (bool reached = false;;) {
        ECH_TRY(on->device->query(on->mark, &reached));
        if (reached) return ECH_OK;
        if (ech_comm_is_over(comm)) return ECH_EABORTED;
        double now = ech_clock_now();
        began += ech_clock_take_gap(&looked_at, now);
        ECH_TRY(ech_comm_stalled(comm, NULL, 0, now - began));
        nanosleep(&(struct timespec){.tv_nsec = FIRST_NAP_NS}, NULL);
    }
}
