/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of timelines: bars become boxes in pixels; bars narrower than a pixel are merged.
 */
#ifndef ECH_DRAW_BOXES_H
#define ECH_DRAW_BOXES_H

#include "draw/timeline.h"

typedef struct ech_box {
    const ech_timeline_bar *bar; /* NULL: several */
    double x, width;             /* pixels */
    double share
        [ECH_BAR_KINDS]; /* of several: the share of the box's time of each kind; the rest is idle */
} ech_box;
typedef ECH_LIST(ech_box) ech_boxes;

/* The boxes of one rank's bars between `from` and `end`, at `scale` pixels a unit. A bar of a pixel or more is a box.
 * Narrower ones are merged until the box has ten pixels or the next is a pixel or more away; where less than three
 * pixels are left for them, the box shows the longest alone. Bars of no width are left out. There are at most two
 * boxes a pixel, and at most one merged box in three pixels. */
void ech_boxes_make(const ech_timeline_bar *bar, size_t n, double from, double end, double scale,
                    ech_boxes *out);

#endif
