/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss spikes: by medians, since a mean would follow the first spike.
 */
#include "app/train/spikes.h"

#include <math.h>
#include <stdlib.h>

#include "app/count.h"

static double median_of(const double *values, int n, double from)
{
    ech_numbers numbers = {0};
    for (int i = 0; i < n; i++) ECH_PUSH(numbers, fabs(values[i] - from));
    double median = ech_median(&numbers);
    free(numbers.at);
    return median;
}

double ech_spikes_take(ech_spikes *spikes, double loss, bool *begins)
{
    const double factor = 1.5, deviations = 6;
    int n = spikes->seen < ECH_SPIKES_MOST ? (int)spikes->seen : ECH_SPIKES_MOST;
    *begins = false;
    if (!isfinite(loss)) return 0;
    double median = median_of(spikes->loss, n, 0); /* losses are above 0 */
    double usual = median + deviations * median_of(spikes->loss, n, median);
    bool high = n >= ECH_SPIKES_FEWEST && median > 0 && loss >= factor * median && loss >= usual;
    spikes->loss[spikes->seen++ % ECH_SPIKES_MOST] = loss;
    *begins = high && !spikes->high;
    spikes->count += *begins;
    spikes->high = high;
    return high ? loss / median : 0;
}
