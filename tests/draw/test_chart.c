/* SPDX-License-Identifier: Apache-2.0
 *
 * Charts: a line for each part of each series, at the height of its values, and sound markup.
 */
#include <string.h>

#include "draw/chart.h"
#include "draw/markup.h"
#include "unit.h"

TEST(draws_each_value_at_its_height)
{
    static const char *const names[] = {"8", "16", "<32>"};
    static const double whole[] = {1, 1, 1}, falling[] = {1, 0.5, 0};
    ech_chart chart = {.title = "A & B",
                       .subtitle = "of a test",
                       .axis = "ranks",
                       .points = 3,
                       .point = names,
                       .marked = 1,
                       .n = 2,
                       .series = {{"whole", whole}, {"falling", falling}}};
    ech_text out = {0};
    ech_chart_svg(&chart, &out);
    const char *fault = markup_fault(out.at);
    if (fault) fail_msg("markup: %s", fault);
    assert_int_equal(markup_count(out.at, "</title></rect>"), 6); /* points */
    assert_non_null(strstr(out.at, "<title>16: falling, 50.0 %</title>"));
    /* the plot is from y = 70 to 390, and from x = 64 to 704 */
    assert_non_null(strstr(out.at, "<line x1=\"64\" y1=\"70\" x2=\"384\" y2=\"230\"/>"));
    assert_non_null(strstr(out.at, "<line x1=\"384\" y1=\"230\" x2=\"704\" y2=\"390\"/>"));
    assert_non_null(strstr(out.at, "<line x1=\"64\" y1=\"70\" x2=\"384\" y2=\"70\"/>"));
    assert_non_null(strstr(out.at, "&lt;32&gt;"));
    assert_non_null(strstr(out.at, ">falling</text>"));
    ech_text_free(&out);
}

ALL_TESTS(NULL, NULL)
