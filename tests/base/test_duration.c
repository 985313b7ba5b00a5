/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans of time in text.
 */

#include "base/text.h"
#include "unit.h"

TEST(reads_all_forms)
{
    const struct {
        const char *text;
        double seconds;
    } cases[] = {{"0", 0},
                 {"90", 90},
                 {"0.25", 0.25},
                 {"1e3", 1000},
                 {"90s", 90},
                 {"15m", 900},
                 {"1.5h", 5400},
                 {"2d", 172800},
                 {"10:30", 630},
                 {"1:30:00", 5400},
                 {"100:00:00", 360000},
                 {"1-12", 129600},
                 {"1-12:30", 131400},
                 {"1-12:00:05", 129605}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double seconds = -1;
        assert_true(ech_text_to_seconds(cases[i].text, &seconds));
        assert_true(seconds >= cases[i].seconds && seconds <= cases[i].seconds);
    }
}

TEST(refuses_the_rest)
{
    const char *const cases[] = {"",    "s",     "h1",      "1 h",    "1hour",   "1h30m",
                                 "1:",  ":30",   "1:2:3:4", "1:60",   "1:00:60", "1-24",
                                 "1-",  "-1:00", "1-2-3",   "1.5:00", "0x10",    "nan",
                                 "inf", "inf s", "1-1:60",  "1:-1",   "--1",     "9999999999:00"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double seconds = -1;
        assert_false(ech_text_to_seconds(cases[i], &seconds));
        assert_true(seconds < 0);
    }
}
