/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting blocks into stages and giving stages replicas, so that the slowest stage is as fast as
 * can be: PipeDream's dynamic program (Narayanan et al. 2019, §3.1; Harlap et al. 2018,
 * arXiv:1806.03377). Pure.
 *
 * What is made small is the time per micro-batch of the slowest stage or boundary. With T seconds (F,
 * B and W), w bytes of parameters and a bytes behind each block, and B bytes per second between
 * workers, one level takes
 *
 *     a stage of q replicas      max(sum of T, 2 (q - 1) x sum of w / B) / q
 *     a boundary behind a block  2 a / B                     (activation there, gradient back)
 *
 * A machine of several levels is cut level by level, as in the paper: a stage of the outer level is
 * replicated on q whole components, and inside each of them, in place of the sum of T, stands the
 * best time of the inner level for the same blocks, its own boundaries and replicas included. All
 * workers are used.
 *
 * Among partitions of the same time: the fewest stages, then the earliest first cut, then the fewest
 * first replicas, and so on from stage to stage; of several levels first on the outermost.
 */
#ifndef ECH_LAYOUT_PARTITION_H
#define ECH_LAYOUT_PARTITION_H

#include "layout/profile.h"

enum { ECH_MOST_LEVELS = 8 };

typedef struct ech_partition_problem {
    int blocks;
    const ech_block_cost *block; /* [blocks] */
    /* Levels of the machine, innermost first: `workers` of the level below each (devices in the
     * innermost), and the bandwidth between them in bytes per second, at least 1; INFINITY: free.
     * All workers together are their product. */
    int levels;
    const int *workers;
    const double *bandwidth;
    int stages; /* exactly so many; 0: as many as is best */
    /* The same number of replicas at every stage. On several levels ranks are numbered stage by
     * stage, and replicas and neighbours speak over the outermost level that lies between them. */
    bool uniform;
    /* Of r replicas at a stage and R workers from it to the end, a replica keeps the activations of
     * ceil(R / r) micro-batches (PipeDream's NOAM; n - i at stage i of n where r is the same
     * everywhere), but never of more than this many. 0: no such bound. */
    int in_flight;
    int64_t memory; /* bytes of a worker: micro-batches in flight x sum of activation bytes + states
                       x sum of parameter bytes; 0: no limit */
    int states; /* bytes kept per byte of parameters, gradient, states and weight versions besides
                       stashes included */
} ech_partition_problem;

typedef struct ech_partition {
    int stages;
    int *cut;       /* [stages + 1] */
    int *replicas;  /* [stages] over all levels: their sum is all workers */
    double seconds; /* of the slowest stage or boundary, per micro-batch */
} ech_partition;

/* Errors: no partition fits the memory; more stages than blocks or workers, or, where all stages
 * have as many replicas, a number of stages that does not divide the workers; too many blocks and
 * workers to search in minutes. */
ech_status ech_partition_solve(const ech_partition_problem *problem, ech_partition *out);
void ech_partition_free(ech_partition *partition);

#endif
