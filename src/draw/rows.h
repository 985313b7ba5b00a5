/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of timelines: a panel draws the rows of one timeline, or of a part of its time.
 */
#ifndef ECH_DRAW_ROWS_H
#define ECH_DRAW_ROWS_H

#include "draw/timeline.h"

typedef struct ech_panel {
    const ech_timeline *timeline;
    const char *title; /* NULL: the panel continues the one above it */
    double from, end;  /* the time that is shown */
    ech_timeline_rows drawn;
    double scale;               /* pixels a unit */
    int rows;                   /* that are drawn */
    double row_height, row_gap; /* pixels */
    double font_size;           /* of numbers */
    bool hints;                 /* boxes have tooltips */
    bool numbers, together; /* set by drawing: some boxes have numbers; some merge several bars */
} ech_panel;

/* Chooses the rows: one for ranks that do the same; beyond ECH_TIMELINE_ROWS some are left out. */
void ech_panel_choose_rows(ech_panel *panel);
void ech_panel_free(ech_panel *panel);
/* Sets what depends on timeline, rows and scale. */
void ech_panel_measure(ech_panel *panel, double scale);
void ech_panel_draw_rows(ech_panel *panel, double left, double top, ech_text *out);

/* The colour of a bar; of F, B and W, paler for later chunks. Returns `buffer`, of 8 bytes. */
char *ech_panel_colour(ech_bar_kind kind, int chunk, int chunks, char *buffer);

#endif
