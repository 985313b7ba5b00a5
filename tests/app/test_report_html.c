/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of report pages: whole, alone, escaped, bounded; their charts and bars.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/report/html.h"
#include "draw/markup.h"
#include "unit.h"

/* Well formed, needs nothing from elsewhere, and numbers are numbers. */
static void check_markup(const ech_text *text)
{
    const char *fault = markup_fault(text->at);
    if (fault) fail_msg("not well formed at: %.80s", fault);
    assert_null(strstr(text->at, "<script"));
    assert_null(strstr(text->at, "href"));
    assert_null(strstr(text->at, "src="));
    assert_null(strstr(text->at, "url("));
    assert_null(strstr(text->at, "@import"));
    assert_int_equal(markup_count(text->at, "http"), markup_count(text->at, "<svg "));
    const char *bad[] = {"=\"nan", "=\"-nan", "=\"inf", "=\"-inf"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_null(strstr(text->at, bad[i]));
}

static ech_text draw_page(const ech_report_page *page)
{
    ech_text out = {0};
    ech_report_html(page, &out);
    assert_int_equal(strncmp(out.at, "<!doctype html>\n", 16), 0);
    check_markup(&out);
    return out;
}

static ech_text draw_chart(const ech_report_chart *chart)
{
    ech_text out = {0};
    ech_report_charts_svg(chart, NULL, 1, &out);
    check_markup(&out);
    return out;
}

static void add(ech_report_points *points, int64_t step, double value)
{
    ECH_PUSH(*points, (ech_report_point){step, value});
}

static void add_fact(ech_report_page *page, const char *key, const char *value)
{
    ECH_PUSH(page->facts, (ech_report_fact){.key = key});
    if (*value) ech_text_append(&page->facts.at[page->facts.n - 1].value, "%s", value);
}

static void free_facts(ech_report_page *page)
{
    for (size_t i = 0; i < page->facts.n; i++) ech_text_free(&page->facts.at[i].value);
    free(page->facts.at);
}

static ech_timeline make_timeline(double unit)
{
    ech_timeline timeline = {.ranks = 2, .chunks = 1, .seconds = true};
    ECH_PUSH(timeline.bar, (ech_timeline_bar){0, ECH_BAR_FORWARD, 0, 0, 0, unit, 0});
    ECH_PUSH(timeline.bar, (ech_timeline_bar){1, ECH_BAR_FORWARD, 0, 0, unit, 2 * unit, 0});
    ech_timeline_finish(&timeline);
    return timeline;
}

TEST(whole_page)
{
    ech_timeline predicted = make_timeline(1e-3), measured = make_timeline(1.5e-3);
    const char *names[] = {"parameters", "activations"};
    const int64_t bytes[] = {1 << 20, 3 << 20, 2 << 20, 0};
    ech_report_chart loss = {.title = "loss"};
    for (int step = 1; step <= 5; step++) add(&loss.training, step, 10.0 / step);
    add(&loss.validation, 5, 2.25);
    ech_report_page page = {.title = "a run",
                            .predicted = &predicted,
                            .measured = &measured,
                            .memory = {2, 2, names, bytes, 8 << 20}};
    add_fact(&page, "model", "gpt2");
    add_fact(&page, "nothing", "");
    add_fact(&page, "steps", "5 of 5");
    ECH_PUSH(page.charts, loss);
    ech_text out = draw_page(&page), again = draw_page(&page);
    assert_string_equal(out.at, again.at);
    const char *expected[] = {
        "<title>a run</title>",
        "<h1>a run</h1>",
        "<dt>model</dt><dd>gpt2</dd>",
        "<dt>steps</dt><dd>5 of 5</dd>",
        ">Predicted</text>",
        ">Measured</text>",
        ">loss</text>",
        ">2 at step 5  ·  validation 2.25 at step 5</text>",
        "<title>parameters: 1.0 MiB</title>",
        ">limit 8.0 MiB</text>",
        ">4.0 MiB</text>",
        "<tr><th>rank</th><th>parameters</th><th>activations</th><th>all</th></tr>",
        "<tr><th>0</th><td>1048576</td><td>3145728</td><td>4194304</td></tr>",
        "<tr><th>1</th><td>2097152</td><td>0</td><td>2097152</td></tr>",
        "prefers-color-scheme:dark",
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (!strstr(out.at, expected[i])) fail_msg("the page lacks %s", expected[i]);
    assert_int_equal(markup_count(out.at, "<svg "), 3);
    assert_int_equal(markup_count(out.at, "<dt>"), 2);
    ech_text_free(&out);
    ech_text_free(&again);
    free(loss.training.at);
    free(loss.validation.at);
    free_facts(&page);
    free(page.charts.at);
    ech_timeline_free(&predicted);
    ech_timeline_free(&measured);
}

TEST(empty_parts_are_left_out)
{
    ech_report_page page = {0};
    ech_text out = draw_page(&page);
    assert_null(strstr(out.at, "<svg"));
    assert_null(strstr(out.at, "<h2>"));
    assert_null(strstr(out.at, "<dl"));
    ech_text_free(&out);

    ECH_PUSH(page.charts, (ech_report_chart){.title = "nothing yet"});
    out = draw_page(&page);
    assert_null(strstr(out.at, "<h2>"));
    ech_text_free(&out);
    free(page.charts.at);
    page.charts.n = 0;

    ech_timeline timeline = make_timeline(1);
    for (int measured = 0; measured < 2; measured++) {
        page.predicted = measured ? NULL : &timeline;
        page.measured = measured ? &timeline : NULL;
        out = draw_page(&page);
        assert_int_equal(markup_count(out.at, "<h2>"), 1);
        assert_int_equal(markup_count(out.at, ">Predicted</text>"), !measured);
        assert_int_equal(markup_count(out.at, ">Measured</text>"), measured);
        ech_text_free(&out);
    }
    ech_timeline_free(&timeline);
}

TEST(text_is_escaped)
{
    const char *evil = "</style><script>&\"'\001\377", *safe = "&lt;/style&gt;&lt;script&gt;&amp;";
    const int64_t bytes[] = {1};
    ech_report_page page = {.title = evil, .memory = {1, 1, &evil, bytes, 0}, .run_file = evil};
    ech_report_chart chart = {.title = evil};
    add(&chart.training, 1, 1);
    ECH_PUSH(page.charts, chart);
    add_fact(&page, evil, evil);
    ech_text out = draw_page(&page);
    /* Title and heading, fact, chart's title twice, the piece's hint, legend, table, run file. */
    assert_int_equal(markup_count(out.at, safe), 2 + 2 + 2 + 1 + 1 + 1 + 1);
    assert_null(strchr(out.at, '\001'));
    ech_text_free(&out);
    free(chart.training.at);
    free(page.charts.at);
    free_facts(&page);
}

/* Two of three runs have values; the names and cells are a stranger's. Of a long name the end
 * shows, before its values. */
TEST(several_runs_share_charts)
{
    char deep[] = "/a/folder/in/a/folder/in/a/folder/in/a/folder/in/a/folder/\303\251t\303\251/a";
    const char *const names[] = {deep, "<b>", "runs/c"};
    ech_report_chart loss[3] = {{.title = "loss"}, {.title = "loss"}, {.title = "loss"}};
    ech_report_table table = {0};
    ech_report_page page = {.title = "three", .table = &table, .runs = 3, .names = names};
    for (int i = 0; i < 3; i++) add(&loss[0].training, i, i);
    add(&loss[1].training, 9, 5);
    add(&loss[1].validation, 9, 4.5);
    for (int r = 0; r < 3; r++) ECH_PUSH(page.charts, loss[r]);
    for (int i = 0; i < 4; i++) ECH_PUSH(table.cell, ((const char *[]){"rate", "1", "<2>", ""})[i]);
    add_fact(&page, "data", "d");
    ech_text out = draw_page(&page);
    assert_int_equal(markup_count(out.at, "<svg "), 1);
    assert_int_equal(markup_count(out.at, "class=\"ech-run\""), 2 + 2); /* lines, dots */
    assert_int_equal(markup_count(out.at, "<th>rate</th><td>1</td><td>&lt;2&gt;</td><td></td>"), 1);
    assert_non_null(strstr(out.at, ">\342\200\246"));
    assert_non_null(strstr(out.at, "/\303\251t\303\251/a: 2 at step 2<"));
    assert_non_null(strstr(out.at, "&lt;b&gt;: 5 at step 9"));
    assert_non_null(strstr(out.at, "validation 4.5 at step 9"));
    assert_non_null(strstr(out.at, "runs/c: no values"));
    assert_true(strstr(out.at, "What differs") < strstr(out.at, "The same in all"));
    ech_text_free(&out);
    for (int r = 0; r < 3; r++) free(loss[r].training.at), free(loss[r].validation.at);
    free(table.cell.at);
    free(page.charts.at);
    free_facts(&page);
}

/* ---- charts ---- */

TEST(charts_say_what_is_not_finite)
{
    ech_report_chart chart = {.title = "loss"};
    const double values[] = {3, 2, NAN, INFINITY, 1, -INFINITY, 2, 1e200};
    for (int i = 0; i < 8; i++) add(&chart.training, i, values[i]);
    ech_text out = draw_chart(&chart);
    assert_non_null(strstr(out.at, "4 not finite"));
    /* The line in pieces: 3 2, then 1 alone, then 2 alone; a dot for each. */
    const char *path = strstr(out.at, " d=\"");
    assert_non_null(path);
    int moves = 0;
    for (const char *at = path + 4; *at != '"'; at++) moves += *at == 'M';
    assert_int_equal(moves, 3);
    assert_int_equal(markup_count(out.at, "<circle"), 4);
    ech_text_free(&out);
    free(chart.training.at);
}

TEST(charts_of_odd_values)
{
    const double values[][3] = {{0, 0, 0},           {5, 5, 5},        {-1e99, 0, 1e99},
                                {1e-300, 2e-300, 0}, {NAN, NAN, NAN},  {1, 1 + 1e-15, 1},
                                {-1e-9, 1e30, 7},    {1e-90, 1e90, 1}, {1e100, 1e100, 1e100},
                                {-3, -3, -3}};
    const int64_t steps[][3] = {
        {0, 1, 2}, {7, 7, 7}, {INT64_MIN, 0, INT64_MAX}, {0, 1, 1000000000}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (size_t j = 0; j < 8; j++) {
            ech_report_chart chart = {.title = "", .logarithmic = j % 2};
            for (int k = 0; k < 3; k++) add(&chart.training, steps[j / 2][k], values[i][k]);
            add(&chart.validation, steps[j / 2][1], values[i][1]);
            ech_text out = draw_chart(&chart);
            assert_true(out.n < 20000); /* nor thousands of ticks */
            /* First, last, validation and its legend at least; others may fall on these. */
            int dots = markup_count(out.at, "<circle");
            assert_in_range(dots, isnan(values[i][0]) ? 1 : 4, isnan(values[i][0]) ? 1 : 5);
            ech_text_free(&out);
            free(chart.training.at);
            free(chart.validation.at);
        }
    ech_report_chart nothing = {.title = "x"};
    ech_text out = draw_chart(&nothing);
    assert_non_null(strstr(out.at, "no values"));
    ech_text_free(&out);
}

/* y of the line that marks a level. */
static double level_of(const char *svg, const char *label)
{
    char text[64];
    snprintf(text, sizeof text, ">%s</text>", label);
    const char *at = strstr(svg, text);
    if (!at) fail_msg("no level %s", label);
    while (strncmp(at, " y=\"", 4) != 0) at--;
    return atof(at + 4);
}

/* One line each, where there is place for it; many fall together. */
TEST(charts_mark_restarts)
{
    ech_report_chart chart = {.title = "loss"};
    for (int step = 1; step <= 20; step++) add(&chart.training, step, 3.0 / step);
    const int64_t restarts[] = {0, 8, 8, 12, 20};
    for (int i = 0; i < 5; i++) add(&chart.restarts, restarts[i], i + 2);
    ech_text out = draw_chart(&chart);
    assert_non_null(strstr(out.at, "dashed: 5 restarts"));
    assert_non_null(strstr(out.at, "<title>start 3, after step 8</title>"));
    assert_non_null(strstr(out.at, "<title>start 5, after step 12</title>"));
    assert_null(strstr(out.at, "start 2, after"));
    assert_null(strstr(out.at, "start 4, after"));
    assert_null(strstr(out.at, "start 6, after"));
    ech_text_free(&out);
    free(chart.training.at);
    for (int i = 0; i < 100000; i++) add(&chart.restarts, 20, i);
    chart.training = (ech_report_points){0};
    add(&chart.training, 1, 1);
    add(&chart.training, 30, 1);
    out = draw_chart(&chart);
    assert_true(out.n < 20000);
    ech_text_free(&out);
    free(chart.training.at);
    free(chart.restarts.at);
}

TEST(logarithmic_charts)
{
    ech_report_chart chart = {.title = "norm", .logarithmic = true};
    for (int i = 0; i <= 4; i++) add(&chart.training, i, pow(10, i - 2));
    ech_text out = draw_chart(&chart);
    double one = level_of(out.at, "1"), ten = level_of(out.at, "10");
    assert_true(ten < one);
    assert_true(fabs((one - ten) - (level_of(out.at, "0.01") - level_of(out.at, "0.1"))) < 0.05);
    ech_text_free(&out);
    const double narrow[] = {2.1, 3, 4.9}; /* less than a factor of ten: linear */
    ech_report_chart few = {.title = "norm", .logarithmic = true};
    for (int i = 0; i < 3; i++) add(&few.training, i, narrow[i]);
    out = draw_chart(&few);
    assert_true(fabs(level_of(out.at, "2") - level_of(out.at, "3") - level_of(out.at, "4") +
                     level_of(out.at, "5")) < 0.05);
    ech_text_free(&out);
    free(few.training.at);
    add(&chart.training, 5, 0); /* has no logarithm */
    out = draw_chart(&chart);
    assert_true(fabs(level_of(out.at, "0") - level_of(out.at, "40") - level_of(out.at, "40") +
                     level_of(out.at, "80")) < 0.05);
    ech_text_free(&out);
    free(chart.training.at);
}

TEST(charts_of_many_steps_stay_small_and_keep_spikes)
{
    enum { N = 300000, SPIKE = 123456 };
    ech_report_chart chart = {.title = "loss"};
    for (int i = 0; i < N; i++) {
        add(&chart.training, i, i == SPIKE ? 100 : 2 + sin(i));
        if (i % 10 == 0) add(&chart.validation, i, 2);
    }
    ech_text out = draw_chart(&chart);
    assert_true(out.n < 150000);
    assert_non_null(strstr(out.at, "thick: mean of 12001"));
    /* The path goes up to the spike: where the level of 100 is. */
    char high[40];
    snprintf(high, sizeof high, " %.2f", level_of(out.at, "100") - 4);
    const char *path = strstr(out.at, " d=\""), *top = strstr(path, high);
    assert_non_null(top);
    assert_true(top < strchr(path + 4, '"'));
    ech_text_free(&out);
    free(chart.training.at);
    free(chart.validation.at);
}

TEST(means_run)
{
    const double values[] = {8, 1, NAN, 3, 5, 7, 9};
    const double wanted[] = {8, 4.5, 2, 4, 5, 7, 8};
    ech_report_points points = {0};
    for (int i = 0; i < 7; i++) add(&points, 10 + i, values[i]);
    ech_report_points means = ech_report_mean(&points, 1, 1);
    assert_int_equal(means.n, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(means.at[i].step, 10 + i);
        assert_true(fabs(means.at[i].value - wanted[i]) < 1e-12);
    }
    free(means.at);
    means = ech_report_mean(&points, 0, 4);
    const int64_t steps[] = {10, 14, 16};
    assert_int_equal(means.n, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(means.at[i].step, steps[i]);
    free(means.at);
    points.at[1].value = 1e90; /* is forgotten again */
    means = ech_report_mean(&points, 1, 1);
    assert_true(fabs(means.at[5].value - 7) < 1e-12);
    free(means.at);
    free(points.at);
}

/* ---- memory ---- */

TEST(memory_is_drawn_to_scale)
{
    const char *names[] = {"a", "b"};
    const int64_t bytes[] = {INT64_C(1) << 30, INT64_C(1) << 30, INT64_C(2) << 30, 0};
    ech_report_memory memory = {2, 2, names, bytes, 0};
    ech_text out = {0};
    ech_report_memory_svg(&memory, &out);
    check_markup(&out);
    assert_int_equal(markup_count(out.at, "<title>a: 1.0 GiB</title>"), 1);
    assert_int_equal(markup_count(out.at, "<title>b: "), 1); /* nothing has no piece */
    double widths[2];
    const char *pieces[] = {"<title>a: 1.0", "<title>a: 2.0"};
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(out.at, pieces[i]);
        assert_non_null(at);
        while (strncmp(at, "width=\"", 7) != 0) at--;
        widths[i] = atof(at + 7);
    }
    assert_true(fabs(widths[1] - 2 * widths[0]) < 0.03);
    assert_null(strstr(out.at, "limit"));
    ech_text_free(&out);
}

TEST(memory_of_many_ranks_and_kinds)
{
    enum { RANKS = 1000, KINDS = 11 };
    const char *names[KINDS] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "k10"};
    int64_t *bytes = ech_calloc(RANKS * KINDS, sizeof *bytes);
    ech_report_page page = {.memory = {RANKS, KINDS, names, bytes, 0}};
    ech_text out = draw_page(&page); /* nothing at all is fine too */
    ech_text_free(&out);
    for (int i = 0; i < RANKS * KINDS; i++) bytes[i] = INT64_MAX / KINDS;
    out = draw_page(&page);
    assert_int_equal(markup_count(out.at, ">rank "), ECH_TIMELINE_ROWS);
    assert_non_null(strstr(out.at, ">rank 999</text>"));
    assert_non_null(strstr(out.at, "1000 ranks, of which 64 are drawn"));
    assert_int_equal(markup_count(out.at, "<tr>"), ECH_TIMELINE_ROWS + 1);
    assert_true(out.n < 400000);
    ech_text_free(&out);
    free(bytes);
}
