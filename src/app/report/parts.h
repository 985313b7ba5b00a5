/* SPDX-License-Identifier: Apache-2.0
 *
 * What `echelon report` reads and holds while it makes the page. Private to app/report.
 */
#ifndef ECH_APP_REPORT_PARTS_H
#define ECH_APP_REPORT_PARTS_H

#include "app/plan/report.h"
#include "app/report/html.h"
#include "app/trace/recording.h"

/* ---- metrics.jsonl as series, of a run that has ended, runs or was killed ---- */

typedef struct ech_metrics_series {
    union {
        struct {
            ech_report_points loss, grad_norm, learning_rate, tokens_per_second, step_seconds;
            ech_report_points valid_loss; /* may have several values per step, as restarts may; the
                                             others have one */
            ech_report_points restarts;   /* step: training steps done before; value: number of the
                                           start, from 2 */
        };
        ech_report_points all[7];
    };
    int64_t steps;   /* training steps done */
    int64_t skipped; /* lines that are no JSON objects of metrics, or out of order */
} ech_metrics_series;

/* Reads the file line by line; it may be of any size. A null (NaN or infinity) is read as NaN. An incomplete last
 * line is ignored. Errors: ECH_EIO. */
ech_status ech_metrics_series_read(const char *path, ech_metrics_series *out);
void ech_metrics_series_free(ech_metrics_series *series);

/* ---- the page ---- */

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
