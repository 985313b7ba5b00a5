/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders written by hand: what a good text gives, and for every kind of bad one the message and its
 * place; and order_check on orders that no text can hold.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "schedule/orders.h"
#include "unit.h"

static void expect_order(ech_order *order, const char *text)
{
    ech_text printed = {0};
    order_print(order, &printed);
    assert_string_equal(printed.at, text);
    ech_text_free(&printed);
    free(order->at);
    *order = (ech_order){0};
}

TEST(test_good_text)
{
    static const char text[] = "# two stages\n"
                               "\n"
                               "F0.0 F0.1\tB0.0 W0.0 B0.1 W0.1# the first\r\n"
                               "   \t\n"
                               "  F0.00 B0.0 F0.1 B0.01 W0.0 W0.1";
    ech_order orders[2] = {0};
    assert_int_equal(ech_order_parse(text, strlen(text), "x", 2, 1, 2, orders), ECH_OK);
    expect_order(&orders[0], "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1");
    expect_order(&orders[1], "F0.0 B0.0 F0.1 B0.1 W0.0 W0.1");
}

TEST(test_weights_follow)
{
    static const char text[] = "F0.0 F1.0 B1.0 B0.0\nF0.0 F1.0 B1.0 B0.0 W1.0 W0.0\n";
    ech_order orders[2] = {0};
    assert_int_equal(ech_order_parse(text, strlen(text), "x", 2, 2, 1, orders), ECH_OK);
    expect_order(&orders[0], "F0.0 F1.0 B1.0 W1.0 B0.0 W0.0");
    expect_order(&orders[1], "F0.0 F1.0 B1.0 B0.0 W1.0 W0.0");
}

TEST(test_prints_read_back)
{
    static const char *const names[] = {"1f1b", "gpipe", "interleaved", "zero-bubble"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        int chunks = strcmp(names[n], "interleaved") == 0 ? 3 : 1;
        ech_order made[4] = {0}, read[4] = {0};
        ech_text text = {0};
        for (int r = 0; r < 4; r++) {
            ech_pipe pipe = {4, r, chunks, 8, 4 - r};
            ech_generator_find(names[n])->generate(&pipe, &made[r]);
            order_print(&made[r], &text);
            ech_text_append(&text, "\n");
        }
        assert_int_equal(ech_order_parse(text.at, text.n, "x", 4, chunks, 8, read), ECH_OK);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(read[r].n, made[r].n);
            assert_memory_equal(read[r].at, made[r].at, made[r].n * sizeof *made[r].at);
            free(read[r].at);
            free(made[r].at);
        }
        ech_text_free(&text);
    }
}

/* Two stages of one chunk and two micro-batches; nothing is written on failure. */
static void refuse_bytes(const char *text, size_t n, const char *message)
{
    ech_order orders[2] = {0};
    ech_clear_error();
    assert_int_equal(ech_order_parse(text, n, "run.order", 2, 1, 2, orders), ECH_EINPUT);
    assert_null(orders[0].at);
    assert_null(orders[1].at);
    assert_string_equal(ech_last_error(), message);
}

static void refuse(const char *text, const char *message)
{
    refuse_bytes(text, strlen(text), message);
}

#define GOOD "F0.0 F0.1 B0.0 B0.1\n"
#define WORD ": not an item; write F<chunk>.<micro-batch>, B... or W..., as F0.3"

TEST(test_bad_words)
{
    refuse("F0.0 f0.1", "run.order:1:6: f0.1" WORD);
    refuse(GOOD "\n  F0.0 X", "run.order:3:8: X" WORD);
    refuse("F", "run.order:1:1: F" WORD);
    refuse("F0", "run.order:1:1: F0" WORD);
    refuse("F0.", "run.order:1:1: F0." WORD);
    refuse("F.0", "run.order:1:1: F.0" WORD);
    refuse("F0,0", "run.order:1:1: F0,0" WORD);
    refuse("F0.0x", "run.order:1:1: F0.0x" WORD);
    refuse("F-1.0", "run.order:1:1: F-1.0" WORD);
    refuse("F0.0F0.1", "run.order:1:1: F0.0F0.1" WORD);
    refuse("\x1b[1m", "run.order:1:1: ?[1m" WORD);
    refuse("F0.000000000000000000000000000000000000000z",
           "run.order:1:1: F0.000000000000000000000..." WORD);
}

TEST(test_bad_items)
{
    refuse("F1.0", "run.order:1:1: F1.0: chunk not in 0 .. 0");
    refuse("F0.0 F0.2", "run.order:1:6: F0.2: micro-batch not in 0 .. 1");
    refuse("F0.18446744073709551616",
           "run.order:1:1: F0.18446744073709551616: micro-batch not in 0 .. 1");
    refuse("F4294967296.0", "run.order:1:1: F4294967296.0: chunk not in 0 .. 0");
    refuse(GOOD "F0.0 F0.0", "run.order:2:6: F0.0: comes twice");
    refuse("F0.1", "run.order:1:1: F0.1: F0.0 must come before it");
    refuse("F0.0 B0.0 B0.1", "run.order:1:11: B0.1: F0.1 must come before it");
    refuse("F0.0 F0.1 B0.1", "run.order:1:11: B0.1: B0.0 must come before it");
    refuse("F0.0 W0.0", "run.order:1:6: W0.0: B0.0 must come before it");
}

TEST(test_missing)
{
    refuse(GOOD "F0.0 B0.0 # F0.1\n", "run.order:2:17: stage 1: F0.1 is missing");
    refuse("F0.0 F0.1 B0.0", "run.order:1:15: stage 0: B0.1 is missing");
    refuse("F0.0 F0.1 B0.0 W0.0 B0.1", "run.order:1:25: stage 0: W0.1 is missing");
    refuse("", "run.order:1:1: the end, after 0 lines; there are 2 stages, a line each");
    refuse(GOOD, "run.order:2:1: the end, after 1 line; there are 2 stages, a line each");
    refuse(GOOD GOOD "# end\nF0.0",
           "run.order:4:1: F0.0: a line too many; there are 2 stages, a line each");
}

TEST(test_nul)
{
    static const char text[] = GOOD "F0.0 \0F0.1";
    refuse_bytes(text, sizeof text - 1, "run.order:2:6: a byte of value 0: not a text file");
}

static ech_status read_file(const char *path, int stages, ech_order *orders)
{
    char *text;
    size_t n;
    ECH_TRY(ech_order_read(path, &text, &n));
    ech_status status = ech_order_parse(text, n, path, stages, 1, 2, orders);
    free(text);
    return status;
}

TEST(test_file)
{
    char path[] = "/tmp/ech_order_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    ech_order orders[2] = {0};
    assert_int_equal(ech_file_write_at(fd, path, GOOD GOOD, strlen(GOOD GOOD), 0), ECH_OK);
    assert_int_equal(read_file(path, 2, orders), ECH_OK);
    expect_order(&orders[0], "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1");
    expect_order(&orders[1], "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1");
    assert_int_equal(read_file(path, 3, orders), ECH_EINPUT);
    assert_ptr_equal(strstr(ech_last_error(), path), ech_last_error());

    assert_int_equal(ftruncate(fd, (64 << 20) + 1), 0);
    assert_int_equal(read_file(path, 2, orders), ECH_EINPUT);
    assert_non_null(strstr(ech_last_error(), "larger than the 67108864 bytes"));
    close(fd);
    unlink(path);
    assert_int_equal(read_file(path, 2, orders), ECH_EIO);
    assert_null(orders[0].at);
}

static void refuse_order(const ech_order_item *items, size_t n, const char *message)
{
    ech_order order = {.at = (ech_order_item *)(uintptr_t)items, .n = n, .capacity = n};
    ech_clear_error();
    assert_int_equal(order_check(&order, 2, 1, "stage 3"), ECH_EINPUT);
    assert_string_equal(ech_last_error(), message);
}

TEST(test_check)
{
    static const ech_order_item good[] = {{ECH_F, 0, 0}, {ECH_F, 1, 0}, {ECH_B, 1, 0},
                                          {ECH_B, 0, 0}, {ECH_W, 0, 0}, {ECH_W, 1, 0}};
    ech_order order = {.at = (ech_order_item *)(uintptr_t)good, .n = 6, .capacity = 6};
    assert_int_equal(order_check(&order, 2, 1, "stage 3"), ECH_OK);
    assert_int_equal(ech_order_in_flight(&order), 2);
    refuse_order(good, 5, "stage 3: W1.0 is missing");
    refuse_order(good, 0, "stage 3: F0.0 is missing");
    refuse_order(good + 1, 5, "stage 3: item 2, B0.0: F0.0 must come before it");
    refuse_order(&(ech_order_item){ECH_F, -1, 0}, 1, "stage 3: item 0, F-1.0: chunk not in 0 .. 1");
    refuse_order(&(ech_order_item){ECH_F, 1, -7}, 1,
                 "stage 3: item 0, F1.-7: micro-batch not in 0 .. 0");
    static const ech_order_item twice[] = {{ECH_F, 0, 0}, {ECH_F, 0, 0}};
    refuse_order(twice, 2, "stage 3: item 1, F0.0: comes twice");
}
