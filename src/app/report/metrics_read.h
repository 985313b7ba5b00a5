/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading metrics.jsonl as series, of a run that has ended, runs or was killed.
 */
#ifndef ECH_APP_REPORT_METRICS_READ_H
#define ECH_APP_REPORT_METRICS_READ_H

#include "app/report/html.h"

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

#endif
