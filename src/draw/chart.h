/* SPDX-License-Identifier: Apache-2.0
 *
 * A chart of fractions (0 to 100 %) at a few named points from left to right, a line per series.
 */
#ifndef ECH_DRAW_CHART_H
#define ECH_DRAW_CHART_H

#include "base/text.h"

typedef struct ech_chart_series {
    const char *name;
    const double *value; /* [points] from 0 to 1 */
} ech_chart_series;

enum { ECH_CHART_SERIES = 3 }; /* the most that have a colour */

typedef struct ech_chart {
    const char *title, *subtitle;
    const char *axis;         /* below the points' names */
    int points;               /* at least 2 */
    const char *const *point; /* [points] names */
    int marked;               /* point with a line of its own; -1: none */
    int n;                    /* series */
    ech_chart_series series[ECH_CHART_SERIES];
} ech_chart;

/* Appends it as SVG. */
void ech_chart_svg(const ech_chart *chart, ech_text *out);

#endif
