/* SPDX-License-Identifier: Apache-2.0
 *
 * The data that `echelon report` reads and holds while it makes the page. Private to app/report.
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
            ech_report_points loss, grad_norm, learning_rate, units_per_second, step_seconds;
            /* valid_loss and restarts may have several values per training step, the others have
             * one. */
            ech_report_points valid_loss;
            ech_report_points restarts; /* value: number of the start, from 2 */
            ech_report_points time;     /* when a step ended: seconds since 1970 */
        };
        ech_report_points all[8]; /* the series above, in order */
    };
    ech_report_loads loads;
    ech_report_exponents exponents;
    int64_t steps;   /* training steps done */
    int64_t skipped; /* lines that are not JSON objects of metrics, or out of order */
} ech_metrics_series;

/* Reads the file line by line; it may be of any size. A null (NaN or infinity) is read as NaN. An
 * incomplete last line is ignored. Errors: ECH_EIO. */
ech_status ech_metrics_series_read(const char *path, ech_metrics_series *out);
void ech_metrics_series_free(ech_metrics_series *series);

/* ---- the page ---- */

typedef struct ech_report {
    const char *directory;
    ech_config *config; /* of DIRECTORY/run.yaml */
    ech_design design;
    ech_plan_report plans;
    ech_plan **outline; /* [world] of every rank, for its recording; NULL: nothing was recorded */
    ech_metrics_series metrics;       /* may be empty */
    ech_recording recording;          /* empty: no recording matches the plans */
    ech_timeline predicted, measured; /* empty if the page has none */
    const char *basis;                /* which costs the prediction uses, for people */
    ech_pool *pool;                   /* owns the arrays of page.memory */
    ech_report_page page;
    char *run_file;   /* text of the run file */
    ech_text title;   /* of the page */
    ech_text missing; /* what is omitted and why, one sentence per line */
} ech_report;

/* Reads the run's configuration and metrics, plans it, and sets the page's facts and charts.
 * `directory` and `pool` must be set. Release it with ech_report_release, also after a failure. */
ech_status ech_report_open(ech_report *report);
void ech_report_release(ech_report *report);

/* Sets the page's title and facts from the other fields, which must be set. */
void ech_report_add_facts(ech_report *report);

/* Appends "bubble: predicted 20.0 %, measured 21.3 %", and a line each for the time of a training
 * step and of collectives. */
void ech_report_print_bubble(const ech_report *report, ech_text *out);

#endif
