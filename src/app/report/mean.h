/* SPDX-License-Identifier: Apache-2.0
 *
 * For charts of reports: running means.
 */
#ifndef ECH_APP_REPORT_MEAN_H
#define ECH_APP_REPORT_MEAN_H

#include "app/report/html.h"

/* Whether a value has a place on a chart: NaN, infinity and what is past 1e100 have none. */
bool ech_report_is_drawn(double value);

/* The mean around each `every`-th point and around the last, over `reach` points before and as many
 * behind it. The first points, where values fall steeply, take as many behind as there are before; the
 * last take all there are. Values without a place are left out; where there are no others the mean is
 * NaN. Release `at` with free(). */
ech_report_points ech_report_mean(const ech_report_points *points, size_t reach, size_t every);

#endif
