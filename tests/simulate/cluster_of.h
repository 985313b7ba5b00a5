/* SPDX-License-Identifier: Apache-2.0
 *
 * Clusters for tests of simulations.
 */
#ifndef ECH_TESTS_SIMULATE_CLUSTER_OF_H
#define ECH_TESTS_SIMULATE_CLUSTER_OF_H

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "layout/cluster.h"

/* levels: as in a cluster file; more: other sections. */
static inline ech_cluster cluster_of(const char *levels, const char *more)
{
    char text[600];
    ech_cluster cluster;
    snprintf(
        text, sizeof text,
        "device: {memory: 80 GB, bandwidth: 1 TB/s}\nflops: {fp32: 10 TFLOP/s}\n"
        "products: {share: 0.5}\nattention: {share: 0.5}\nkernels: {share: 0.5, launch: 1 us}\n"
        "levels: [%s]\n%s",
        levels, more);
    ECH_ASSERT(ech_cluster_parse(text, strlen(text), "c.yaml", &cluster) == ECH_OK);
    return cluster;
}

#endif
