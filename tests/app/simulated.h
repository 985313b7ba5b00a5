/* SPDX-License-Identifier: Apache-2.0
 *
 * A run in virtual time, by a profile that is made up. After cmocka.h.
 */
#ifndef ECH_TESTS_APP_SIMULATED_H
#define ECH_TESTS_APP_SIMULATED_H

#include "app/grid_run.h"
#include "app/made_up_profile.h"
#include "simulate/simulate.h"

/* Looks at the train list of all ranks. Optional. */
typedef void (*on_simulated)(const ech_simulation *simulation, const grid_plans *g);

/* When the last rank is through with its train list. */
static inline double simulated(const char *words, on_simulated look)
{
    char path[300];
    ech_profile *profile;
    ech_simulation simulation;
    snprintf(path, sizeof path, "%s/profile", fixture_folder);
    grid_plans g = grid_plan("gpt2", words);
    made_up_profile_write(&g.design, path);
    assert_int_equal(ech_profile_read(path, &profile), ECH_OK);
    ech_costs costs = ech_costs_of(g.config, profile, NULL);
    assert_int_equal(
        ech_simulate((const ech_plan *const *)g.plan, g.ranks, ECH_LIST_TRAIN, &costs, &simulation),
        ECH_OK);
    double end = simulation.end;
    if (look) look(&simulation, &g);
    ech_simulation_free(&simulation);
    ech_profile_destroy(profile);
    grid_plans_free(&g);
    return end;
}

#endif
