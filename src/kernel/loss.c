/* SPDX-License-Identifier: Apache-2.0
 *
 * Combining the loss statistics of vocabulary shards. A few numbers a row, so there is one version for all
 * devices.
 */
#include <math.h>

#include "kernel/kernel.h"

/* A shard without columns has sum 0 and adds nothing. */
static void combine_row(const double *part, int N, int64_t stride, double *out)
{
    double max = -INFINITY, sum = 0, target = 0;
    for (int i = 0; i < N; i++) {
        double largest = part[i * stride + ECH_STAT_MAX];
        max = largest > max || isnan(largest) ? largest : max;
    }
    for (int i = 0; i < N; i++) {
        const double *known = part + i * stride;
        if (known[ECH_STAT_SUM] == 0) continue;
        sum += known[ECH_STAT_SUM] * exp(known[ECH_STAT_MAX] - max);
        target += known[ECH_STAT_TARGET];
    }
    out[ECH_STAT_MAX] = max;
    out[ECH_STAT_SUM] = sum;
    out[ECH_STAT_TARGET] = target;
}

void ech_loss_combine(const double *parts, int N, int64_t R, double *stats)
{
    for (int64_t r = 0; r < R; r++)
        combine_row(parts + r * ECH_LOSS_STATS, N, R * ECH_LOSS_STATS, stats + r * ECH_LOSS_STATS);
}
