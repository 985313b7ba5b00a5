/* SPDX-License-Identifier: Apache-2.0
 *
 * A test program states its tests as follows. A file has any number of
 *
 *     TEST(numbers_are_read)
 *     {
 *         assert_int_equal(read("7"), 7);
 *     }
 *
 * and the program runs them in the order of the file. ALL_TESTS(setup, teardown) names what runs
 * before the first and after the last test of this file, EACH_TEST(setup, teardown) what runs
 * around each test (a header may say it for the files that include it); both are cmocka's
 * functions, or NULL. `PROGRAM PATTERN` runs the tests whose names match; * and ? are wildcards.
 * The tests' own thread logs nothing, unless ECHELON_TEST_LOG is set. A program that does more has
 * a main of its own, which ends with `return unit_run(NULL);`.
 */
#ifndef ECH_TESTS_UNIT_H
#define ECH_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef void unit_function(void **state);
typedef int unit_fixture(void **state);

void unit_add(const char *file, const char *name, unit_function *test);
void unit_add_fixture(const char *file, unit_fixture *setup, unit_fixture *teardown, int each);

/* Runs the tests of test_NOUN.c, or of all files of the program. The number of failures; a program
 * without a test fails, too. */
int unit_run(const char *noun);
/* Leaves only the tests whose names match the pattern (fnmatch). */
void unit_choose(const char *pattern);
/* Prints the noun of each file that has tests. */
void unit_print_nouns(void);

/* Priorities keep the order of a file: the linker sorts by them. */
enum { UNIT_FIRST = 1000 };
#define UNIT_AT_START(function, number)                                                            \
    __attribute__((constructor(UNIT_FIRST + (number)))) static void function(void)

#define TEST(name)                                                                                 \
    static unit_function name;                                                                     \
    UNIT_AT_START(name##_is_a_test, __COUNTER__)                                                   \
    {                                                                                              \
        unit_add(__BASE_FILE__, #name, name);                                                      \
    }                                                                                              \
    static void name(__attribute__((unused)) void **state)

#define ALL_TESTS(setup, teardown)                                                                 \
    UNIT_AT_START(all_tests_have, __COUNTER__)                                                     \
    {                                                                                              \
        unit_add_fixture(__BASE_FILE__, setup, teardown, 0);                                       \
    }
#define EACH_TEST(setup, teardown)                                                                 \
    UNIT_AT_START(each_test_has, __COUNTER__)                                                      \
    {                                                                                              \
        unit_add_fixture(__BASE_FILE__, setup, teardown, 1);                                       \
    }

#endif
