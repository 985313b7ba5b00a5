/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of timelines: a panel draws the rows of one timeline, or of a part of its time. Bars
 * become boxes in pixels; bars narrower than a pixel are merged.
 */
#ifndef ECH_DRAW_ROWS_H
#define ECH_DRAW_ROWS_H

#include "draw/timeline.h"

typedef struct ech_panel {
    const ech_timeline *timeline;
    const char *title;          /* NULL: the panel continues the one above it */
    double from, end;           /* the time that is shown */
    ech_timeline_rows drawn;    /* owned */
    int rows;                   /* number of drawn rows: at most ECH_TIMELINE_ROWS */
    int digits;                 /* digits of the largest micro-batch number */
    double scale;               /* pixels per unit */
    double row_height, row_gap; /* pixels */
    double font_size;           /* of numbers */
    bool hints;                 /* boxes have tooltips */
    /* Set by drawing: */
    bool numbers;  /* some boxes have numbers */
    bool together; /* some boxes merge several bars */
} ech_panel;

/* A panel of the entire timeline, which is borrowed. Chooses its rows: one for ranks that do the
 * same; rows beyond ECH_TIMELINE_ROWS are omitted. Release it with ech_panel_free. */
ech_panel ech_panel_create(const ech_timeline *timeline, const char *title);
void ech_panel_free(ech_panel *panel);
/* Sets what depends on timeline, rows and scale. */
void ech_panel_measure(ech_panel *panel, double scale);
void ech_panel_draw_rows(ech_panel *panel, double left, double top, ech_text *out);

/* The colour of a bar, "#rrggbb"; F, B and W are paler for later model chunks. Returns `buffer`, of
 * 8 bytes. */
char *ech_panel_colour(ech_bar_kind kind, int chunk, int chunks, char *buffer);

/* ---- boxes ---- */

/* The bars of a row that are drawn together: F, B and W; waits for collectives; sums of gradients
 * and gathers of weights; updates on the host. */
typedef enum ech_row_bars {
    ECH_ROW_WORK,
    ECH_ROW_WAITS,
    ECH_ROW_SUMS,
    ECH_ROW_HOST,
    ECH_ROW_BARS
} ech_row_bars;

typedef struct ech_rectangle {
    const ech_timeline_bar *bar;    /* NULL: several */
    double x, width;                /* pixels */
    /* if several: the fraction of the box's time of each kind; the rest is idle */
    double fraction[ECH_BAR_KINDS];
} ech_rectangle;
typedef ECH_LIST(ech_rectangle) ech_rectangles;

/* Appends the boxes of these bars of a rank's n bars between `from` and `end`, at `scale` pixels
 * per unit. A bar of a pixel or more is a box. Narrower ones are merged until the box has ten
 * pixels or the next is a pixel or more away; if fewer than three pixels remain for them, the box
 * shows only the longest. Bars of no width are omitted. There are at most two boxes per pixel, and
 * at most one merged box in three pixels. */
void ech_rectangles_make(const ech_timeline_bar *bar, size_t n, ech_row_bars part, double from,
                         double end, double scale, ech_rectangles *out);

#endif
