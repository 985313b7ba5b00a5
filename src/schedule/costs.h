/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps cost in a simulation: units, or seconds from a profile.
 */
#ifndef ECH_SCHEDULE_COSTS_H
#define ECH_SCHEDULE_COSTS_H

#include "layout/cost.h"
#include "schedule/plan.h"

typedef struct ech_costs {
    /* False: costs are in units. The forward of one block costs one unit, its R as well, its
     * backward two: one each for B and W where the block has both. All else costs nothing. The next
     * two fields are not set. */
    bool seconds;
    const ech_profile *profile; /* borrowed */
    ech_rates rates;
} ech_costs;

/* Costs in seconds; without a profile, in units. config: for ech_rates_of. */
ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile);

/* What R of the block does in this plan, over what it does where the block is a segment of its own
 * (layout/profile.h): more where the R of another block reads what it makes. */
double ech_costs_recomputed(const ech_plan *plan, int block);

/* The ranks that take part in a message or collective: how many, the lowest and the highest. */
typedef struct ech_participants {
    int members, first, last;
} ech_participants;

/* What a step costs, waits not counted. `among` is read for messages, reductions and collectives
 * only. */
double ech_costs_of_step(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_participants among);

#endif
