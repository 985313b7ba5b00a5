/* SPDX-License-Identifier: Apache-2.0
 *
 * What a partition problem costs, as sums that make the cost of any stage a few operations. Private
 * to this room.
 */
#ifndef ECH_LAYOUT_PARTITION_COSTS_H
#define ECH_LAYOUT_PARTITION_COSTS_H

#include <math.h>

#include "layout/partition.h"

typedef struct ech_partition_costs {
    int blocks;
    /* [blocks + 1] sums over the blocks before each; what a stage i .. j - 1 has is a difference. It
     * never falls when the stage grows, also in floating point. */
    double *seconds, *params, *activations;
    double *crossing; /* [blocks + 1] bytes over the cut before block j, both ways */
    int levels;       /* those of more than one worker; at least one */
    int workers[ECH_MOST_LEVELS];
    double bandwidth[ECH_MOST_LEVELS];
    int64_t all_workers;
    double memory, states; /* INFINITY: no limit */
    int64_t in_flight;     /* INT64_MAX: no bound */
} ech_partition_costs;

static inline double ech_partition_sum(const double *before, int i, int j)
{
    return before[j] - before[i];
}

/* fmax and fmin look for NaN, which no cost is, and take far longer. */
static inline double ech_partition_larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double ech_partition_smaller(double a, double b)
{
    return a < b ? a : b;
}

/* The time of a stage i .. j - 1 of q replicas, each of which takes `seconds` alone. */
static inline double ech_partition_stage(const ech_partition_costs *costs, double seconds, int i,
                                         int j, int64_t q, double bandwidth)
{
    double bytes = 2.0 * (double)(q - 1) * ech_partition_sum(costs->params, i, j);
    return ech_partition_larger(seconds, bytes / bandwidth) / (double)q;
}

/* Whether a worker of a stage i .. j - 1 has the memory, with `behind` workers from this stage to the
 * end and q of them its own. */
static inline bool ech_partition_fits(const ech_partition_costs *costs, int i, int j,
                                      int64_t behind, int64_t q)
{
    if (isinf(costs->memory)) return true;
    int64_t in_flight = (behind + q - 1) / q;
    if (in_flight > costs->in_flight) in_flight = costs->in_flight;
    return (double)in_flight * ech_partition_sum(costs->activations, i, j) +
               costs->states * ech_partition_sum(costs->params, i, j) <=
           costs->memory;
}

/* One stage more at the end of a partition that is being written down. */
void ech_partition_add(ech_partition *partition, int end, int64_t replicas);

/* The best partition of any shape, or of exactly `stages` unless 0. False: nothing fits the memory.
 * cut[0] is 0; room for as many stages as there are blocks. */
bool ech_partition_levels(const ech_partition_costs *costs, int stages, ech_partition *out);
/* The best with as many replicas at each of `stages`, which divide the workers. */
bool ech_partition_uniform(const ech_partition_costs *costs, int stages, ech_partition *out);

#endif
