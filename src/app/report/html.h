/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTML page of `echelon report`: facts of a run, timelines, charts of metrics, memory; or what
 * several runs differ in, their charts, and what they have in common. It is
 * one file that opens from a disk: SVG pictures inline, no scripts, nothing from the network; light
 * or dark as the reader's system.
 */
#ifndef ECH_APP_REPORT_HTML_H
#define ECH_APP_REPORT_HTML_H

#include <stdint.h>

#include "base/memory.h"
#include "base/text.h"
#include "draw/timeline.h"

typedef struct ech_report_fact {
    const char *key;
    ech_text value; /* empty: the fact is left out */
} ech_report_fact;

typedef struct ech_report_point {
    int64_t step; /* training step */
    double value; /* NaN or beyond 1e100: a gap in the line, and the chart says how often */
} ech_report_point;
typedef ECH_LIST(ech_report_point) ech_report_points; /* training steps ascend */

/* A line chart over training steps. With many steps, each half pixel shows the lowest and highest
 * value, and a running mean is drawn over them; so the bytes of a chart are bounded. */
typedef struct ech_report_chart {
    const char *title; /* "loss", "tokens per second" */
    ech_report_points training;
    ech_report_points validation; /* may be empty; drawn as dots */
    ech_report_points restarts;   /* dashed lines; value: number of the start, from 2 */
    bool logarithmic;             /* the y axis is, if all values are above 0 */
} ech_report_chart;

/* For a model with experts: the number of rows that chose each expert, over the mean. */
typedef struct ech_report_loads {
    int experts;            /* 0: none */
    ECH_LIST(int64_t) step; /* ascending */
    ECH_LIST(float) value;  /* [steps][experts]; NaN: not known */
} ech_report_loads;

/* The gradients of a layer by their exponent of base 2. */
typedef struct ech_report_layer {
    char name[80];
    double elements;
    int first, counts;  /* exponents [first, first + counts) */
    size_t first_count; /* index in ech_report_exponents.count */
} ech_report_layer;

/* Of the last step that has histograms (log.histograms). */
typedef struct ech_report_exponents {
    int64_t step;
    ECH_LIST(ech_report_layer) layer; /* from the first block on */
    ECH_LIST(double) count;
} ech_report_exponents;

typedef struct ech_report_memory {
    int ranks, kinds;
    const char *const *name; /* [kinds], segments of a bar from the left */
    const int64_t *bytes;    /* [ranks][kinds] */
    int64_t limit;           /* bytes per rank; 0: none */
} ech_report_memory;

/* What several runs differ in: rows of a key and a value for each run. */
typedef struct ech_report_table {
    ECH_LIST(const char *) cell; /* [rows][1 + runs]; "": the run has none */
} ech_report_table;

/* Empty, zero or NULL parts are omitted from the page. Any text is escaped. The page borrows all
 * its pointers; whoever made lists and texts releases them. */
typedef struct ech_report_page {
    const char *title;
    ECH_LIST(ech_report_fact) facts;
    const ech_timeline *predicted, *measured; /* after ech_timeline_finish; on one scale of time */
    const ech_report_table *table;            /* of several runs */
    int runs;                                 /* 0: one, without a name */
    const char *const *names;                 /* [runs] */
    ECH_LIST(ech_report_chart) charts;        /* of several runs: each chart's `runs` together */
    const ech_report_loads *loads;
    const ech_report_exponents *exponents;
    ech_report_memory memory;
    const char *run_file; /* text of the run file */
} ech_report_page;

/* Appends the page; the same input gives the same bytes. */
void ech_report_html(const ech_report_page *page, ech_text *out);

/* ---- pictures of the page: each appends one SVG element ---- */

/* A chart of a run; or the charts of several runs, in one picture and on the same axes, without
 * restarts. Each of several runs has a colour, and a row of words that begins with its name.
 * names NULL: there is one run. */
void ech_report_charts_svg(const ech_report_chart *chart, const char *const *names, int runs,
                           ech_text *out);
/* "#0072b2": of the run with this number; colours repeat after some runs. */
const char *ech_report_colour(int run);
/* A picture with a row per expert; with many steps each column is a mean. There must be steps. */
void ech_report_heatmap_svg(const ech_report_loads *loads, ech_text *out);
/* A picture with a row per layer. There must be layers. */
void ech_report_exponents_svg(const ech_report_exponents *exponents, ech_text *out);
/* A stacked bar per rank, with a segment per kind; for more than ECH_TIMELINE_ROWS ranks only
 * evenly spaced ones. */
void ech_report_memory_svg(const ech_report_memory *memory, ech_text *out);

/* ---- for charts of reports: running means ---- */

/* True if a value is drawn: not NaN, infinite or beyond 1e100. */
bool ech_report_is_drawn(double value);

/* Centered running mean at each `every`-th point and at the last: over up to `reach` points before
 * it and as many after it. Near the beginning, where losses fall steeply, the window shrinks on
 * both sides; at the end only on the right. Values that are not drawn are omitted; NaN if no value
 * remains. Release the result's `at` with free(). */
ech_report_points ech_report_mean(const ech_report_points *points, size_t reach, size_t every);

#endif
