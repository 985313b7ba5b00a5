/* SPDX-License-Identifier: Apache-2.0
 *
 * Running means. Each is summed anew: differences of sums from the beginning would be quicker and,
 * behind a spike of a run that diverged, wrong.
 */
#include "app/report/mean.h"

#include <math.h>

bool ech_report_is_drawn(double value)
{
    return fabs(value) <= 1e100;
}

static double mean_of(const ech_report_point *points, size_t n)
{
    double sum = 0;
    size_t values = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ech_report_is_drawn(points[i].value)) continue;
        sum += points[i].value;
        values++;
    }
    return values > 0 ? sum / (double)values : NAN;
}

ech_report_points ech_report_mean(const ech_report_points *points, size_t reach, size_t every)
{
    ech_report_points means = {0};
    for (size_t i = 0, n = points->n; i < n; i++) {
        if (i % every != 0 && i + 1 < n) continue;
        size_t before = i < reach ? i : reach, behind = n - 1 - i < before ? n - 1 - i : before;
        double mean = mean_of(points->at + (i - before), before + 1 + behind);
        ECH_PUSH(means, (ech_report_point){points->at[i].step, mean});
    }
    return means;
}
