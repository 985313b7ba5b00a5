/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of steps in a simulation: units, or seconds from a profile.
 */
#include "schedule/step/step.h"

ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile)
{
    if (!profile) return (ech_costs){.seconds = false};
    return (ech_costs){.seconds = true, .profile = profile, .rates = ech_rates_of(config, profile)};
}

int ech_cost_rounds(int members)
{
    int n = 0;
    while ((int64_t)1 << n < members) n++;
    return n;
}

double ech_costs_of_step(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_participants among)
{
    const ech_step_methods *methods = ech_step_row_of(step->kind)->methods;
    ech_step_query query = {.plan = plan, .step = step, .costs = costs, .among = among};
    if (costs->seconds) return methods->seconds ? methods->seconds(&query) : 0;
    return ech_step_kind_phase(step->kind) >= 0 ? ech_block_units(plan, step) : 0;
}
