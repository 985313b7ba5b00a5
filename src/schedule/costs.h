/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of steps in a simulation, in units or in seconds from a profile.
 */
#ifndef ECH_SCHEDULE_COSTS_H
#define ECH_SCHEDULE_COSTS_H

#include "layout/cost.h"
#include "schedule/plan.h"

typedef struct ech_costs {
    /* False: costs are in units. A block's forward costs one unit, its R one, its backward two (one
     * each for B and W where the block has both); all else is free. The next two fields are then
     * not set. */
    bool seconds;
    const ech_profile *profile; /* times of blocks; NULL: from the cluster. Borrowed. */
    const ech_cluster *cluster; /* NULL: from the profile. Borrowed. */
    ech_rates rates;
} ech_costs;

/* Costs in seconds, of a cluster or else of a profile; in units if both are NULL. config: for
 * ech_rates_of. */
ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile,
                       const ech_cluster *cluster);

/* Ratio of this block's recompute work in the plan to the work measured for a block alone in its
 * segment (layout/profile.h); > 1 if another block's R needs its outputs. */
double ech_costs_recomputed(const ech_plan *plan, int block);

/* The ranks of a message or collective: their number, the lowest and the highest. */
typedef struct ech_participants {
    int members, first, last;
} ech_participants;

/* The cost of a step without waits. `among` is used only for messages, reductions and
 * collectives. */
double ech_costs_of_step(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_participants among);

/* The seconds that a step F, B, W or R spends in matrix products and attention; 0 without a
 * cluster. */
double ech_costs_of_products(const ech_costs *costs, const ech_plan *plan, const ech_step *step);

#endif
