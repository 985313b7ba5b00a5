/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps cost in rehearsals: one unit a block's phase, or seconds from a profile.
 */
#ifndef ECH_SCHEDULE_COSTS_H
#define ECH_SCHEDULE_COSTS_H

#include "layout/cost.h"
#include "schedule/schedule.h"

typedef struct ech_costs {
    bool seconds; /* false: the unit is the forward of one block; backwards cost two units, half of
                     them B and half W where a block has both; all else costs nothing */
    const ech_profile *profile; /* with `seconds` */
    ech_rates rates;            /* likewise */
} ech_costs;

/* In seconds, or where there is no profile in units. config: says which ranks are on one machine (see
 * ech_rates_of). */
ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile);

/* Who takes part in a step. */
typedef struct ech_participants {
    int members, first, last; /* ranks */
} ech_participants;

/* What a step takes once it runs. */
double ech_costs_of_step(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_participants among);

#endif
