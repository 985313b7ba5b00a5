/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition = auto: candidates, for the simulator to choose from.
 */
#ifndef ECH_LAYOUT_PROPOSE_H
#define ECH_LAYOUT_PROPOSE_H

#include "layout/layout.h"
#include "layout/partition.h"

/* What the schedule adds to an ech_partition_problem. */
typedef struct ech_partition_needs {
    int turns, versions;
    bool divides, keeps_all;
    ech_placement placement;
    const ech_layout_filter *filter; /* of ech_layout_resolve */
} ech_partition_needs;

/* A partition as keys of the parallel section. */
typedef struct ech_proposal {
    ech_config_list partition; /* even, or layers of each virtual stage */
    ech_config_list replicas;  /* auto, or of each stage */
    int64_t pipeline, data;
    double seconds; /* of a step, as the partitioner counts them */
} ech_proposal;
typedef ECH_LIST(ech_proposal) ech_proposals;

/* Candidates for `world` ranks, the shortest step first: what the partitioner finds, and every grid with equally many
 * replicas at each stage and an even partition. The model is unsharded. training.micro_batch_size "auto" becomes
 * the profile's. Errors: keys that `auto` does not go with; no profile, or one of another model; what the
 * partitioner refuses. */
ech_status ech_layout_propose(ech_config *config, const ech_model *model,
                              const ech_profile *profile, const ech_partition_needs *needs,
                              int world, ech_proposals *out);
/* Writes the candidate into the parallel keys. */
void ech_layout_take(ech_config *config, const ech_proposal *proposal);
void ech_proposals_free(ech_proposals *proposals);

#endif
