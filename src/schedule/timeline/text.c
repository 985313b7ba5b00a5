/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines for terminals: a column is the shortest F, B or W, so that each of them has a cell. Ranks one
 * behind the other that do the same at the same time, as tensor ranks do, share a row.
 */
#include "schedule/timeline/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char cut[] = " ...";

typedef struct text_grid {
    const ech_timeline *timeline;
    double column; /* time a column */
    const ech_timeline_row *at;
    int rows;        /* that are printed */
    int label, cell; /* characters of "rank 0  ", and of a cell with the blank behind it */
    int columns;     /* that are printed */
    bool is_cut;     /* there are more */
    char *row;       /* columns x cell characters */
} text_grid;

/* "F0.3"; of what has no micro-batch only the kind. */
static int name_bar(const ech_bar *bar, char *name, size_t size)
{
    bool counts = bar->kind <= ECH_BAR_WEIGHT;
    const char *kind = ech_bar_kind_text(bar->kind);
    return counts ? snprintf(name, size, "%s%d.%d", kind, bar->chunk, bar->micro)
                  : snprintf(name, size, "%s", kind);
}

/* Measured times jitter: a bar far shorter than others shall not stretch the rows without end. */
static double choose_column(const ech_timeline *timeline)
{
    double shortest = 0;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_bar *bar = &timeline->bar.at[i];
        double duration = bar->end - bar->begin;
        bool counts = bar->kind <= ECH_BAR_WEIGHT && duration > 0;
        if (counts && (shortest <= 0 || duration < shortest)) shortest = duration;
    }
    shortest = fmax(shortest, timeline->forward / 2);
    return shortest > 0 ? shortest : timeline->end;
}

/* The first column whose middle is at `time` or later: of a bar as long as a column there is one
 * middle at least, and rounding of sums does not matter where bars begin on whole columns. */
static double column_at(const text_grid *grid, double time)
{
    return fmax(0, ceil(time / grid->column - 0.5));
}

static void measure(const ech_timeline *timeline, int width, text_grid *grid)
{
    char name[40];
    grid->timeline = timeline;
    grid->column = choose_column(timeline);
    for (int row = 0; row < grid->rows; row++) {
        int n = ech_panel_name_row(&grid->at[row], name, sizeof name) + 2;
        if (n > grid->label) grid->label = n;
    }
    for (size_t i = 0; i < timeline->bar.n; i++) {
        int n = name_bar(&timeline->bar.at[i], name, sizeof name) + 1;
        if (n > grid->cell) grid->cell = n;
    }
    if (timeline->bar.n == 0 || timeline->end <= 0) return;
    double wanted = fmax(1, column_at(grid, timeline->end));
    /* The blank behind the last cell is not printed. */
    int room = (width - grid->label + 1) / grid->cell;
    grid->is_cut = wanted > room;
    if (grid->is_cut) room = (width - grid->label + 1 - (int)strlen(cut)) / grid->cell;
    if (room < 1) room = 1;
    grid->columns = wanted < room ? (int)wanted : room;
}

/* The cells of a bar: its name where it begins, then dashes. */
static void put_bar(text_grid *grid, const ech_bar *bar)
{
    char name[40];
    double first = column_at(grid, bar->begin), end = column_at(grid, bar->end);
    if (bar->kind == ECH_BAR_COLLECTIVE) return; /* mostly within an F or B */
    if (first >= grid->columns || end <= first) return;
    if (end > grid->columns) end = grid->columns;
    size_t from = (size_t)first * (size_t)grid->cell, to = (size_t)end * (size_t)grid->cell - 1;
    bool is_long = end - first > 1;
    memset(grid->row + from, is_long ? '-' : ' ', to - from);
    memcpy(grid->row + from, name, (size_t)name_bar(bar, name, sizeof name));
}

static void append_row(text_grid *grid, const ech_timeline_row *row, ech_text *out)
{
    char label[40];
    size_t length = (size_t)grid->columns * (size_t)grid->cell;
    memset(grid->row, ' ', length);
    for (size_t c = 0; c < length; c += (size_t)grid->cell) grid->row[c] = '.';
    for (size_t i = 0; i < row->bars; i++)
        put_bar(grid, &grid->timeline->bar.at[row->first_bar + i]);
    if (grid->is_cut) length--; /* the blank behind the last cell */
    while (!grid->is_cut && length > 0 && grid->row[length - 1] == ' ') length--;
    ech_panel_name_row(row, label, sizeof label);
    ech_text_append(out, "%-*s", length ? grid->label : 0, label);
    ech_text_append_bytes(out, grid->row, length);
    ech_text_append(out, "%s\n", grid->is_cut ? cut : "");
}

static void append_caption(const text_grid *grid, ech_text *out)
{
    const ech_timeline *timeline = grid->timeline;
    if (grid->columns == 0) {
        ech_text_append(out, "nothing is computed\n");
        return;
    }
    ech_text_append(out, "a column is ");
    ech_timeline_time(timeline, grid->column, out);
    ech_text_append(out, ", all ");
    ech_timeline_time(timeline, timeline->end, out);
    ech_text_append(out, "; ");
    ech_timeline_bubble(timeline, out);
    ech_text_append(out, "\n");
}

void ech_timeline_text(const ech_timeline *timeline, int width, int most_rows, ech_text *out)
{
    ech_timeline_rows rows = {0};
    ech_timeline_find_rows(timeline, true, &rows);
    text_grid grid = {.at = rows.at, .rows = (int)rows.n < most_rows ? (int)rows.n : most_rows};
    if (grid.rows < 0) grid.rows = 0;
    measure(timeline, width, &grid);
    grid.row = ech_calloc((size_t)grid.columns * (size_t)grid.cell + 1, 1);
    int left = timeline->ranks;
    for (int row = 0; row < grid.rows; row++) {
        append_row(&grid, &rows.at[row], out);
        left -= rows.at[row].ranks;
    }
    if (left > 0) ech_text_append(out, "... and %d more rank%s\n", left, left == 1 ? "" : "s");
    append_caption(&grid, out);
    free(grid.row);
    free(rows.at);
}
