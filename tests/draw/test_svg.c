/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of what pictures are made of: escapes, numbers, cut words, colours, ticks.
 */

#include <math.h>
#include <string.h>

#include "draw/markup.h"
#include "draw/svg.h"
#include "unit.h"

TEST(escapes_what_markup_would_read)
{
    const struct {
        const char *text, *escaped;
    } cases[] = {
        {"", ""},
        {"a <b> & \"c\" 'd'", "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\001b\033[0m", "a\357\277\275b\357\277\275[0m"},
        {"\xff<\xc3", "\xef\xbf\xbd&lt;\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_text out = {0};
        ech_svg_escape(&out, cases[i].text);
        assert_string_equal(out.at, cases[i].escaped);
        ech_text_free(&out);
    }
}

TEST(numbers_are_short)
{
    const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},        {-0.0, "0"},    {-0.001, "0"},    {3, "3"},
                 {100, "100"},    {3.5, "3.5"},   {3.256, "3.26"},  {-2.5, "-2.5"},
                 {-10, "-10"},    {0.05, "0.05"}, {-0.01, "-0.01"}, {1e9, "1000000000"},
                 {99.999, "100"}, {0.004, "0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_text out = {0};
        ECH_SVG(&out, "@", cases[i].value);
        assert_string_equal(out.at, cases[i].text);
        ech_text_free(&out);
    }
}

TEST(elements_are_well_formed)
{
    ech_text out = {0};
    ech_svg_begin(&out, 20, 10.5, "a \"picture\" <&>");
    ech_svg_rect(&out, 1, 0, 2.25, 3, "", NULL);
    ech_svg_rect(&out, 1, 2, 3, 4, "fill=\"#fff\"", "a & b");
    ech_svg_line(&out, 0, 1, 2, 3, "class=\"c\"");
    ech_svg_words(&out, 5, 6, "", "x < y");
    assert_non_null(markup_fault(out.at)); /* not closed yet */
    ech_text_append(&out, "</svg>\n");
    assert_null(markup_fault(out.at));
    assert_non_null(strstr(out.at, "viewBox=\"0 0 20 10.5\" width=\"20\" height=\"10.5\""));
    assert_non_null(strstr(out.at, "aria-label=\"a &quot;picture&quot; &lt;&amp;&gt;\""));
    assert_non_null(strstr(out.at, "<rect x=\"1\" width=\"2.25\" height=\"3\"/>\n"));
    assert_non_null(strstr(out.at, "height=\"4\" fill=\"#fff\"><title>a &amp; b</title></rect>\n"));
    assert_non_null(strstr(out.at, "<text x=\"5\" y=\"6\">x &lt; y</text>\n"));
    ech_text_free(&out);
}

TEST(words_are_cut_between_letters)
{
    assert_true(fabs(ech_svg_width("abcde", 10) - 30) < 1e-9);
    assert_true(fabs(ech_svg_width("\303\251", 10) - 6) < 1e-9);
    const struct {
        double width;
        const char *text;
    } cases[] = {{30, "ab\303\251de"},
                 {29, "ab\xc3\xa9\xe2\x80\xa6"},
                 {23, "ab\xe2\x80\xa6"},
                 {6, "\xe2\x80\xa6"},
                 {0, "\xe2\x80\xa6"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_text cut = ech_svg_truncate("ab\303\251de", 10, cases[i].width);
        assert_string_equal(cut.at, cases[i].text);
        ech_text_free(&cut);
    }
}

TEST(pale_colours)
{
    char colour[8];
    assert_string_equal(ech_svg_pale("#56b4e9", 0, colour), "#56b4e9");
    assert_string_equal(ech_svg_pale("#56b4e9", 1, colour), "#ffffff");
    assert_string_equal(ech_svg_pale("#000080", 0.5, colour), "#8080c0");
}

TEST(ticks_are_round)
{
    const struct {
        double span, most, step;
    } cases[] = {{33, 14, 5}, {10, 10, 1},       {0.3, 3, 0.1},   {0.31, 3, 0.2},   {1, 1, 1},
                 {7, 1, 10},  {12345, 10, 2000}, {1e-6, 4, 5e-7}, {1e300, 5, 2e299}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double step = ech_svg_tick(cases[i].span, cases[i].most);
        assert_true(fabs(step / cases[i].step - 1) < 1e-9);
    }
    const struct {
        int64_t k;
        double step;
        const char *text;
    } texts[] = {{0, 0.5, "0"},        {3, 0.5, "1.5"},   {-3, 0.5, "-1.5"},
                 {4, 0.5, "2.0"},      {7, 20, "140"},    {2, 0.02, "0.04"},
                 {3, 5e-7, "1.5e-06"}, {9, 1e7, "9e+07"}, {123, 1e6, "1.23e+08"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ech_text out = {0};
        ech_svg_tick_text(&out, texts[i].k, texts[i].step);
        assert_string_equal(out.at, texts[i].text);
        ech_text_free(&out);
    }
}
