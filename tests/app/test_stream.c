/* SPDX-License-Identifier: Apache-2.0
 *
 * The rate of memory: there is one, for as many threads as are asked for. How large it is the machine
 * alone knows.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "app/bench/machine.h"

static void test_any_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        double rate = ech_stream_bytes(threads);
        assert_true(isfinite(rate) && rate > 0);
    }
}

static void test_no_threads(void **state)
{
    (void)state;
    assert_true(fpclassify(ech_stream_bytes(0)) == FP_ZERO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_threads),
                                       cmocka_unit_test(test_no_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
