/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of `echelon report` while it makes the page. Private to app/report.
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
    ech_metrics_series metrics;       /* may be empty */
    ech_recording recording;          /* empty: none that matches the plans */
    ech_timeline predicted, measured; /* where the page has them */
    const char *basis;                /* names the costs of the prediction */
    ech_pool *pool;                   /* owns the page's numbers of memory */
    ech_report_page page;
    char *run_file;          /* its text */
    ech_text title, missing; /* missing: what is left out and why, a sentence per line */
} ech_report;

/* Sets the page's title and facts, from all else. */
void ech_report_add_facts(ech_report *report);

/* Appends "bubble: predicted 20.0 %, measured 21.3 %", and a line each for the time of a step and of
 * collectives. */
void ech_report_print_bubble(const ech_report *report, ech_text *out);

#endif
