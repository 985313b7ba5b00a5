/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of steps in a simulation: in units, or in seconds from a cluster or a profile.
 */
#ifndef ECH_SCHEDULE_COSTS_H
#define ECH_SCHEDULE_COSTS_H

#include <math.h>

#include "layout/cost.h"
#include "schedule/plan.h"

typedef struct ech_costs {
    /* True: costs are in seconds, and exactly one of `profile` and `cluster` is set. False: costs
     * are in units, and the other fields are zero. A block's forward costs one unit, its recompute
     * step R one, its backward two (one each for B and W where the block has both). All other steps
     * are free. */
    bool seconds;
    const ech_profile *profile; /* measured times of blocks; borrowed */
    const ech_cluster *cluster; /* rates from which times are computed; borrowed */
    ech_rates rates;            /* of messages, copies and updates */
} ech_costs;

/* Costs in seconds from the cluster if there is one, else from the profile; in units if both are
 * NULL. With a cluster the profile is not used. config: for ech_rates_of. */
ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile,
                       const ech_cluster *cluster);

/* Simulations round costs to multiples of this many seconds or units. So their sums up to 2,048 are
 * exact, and a steady state comes back with the same bits (simulate/rehearsal.h). */
#define ECH_COSTS_GRAIN 0x1p-42
static inline double ech_costs_round(double cost)
{
    return rint(cost / ECH_COSTS_GRAIN) * ECH_COSTS_GRAIN;
}

/* Ratio of the block's recompute work in the plan to the work in a profile, which has only the
 * calls of R that the block's own B and W need. > 1 if another block's R reads its outputs. */
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
