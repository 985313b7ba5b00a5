/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of timelines' pictures, on 1F1B and on bars that are hard to draw.
 */
#include "draw/timelines.h"

#include <stdio.h>
#include <string.h>

#include "draw/markup.h"
#include "draw/rows.h"

static ech_text draw(const ech_timeline *timeline, const char *title)
{
    ech_text out = {0};
    ech_timeline_svg(timeline, title, NULL, NULL, &out);
    assert_null(markup_fault(out.at));
    assert_null(strstr(out.at, "nan"));
    assert_null(strstr(out.at, "inf"));
    return out;
}

TEST(picture_of_1f1b)
{
    ech_timeline timeline = make_1f1b(&usual);
    ech_text out = draw(&timeline, "1F1B");
    int boxes = 3 * 4 * 8;
    assert_int_equal(markup_count(out.at, "<title>"), boxes);
    assert_int_equal(markup_count(out.at, "<title>forward, micro-batch 3: 1 block forward</title>"),
                     4);
    /* Title, bubble, rows, ticks 0 to 30 by 5, unit, legend of F, B, W, idle, numbers. */
    assert_int_equal(markup_count(out.at, "<text"), boxes + 2 + 4 + 7 + 1 + 5);
    assert_int_equal(markup_count(out.at, "class=\"ech-idle\""), 4 + 1);
    assert_int_equal(markup_count(out.at, ">7</text>"), 12);
    assert_non_null(strstr(out.at, ">rank 3</text>"));
    assert_non_null(strstr(out.at, "4 ranks  ·  33 block forwards  ·  bubble 27.3 %"));
    assert_null(strstr(out.at, "script"));
    assert_int_equal(markup_count(out.at, "http"), 1); /* the name space */
    assert_null(strstr(out.at, "norm and update"));    /* no such bar, no such entry */
    for (const char *at = out.at; (at = strchr(at, '.')); at++)
        assert_true(strspn(at + 1, "0123456789") <= 2);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

TEST(pictures_do_not_depend_on_the_order_of_bars)
{
    ech_timeline timeline = make_1f1b(&usual), turned = {.ranks = 4, .chunks = 1};
    for (size_t i = timeline.bar.n; i-- > 0;) ECH_PUSH(turned.bar, timeline.bar.at[i]);
    ech_timeline_finish(&turned);
    ech_text one = draw(&timeline, "x"), other = draw(&turned, "x");
    assert_string_equal(one.at, other.at);
    ech_text_free(&one);
    ech_text_free(&other);
    ech_timeline_free(&timeline);
    ech_timeline_free(&turned);
}

TEST(titles_are_escaped_and_cut)
{
    ech_timeline timeline = make_1f1b(&usual);
    ech_text out = draw(&timeline, "<&\"\001");
    assert_int_equal(markup_count(out.at, ">&lt;&amp;&quot;\357\277\275</text>"), 1);
    assert_int_equal(markup_count(out.at, "aria-label=\"&lt;&amp;&quot;"), 1);
    ech_text_free(&out);
    char longer[1000];
    memset(longer, 'm', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    out = draw(&timeline, longer);
    assert_int_equal(markup_count(out.at, "mmm\342\200\246</text>"), 1);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

TEST(later_chunks_are_paler)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 2};
    for (int chunk = 0; chunk < 3; chunk++) /* one more than told: as pale as the last */
        ECH_PUSH(timeline.bar,
                 (ech_timeline_bar){0, ECH_BAR_FORWARD, chunk, 0, chunk, chunk + 1, 0});
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "chunks");
    assert_int_equal(markup_count(out.at, "<g fill=\"#56b4e9\">"), 1);
    const char *pale = strstr(out.at, "<g fill=\"#b3ddf5\">");
    assert_non_null(pale);
    const char *end = strstr(pale, "</g>");
    assert_non_null(end);
    int in_group = markup_count(pale, "<title>forward, micro-batch 0, chunk ");
    assert_int_equal(in_group - markup_count(end, "<title>"), 2);
    assert_non_null(strstr(out.at, "paler: later chunks"));
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* The width of the first idle row in the panel that begins at `panel`. */
static double idle_width(const char *panel)
{
    const char *row = strstr(panel, "\" class=\"ech-idle\"");
    assert_non_null(row);
    while (strncmp(row, "width=\"", 7) != 0) row--;
    return atof(row + 7);
}

TEST(pairs_share_a_scale)
{
    const pipeline_shape twice = {4, 8, 2, 2};
    ech_timeline predicted = make_1f1b(&usual), measured = make_1f1b(&twice);
    for (int seconds = 0; seconds < 2; seconds++) {
        measured.seconds = seconds;
        ech_text out = {0};
        ech_timeline_svg(&predicted, "predicted", &measured, "measured", &out);
        assert_null(markup_fault(out.at));
        assert_int_equal(markup_count(out.at, "<svg "), 1);
        double above = idle_width(strstr(out.at, ">predicted</text>"));
        double below = idle_width(strstr(out.at, ">measured</text>"));
        assert_near(below, seconds ? above : 2 * above, 0.02);
        assert_int_equal(markup_count(out.at, ">idle</text>"), 1); /* one legend */
        ech_text_free(&out);
    }
    ech_timeline_free(&predicted);
    ech_timeline_free(&measured);
}

/* A strip at the foot of the row, over the box that it is within; beside it the box has its
 * number. */
TEST(waits_are_a_strip)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1};
    add(&timeline, 0, ECH_BAR_FORWARD, 7, 0, 8);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 7, 2, 4);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 8, 8, 9);
    add(&timeline, 0, ECH_BAR_BACKWARD, 8, 9, 10);
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "waits");
    assert_int_equal(markup_count(out.at, "<title>"), 4);
    assert_int_equal(markup_count(out.at, "<title>waits for a collective, micro-batch 7: "
                                          "2 block forwards</title>"),
                     1);
    assert_int_equal(markup_count(out.at, ">7</text>"), 2); /* and a tick */
    assert_int_equal(markup_count(out.at, ">8</text>"), 2);
    assert_int_equal(markup_count(out.at, ">waits for a collective</text>"), 1); /* the legend */
    const char *strip = strstr(out.at, "<g fill=\"#0072b2\">");
    assert_non_null(strip);
    const char *box = strstr(out.at, "<g fill=\"#56b4e9\">");
    assert_true(box && box < strip); /* drawn over it */
    double x, y, width, height;
    assert_int_equal(sscanf(strip,
                            "<g fill=\"#0072b2\">\n<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" "
                            "height=\"%lf\"",
                            &x, &y, &width, &height),
                     4);
    assert_near(x, width, 0.011);
    assert_near(y + height, 30, 0.011);
    assert_true(height < 10);
    assert_non_null(strstr(out.at, "bubble 30.0 %, waits for collectives 30.0 %"));
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* A strip at the head of the row, with gathers in its lower half, over sums; and a backward whose
 * lower part is W, as high as its share. */
TEST(sums_and_weights_are_parts_of_rows)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1};
    ECH_PUSH(timeline.bar, (ech_timeline_bar){0, ECH_BAR_BACKWARD, 0, 0, 0, 8, 2});
    add(&timeline, 0, ECH_BAR_GATHER, -1, 4, 6);
    add(&timeline, 0, ECH_BAR_REDUCTION, -1, 4, 8);
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "parts");
    const char *sum = strstr(out.at, "<g fill=\"#d55e00\">"), *weight;
    const char *gather = strstr(out.at, "<g fill=\"#7d6bb0\">");
    assert_int_equal(markup_count(out.at, "<title>sums of gradients under way: 4 block"), 1);
    assert_int_equal(markup_count(out.at, "<title>gathers of weights under way: 2 block"), 1);
    double x, y, width, height, from, gathers, half;
    assert_non_null(sum);
    assert_int_equal(sscanf(sum,
                            "<g fill=\"#d55e00\">\n<rect x=\"%lf\" width=\"%lf\" height=\"%lf\"",
                            &x, &width, &height),
                     3); /* y 0 is left out */
    assert_near(x, width, 0.011);
    assert_true(height > 2 && height < 10);
    assert_true(gather && sum < gather);
    assert_int_equal(sscanf(gather,
                            "<g fill=\"#7d6bb0\">\n<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" "
                            "height=\"%lf\"",
                            &from, &y, &gathers, &half),
                     4);
    assert_near(from + gathers, 1.5 * x, 0.011);
    assert_near(y, height / 2, 0.011);
    assert_near(half, height / 2, 0.011);
    weight = strstr(out.at, "<path fill=\"#f0e442\" stroke=\"none\" d=\"M0 ");
    assert_non_null(weight);
    assert_int_equal(sscanf(strchr(weight, 'M'), "M0 %lfh%lfv%lf", &y, &width, &height), 3);
    assert_near(y, 30 * 0.75, 0.011);
    assert_near(width, 2 * x, 0.011);
    assert_near(height, 30 * 0.25, 0.011);
    assert_int_equal(markup_count(out.at, ">backward of the weights</text>"), 1); /* the legend */
    assert_int_equal(markup_count(out.at, "<title>backward of the inputs and weights, "), 1);
    assert_near(timeline.bubble, 0, 1e-12);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* Below where sums are. */
TEST(updates_on_the_host_are_strips)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1};
    add(&timeline, 0, ECH_BAR_FORWARD, 0, 0, 8);
    add(&timeline, 0, ECH_BAR_REDUCTION, -1, 1, 4);
    add(&timeline, 0, ECH_BAR_HOST, -1, 2, 8);
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "host");
    const char *sum = strstr(out.at, "<g fill=\"#d55e00\">");
    const char *host = strstr(out.at, "<g fill=\"#000000\">");
    double x, y, width, height, above;
    assert_non_null(sum);
    assert_non_null(host);
    assert_int_equal(sscanf(sum,
                            "<g fill=\"#d55e00\">\n<rect x=\"%lf\" width=\"%lf\" height=\"%lf\"",
                            &x, &width, &above),
                     3);
    assert_int_equal(sscanf(host,
                            "<g fill=\"#000000\">\n<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" "
                            "height=\"%lf\"",
                            &x, &y, &width, &height),
                     4);
    assert_near(y, above, 0.011);
    assert_near(height, above, 0.011);
    assert_near(width, 3 * x, 0.011);
    assert_int_equal(markup_count(out.at, ">updates on the host under way</text>"), 1);
    assert_near(timeline.bubble, 0, 1e-12);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* What is too wide for its numbers goes on below: every box has one, and time goes on. */
TEST(wide_pictures_break)
{
    const pipeline_shape wide = {4, 64, 1, 1};
    ech_timeline timeline = make_1f1b(&wide);
    ech_text out = draw(&timeline, "wide");
    int lines = markup_count(out.at, ">time in block forwards</text>");
    assert_in_range(lines, 3, 8);
    assert_int_equal(markup_count(out.at, ">wide</text>"), 1);
    assert_int_equal(markup_count(out.at, ">rank 3</text>"), lines);
    assert_int_equal(markup_count(out.at, ">idle</text>"), 1);
    int boxes = markup_count(out.at, "<title>"), all = 3 * 4 * 64;
    assert_in_range(boxes, all, all + 4 * (lines - 1)); /* those at a line's end go on */
    assert_in_range(markup_count(out.at, ">63</text>"), 3 * 4, 3 * 4 + 4);
    assert_null(strstr(out.at, "too narrow"));
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* Where sequences are processed in pieces the numbers are theirs. */
TEST(pieces_have_numbers)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1, .sequence_chunks = 2};
    add(&timeline, 0, ECH_BAR_FORWARD, 5, 0, 1);
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "pieces");
    assert_int_equal(markup_count(out.at, "<title>forward, micro-batch 2, sequence chunk 1: "), 1);
    assert_int_equal(markup_count(out.at, ">numbers: sequence chunks</text>"), 1);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* Waits too narrow to draw: together as high as their share of the time. */
TEST(narrow_waits_are_drawn_together)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1};
    add(&timeline, 0, ECH_BAR_FORWARD, 0, 0, 1000);
    for (int i = 0; i < 4000; i++)
        add(&timeline, 0, ECH_BAR_COLLECTIVE, 0, i * 0.25, i * 0.25 + 0.125);
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "waits");
    assert_near(timeline.waits, 0.5, 1e-9);
    assert_non_null(strstr(out.at, "<path fill=\"#0072b2\""));
    assert_non_null(strstr(out.at, "heights are shares of time"));
    assert_true(out.n < 1 << 16);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* More than there are rows for: those that do the same share one. */
TEST(ranks_alike_share_a_row)
{
    ech_timeline timeline = {.ranks = 512, .chunks = 1};
    for (int rank = 0; rank < 512; rank++)
        add(&timeline, rank, ECH_BAR_FORWARD, 0, rank / 64, rank / 64 + 1);
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "many");
    assert_int_equal(markup_count(out.at, ">rank "), 8);
    assert_int_equal(markup_count(out.at, ">rank 64 .. 127</text>"), 1);
    assert_null(strstr(out.at, "are drawn"));
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

TEST(pictures_of_many_ranks_stay_small)
{
    const pipeline_shape large = {512, 512, 1, 1};
    ech_timeline timeline = make_1f1b(&large);
    assert_int_equal(timeline.bar.n, 3 * 512 * 512);
    ech_text out = draw(&timeline, "large");
    assert_true(out.n < 4u << 20);
    assert_int_equal(markup_count(out.at, ">rank "), ECH_TIMELINE_ROWS);
    assert_non_null(strstr(out.at, ">rank 0</text>"));
    assert_non_null(strstr(out.at, ">rank 511</text>"));
    assert_non_null(strstr(out.at, "512 ranks, of which 64 are drawn"));
    assert_non_null(strstr(out.at, "heights are shares of time"));
    assert_null(strstr(out.at, "<title>"));
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* The most boxes there can be: as wide as a pixel, each beside one that is not. */
TEST(pictures_of_the_worst_bars_stay_small)
{
    ech_timeline timeline = {.ranks = 64, .chunks = 4};
    for (int rank = 0; rank < 64; rank++)
        for (int i = 0; i < 900; i++) {
            double late = 1e-6 * rank; /* no two do the same */
            ech_timeline_bar bar = {rank,         ECH_BAR_FORWARD,     i % 4, 100000 + i,
                                    2 * i + late, 2 * i + late + 1.13, 0};
            ECH_PUSH(timeline.bar, bar);
            for (int k = 0; k < 3; k++)
                add(&timeline, rank, (ech_bar_kind)(k + 1), i, 2 * i + 1.14 + 0.2 * k,
                    2 * i + 1.32 + 0.2 * k);
        }
    ech_timeline_finish(&timeline);
    ech_text out = draw(&timeline, "worst");
    assert_true(out.n > 1u << 20);
    assert_true(out.n < 4u << 20);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

TEST(pictures_of_little)
{
    ech_timeline nothing = {0}, idle = {.ranks = 2, .chunks = 1}, one = {.ranks = 1, .chunks = 1};
    add(&idle, 1, ECH_BAR_FORWARD, 0, 0, 0); /* no width: takes no time, has no box */
    add(&one, 0, ECH_BAR_UPDATE, -1, 0, 1e-7);
    one.seconds = true;
    ech_timeline *all[] = {&nothing, &idle, &one};
    for (size_t i = 0; i < 3; i++) {
        ech_timeline_finish(all[i]);
        ech_text out = draw(all[i], "little"), pair = {0};
        assert_int_equal(markup_count(out.at, "<title>"), i == 2);
        ech_timeline_svg(all[i], "", all[(i + 1) % 3], "", &pair);
        assert_null(markup_fault(pair.at));
        assert_null(strstr(pair.at, "nan"));
        ech_text_free(&out);
        ech_text_free(&pair);
    }
    for (size_t i = 0; i < 3; i++) ech_timeline_free(all[i]);
}

/* ---- boxes ---- */

TEST(narrow_bars_are_drawn_together)
{
    enum { N = 13 };
    const double ends[N] = {3, 3.5, 4, 4.5, 5, 5.5, 6, 6, 9, 9.25, 9.75, 12, 30};
    ech_timeline_bar bars[N];
    for (int i = 0; i < N; i++)
        bars[i] =
            (ech_timeline_bar){0, (ech_bar_kind)(i % 3), 0, i, i ? ends[i - 1] : 0, ends[i], 0};
    bars[12].begin = 14;
    ech_rectangles boxes = {0};
    ech_rectangles_make(bars, N, ECH_ROW_WORK, 0, 20, 1, &boxes);
    assert_int_equal(boxes.n, 6);
    assert_ptr_equal(boxes.at[0].bar, &bars[0]);
    assert_null(boxes.at[1].bar);
    assert_near(boxes.at[1].x, 3, 0);
    assert_near(boxes.at[1].width, 3, 0);
    for (int kind = 0; kind < 3; kind++) assert_near(boxes.at[1].fraction[kind], 1.0 / 3, 1e-12);
    assert_ptr_equal(boxes.at[2].bar, &bars[8]);
    assert_ptr_equal(boxes.at[3].bar, &bars[10]); /* no room: the longest */
    assert_near(boxes.at[3].x, 9, 0);
    assert_near(boxes.at[3].width, 0.75, 0);
    assert_ptr_equal(boxes.at[4].bar, &bars[11]);
    assert_near(boxes.at[5].x + boxes.at[5].width, 20, 0); /* no further than the end */
    free(boxes.at);
}

/* Idle time between narrow bars counts, up to a pixel; more divides them. */
TEST(gaps_between_narrow_bars_show)
{
    ech_timeline_bar bars[64];
    for (int i = 0; i < 64; i++)
        bars[i] = (ech_timeline_bar){0, ECH_BAR_FORWARD, 0, i, i * 0.25, i * 0.25 + 0.125, 0};
    ech_rectangles boxes = {0};
    ech_rectangles_make(bars, 64, ECH_ROW_WORK, 0, 16, 4, &boxes);
    for (size_t i = 0; i < boxes.n; i++) {
        assert_null(boxes.at[i].bar);
        assert_near(boxes.at[i].fraction[ECH_BAR_FORWARD], 0.5, 0.03);
    }
    assert_in_range(boxes.n, 5, 7);
    boxes.n = 0;
    ech_rectangles_make(bars, 64, ECH_ROW_WORK, 0, 16, 7.9, &boxes); /* gaps just below a pixel */
    assert_true(boxes.n < 20);
    boxes.n = 0;
    ech_rectangles_make(bars, 64, ECH_ROW_WORK, 0, 16, 8.1, &boxes); /* bars are a pixel wide */
    assert_int_equal(boxes.n, 64);
    free(boxes.at);
}
