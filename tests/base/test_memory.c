/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists grow with zeroed room, pools give aligned zeroed memory that stays in place.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "unit.h"

TEST(test_small_memory)
{
    int *numbers = ech_calloc(5, sizeof *numbers);
    for (int i = 0; i < 5; i++) assert_int_equal(numbers[i], 0);
    free(numbers);
    void *nothing = ech_calloc(0, 8);
    assert_non_null(nothing);
    free(nothing);
    char *copy = ech_strdup("abc");
    assert_string_equal(copy, "abc");
    free(copy);
}

TEST(test_lists_grow)
{
    typedef struct pair {
        int a, b;
    } pair;
    ECH_LIST(pair) list = {0};
    for (int i = 0; i < 1000; i++) ECH_PUSH(list, (pair){i, -i});
    assert_int_equal(list.n, 1000);
    assert_true(list.capacity >= 1000);
    for (int i = 0; i < 1000; i++) assert_true(list.at[i].a == i && list.at[i].b == -i);
    for (size_t i = list.n; i < list.capacity; i++)
        assert_true(list.at[i].a == 0 && list.at[i].b == 0);
    free(list.at);
}

/* What is given back is zeroed when the list grows again; an empty list keeps its room. */
TEST(test_lists_shrink)
{
    ECH_LIST(int) list = {0};
    for (int i = 0; i < 1000; i++) ECH_PUSH(list, i + 1);
    list.n = 10;
    list.at = ech_shrink(list.at, &list.capacity, list.n, sizeof *list.at);
    assert_int_equal(list.capacity, 10);
    for (int i = 0; i < 10; i++) assert_int_equal(list.at[i], i + 1);
    list.at = ech_shrink(list.at, &list.capacity, 0, sizeof *list.at);
    assert_int_equal(list.capacity, 10);
    ECH_PUSH(list, 11);
    assert_true(list.capacity > 11);
    assert_int_equal(list.at[10], 11);
    assert_int_equal(list.at[11], 0);
    free(list.at);
}

TEST(test_pools)
{
    ech_pool *pool = ech_pool_create();
    enum { BLOCKS = 500 };
    unsigned char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = ech_pool_alloc(pool, i);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t j = 0; j < i; j++) assert_int_equal(blocks[i][j], 0);
        memset(blocks[i], (int)i, i);
    }
    unsigned char *large = ech_pool_alloc(pool, 1 << 20);
    memset(large, 1, 1 << 20);
    assert_string_equal(ech_pool_format(pool, "h.%d.%s", 3, "attn"), "h.3.attn");
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t j = 0; j < i; j++) assert_int_equal(blocks[i][j], i & 255);
    ech_pool_destroy(pool);
    ech_pool_destroy(NULL);
}

TEST(test_clock_does_not_go_back)
{
    double before = ech_clock_now();
    for (int i = 0; i < 1000; i++) {
        double now = ech_clock_now();
        assert_true(now >= before);
        before = now;
    }
}
