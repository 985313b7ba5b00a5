/* SPDX-License-Identifier: Apache-2.0
 *
 * For `echelon report` alone: a report in the making.
 */
#ifndef ECH_APP_REPORT_PARTS_H
#define ECH_APP_REPORT_PARTS_H

#include "app/plan/report.h"
#include "app/report/metrics_read.h"
#include "app/trace/recording.h"

typedef struct ech_report {
    const char *directory;
    ech_config *config;
    ech_design design;
    ech_plan_report plans;
    ech_metrics_series metrics; /* empty: there are none */
    ech_recording recording;    /* empty: none that fits */
    bool has_predicted, has_measured;
    ech_timeline predicted, measured;
    const char *basis; /* what the prediction is made from */
    ech_pool *pool;    /* of the page's texts */
    ech_report_page page;
    ech_text *missing; /* sentences, a line each */
} ech_report;

/* Sets the page's timelines, and writes trace.json; *traced: it did. */
ech_status ech_report_add_timelines(ech_report *report, bool *traced);
/* All else must be there. */
void ech_report_add_facts(ech_report *report);
void ech_report_add_charts(ech_report *report);
void ech_report_add_memory(ech_report *report);

/* "bubble: predicted 20.0 %, measured 21.3 %" and the same of a step's time and of collectives, a line
 * each. */
void ech_report_print_bubble(const ech_report *report, ech_text *out);

#endif
