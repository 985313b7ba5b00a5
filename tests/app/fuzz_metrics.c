/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as metrics.jsonl: series whose steps ascend, and a search for a line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "app/metrics.h"
#include "app/report/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(const ech_report_points *points, int64_t apart)
{
    for (size_t i = 1; i < points->n; i++)
        if (points->at[i].step < points->at[i - 1].step + apart) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_metrics_series series;
    char path[40];
    int fd = memfd_create("metrics", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    ech_metrics_steps found = {0};
    if (ech_metrics_series_read(path, &series) != ECH_OK) abort();
    if (ech_metrics_find(path, "evaluation", &found) != ECH_OK) abort();
    free(found.at);
    close(fd);
    const ech_report_points *all[] = {&series.loss, &series.grad_norm, &series.learning_rate,
                                      &series.units_per_second, &series.step_seconds};
    for (int i = 0; i < 5; i++) check(all[i], 1);
    check(&series.valid_loss, 0);
    if (series.skipped < 0 || series.steps < 0) abort();
    ech_metrics_series_free(&series);
    return 0;
}
