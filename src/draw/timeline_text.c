/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines for terminals: a column is the shortest F, B or W, so that each of them has a cell.
 * Successive ranks that do the same at the same time, as tensor ranks do, are one row. Rows that
 * are too long continue below.
 */
#include "draw/rows.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char ellipsis[] = " ...";
enum { MOST_LINES = 48 };

typedef struct text_grid {
    const ech_timeline *timeline;
    double column; /* time a column */
    const ech_timeline_row *at;
    int rows;          /* that are printed */
    int label, cell;   /* characters of "rank 0  ", and of a cell with the blank after it */
    int columns;       /* of all time */
    int first, end;    /* those that are being printed */
    bool is_truncated; /* there are more, which are not */
    char *row;         /* columns x cell characters */
} text_grid;

/* "F0.3"; of what has no micro-batch only the kind. */
static int name_bar(const ech_timeline_bar *bar, char *name, size_t size)
{
    bool counts = bar->kind <= ECH_BAR_RECOMPUTE;
    bool both = bar->kind == ECH_BAR_BACKWARD && bar->weight > 0;
    const char *kind = both ? "BW" : ech_bar_kind_text(bar->kind);
    return counts ? snprintf(name, size, "%s%d.%d", kind, bar->chunk, bar->micro)
                  : snprintf(name, size, "%s", kind);
}

/* Measured times jitter: a bar far shorter than others shall not stretch the rows without end. */
static double choose_column(const ech_timeline *timeline)
{
    double shortest = 0;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_timeline_bar *bar = &timeline->bar.at[i];
        double duration = bar->end - bar->begin;
        bool counts = bar->kind <= ECH_BAR_RECOMPUTE && duration > 0;
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

static void measure(const ech_timeline *timeline, text_grid *grid)
{
    char name[80];
    grid->timeline = timeline;
    grid->column = choose_column(timeline);
    for (int row = 0; row < grid->rows; row++) {
        int n = ech_timeline_name_row(timeline, &grid->at[row], name, sizeof name) + 2;
        if (n > grid->label) grid->label = n;
    }
    for (size_t i = 0; i < timeline->bar.n; i++) {
        int n = name_bar(&timeline->bar.at[i], name, sizeof name) + 1;
        if (n > grid->cell) grid->cell = n;
    }
    if (timeline->bar.n == 0 || timeline->end <= 0) return;
    grid->columns = (int)fmin(INT_MAX, fmax(1, column_at(grid, timeline->end)));
}

/* Cells in a line; the blank after the last one is not printed. */
static int room_of(const text_grid *grid, int width)
{
    int room = (width - grid->label + 1) / grid->cell;
    return room > 1 ? room : 1;
}

/* The cells of a bar: its name where it begins, then dashes. */
static void put_bar(text_grid *grid, const ech_timeline_bar *bar)
{
    char name[40];
    double first = column_at(grid, bar->begin), end = column_at(grid, bar->end);
    if (bar->kind >= ECH_BAR_COLLECTIVE) return; /* beside an F or B */
    if (first >= grid->end || end <= first || end <= grid->first) return;
    bool is_long = end - first > 1, begins = first >= grid->first;
    first = fmax(first, grid->first) - grid->first;
    end = fmin(end, grid->end) - grid->first;
    size_t from = (size_t)first * (size_t)grid->cell, to = (size_t)end * (size_t)grid->cell - 1;
    memset(grid->row + from, is_long ? '-' : ' ', to - from);
    if (begins) memcpy(grid->row + from, name, (size_t)name_bar(bar, name, sizeof name));
}

static void append_row(text_grid *grid, const ech_timeline_row *row, ech_text *out)
{
    char label[80];
    size_t length = (size_t)(grid->end - grid->first) * (size_t)grid->cell;
    memset(grid->row, ' ', length);
    for (size_t c = 0; c < length; c += (size_t)grid->cell) grid->row[c] = '.';
    for (size_t i = 0; i < row->bars; i++)
        put_bar(grid, &grid->timeline->bar.at[row->first_bar + i]);
    if (grid->is_truncated) length--; /* the blank after the last cell */
    while (!grid->is_truncated && length > 0 && grid->row[length - 1] == ' ') length--;
    ech_timeline_name_row(grid->timeline, row, label, sizeof label);
    ech_text_append(out, "%-*s", length ? grid->label : 0, label);
    ech_text_append_bytes(out, grid->row, length);
    ech_text_append(out, "%s\n", grid->is_truncated ? ellipsis : "");
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

/* All rows of as many columns as fit, then those that follow; in lines of one length. */
static void append_lines(text_grid *grid, int width, ech_text *out)
{
    int most = grid->rows < MOST_LINES ? MOST_LINES / grid->rows : 1, room = room_of(grid, width);
    int lines = grid->columns > 0 ? (grid->columns - 1) / room + 1 : 1, end = grid->columns;
    grid->row = ech_calloc((size_t)room * (size_t)grid->cell + 1, 1);
    if (lines <= most)
        room = (end + lines - 1) / lines;
    else
        lines = most;
    for (int line = 0; line < lines; line++) {
        grid->is_truncated = line == lines - 1 && end - grid->end > room;
        if (grid->is_truncated) room = room_of(grid, width - (int)strlen(ellipsis));
        grid->first = grid->end;
        grid->end = end - grid->first > room ? grid->first + room : end;
        if (line > 0) ech_text_append(out, "\n");
        for (int row = 0; row < grid->rows; row++) append_row(grid, &grid->at[row], out);
    }
    free(grid->row);
}

void ech_timeline_text(const ech_timeline *timeline, int width, int most_rows, ech_text *out)
{
    ech_timeline_rows rows = {0};
    ech_timeline_find_rows(timeline, true, &rows);
    text_grid grid = {.at = rows.at, .rows = (int)rows.n < most_rows ? (int)rows.n : most_rows};
    int left = timeline->ranks;
    measure(timeline, &grid);
    if (grid.rows > 0) append_lines(&grid, width, out);
    for (int row = 0; row < grid.rows; row++) left -= rows.at[row].ranks;
    if (left > 0) ech_text_append(out, "... and %s\n", ECH_COUNT(left, "more rank"));
    append_caption(&grid, out);
    free(rows.at);
}
