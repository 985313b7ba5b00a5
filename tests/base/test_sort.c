/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting by small keys is stable, and chains: by the second key first. Distinct numbers are all
 * there, once, ascending.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "base/random.h"
#include "base/sort.h"
#include "unit.h"

enum { N = 1000, KEYS = 17 };

TEST(sorts_and_keeps_the_order_of_equal_ones)
{
    int first[N], second[N];
    ech_random_key key = {.stream = 1};
    for (int i = 0; i < N; i++) {
        first[i] = (int)(ech_random_word(key, 2 * (uint64_t)i) % KEYS);
        second[i] = (int)(ech_random_word(key, 2 * (uint64_t)i + 1) % KEYS);
    }
    int *by_second = ech_sort_by_key(N, NULL, second, KEYS);
    int *sorted = ech_sort_by_key(N, by_second, first, KEYS);
    bool seen[N] = {false};
    for (int i = 0; i < N; i++) {
        int here = sorted[i];
        assert_in_range(here, 0, N - 1);
        assert_false(seen[here]);
        seen[here] = true;
        if (i == 0) continue;
        int before = sorted[i - 1];
        assert_true(first[before] <= first[here]);
        if (first[before] != first[here]) continue;
        assert_true(second[before] <= second[here]);
        if (second[before] == second[here]) assert_true(before < here);
    }
    free(by_second);
    free(sorted);
}

TEST(sorts_nothing)
{
    free(ech_sort_by_key(0, NULL, NULL, 1));
}

/* Of one digit and of several, of which a number is the largest that is allowed. */
TEST(sorts_distinct_numbers)
{
    static const int64_t limits[] = {1, 17, 2048, 2049, 1000000, (int64_t)1 << 31};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        int32_t x[N + 2], all[N + 2], place[N + 2];
        uint64_t room[2 * (N + 2)];
        ech_random_key key = {.stream = (uint32_t)l};
        for (int i = 0; i < N; i++) /* several are there more than once */
            all[i] = (int32_t)(ech_random_word(key, (uint64_t)(i / 4 * 4)) % (uint64_t)limits[l]);
        all[N / 2] = (int32_t)(limits[l] - 1);
        all[N] = -1;
        all[N + 1] = limits[l] > INT32_MAX ? INT32_MIN : (int32_t)limits[l];
        size_t n = ech_sort_distinct(N + 2, all, limits[l], x, place, room);
        for (size_t i = 1; i < n; i++) assert_true(x[i - 1] < x[i]);
        assert_int_equal(x[n - 1], limits[l] - 1);
        for (int i = 0; i < N; i++) {
            assert_in_range(place[i], 0, n - 1);
            assert_int_equal(x[place[i]], all[i]);
        }
        for (size_t k = 0, found = 0; k < n; k++, found = 0) {
            for (int i = 0; i < N; i++) found += all[i] == x[k];
            assert_true(found > 0);
        }
        assert_int_equal(place[N], -1);
        assert_int_equal(place[N + 1], -1);
    }
    assert_int_equal(ech_sort_distinct(0, NULL, 5, NULL, NULL, NULL), 0);
}
