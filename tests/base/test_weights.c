/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in text, and their cumulative sums.
 */
#include <string.h>

#include "base/text.h"
#include "unit.h"

TEST(reads_weights)
{
    const struct {
        const char *text;
        int64_t units;
    } cases[] = {{"0", 0},
                 {"1", 1000000000},
                 {"0.3", 300000000},
                 {".5", 500000000},
                 {"7.", 7000000000},
                 {"0.000000001", 1},
                 {"999999999.999999999", 999999999999999999}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t units = -1;
        assert_true(ech_text_to_weight(cases[i].text, strlen(cases[i].text), &units));
        assert_int_equal(units, cases[i].units);
    }
    int64_t units;
    assert_true(ech_text_to_weight("12,9", 2, &units)); /* no further than that */
    assert_int_equal(units, 12000000000);
}

TEST(refuses_other_weights)
{
    const char *const cases[] = {"",    ".",   "-1", "+1",         "1e3",          " 1",   "1 ",
                                 "nan", "0x1", "1,", "1000000000", "0.1234567890", "1.2.3"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t units = -7;
        assert_false(ech_text_to_weight(cases[i], strlen(cases[i]), &units));
        assert_int_equal(units, -7);
    }
}

TEST(reads_bounds)
{
    const struct {
        const char *text;
        int64_t bound[3]; /* in tenths; from 0 */
    } cases[] = {{"969,30,1", {9690, 9990, 10000}}, {"99,1,0", {990, 1000, 1000}},
                 {"100,0,0", {1000, 1000, 1000}},   {"0,0,0.1", {0, 0, 1}},
                 {"0.9,0.1", {9, 10, 10}},          {"1", {10, 10, 10}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bound[4] = {-1, -1, -1, -1};
        assert_true(ech_text_to_bounds(cases[i].text, bound));
        assert_int_equal(bound[0], 0);
        for (int k = 0; k < 3; k++) assert_int_equal(bound[k + 1], cases[i].bound[k] * 100000000);
    }
}

TEST(refuses_other_bounds)
{
    const char *const cases[] = {"",     ",",    "a",     "1,2,3,4", "1,2,3,", "1;2",
                                 "-1,2", "1,,2", "1,2,",  ",1,2",    "0,0,0",  "0",
                                 " 1",   "1, 2", "1,2,a", "1 ,2"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bound[4] = {-7, -7, -7, -7};
        assert_false(ech_text_to_bounds(cases[i], bound));
        for (int k = 0; k < 4; k++) assert_int_equal(bound[k], -7);
    }
}
