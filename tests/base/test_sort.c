/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting by small keys is stable, and chains: by the second key first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/sort.h"

enum { N = 1000, KEYS = 17 };

static void sorts_and_keeps_the_order_of_equal_ones(void **state)
{
    (void)state;
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

static void sorts_nothing(void **state)
{
    (void)state;
    free(ech_sort_by_key(0, NULL, NULL, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorts_and_keeps_the_order_of_equal_ones),
        cmocka_unit_test(sorts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
