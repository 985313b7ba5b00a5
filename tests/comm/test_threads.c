/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads of a rank at one endpoint: messages and groups at once, aborts, deadlines, and
 * the one mark on the board that they share.
 */

#include "comm/backend.h"
#include "comm/checks_threads.h"
#include "unit.h"

static const double deadline = 60;

static ech_status run_threads(ech_comm *comm, void *context)
{
    (void)context;
    return checks_threads(comm);
}

TEST(test_groups_and_messages_at_once)
{
    for (int n = 1; n <= 4; n++)
        assert_int_equal(ranks_run(n, deadline, run_threads, NULL, NULL), ECH_OK);
}

static void open_ranks(int n, double seconds, ech_comm **c)
{
    assert_int_equal(ech_comm_open(ech_comm_find("local"), n, seconds, c), ECH_OK);
}

static void close_ranks(int n, ech_comm **c)
{
    for (int r = 0; r < n; r++) ech_comm_close(c[r]);
}

static int mark_of(const ech_comm *comm)
{
    return atomic_load(&comm->board->slot[comm->local_rank].mark[ECH_BOARD_RANK].waits_for);
}

/* ---- ends ---- */

/* Waits for a message from rank 1 that never comes, with a buffer that it then frees. */
static ech_status wait_in_vain(ech_comm *comm, void *context)
{
    char *in = malloc(4);
    ech_request request;
    ech_status st = ech_comm_receive_start(comm, 1, *(int *)context, in, 4, &request);
    if (st == ECH_OK) st = ech_comm_wait(comm, &request, 1);
    free(in);
    return st;
}

static ech_status poll_in_vain(ech_comm *comm, void *context)
{
    char *in = malloc(4);
    bool done = false;
    ech_request request;
    ech_status st = ech_comm_receive_start(comm, 1, *(int *)context, in, 4, &request);
    while (st == ECH_OK && !done) {
        st = ech_comm_test(comm, &request, &done);
        sched_yield();
    }
    free(in);
    return st;
}

TEST(test_abort_ends_all_threads)
{
    ech_comm *c[2];
    int tags[] = {1, 2, 3};
    open_ranks(2, deadline, c);
    checks_second threads[3];
    for (int i = 0; i < 3; i++)
        checks_second_begin(&threads[i], c[0], i ? poll_in_vain : wait_in_vain, &tags[i], false);
    while (mark_of(c[0]) != 1) sched_yield(); /* the waiting one is in its wait */
    ech_comm_abort(c[1], ECH_EIO);
    for (int i = 0; i < 3; i++) assert_int_equal(checks_second_end(&threads[i]), ECH_EABORTED);
    assert_int_equal(mark_of(c[0]), -1);
    close_ranks(2, c);
}

static ech_status abort_own(ech_comm *comm, void *context)
{
    (void)context;
    ech_comm_abort(comm, ECH_EIO);
    return ECH_EABORTED;
}

/* Whoever comes back to its requests after another thread's abort. */
TEST(test_abort_by_another_thread)
{
    ech_comm *c[2];
    open_ranks(2, deadline, c);
    int in[2] = {1, 1}, out = 2;
    ech_request received[2], sent;
    assert_int_equal(ech_comm_receive_start(c[0], 1, 0, &in[0], sizeof in[0], &received[0]),
                     ECH_OK);
    assert_int_equal(ech_comm_receive_start(c[0], 1, 1, &in[1], sizeof in[1], &received[1]),
                     ECH_OK);
    assert_int_equal(ech_comm_send_start(c[1], 0, 1, &out, sizeof out, &sent), ECH_OK);
    bool done = false;
    assert_int_equal(ech_comm_test(c[0], &received[1], &done), ECH_OK);
    assert_true(done && in[1] == 2);

    checks_second other;
    checks_second_begin(&other, c[0], abort_own, NULL, false);
    assert_int_equal(checks_second_end(&other), ECH_EABORTED);
    done = false;
    for (int again = 0; again < 2; again++)
        assert_int_equal(ech_comm_test(c[0], &received[0], &done), ECH_EABORTED);
    assert_false(done);
    assert_int_equal(ech_comm_test(c[0], &received[1], &done), ECH_OK); /* was done before */
    assert_true(done);
    assert_int_equal(ech_comm_receive_start(c[0], 1, 2, &in[0], sizeof in[0], &received[0]),
                     ECH_EABORTED);
    assert_int_equal(ech_comm_send_start(c[1], 0, 0, &out, sizeof out, &sent), ECH_EABORTED);
    assert_int_equal(in[0], 1);
    close_ranks(2, c);
}

/* One thread's deadline withdraws what the others have started too. */
TEST(test_deadline_ends_all_threads)
{
    ech_comm *c[2];
    int tags[] = {1, 2};
    open_ranks(2, 0.05, c);
    checks_second waits, polls;
    checks_second_begin(&polls, c[0], poll_in_vain, &tags[0], false);
    checks_second_begin(&waits, c[0], wait_in_vain, &tags[1], false);
    assert_int_equal(checks_second_end(&waits), ECH_ECOMM);
    assert_int_equal(checks_second_end(&polls), ECH_EABORTED);
    assert_int_equal(mark_of(c[0]), 1);
    for (int i = 0; i < 2; i++) { /* into freed memory, if anybody still took it */
        int out = 7;
        bool done = true;
        ech_request sent;
        assert_int_equal(ech_comm_send_start(c[1], 0, tags[i], &out, sizeof out, &sent), ECH_OK);
        assert_int_equal(ech_comm_test(c[1], &sent, &done), ECH_OK);
        assert_false(done);
    }
    close_ranks(2, c);
}

/* ---- polling with a deadline ---- */

TEST(test_overdue)
{
    ech_comm *c[3];
    open_ranks(3, 8, c);
    int in = 1, out = 2;
    bool done = false;
    ech_request received, met, sent;
    assert_int_equal(ech_comm_receive_start(c[0], 1, 5, &in, sizeof in, &met), ECH_OK);
    assert_int_equal(ech_comm_send_start(c[1], 0, 5, &out, sizeof out, &sent), ECH_OK);
    assert_int_equal(ech_comm_test(c[0], &met, &done), ECH_OK);
    assert_int_equal(ech_comm_overdue(c[0], &met, 1e9), ECH_OK); /* it is done */

    assert_int_equal(ech_comm_receive_start(c[0], 1, 9, &in, sizeof in, &received), ECH_OK);
    assert_int_equal(ech_comm_overdue(c[0], &received, 0), ECH_OK);
    assert_int_equal(ech_comm_overdue(c[0], &received, 8), ECH_OK);
    assert_int_equal(ech_comm_test(c[0], &received, &done), ECH_OK);
    assert_false(done);
    ech_comm_set_wait(c[1], 2);
    ech_comm_set_position(c[2], 3, "forward of block 7");
    assert_int_equal(ech_comm_overdue(c[0], &received, 8.5), ECH_ECOMM);
    assert_string_equal(
        ech_last_error(),
        "rank 0 waited 8 s to receive from rank 1 (4 bytes, tag 9); held up by rank "
        "2: step 3, forward of block 7, does not wait; if a step may take that "
        "long, raise parallel.deadline");
    assert_int_equal(mark_of(c[0]), 1);

    /* Withdrawn: a late sender meets nobody. */
    assert_int_equal(ech_comm_send_start(c[1], 0, 9, &out, sizeof out, &sent), ECH_OK);
    assert_int_equal(ech_comm_test(c[1], &sent, &done), ECH_OK);
    assert_false(done);
    assert_int_equal(ech_comm_test(c[0], &received, &done), ECH_EABORTED);
    assert_int_equal(ech_comm_overdue(c[0], &received, 9), ECH_EABORTED);
    close_ranks(3, c);
}

/* ---- the mark ---- */

static ech_status wait_for_three(ech_comm *comm, void *context)
{
    ech_request request;
    ECH_TRY(ech_comm_receive_start(comm, 3, 0, context, sizeof(int), &request));
    return ech_comm_wait(comm, &request, 1);
}

TEST(test_marks_of_two_threads)
{
    ech_comm *c[4];
    open_ranks(4, deadline, c);
    int in = 0, out = 6;
    checks_second waits;
    ech_comm_set_wait(c[0], 1);
    assert_int_equal(mark_of(c[0]), 1);
    checks_second_begin(&waits, c[0], wait_for_three, &in, false);
    while (mark_of(c[0]) != 3) sched_yield(); /* the last to set it wins */
    ech_comm_set_wait(c[0], 2);
    ech_comm_set_wait(c[0], -1);
    while (mark_of(c[0]) != 3) sched_yield(); /* a wait that goes on does not lose its mark */
    ech_comm_set_wait(c[0], 2);
    while (mark_of(c[0]) != 3) sched_yield();
    ech_request sent;
    assert_int_equal(ech_comm_send_start(c[3], 0, 0, &out, sizeof out, &sent), ECH_OK);
    assert_int_equal(checks_second_end(&waits), ECH_OK);
    assert_int_equal(in, 6);
    assert_int_equal(mark_of(c[0]), 2); /* nor does who polls, when the wait ends */
    ech_comm_set_wait(c[0], -1);
    assert_int_equal(mark_of(c[0]), -1);
    ech_comm_set_wait(c[0], -1);
    assert_int_equal(mark_of(c[0]), -1);
    close_ranks(4, c);
}
