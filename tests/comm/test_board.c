/* SPDX-License-Identifier: Apache-2.0
 *
 * The board of positions: what it says, whom it blames, and the file it lies in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/board.h"

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

static void test_positions(void **state)
{
    (void)state;
    ech_board *board = make(2);
    assert_described(board, 10, "in no step, does not wait");
    ech_board_set_position(board, 0, 7, "forward");
    ech_board_set_wait(board, 0, 11);
    assert_described(board, 10, "step 7, forward, waits for rank 11");
    assert_described(board, 12, "on another machine");
    ech_board_set_position(board, 1, 0,
                           "0123456789012345678901234567890123456789012345678901234567");
    assert_described(board, 11,
                     "step 0, 01234567890123456789012345678901234567890123456, does not wait");
    free(board);
}

static void test_culprit(void **state)
{
    (void)state;
    ech_board *board = make(3);
    ech_board_set_wait(board, 0, 11);
    assert_int_equal(ech_board_culprit(board, 10), 11);
    ech_board_set_wait(board, 1, 12);
    assert_int_equal(ech_board_culprit(board, 10), 12);
    ech_board_set_wait(board, 2, 99); /* of another machine */
    assert_int_equal(ech_board_culprit(board, 10), 99);
    ech_board_set_wait(board, 2, 10); /* a circle: never whoever asks */
    assert_int_equal(ech_board_culprit(board, 10), 11);
    assert_int_equal(ech_board_culprit(board, 12), 10);
    free(board);
}

static void test_flags(void **state)
{
    (void)state;
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

static void test_file(void **state)
{
    (void)state;
    char path[256], other[256];
    ech_board *made = NULL, *opened = NULL, *second = NULL;
    assert_int_equal(ech_board_file_create(3, path, sizeof path, &made), ECH_OK);
    assert_int_equal(ech_board_file_create(3, other, sizeof other, &second), ECH_OK);
    assert_string_not_equal(path, other);
    assert_int_equal(ech_board_file_open(path, 3, &opened), ECH_OK);
    ech_board_join(made, 2, 5);
    ech_board_set_position(made, 2, 1, "seen by both");
    assert_described(opened, 5, "step 1, seen by both, does not wait");
    unlink(path);
    unlink(other);
    ech_log_set_quiet(true);
    ech_board *none = NULL;
    assert_int_equal(ech_board_file_open(path, 3, &none), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), path));
    assert_null(none);
    ech_log_set_quiet(false);
    ech_board_file_unmap(made);
    ech_board_file_unmap(second);
    ech_board_file_unmap(opened);
    ech_board_file_unmap(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_culprit),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
