/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a cluster file: refused, or costs that are positive and finite.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "layout/cost.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void demand(bool holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_cluster cluster;
    if (ech_cluster_parse((const char *)bytes, n, "fuzz.yaml", &cluster) != ECH_OK) return 0;
    ech_rates rates = ech_rates_of_cluster(&cluster);
    ech_products products = {4096, 1024, 512, 2};
    demand(cluster.levels >= 1 && cluster.levels <= ECH_MOST_LEVELS);
    for (int distance = 1; distance < 1 << 20; distance *= 7) {
        double between = ech_rates_between(&rates, 2, 3, 3 + distance);
        demand(between > 0 && isfinite(between));
        demand(ech_rates_latency(&rates, 2, 3, 3 + distance) >= 0);
    }
    for (int d = 0; d < ECH_DTYPES; d++)
        demand(isfinite(ech_cluster_products(&cluster, &products, (ech_dtype)d, d & 1, 1e6)));
    demand(isfinite(ech_cluster_kernel(&cluster, 1e9)));
    return 0;
}
