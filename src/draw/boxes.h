/* SPDX-License-Identifier: Apache-2.0
 *
 * For pictures of timelines: bars as boxes in pixels, where many bars may fall on one pixel.
 */
#ifndef ECH_DRAW_BOXES_H
#define ECH_DRAW_BOXES_H

#include "draw/timeline.h"

typedef struct ech_box {
    const ech_timeline_bar *bar; /* NULL: several */
    double x, width;             /* pixels */
    double share[ECH_BAR_KINDS]; /* of several: of the box's time; the rest is idle */
} ech_box;
typedef ECH_LIST(ech_box) ech_boxes;

/* The boxes of one rank's bars in the time from `from` to `end`, at `scale` pixels a unit: bars of a pixel or more as they are,
 * narrower ones together until they make ten, unless a pixel or more between them is idle. Where
 * others leave them less than three pixels, the box is that of the longest. Bars of no width are left
 * out. There are never more than two boxes a pixel, nor one of several bars in three. */
void ech_boxes_make(const ech_timeline_bar *bar, size_t n, double from, double end, double scale,
                    ech_boxes *out);

#endif
