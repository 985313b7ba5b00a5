/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions blocks into stages and chooses each stage's number of replicas, so that a training
 * step is as short as possible: PipeDream's dynamic program (Narayanan et al. 2019, §3.1; Harlap et
 * al. 2018, arXiv:1806.03377) with the costs of layout/cost.h. Nothing here communicates or does
 * I/O. "Step" means training step here.
 *
 * A WORKER computes one stage (here: virtual stage) for one replica: it is context x tensor ranks,
 * which share their time and memory equally among their model chunks. All workers are used. They
 * are numbered stage by stage and machine by machine, so it is known which links connect machines.
 *
 * With T seconds per micro-batch, w bytes of gradients and bandwidth B, the paper charges a stage
 * of q replicas max(T, 2 (q - 1) w / B) / q per micro-batch, as if gradients were summed for each.
 * Here they are summed once per step of M micro-batches (gradient accumulation). The busiest
 * replica computes n = ceil(M / q) of them, so in each step a stage is busy for
 *
 *     (n - 1) (F + B + W) + F + max(B + W, 2 (q - 1) / q x w / bandwidth) + update
 *
 * seconds: the all-reduce overlaps the last backward (parameters that the first and the last stage
 * share are summed over both after it), and as long again as its slowest worker sleeps in a step
 * (parallel.delay). The stage's links are busy each way for n messages over
 * both of its boundaries. The pipeline is drained every `turns` steps (1: synchronous schedules),
 * which adds the time of one micro-batch through all stages:
 *
 *     pass + max over stages of (turns x busy - (F + B + W), (turns x n - 1) x links)
 *
 * where `pass` is F, B and W of all blocks and two messages for each boundary; the time of R counts
 * towards B. Each step adds rates.other_seconds.
 *
 * With ZeRO, N = q x copies ranks shard states (1), gradients (2) and weights (3), and each updates
 * 1 / N of the stage's parameters. Gradients are then reduce-scattered, from stage 2 on during each
 * micro-batch's backward. An all-gather of the weights follows the update; at stage 3 one runs
 * during each forward and one during each backward instead. Parameters that several stages share
 * are all-reduced as before. Buckets in flight are not counted in the memory.
 *
 * For each number of stages the search finds the partition with the smallest maximum. Among equals,
 * the first stage has the fewest blocks, then the fewest replicas, and so on for the next stages.
 */
#ifndef ECH_LAYOUT_PARTITION_H
#define ECH_LAYOUT_PARTITION_H

#include "layout/cost.h"

typedef struct ech_partition_problem {
    int blocks;
    /* [blocks] of one worker; 0 s for phases that do not run; borrowed */
    const ech_profile_block *block;
    int workers;
    ech_rates rates; /* `node` counts workers per machine, not ranks */
    int copies;      /* ranks of a worker over which gradients are summed as well: context ranks */
    /* bytes of gradients sent per byte of parameters: 1 if both have the same type */
    double wire;
    double tied_bytes; /* of parameters that the first and last block share; counted at the first */
    const double *delay;   /* [workers] seconds that each sleeps per step; NULL: none; borrowed */
    int64_t micro_batches; /* M, per step; every replica has at least one */
    int turns;             /* steps between two drains of the pipeline */
    bool divides;          /* all replicas of a stage must have equally many micro-batches */
    int stages;            /* exactly this many, each with equally many replicas; 0: any */
    /* The most bytes of a worker; 0: no limit. A worker of a stage of r replicas, with R workers
     * from this stage to the last, holds the activations of ceil(R / r) micro-batches (PipeDream's
     * NOAM; n - i at stage i of n if r is the same everywhere). Per byte of parameters it holds
     * `gradients`, `states` and `versions` bytes, partly sharded over the N ranks of a sum
     * according to `zero`. */
    int64_t memory;
    bool keeps_all;   /* it holds the activations of all its micro-batches of a step instead */
    double gradients; /* bytes of gradients per byte of parameters */
    double states;    /* bytes of optimizer states per byte of parameters */
    int zero;         /* parallel.zero */
    bool zero_keep;   /* at ZeRO stage 3, weights are gathered once per step and kept */
    /* weight versions; 0: one, and one more for each update during a micro-batch's flight */
    int versions;
} ech_partition_problem;

typedef struct ech_partition {
    int stages;
    int *first_block; /* [stages + 1]: stage s is blocks first_block[s] .. first_block[s + 1] - 1 */
    int *replicas;    /* [stages]: their sum is all workers */
    double seconds;   /* of a step */
} ech_partition;
typedef ECH_LIST(ech_partition) ech_partitions;

/* The best partition for each number of stages, the shortest step first; among equals the fewest
 * stages. Free *out with ech_partitions_free. Partitions with the same replicas at every stage are
 * always searched, unequal replicas only if the search takes seconds, not minutes. Errors: no
 * partition fits the memory or divides the micro-batches; more stages than blocks, or a number of
 * stages that does not divide the workers; no bandwidth; too many blocks. */
ech_status ech_partition_search(const ech_partition_problem *problem, ech_partitions *out);
/* Seconds of a step with this partition; INFINITY: it does not fit the memory. */
double ech_partition_seconds(const ech_partition_problem *problem, int stages,
                             const int *first_block, const int *replicas);
void ech_partitions_free(ech_partitions *partitions);

/* Partitions the model's blocks into `stages` virtual stages according to parallel.partition of the
 * resolved configuration: a list of numbers of transformer layers (without embedding and head), or
 * "even" in multiply-adds. Writes first_block[stages + 1], as in ech_partition. */
void ech_partition_blocks(const ech_config *config, const ech_model *model, ech_extent extent,
                          int stages, int *first_block);
/* Partitions blocks of weights >= 0 into stages of at least one block each. The heaviest stage is
 * as light as possible; then the sum of squares of the stages' weights is smallest; then the first
 * stage has the fewest blocks, then the second, and so on. Weights that differ by less than 10^-9
 * of the total are equal. */
void ech_partition_evenly(const double *weight, int blocks, int stages, int *first_block);

#endif
