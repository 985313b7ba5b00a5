/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition = auto: candidates for the simulator to choose from. Nothing here
 * communicates.
 */
#ifndef ECH_LAYOUT_PROPOSE_H
#define ECH_LAYOUT_PROPOSE_H

#include "layout/layout.h"
#include "layout/partition.h"

/* What the schedule requires of a partition; the first four are fields of ech_partition_problem. */
typedef struct ech_partition_needs {
    int turns; /* training steps between two drains of the pipeline; 1: synchronous */
    /* weight versions that a stage stores; 0: one, and one more per update in flight */
    int versions;
    bool divides;   /* all replicas of a stage must have equally many micro-batches */
    /* a stage holds the activations of all its micro-batches at the same time (gpipe) */
    bool keeps_all;
    ech_placement placement;
    const ech_layout_filter *filter; /* meshes that the schedule accepts; borrowed */
} ech_partition_needs;

/* A candidate, as values of keys of the parallel section. */
typedef struct ech_proposal {
    ech_config_list partition; /* parallel.partition: even, or layers of each virtual stage */
    ech_config_list replicas;  /* parallel.stage_replicas: auto, or replicas of each stage */
    int64_t pipeline;          /* parallel.pipeline: number of stages */
    int64_t data;   /* parallel.data: replicas of every stage; ECH_AUTO: see `replicas` */
    double seconds; /* of a training step, as the partitioner estimates it */
} ech_proposal;
typedef ECH_LIST(ech_proposal) ech_proposals;

/* Candidates for `world` ranks, the shortest training step first: the partitioner's, and an even
 * partition for every number of stages that divides the ranks into equally many replicas. `model`
 * must be unsharded (ech_model_create_whole). Sets training.micro_batch_size to the profile's if it
 * is "auto", even if an error follows. Free *out with ech_proposals_free. Errors: no profile, or
 * one with another number of blocks; keys that fit no candidate; what the partitioner refuses. */
ech_status ech_layout_propose(ech_config *config, const ech_model *model,
                              const ech_profile *profile, const ech_partition_needs *needs,
                              int world, ech_proposals *out);
/* Copies the candidate into the keys that its fields name. */
void ech_layout_take(ech_config *config, const ech_proposal *proposal);
void ech_proposals_free(ech_proposals *proposals);

#endif
