/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as metrics.jsonl: series whose steps ascend.
 */
#include <stdlib.h>

#include "app/report/metrics_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(const ech_report_points *points, int64_t apart)
{
    for (size_t i = 1; i < points->n; i++)
        if (points->at[i].step < points->at[i - 1].step + apart) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_metrics_series series;
    ech_metrics_series_parse((const char *)bytes, n, &series);
    const ech_report_points *all[] = {&series.loss, &series.grad_norm, &series.learning_rate,
                                      &series.tokens_per_second, &series.step_seconds};
    for (int i = 0; i < 5; i++) check(all[i], 1);
    check(&series.valid_loss, 0);
    if (series.skipped < 0 || series.steps < 0) abort();
    ech_metrics_series_free(&series);
    return 0;
}
