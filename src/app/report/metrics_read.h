/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading metrics.jsonl, of a run that is over, under way, or was killed.
 */
#ifndef ECH_APP_REPORT_METRICS_READ_H
#define ECH_APP_REPORT_METRICS_READ_H

#include "app/report/html.h"

typedef struct ech_metrics_series {
    ech_report_points loss, grad_norm, learning_rate, tokens_per_second, step_seconds;
    ech_report_points valid_loss; /* steps do not descend; of all others they ascend */
    ech_report_points restarts;   /* steps done then, and the number of the start: 2, 3, ... */
    int64_t steps;                /* done */
    int64_t skipped;              /* lines that are no such objects, or out of order */
} ech_metrics_series;

/* A null (a NaN or infinity) is a NaN. What follows the last newline was being written and is not
 * looked at. A file of any size is read line by line. Errors: it cannot be read. */
ech_status ech_metrics_series_read(const char *path, ech_metrics_series *out);
/* The same from memory. */
void ech_metrics_series_parse(const char *text, size_t n, ech_metrics_series *out);
void ech_metrics_series_free(ech_metrics_series *series);

#endif
