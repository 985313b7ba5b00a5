/* SPDX-License-Identifier: Apache-2.0
 *
 * For pictures of timelines: the rows of one timeline.
 */
#ifndef ECH_DRAW_ROWS_H
#define ECH_DRAW_ROWS_H

#include "draw/timeline.h"

typedef struct ech_panel {
    const ech_timeline *timeline;
    const char *title; /* NULL: the panel goes on where the one above it ends */
    double from, end;  /* the time that it shows */
    ech_timeline_rows drawn;
    double scale;               /* pixels a unit */
    int rows;                   /* that are drawn */
    double row_height, row_gap; /* pixels */
    double font_size;           /* of numbers */
    bool hints;                 /* boxes tell what they are when pointed at */
    bool numbers, together;     /* what was drawn: numbers, boxes of several bars */
} ech_panel;

/* Chooses the rows: ranks that do the same share one; of more than ECH_TIMELINE_ROWS some are left out. */
void ech_panel_choose_rows(ech_panel *panel);
void ech_panel_free(ech_panel *panel);
/* Sets what depends on timeline, rows and scale. */
void ech_panel_measure(ech_panel *panel, double scale);
void ech_panel_draw_rows(ech_panel *panel, double left, double top, ech_text *out);

/* Of F, B and W: paler for later chunks. Returns `buffer`, of 8 bytes. */
char *ech_panel_colour(ech_bar_kind kind, int chunk, int chunks, char *buffer);

#endif
