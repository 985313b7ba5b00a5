/* SPDX-License-Identifier: Apache-2.0
 *
 * The board of positions: what it says, whom it blames, and the file it lies in.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/board.h"
#include "unit.h"

static ech_board *make(int slots)
{
    ech_board *board = malloc(ech_board_bytes(slots));
    ech_board_init(board, slots);
    for (int i = 0; i < slots; i++) ech_board_join(board, i, 10 + i);
    return board;
}

static void assert_described(const ech_board *board, int rank, const char *expected)
{
    ech_text text = {0};
    ech_board_describe(board, rank, &text);
    assert_string_equal(text.at, expected);
    ech_text_free(&text);
}

TEST(test_positions)
{
    ech_board *board = make(2);
    assert_described(board, 10, "in no step, does not wait");
    ech_board_set_position(board, 0, 7, "forward");
    ech_board_set_wait(board, 0, ECH_BOARD_RANK, 11);
    assert_described(board, 10, "step 7, forward, waits for rank 11");
    assert_described(board, 12, "on another machine");
    ech_board_set_position(board, 1, 0,
                           "0123456789012345678901234567890123456789012345678901234567");
    assert_described(board, 11, "step 0, 012345678901234567890123456789012345678, does not wait");
    free(board);
}

TEST(test_culprit)
{
    ech_board *board = make(3);
    ech_board_set_wait(board, 0, ECH_BOARD_RANK, 11);
    assert_int_equal(ech_board_culprit(board, 11, ECH_BOARD_RANK), 11);
    ech_board_set_wait(board, 1, ECH_BOARD_RANK, 12);
    assert_int_equal(ech_board_culprit(board, 11, ECH_BOARD_RANK), 12);
    ech_board_set_wait(board, 2, ECH_BOARD_RANK, 99); /* of another machine */
    assert_int_equal(ech_board_culprit(board, 11, ECH_BOARD_RANK), 99);
    free(board);
}

static void set_wait_at(ech_board *board, int slot, int peer, uint32_t looked)
{
    ech_board_set_wait(board, slot, ECH_BOARD_RANK, peer);
    atomic_store(&board->slot[slot].mark[ECH_BOARD_RANK].looked, looked);
}

/* In a circle every rank seems to wait. A rank that was stopped during its wait looks no more. */
TEST(test_culprit_of_a_circle)
{
    ech_board *board = make(4);
    uint32_t now = 100; /* the clock has just begun anew */
    set_wait_at(board, 0, 11, now);
    set_wait_at(board, 1, 12, now - 5);
    set_wait_at(board, 2, 10, now - 3000);
    set_wait_at(board, 3, 11, now - 9000); /* beside the circle */
    for (int asks = 10; asks < 13; asks++) {
        int peer = asks == 12 ? 10 : asks + 1;
        assert_int_equal(ech_board_culprit(board, peer, ECH_BOARD_RANK), 12);
    }
    set_wait_at(board, 1, 12, now - 3000);
    set_wait_at(board, 2, 10, now);
    assert_int_equal(ech_board_culprit(board, 12, ECH_BOARD_RANK), 11);
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_RANK), 11);
    set_wait_at(board, 1, 12, now - 100); /* all look: the peer, never whoever asks */
    assert_int_equal(ech_board_culprit(board, 11, ECH_BOARD_RANK), 11);
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_RANK), 10);
    free(board);
}

TEST(test_looks)
{
    ech_board *board = make(2);
    ech_board_set_wait(board, 0, ECH_BOARD_RANK, 11);
    uint32_t first = atomic_load(&board->slot[0].mark[ECH_BOARD_RANK].looked);
    while (atomic_load(&board->slot[0].mark[ECH_BOARD_RANK].looked) == first)
        ech_board_set_wait(board, 0, ECH_BOARD_RANK, 11);
    assert_true((int32_t)(atomic_load(&board->slot[0].mark[ECH_BOARD_RANK].looked) - first) > 0);
    free(board);
}

TEST(test_members)
{
    ech_board *board = make(2);
    assert_true(ech_board_take(board, 2));
    assert_false(ech_board_take(board, 1));
    assert_int_equal(atomic_load(&board->members), 2);
    assert_int_equal(atomic_load(&board->slot[1].process), getpid());
    ech_board_set_position(board, 1, 4, "last");
    ech_board_leave(board, 1);
    assert_int_equal(atomic_load(&board->slot[1].process), 0);
    assert_described(board, 11, "step 4, last, does not wait");
    free(board);
}

/* A list of positions says of a spared rank that it has died; no other is said to be dead. */
TEST(test_spared)
{
    ech_board *board = make(2);
    for (int i = 0; i < 2; i++) {
        ech_board_set_position(board, i, 4, "PUSH");
        ech_board_set_wait(board, i, ECH_BOARD_RANK, 10);
    }
    ech_board_spare(board, 1);
    assert_false(ech_board_lose(board, 0));
    assert_true(ech_board_lose(board, 1));
    assert_true(ech_board_lose(board, 1));
    assert_described(board, 10, "step 4, PUSH, waits for rank 10");
    assert_described(board, 11, "step 4, PUSH, where it has died; the others go on without it");
    ech_board_join(board, 1, 11);
    assert_described(board, 11, "step 4, PUSH, waits for rank 10");
    assert_true(ech_board_lose(board, 1));
    free(board);
}

/* Who writes a checkpoint has a wait of its own; without a checkpoint, its rank's counts. */
TEST(test_savers)
{
    ech_board *board = make(3);
    ech_board_set_position(board, 0, 7, "forward");
    atomic_store(&board->slot[0].saves, 5);
    assert_described(board, 10, "step 7, forward, writing checkpoint 5, does not wait");
    ech_board_set_wait(board, 0, ECH_BOARD_RANK, 12);
    assert_true(ech_board_waits(board, 10, ECH_BOARD_RANK));
    assert_false(ech_board_waits(board, 10, ECH_BOARD_SAVER));
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_RANK), 12);
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_SAVER), 10);
    ech_board_set_wait(board, 0, ECH_BOARD_SAVER, 11);
    ech_board_set_wait(board, 0, ECH_BOARD_RANK, -1);
    assert_described(
        board, 10,
        "step 7, forward, writing checkpoint 5 (waits for rank 11 there), does not wait");
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_SAVER), 11);
    ech_board_set_wait(board, 1, ECH_BOARD_RANK, 12);
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_SAVER), 12);
    atomic_store(&board->slot[0].saves, -1);
    assert_described(board, 10, "step 7, forward, does not wait");
    assert_int_equal(ech_board_culprit(board, 10, ECH_BOARD_SAVER), 10);
    free(board);
}

/* A wait that ends takes back its own mark, not that of another thread. */
TEST(test_marks)
{
    ech_board *board = make(1);
    ech_board_set_wait(board, 0, ECH_BOARD_RANK, 4);
    ech_board_end_wait(board, 0, ECH_BOARD_RANK, 5, -1);
    assert_described(board, 10, "in no step, waits for rank 4");
    ech_board_end_wait(board, 0, ECH_BOARD_RANK, 4, 6);
    assert_described(board, 10, "in no step, waits for rank 6");
    ech_board_end_wait(board, 0, ECH_BOARD_RANK, 6, -1);
    assert_described(board, 10, "in no step, does not wait");
    ech_board_end_wait(board, 0, ECH_BOARD_RANK, 6, 7);
    assert_false(ech_board_waits(board, 10, ECH_BOARD_RANK));
    free(board);
}

TEST(test_flags)
{
    ech_board *board = make(2);
    assert_false(ech_board_aborted(board));
    ech_board_abort(board, 11);
    ech_board_abort(board, 10);
    assert_true(ech_board_aborted(board));
    assert_int_equal(atomic_load(&board->aborted_by), 11);
    assert_true(ech_board_claim_report(board));
    assert_false(ech_board_claim_report(board));
    free(board);
}

/* Whatever a rank does shows; that time passes does not. */
TEST(test_pulse)
{
    ech_board *board = make(2);
    uint64_t before = ech_board_pulse(board), now;
    assert_true(ech_board_pulse(board) == before);
#define CHANGES(call)                                                                              \
    call;                                                                                          \
    now = ech_board_pulse(board);                                                                  \
    assert_true(now != before);                                                                    \
    before = now
    CHANGES(ech_board_set_position(board, 1, 7, "backward pass of the fourth block"));
    CHANGES(ech_board_set_position(board, 1, 7, "backward pass of the fourth bloc"));
    CHANGES(ech_board_set_wait(board, 0, ECH_BOARD_RANK, 11));
    CHANGES(atomic_fetch_add(&board->slot[0].mark[ECH_BOARD_RANK].looked, 1));
    CHANGES(ech_board_end_wait(board, 0, ECH_BOARD_RANK, 11, -1));
    CHANGES(atomic_store(&board->slot[1].saves, 7));
    CHANGES(atomic_fetch_add(&board->slot[1].mark[ECH_BOARD_SAVER].looked, 1));
    CHANGES(atomic_fetch_add(&board->progress, 1));
    CHANGES(ech_board_leave(board, 1));
#undef CHANGES
    free(board);
}

TEST(test_file)
{
    ech_transient file, other;
    ech_board *made = NULL, *opened = NULL, *second = NULL;
    assert_int_equal(ech_board_file_create(3, &file, &made), ECH_OK);
    assert_int_equal(ech_board_file_create(3, &other, &second), ECH_OK);
    assert_string_not_equal(file.path, other.path);
    assert_int_equal(ech_board_file_open(file.path, 3, &opened), ECH_OK);
    ech_board_join(made, 2, 5);
    ech_board_set_position(made, 2, 1, "seen by both");
    assert_described(opened, 5, "step 1, seen by both, does not wait");
    ech_transient_remove(&file);
    ech_transient_remove(&other);
    ech_board *none = NULL;
    assert_int_equal(ech_board_file_open(file.path, 3, &none), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), file.path));
    assert_null(none);
    ech_board_file_unmap(made);
    ech_board_file_unmap(second);
    ech_board_file_unmap(opened);
    ech_board_file_unmap(NULL);
}

static ech_board *take(int slots, ech_transient *file)
{
    ech_board *board = NULL;
    assert_int_equal(ech_board_file_take(slots, file, &board), ECH_OK);
    assert_true(atomic_load(&board->members) == slots);
    return board;
}

/* A board is taken once, and only if it is one; otherwise there is a new one. */
TEST(test_given_file)
{
    ech_transient file, given, own;
    ech_board *made = NULL, *taken, *other;
    assert_int_equal(ech_board_file_create(4, &given, &made), ECH_OK);
    setenv(ECH_BOARD_VARIABLE, given.path, 1);

    other = take(5, &own); /* too small */
    assert_string_not_equal(own.path, given.path);
    ech_transient_remove(&own);
    ech_board_file_unmap(other);

    taken = take(3, &file);
    assert_string_equal(file.path, given.path);
    assert_int_equal(taken->slots, 4);
    ech_board_join(taken, 2, 7);
    ech_board_set_position(taken, 2, 1, "seen by both");
    assert_described(made, 7, "step 1, seen by both, does not wait");

    other = take(3, &own); /* of another job, or an earlier one */
    assert_string_not_equal(own.path, given.path);
    ech_transient_remove(&own);
    ech_board_file_unmap(other);

    made->magic = 0;
    atomic_store(&made->members, 0);
    other = take(3, &own);
    assert_string_not_equal(own.path, given.path);
    ech_transient_remove(&own);
    ech_board_file_unmap(other);

    ech_transient_remove(&given);
    other = take(1, &own); /* of another machine */
    ech_transient_remove(&own);
    ech_board_file_unmap(other);
    unsetenv(ECH_BOARD_VARIABLE);
    ech_board_file_unmap(taken);
    ech_board_file_unmap(made);
}
