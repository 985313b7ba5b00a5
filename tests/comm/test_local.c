/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads: rendezvous, sizes that differ, aborts, deadlines.
 */

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "base/clock.h"
#include "comm/ranks.h"
#include "unit.h"

static const double deadline = 60;

TEST(test_backends)
{
    assert_string_equal(ech_comm_names(), "local mpi ucx nccl");
    assert_null(ech_comm_find("gloo"));
    const ech_comm_backend *local = ech_comm_find("local");
    assert_null(ech_comm_lacks(ECH_COMM_local));
    assert_string_equal(ech_comm_version(ECH_COMM_local), "local");
    assert_null(ech_comm_launcher(ECH_COMM_local));
    ech_comm *none[1];
    assert_int_equal(ech_comm_open(local, 0, 1, none), ECH_EUSAGE);
    ech_comm_close(NULL);
}

/* One thread plays both ranks, so that every state of a message can be looked at. */
TEST(test_rendezvous)
{
    ech_comm *c[2];
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 2, deadline, c), ECH_OK);
    assert_int_equal(ech_comm_rank(c[1]), 1);
    assert_int_equal(ech_comm_local_size(c[0]), 2);
    assert_string_equal(ech_comm_name(c[0]), "local");
    int out = 1, in = 0;
    bool done = true;
    ech_request sent, received;
    assert_int_equal(ech_comm_send_start(c[0], 1, 3, &out, sizeof out, &sent), ECH_OK);
    assert_int_equal(ech_comm_test(c[0], &sent, &done), ECH_OK);
    assert_false(done);
    out = 2; /* nothing was buffered: the receiver sees this */
    unsigned heard = ech_comm_heard(c[0]), of_receiver = ech_comm_heard(c[1]);
    assert_true(ech_comm_rings(c[0]));
    assert_int_equal(ech_comm_receive_start(c[1], 0, 3, &in, sizeof in, &received), ECH_OK);
    assert_int_not_equal(ech_comm_heard(c[0]), heard); /* only the side that came first waits */
    assert_int_equal(ech_comm_heard(c[1]), of_receiver);
    ech_comm_listen(c[0], heard, 1000L * 1000000000L); /* returns at once */
    assert_int_equal(ech_comm_wait(c[1], &received, 1), ECH_OK);
    assert_int_equal(ech_comm_test(c[0], &sent, &done), ECH_OK);
    assert_true(done);
    assert_int_equal(in, 2);
    ech_comm_close(c[0]);
    ech_comm_close(c[1]);
}

/* Large enough that both sides copy chunks. */
static ech_status exchange_large(ech_comm *comm, void *context)
{
    (void)context;
    enum { BYTES = 3 * 1024 * 1024 + 11 };
    int peer = 1 - ech_comm_rank(comm);
    unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) out[i] = (unsigned char)(i * 31 + ech_comm_rank(comm));
    ech_request requests[2];
    ech_status st = ECH_OK;
    bool right = true;
    for (int turn = 0; turn < 8 && st == ECH_OK; turn++) {
        st = ech_comm_receive_start(comm, peer, 0, in, BYTES, &requests[0]);
        if (st == ECH_OK) st = ech_comm_send_start(comm, peer, 0, out, BYTES, &requests[1]);
        if (st == ECH_OK) st = ech_comm_wait(comm, requests, 2);
        for (int i = 0; i < BYTES; i++) right &= in[i] == (unsigned char)(i * 31 + peer);
        memset(in, 0, BYTES);
    }
    free(out);
    free(in);
    ECH_TRY(st);
    RANKS_CHECK(right);
    return ECH_OK;
}

TEST(test_large_messages)
{
    assert_int_equal(ranks_run(2, deadline, exchange_large, NULL, NULL), ECH_OK);
}

static ech_status exchange_misfit(ech_comm *comm, void *context)
{
    (void)context;
    char bytes[12] = {0};
    ech_request request;
    ech_status st = ech_comm_rank(comm) == 0
                        ? ech_comm_send_start(comm, 1, 4, bytes, 8, &request)
                        : ech_comm_receive_start(comm, 0, 4, bytes, 12, &request);
    if (st == ECH_OK) st = ech_comm_wait(comm, &request, 1);
    RANKS_CHECK(strstr(ech_last_error(), "rank 0 sends 8 bytes to rank 1 with tag 4"));
    RANKS_CHECK(strstr(ech_last_error(), "for 12 bytes"));
    return st;
}

TEST(test_misfit_is_an_error_on_both_sides)
{
    ech_status results[2];
    ranks_run(2, deadline, exchange_misfit, NULL, results);
    assert_int_equal(results[0], ECH_EINTERNAL);
    assert_int_equal(results[1], ECH_EINTERNAL);
}

/* Rank 2 fails while the others wait for it, each with a message posted from memory that it frees
 * as it unwinds. */
static ech_status fail_one(ech_comm *comm, void *context)
{
    (void)context;
    if (ech_comm_rank(comm) == 2) return ECH_ENUMERIC;
    char *in = malloc(1 << 20), *out = malloc(1 << 20);
    ech_request requests[2];
    ech_status st = ech_comm_receive_start(comm, 2, 0, in, 1 << 20, &requests[0]);
    if (st == ECH_OK) st = ech_comm_send_start(comm, 2, 1, out, 1 << 20, &requests[1]);
    if (st == ECH_OK) st = ech_comm_wait(comm, requests, 2);
    free(in);
    free(out);
    bool done = false;
    RANKS_CHECK(ech_comm_test(comm, &requests[0], &done) == ECH_EABORTED && !done);
    RANKS_CHECK(ech_comm_send_start(comm, 2, 0, "", 1, &requests[0]) == ECH_EABORTED);
    return st;
}

TEST(test_abort_unwinds_all)
{
    ech_status results[4];
    assert_int_equal(ranks_run(4, deadline, fail_one, NULL, results), ECH_ENUMERIC);
    for (int r = 0; r < 4; r++) assert_int_equal(results[r], r == 2 ? ECH_ENUMERIC : ECH_EABORTED);
}

/* An abort in the middle of large messages: nobody may touch a buffer that its owner has freed. */
static ech_status fail_amid(ech_comm *comm, void *context)
{
    (void)context;
    enum { BYTES = 1 << 20 };
    int rank = ech_comm_rank(comm), N = ech_comm_size(comm);
    for (int turn = 0;; turn++) {
        if (rank == 0 && turn == 40) return ECH_EIO;
        char *in = malloc(BYTES), *out = calloc(1, BYTES);
        ech_request requests[2];
        ech_status st =
            ech_comm_receive_start(comm, (rank + N - 1) % N, 0, in, BYTES, &requests[0]);
        if (st == ECH_OK)
            st = ech_comm_send_start(comm, (rank + 1) % N, 0, out, BYTES, &requests[1]);
        if (st == ECH_OK) st = ech_comm_wait(comm, requests, 2);
        free(in);
        free(out);
        if (st != ECH_OK) return st;
    }
}

TEST(test_abort_amid_messages)
{
    ech_status results[3];
    assert_int_equal(ranks_run(3, deadline, fail_amid, NULL, results), ECH_EIO);
    assert_int_equal(results[1], ECH_EABORTED);
    assert_int_equal(results[2], ECH_EABORTED);
}

/* Rank 0 waits for 2, then 1 waits in a barrier for 0 and 2, and 2 never comes. */
static ech_status stall(ech_comm *comm, void *context)
{
    int rank = ech_comm_rank(comm), in;
    ech_comm_set_position(comm, 40 + rank, rank == 2 ? "forward of block 7" : "reduce bucket 1");
    pthread_barrier_wait(context); /* a start may take longer than the deadline */
    ech_request request;
    ech_group *group;
    ech_clear_error();
    ECH_TRY(ech_group_create(comm, "everyone", (int[]){0, 1, 2}, 3, &group));
    ech_status st = ECH_OK;
    if (rank == 0) {
        st = ech_comm_receive_start(comm, 2, 9, &in, sizeof in, &request);
        if (st == ECH_OK) st = ech_comm_wait(comm, &request, 1);
    } else if (rank == 1) {
        while (!ech_board_waits(comm->board, 0, ECH_BOARD_RANK)) sched_yield();
        st = ech_group_barrier(group);
    }
    ech_group_destroy(group);
    pthread_barrier_wait(context); /* nobody aborts before all have said what they say */
    if (rank == 2) return st;
    const char *said = ech_last_error();
    RANKS_CHECK(strstr(said, rank == 0
                                 ? "rank 0 waited 0.2 s to receive from rank 2 (4 bytes, tag 9)"
                                 : "barrier over group everyone"));
    RANKS_CHECK(strstr(said, "held up by rank 2: step 42, forward of block 7, does not wait"));
    RANKS_CHECK(strstr(said, "parallel.deadline"));
    return st;
}

TEST(test_deadline_names_the_culprit)
{
    pthread_barrier_t end;
    pthread_barrier_init(&end, NULL, 3);
    ech_status results[3];
    ranks_run(3, 0.2, stall, &end, results);
    pthread_barrier_destroy(&end);
    assert_int_equal(results[0], ECH_ECOMM);
    assert_int_equal(results[1], ECH_ECOMM);
    assert_int_equal(results[2], ECH_OK);
}

/* Rank 0 waits for 1, and 1 in a barrier for 0 and 2: whoever is in a circle is not to blame while
 * somebody outside of it is missing. */
static ech_status stall_in_circle(ech_comm *comm, void *context)
{
    int in;
    ech_request request;
    ech_group *group;
    ECH_TRY(ech_group_create(comm, "everyone", (int[]){0, 1, 2}, 3, &group));
    ech_status st = ECH_OK;
    if (ech_comm_rank(comm) == 0) {
        comm->deadline = deadline;
        st = ech_comm_receive_start(comm, 1, 9, &in, sizeof in, &request);
        if (st == ECH_OK) st = ech_comm_wait(comm, &request, 1);
    } else if (ech_comm_rank(comm) == 1) {
        while (!ech_board_waits(comm->board, 0, ECH_BOARD_RANK)) sched_yield();
        st = ech_group_barrier(group);
        *(bool *)context = strstr(ech_last_error(), "held up by rank 2") != NULL;
    }
    ech_group_destroy(group);
    return st;
}

TEST(test_deadline_sees_through_a_circle)
{
    bool right = false;
    ech_status results[3];
    ranks_run(3, 0.2, stall_in_circle, &right, results);
    assert_true(right);
    assert_int_equal(results[0], ECH_EABORTED);
    assert_int_equal(results[1], ECH_ECOMM);
}

/* Who writes a checkpoint in the background waits for rank 1 for a while, then for ever. */
static ech_status wait_beside(ech_comm *comm, void *context)
{
    const double while_looking = 0.02;
    bool *shown = context;
    ech_group *group;
    ECH_TRY(ech_group_create(comm, "savers", (int[]){0, 1}, 2, &group));
    ech_group_set_saves(group);
    double start = ech_clock_now();
    while (ech_comm_rank(comm) == 1 && ech_clock_now() - start < while_looking)
        *shown |= ech_board_waits(comm->board, 0, ECH_BOARD_RANK);
    ech_status st = ech_group_barrier(group);
    if (st == ECH_OK && ech_comm_rank(comm) == 0) {
        comm->deadline = 0.2; /* not before: how long rank 1 is on its way the machine decides */
        st = ech_group_barrier(group);
        RANKS_CHECK(strstr(ech_last_error(), "barrier over group savers"));
        RANKS_CHECK(strstr(ech_last_error(), "held up by rank 1: "));
    }
    ech_group_destroy(group);
    return st;
}

TEST(test_savers_waits_have_a_deadline)
{
    bool shown = false;
    ech_status results[2];
    ranks_run(2, deadline, wait_beside, &shown, results);
    assert_false(shown);
    assert_int_equal(results[0], ECH_ECOMM);
    assert_int_equal(results[1], ECH_OK);
}

/* Past the deadline a buffer is its owner's again: a late sender must not write into it. */
TEST(test_deadline_withdraws)
{
    ech_comm *c[2];
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 2, 0.05, c), ECH_OK);
    int in = 1, out = 2;
    bool done = true;
    ech_request received, sent;
    assert_int_equal(ech_comm_receive_start(c[1], 0, 0, &in, sizeof in, &received), ECH_OK);
    assert_int_equal(ech_comm_wait(c[1], &received, 1), ECH_ECOMM);
    assert_int_equal(ech_comm_send_start(c[0], 1, 0, &out, sizeof out, &sent), ECH_OK);
    assert_int_equal(ech_comm_test(c[0], &sent, &done), ECH_OK);
    assert_false(done);
    assert_int_equal(in, 1);
    assert_int_equal(ech_comm_test(c[1], &received, &done), ECH_EABORTED);
    ech_comm_close(c[0]);
    ech_comm_close(c[1]);
}

/* Of two messages the first has come: the second is waited for. */
TEST(test_deadline_passes_over_what_has_come)
{
    ech_comm *c[3];
    ech_request received[2], sent;
    int in[2] = {0}, out = 7;
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 3, 0.05, c), ECH_OK);
    assert_int_equal(ech_comm_send_start(c[1], 0, 0, &out, sizeof out, &sent), ECH_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ech_comm_receive_start(c[0], i + 1, 0, &in[i], sizeof in[i], &received[i]),
                         ECH_OK);
    assert_int_equal(ech_comm_wait(c[0], received, 2), ECH_ECOMM);
    assert_non_null(strstr(ech_last_error(), "to receive from rank 2"));
    assert_true(in[0] == 7 && in[1] == 0);
    for (int i = 0; i < 3; i++) ech_comm_close(c[i]);
}

/* Two groups of the same members, or two lanes of one: a call on one and a call on the other never
 * meet. */
static ech_status call_other_group(ech_comm *comm, void *context)
{
    bool lanes = context != NULL;
    ech_group *groups[2];
    ECH_TRY(ech_group_create(comm, "pair", (int[]){0, 1}, 2, &groups[0]));
    if (lanes)
        groups[1] = ech_group_open(groups[0], 1);
    else
        ECH_TRY(ech_group_create(comm, "pair", (int[]){0, 1}, 2, &groups[1]));
    double value = 1;
    ech_status st = ech_group_fold(groups[ech_comm_rank(comm)], ECH_FOLD_SUM, &value, 1);
    for (int g = 0; g < 2; g++) ech_group_destroy(groups[g]);
    return st;
}

TEST(test_groups_never_meet)
{
    assert_int_equal(ranks_run(2, 0.05, call_other_group, NULL, NULL), ECH_ECOMM);
    assert_int_equal(ranks_run(2, 0.05, call_other_group, "lanes", NULL), ECH_ECOMM);
}

/* A group must be ascending, within the job, and contain the caller. */
TEST(test_bad_groups)
{
    ech_comm *c[3];
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 3, deadline, c), ECH_OK);
    ech_group *group = NULL;
    assert_int_equal(ech_group_create(c[0], "g", (int[]){1, 0}, 2, &group), ECH_EINTERNAL);
    assert_int_equal(ech_group_create(c[0], "g", (int[]){0, 3}, 2, &group), ECH_EINTERNAL);
    assert_int_equal(ech_group_create(c[0], "g", (int[]){1, 2}, 2, &group), ECH_EINTERNAL);
    assert_non_null(strstr(ech_last_error(), "rank 0 is not one"));
    assert_null(group);
    assert_int_equal(ech_group_create(c[0], "pair", (int[]){0, 2}, 2, &group), ECH_OK);
    assert_int_equal(ech_group_size(group), 2);
    assert_int_equal(ech_group_index(group), 0);
    ech_group_destroy(group);
    ech_group_destroy(NULL);
    for (int r = 0; r < 3; r++) ech_comm_close(c[r]);
}
