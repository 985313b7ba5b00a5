/* SPDX-License-Identifier: Apache-2.0
 *
 * For pictures of timelines: the rows of one timeline.
 */
#ifndef ECH_SCHEDULE_TIMELINE_ROWS_H
#define ECH_SCHEDULE_TIMELINE_ROWS_H

#include "schedule/timeline/timeline.h"

typedef struct ech_panel {
    const ech_timeline *timeline;
    const char *title;
    ech_timeline_rows drawn;
    double scale;               /* pixels a unit */
    int rows;                   /* that are drawn */
    double row_height, row_gap; /* pixels */
    double font_size;           /* of numbers */
    bool hints;                 /* boxes tell what they are when pointed at */
    bool numbers, together;     /* what was drawn: numbers, boxes of several bars */
} ech_panel;

/* Chooses the rows: a rank each; of more than ECH_TIMELINE_ROWS those that do the same share one, and if
 * that is no help, some are left out. */
void ech_panel_choose_rows(ech_panel *panel);
void ech_panel_free(ech_panel *panel);
/* "rank 3", or "rank 4 .. 7". Returns its length. */
int ech_panel_name_row(const ech_timeline_row *row, char *name, size_t size);
/* Sets all but the last from timeline, rows and scale. */
void ech_panel_measure(ech_panel *panel, double scale);
void ech_panel_draw_rows(ech_panel *panel, double left, double top, ech_text *out);

/* Of F, B and W: paler for later chunks. Returns `buffer`, of 8 bytes. */
char *ech_panel_colour(ech_bar_kind kind, int chunk, int chunks, char *buffer);

#endif
