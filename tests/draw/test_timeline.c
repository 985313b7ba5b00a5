/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of timelines: order, bubble, text.
 */
#include "draw/timelines.h"

#include <stdio.h>
#include <string.h>

#include "layout/sample.h"

/* ---- numbers ---- */

/* (p - 1) / (m + p - 1), Narayanan et al. 2021. */
TEST(bubble_of_1f1b)
{
    ech_timeline timeline = make_1f1b(&usual);
    assert_int_equal(timeline.bar.n, 3 * 4 * 8);
    assert_near(timeline.end, 33, 1e-12);
    assert_near(timeline.bubble, 3.0 / 11, 1e-12);
    assert_near(timeline.forward, 1, 1e-12);
    ech_timeline_free(&timeline);
    assert_null(timeline.bar.at);

    const pipeline_shape slow = {3, 5, 2, 1.5};
    timeline = make_1f1b(&slow);
    assert_near(timeline.end, 7 * 5, 1e-12);
    assert_near(timeline.bubble, 2.0 / 7, 1e-12);
    ech_timeline_free(&timeline);
}

TEST(bars_are_sorted_and_overlaps_count_once)
{
    ech_timeline timeline = {.ranks = 3, .chunks = 1, .end = 10};
    add(&timeline, 1, ECH_BAR_BACKWARD, 0, 5, 8);
    add(&timeline, 0, ECH_BAR_UPDATE, -1, 6, 12); /* is no work */
    add(&timeline, 1, ECH_BAR_FORWARD, 1, 3, 3);  /* nothing */
    add(&timeline, 1, ECH_BAR_WEIGHT, 0, 1, 6);   /* 7 with the first */
    add(&timeline, 0, ECH_BAR_FORWARD, 0, -2, 1); /* before 0: 1 */
    ech_timeline_finish(&timeline);
    const ech_bar_kind kinds[] = {ECH_BAR_FORWARD, ECH_BAR_UPDATE, ECH_BAR_WEIGHT, ECH_BAR_FORWARD,
                                  ECH_BAR_BACKWARD};
    for (size_t i = 0; i < timeline.bar.n; i++) assert_int_equal(timeline.bar.at[i].kind, kinds[i]);
    assert_near(timeline.end, 10, 0);
    assert_near(timeline.bubble, 1 - 8.0 / 30, 1e-12);
    assert_near(timeline.forward, 3, 0);
    ech_timeline_free(&timeline);
}

/* Compute waits for collectives within an F or B, before one, and where nothing is drawn. */
TEST(waits_are_no_work)
{
    ech_timeline timeline = {.ranks = 2, .chunks = 1, .end = 20, .collective = 14};
    add(&timeline, 0, ECH_BAR_FORWARD, 0, 0, 10);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 0, 2, 5);
    add(&timeline, 0, ECH_BAR_BACKWARD, 0, 12, 16);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 0, 11, 12);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 1, 18, 22); /* 2 of them count */
    add(&timeline, 1, ECH_BAR_WEIGHT, 0, 0, 4);
    ech_timeline_finish(&timeline);
    assert_near(timeline.bubble, 1 - (7 + 4 + 4) / 40.0, 1e-12);
    assert_near(timeline.waits, 6 / 40.0, 1e-12);
    assert_near(timeline.forward, 10, 0);
    ech_text out = {0};
    ech_timeline_bubble(&timeline, &out);
    assert_string_equal(out.at, "bubble 62.5 %, waits for collectives 15.0 %");
    out.n = 0;
    ech_timeline_collectives(&timeline, 2, &out); /* 14 / 2 ranks / 2 steps; 3 of a rank */
    assert_string_equal(out.at, "3.5 block forwards a step and rank; compute waits for them "
                                "1.5 block forwards");
    ech_text_free(&out);
    ech_timeline_free(&timeline);
    timeline = make_1f1b(&usual);
    ech_timeline_collectives(&timeline, 1, &out);
    assert_int_equal(out.n, 0);
    ech_timeline_bubble(&timeline, &out);
    assert_string_equal(out.at, "bubble 27.3 %");
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

TEST(durations_have_units)
{
    const struct {
        bool seconds;
        double time;
        const char *text;
    } cases[] = {{false, 1, "1 block forward"},
                 {false, 0.99999999999999989, "1 block forward"}, /* a sum of parts */
                 {false, 33, "33 block forwards"},
                 {false, 0.5, "0.5 block forwards"},
                 {false, 12345.6, "12346 block forwards"},
                 {true, 2.5, "2.5 s"},
                 {true, 0.16123, "161.2 ms"},
                 {true, 4.2e-5, "42 µs"},
                 {true, 0, "0 ms"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_timeline timeline = {.seconds = cases[i].seconds};
        ech_text out = {0};
        ech_timeline_time(&timeline, cases[i].time, &out);
        assert_string_equal(out.at, cases[i].text);
        ech_text_free(&out);
    }
}

/* ---- text ---- */

static void check_text(const ech_timeline *timeline, int width, int rows, const char *expected)
{
    ech_text out = {0};
    ech_timeline_text(timeline, width, rows, &out);
    assert_string_equal(out.at, expected);
    ech_text_free(&out);
}

TEST(text_of_two_stages)
{
    const pipeline_shape small = {2, 2, 1, 1};
    ech_timeline timeline = make_1f1b(&small);
    const char *last = "a column is 1 block forward, all 9 block forwards; bubble 33.3 %\n";
    ech_text expected = {0};
    ech_text_append(&expected,
                    "rank 0  F0.0 F0.1 .    .    B0.0 W0.0 .    B0.1 W0.1\n"
                    "rank 1  .    F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 .    .\n%s",
                    last);
    check_text(&timeline, 200, 8, expected.at);
    check_text(&timeline, 52, 8, expected.at); /* just fits */
    expected.n = 0;
    ech_text_append(&expected,
                    "rank 0  F0.0 F0.1 .    .    B0.0\n\n"
                    "rank 0  W0.0 .    B0.1 W0.1\n"
                    "... and 1 more rank\n%s",
                    last);
    check_text(&timeline, 51, 1, expected.at); /* in lines of one length */
    ech_text_free(&expected);
    ech_timeline_free(&timeline);
}

TEST(text_shows_how_long_bars_are)
{
    ech_timeline timeline = {.ranks = 11, .chunks = 2, .seconds = true};
    ECH_PUSH(timeline.bar, (ech_timeline_bar){0, ECH_BAR_FORWARD, 1, 10, 0, 2e-3, 0});
    add(&timeline, 0, ECH_BAR_BACKWARD, 3, 2.1e-3, 6.1e-3);
    add(&timeline, 0, ECH_BAR_UPDATE, -1, 8e-3, 12e-3);
    add(&timeline, 0, ECH_BAR_OTHER, -1, 7.1e-3, 7.2e-3); /* between two middles: has no cell */
    ech_timeline_finish(&timeline);
    check_text(&timeline, 80, 1,
               "rank 0  F1.10 B0.3------- .     U----------\n"
               "... and 10 more ranks\n"
               "a column is 2 ms, all 12 ms; bubble 95.5 %\n");
    ech_timeline_free(&timeline);
}

/* Waits have no cells: a micro-batch's forward is one. */
TEST(text_without_waits)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1};
    add(&timeline, 0, ECH_BAR_FORWARD, 0, 0, 1);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 0, 0.25, 0.5);
    add(&timeline, 0, ECH_BAR_COLLECTIVE, 1, 1, 2);
    add(&timeline, 0, ECH_BAR_FORWARD, 1, 2, 4);
    ech_timeline_finish(&timeline);
    check_text(&timeline, 80, 8,
               "rank 0  F0.0 .    F0.1-----\n"
               "a column is 1 block forward, all 4 block forwards; bubble 31.2 %, waits for "
               "collectives 31.2 %\n");
    ech_timeline_free(&timeline);
}

/* Neighbours that do the same at the same time; not those that only look alike in these columns. */
TEST(text_of_ranks_alike)
{
    ech_timeline timeline = {.ranks = 6, .chunks = 1};
    for (int rank = 0; rank < 5; rank++) {
        add(&timeline, rank, ECH_BAR_FORWARD, 0, rank < 2 ? 0 : 1, rank < 2 ? 1 : 2);
        add(&timeline, rank, ECH_BAR_BACKWARD, 0, 2, rank == 4 ? 4.1 : 4);
    }
    ech_timeline_finish(&timeline);
    const char *caption = "a column is 1 block forward, all 4.1 block forwards; bubble 38.6 %\n";
    ech_text expected = {0};
    ech_text_append(&expected,
                    "rank 0 .. 1  F0.0 .    B0.0-----\n"
                    "rank 2 .. 3  .    F0.0 B0.0-----\n"
                    "rank 4       .    F0.0 B0.0-----\n"
                    "rank 5       .    .    .    .\n%s",
                    caption);
    check_text(&timeline, 80, 8, expected.at);
    expected.n = 0;
    ech_text_append(&expected,
                    "rank 0 .. 1  F0.0 .    B0.0-----\n"
                    "... and 4 more ranks\n%s",
                    caption);
    check_text(&timeline, 80, 1, expected.at);
    ech_text_free(&expected);
    ech_timeline_rows rows = {0};
    ech_timeline_find_rows(&timeline, false, &rows);
    assert_int_equal(rows.n, 6);
    free(rows.at);
    ech_timeline_free(&timeline);
}

/* Appends the cells of a rank's row, which may go on below, without the blank after the last one of
 * a line. */
static void take_cells(const char *text, const char *label, int cell, int width, ech_text *cells)
{
    size_t begin = strlen(label) + 2;
    for (const char *at = text; (at = strstr(at, label)); at++) {
        size_t length = strcspn(at, "\n");
        assert_true(width < 0 || length <= (size_t)width);
        for (size_t c = begin; c < length; c += (size_t)cell)
            for (size_t k = c; k < c + (size_t)cell - 1; k++)
                ech_text_append(cells, "%c", k < length ? at[k] : ' ');
    }
}

TEST(text_of_all_widths_keeps_to_them)
{
    ech_timeline timeline = make_1f1b(&usual);
    const char *const labels[] = {"rank 0", "rank 1", "rank 2", "rank 3"};
    ech_text whole = {0};
    ech_timeline_text(&timeline, 1000, 4, &whole);
    for (int width = 22; width < 200; width++) {
        ech_text out = {0};
        ech_timeline_text(&timeline, width, 4, &out);
        assert_null(strstr(out.at, "..."));
        for (int rank = 0; rank < 4; rank++) {
            ech_text wanted = {0}, cells = {0};
            take_cells(whole.at, labels[rank], 5, -1, &wanted);
            take_cells(out.at, labels[rank], 5, width, &cells);
            assert_int_equal(wanted.n, 33 * 4);
            assert_string_equal(cells.at, wanted.at);
            ech_text_free(&wanted);
            ech_text_free(&cells);
        }
        ech_text_free(&out);
    }
    ech_text_free(&whole);
    ech_timeline_free(&timeline);
}

/* Not without end. */
TEST(text_of_much_is_cut)
{
    const pipeline_shape long_one = {4, 64, 1, 1};
    ech_timeline timeline = make_1f1b(&long_one);
    ech_text out = {0};
    ech_timeline_text(&timeline, 80, 4, &out);
    int lines = 0, cut = 0;
    for (const char *at = out.at; *at; at = strchr(at, '\n') + 1) {
        size_t length = strcspn(at, "\n");
        assert_true(length <= 80 || strncmp(at, "a column", 8) == 0);
        lines += strncmp(at, "rank ", 5) == 0;
        cut += length > 4 && strncmp(at + length - 4, " ...", 4) == 0;
    }
    assert_int_equal(lines, 48);
    assert_int_equal(cut, 4);
    ech_text_free(&out);
    ech_timeline_free(&timeline);
}

/* Block by block B and W take turns. */
TEST(text_tells_b_from_w)
{
    ech_timeline timeline = {.ranks = 1, .chunks = 1};
    add(&timeline, 0, ECH_BAR_BACKWARD, 0, 0, 1);
    add(&timeline, 0, ECH_BAR_WEIGHT, 0, 1, 2);
    ECH_PUSH(timeline.bar, (ech_timeline_bar){0, ECH_BAR_BACKWARD, 0, 1, 2, 4, 1});
    add(&timeline, 0, ECH_BAR_REDUCTION, -1, 3, 5); /* beside it: has no cell */
    ech_timeline_finish(&timeline);
    check_text(&timeline, 80, 8,
               "rank 0  B0.0  W0.0  BW0.1------ .\n"
               "a column is 1 block forward, all 5 block forwards; bubble 20.0 %\n");
    ech_timeline_free(&timeline);
}

/* ---- names of rows ---- */

static void assert_named(const ech_layout *layout, int rank, int ranks, const char *wanted)
{
    char name[80];
    ech_timeline timeline = {.ranks = layout->world, .layout = layout};
    int n = ech_timeline_name_row(&timeline, &(ech_timeline_row){.rank = rank, .ranks = ranks},
                                  name, sizeof name);
    assert_string_equal(name, wanted);
    assert_int_equal(n, strlen(wanted));
}

TEST(rows_say_who_they_are)
{
    static const struct {
        int world;
        const char *grid;
        int rank, ranks;
        const char *name;
    } cases[] = {
        {1, "", 0, 1, "rank 0"},
        {4, "parallel.pipeline=4", 2, 1, "stage 2"},
        {2, "parallel.tensor=2", 0, 2, "2 tensor ranks"},
        {2, "parallel.tensor=2", 1, 1, "tensor rank 1"},
        {8, "parallel.pipeline=2 parallel.tensor=2", 4, 4, "stage 1, 2 replicas, 2 tensor ranks"},
        {8, "parallel.pipeline=2 parallel.tensor=2", 2, 2, "stage 0, replica 1, 2 tensor ranks"},
        {8, "parallel.pipeline=2 parallel.tensor=2", 7, 1, "stage 1, replica 1, tensor rank 1"},
        {8, "parallel.pipeline=2 parallel.tensor=2", 1, 2, "rank 1 .. 2"}, /* no box of the grid */
        {4, "parallel.tensor=2 parallel.context=2", 2, 2, "context rank 1, 2 tensor ranks"},
        {4, "", 1, 2, "replica 1 .. 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *config = sample_config("gpt2");
        char words[200];
        snprintf(words, sizeof words, "model.num_hidden_layers=4 model.num_attention_heads=4 %s",
                 cases[i].grid);
        sample_set(config, words);
        sample of = sample_create(config, cases[i].world);
        assert_named(of.layout, cases[i].rank, cases[i].ranks, cases[i].name);
        sample_free(&of);
    }
}

TEST(text_of_little)
{
    ech_timeline nothing = {0}, idle = {.ranks = 2, .chunks = 1}, one = {.ranks = 1, .chunks = 1};
    add(&idle, 1, ECH_BAR_FORWARD, 0, 0, 0);
    add(&one, 0, ECH_BAR_UPDATE, -1, 0, 1e-7);
    one.seconds = true;
    ech_timeline *all[] = {&nothing, &idle, &one};
    const char *texts[] = {"nothing is computed\n", "rank 0\nrank 1\nnothing is computed\n",
                           "rank 0  U\na column is 0.1 µs, all 0.1 µs; bubble 100.0 %\n"};
    for (size_t i = 0; i < 3; i++) {
        ech_timeline_finish(all[i]);
        assert_near(all[i]->bubble, i == 2, 0);
        check_text(all[i], 80, 8, texts[i]);
        ech_timeline_free(all[i]);
    }
}
