/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting blocks into stages and giving stages replicas, so that a step is as short as can be: PipeDream's
 * dynamic program (Narayanan et al. 2019, §3.1; Harlap et al. 2018, arXiv:1806.03377) with the costs of
 * what runs here. Pure.
 *
 * The paper charges a stage of q replicas max(T, 2 (q - 1) w / B) / q for each micro-batch, as if gradients
 * were summed for each. Here they are summed once in a step of M micro-batches, of which the busiest
 * replica does n = ceil(M / q); so a stage is busy for
 *
 *     (n - 1) (F + B + W) + F + max(B + W, 2 (q - 1) / q x w / bandwidth) + update
 *
 * seconds a step, the sum running beside the last backward (what first and last stage share is summed over
 * both behind it); and its links each way for n messages over
 * both of its boundaries. The pipeline is drained every `turns` steps (1: synchronous schedules), and then a
 * micro-batch's way through all stages comes on top:
 *
 *     pass + max over stages of (turns x busy - (F + B + W), (turns x n - 1) x links)
 *
 * pass being F, B and W of all blocks and two messages for each boundary; and once a step what else it does. Workers are numbered stage by
 * stage and machine by machine, so it is known which links lie between machines. All workers are used.
 *
 * Of each number of stages the partition with the smallest maximum is found; of those as good the one with
 * the earliest first cut, then with the fewest first replicas; and likewise of all that comes behind.
 */
#ifndef ECH_LAYOUT_PARTITION_H
#define ECH_LAYOUT_PARTITION_H

#include "layout/cost.h"

typedef struct ech_partition_problem {
    int blocks;
    const ech_profile_block *block; /* [blocks] of a worker, and what it sends */
    int workers;
    ech_rates rates; /* its `node` counts workers */
    int copies;      /* ranks of a worker that sum the same gradients: context ranks */
    double
        tied_bytes; /* of parameters that the first and the last block share: counted at the first */
    int64_t micro_batches; /* M, of a step; every replica has one at least */
    int turns;
    bool divides; /* all replicas of a stage have as many micro-batches */
    int stages;   /* exactly so many, with as many replicas at each; 0: any */
    /* Of a worker, 0: no limit. A replica of r, with R workers from its stage to the end, keeps the
     * activations of ceil(R / r) micro-batches (PipeDream's NOAM; n - i at stage i of n where r is the same
     * everywhere), or of all of its own in a step; and of each byte of parameters `states` bytes beside
     * `versions` of the weights, 0: one and as many as there are updates while those are in flight. */
    int64_t memory;
    bool keeps_all;
    int states, versions;
} ech_partition_problem;

typedef struct ech_partition {
    int stages;
    int *cut;       /* [stages + 1] */
    int *replicas;  /* [stages]: their sum is all workers */
    double seconds; /* of a step */
} ech_partition;
typedef ECH_LIST(ech_partition) ech_partitions;

/* The best of each number of stages, the shortest step first (of those as short, the fewest stages first);
 * with the same replicas at every stage, and as far as that takes seconds, not minutes, with any.
 * Errors: no partition fits the memory, or shares out the micro-batches; more stages than blocks, or a
 * number that does not divide the workers; no bandwidth; too many blocks. */
ech_status ech_partition_search(const ech_partition_problem *problem, ech_partitions *out);
/* Seconds of a step. INFINITY: it does not fit the memory. */
double ech_partition_seconds(const ech_partition_problem *problem, int stages, const int *cut,
                             const int *replicas);
void ech_partitions_free(ech_partitions *partitions);

#endif
