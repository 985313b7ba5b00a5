/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps cost in a simulation: units, or seconds from a profile.
 */
#ifndef ECH_SCHEDULE_COSTS_H
#define ECH_SCHEDULE_COSTS_H

#include "layout/cost.h"
#include "schedule/schedule.h"

typedef struct ech_costs {
    bool
        seconds; /* false: the unit is the forward of one block; its backward costs two units, where the
                     block has B and W one each; all else costs nothing */
    const ech_profile *profile; /* with `seconds` */
    ech_rates rates;            /* with `seconds` */
} ech_costs;

/* Costs in seconds; without a profile, in units. config: for ech_rates_of. */
ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile);

/* The ranks that take part in a step: how many, the lowest and the highest. */
typedef struct ech_participants {
    int members, first, last;
} ech_participants;

/* The cost of a step from the time at which it runs. */
double ech_costs_of_step(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_participants among);

#endif
