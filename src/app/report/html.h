/* SPDX-License-Identifier: Apache-2.0
 *
 * A run as one HTML page: what it was, who computed when, how the numbers went, where the memory is.
 * The page needs nothing else: pictures are inside, no scripts, nothing from the network; it opens
 * from a disk, light or dark as the reader's system is, and prints.
 */
#ifndef ECH_APP_REPORT_HTML_H
#define ECH_APP_REPORT_HTML_H

#include <stdint.h>

#include "base/memory.h"
#include "base/text.h"
#include "draw/timeline.h"

typedef struct ech_report_fact {
    const char *key, *value;
} ech_report_fact;

typedef struct ech_report_point {
    int64_t step;
    double value; /* NaN or past 1e100: the line breaks here, and the chart says how often */
} ech_report_point;
typedef ECH_LIST(ech_report_point) ech_report_points; /* steps ascend */

/* A line over steps. Of many steps every half pixel shows its lowest and highest value, under a running
 * mean. Bytes are bounded, however many steps there are. */
typedef struct ech_report_chart {
    const char *title; /* "loss", "tokens per second" */
    ech_report_points training;
    ech_report_points validation; /* may be empty; drawn as dots */
    ech_report_points
        restarts;     /* likewise: dashed lines behind their steps; values are numbers of starts */
    bool logarithmic; /* where all values are above 0 */
} ech_report_chart;

typedef struct ech_report_memory {
    int ranks, kinds;
    const char *const *name; /* [kinds], the first at the left */
    const int64_t *bytes;    /* [ranks][kinds] */
    int64_t limit;           /* bytes a rank may have; 0: no limit */
} ech_report_memory;

/* Nothing is owned. What is empty, zero or NULL is left out of the page. Text may be any. */
typedef struct ech_report_page {
    const char *title;
    ECH_LIST(ech_report_fact) facts;
    const ech_timeline *predicted, *measured; /* finished; both: above each other, on one scale */
    ECH_LIST(ech_report_chart) charts;
    ech_report_memory memory;
    const char *run_file; /* all of it */
} ech_report_page;

/* Appends the page. The same page is the same bytes. */
void ech_report_html(const ech_report_page *page, ech_text *out);

/* ---- its pictures: one SVG element each ---- */

void ech_report_chart_svg(const ech_report_chart *chart, ech_text *out);
/* One bar a rank, of pieces in the order of kinds; of more than ECH_TIMELINE_ROWS evenly spaced ones. */
void ech_report_memory_svg(const ech_report_memory *memory, ech_text *out);

/* ---- for charts of reports: running means ---- */

/* Whether a value has a place on a chart: NaN, infinity and what is past 1e100 have none. */
bool ech_report_is_drawn(double value);

/* The mean around each `every`-th point and around the last, over `reach` points before and as many
 * behind it. The first points, where values fall steeply, take as many behind as there are before; the
 * last take all there are. Values without a place are left out; where there are no others the mean is
 * NaN. Release `at` with free(). */
ech_report_points ech_report_mean(const ech_report_points *points, size_t reach, size_t every);

#endif
