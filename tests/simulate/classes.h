/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulation of one rank of each class equals a simulation of all ranks.
 */
#ifndef ECH_TESTS_SIMULATE_CLASSES_H
#define ECH_TESTS_SIMULATE_CLASSES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "simulate/simulate.h"

/* Costs in seconds without a measurement: odd numbers, so that sums of different steps differ. */
static inline ech_costs classes_costs(const ech_layout *layout, const ech_model *model,
                                      ech_profile *profile)
{
    *profile = (ech_profile){.blocks = (int)model->block.n,
                             .block = ech_calloc(model->block.n, sizeof *profile->block)};
    for (size_t b = 0; b < model->block.n; b++)
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
            profile->block[b].seconds[phase] = 1.37e-3 * (double)(phase + 1) + 1e-5 * (double)b;
    return (ech_costs){.seconds = true,
                       .profile = profile,
                       .rates = {.node = layout->node,
                                 .inside = 3.1e9,
                                 .between = 0.7e9,
                                 .copy = 1.9e9,
                                 .latency = 1.3e-6,
                                 .update_seconds = 7e-12,
                                 .other_seconds = 3e-5}};
}

/* Compares the bits of what rank `rank` does; NULL: it is the same. */
static inline const char *classes_differ_on(const ech_simulation *all, const ech_simulation *some,
                                            const ech_layout *layout, int rank, size_t steps)
{
    int i = ech_layout_plan_of(layout, some->plans, rank);
    size_t bytes = steps * sizeof(double);
    if (memcmp(&all->busy[rank], &some->busy[i], sizeof(double)) != 0) return "busy time";
    if (memcmp(all->waits[rank], some->waits[i], sizeof all->waits[rank]) != 0) return "waits";
    if (all->in_flight[rank] != some->in_flight[i]) return "micro-batches in flight";
    if (memcmp(all->begin[rank], some->begin[i], bytes) != 0) return "begin of steps";
    if (memcmp(all->finish[rank], some->finish[i], bytes) != 0) return "end of steps";
    return NULL;
}

static inline bool classes_have_links(const ech_simulation *all, const ech_simulation *some)
{
    for (size_t i = 0, j = 0; i < some->link.n; i++, j++) {
        const ech_link_use *x = &some->link.at[i], *y = all->link.at;
        while (j < all->link.n && (y[j].from != x->from || y[j].to != x->to)) j++;
        if (j == all->link.n || memcmp(x, &y[j], sizeof *x) != 0) return false;
    }
    return true;
}

static inline const char *classes_compare(const ech_plan *const *plans, const ech_layout *layout,
                                          ech_list_kind list, const ech_costs *costs,
                                          const ech_plan *const *first)
{
    ech_simulation all = {0}, some = {0};
    const char *differs = NULL;
    if (ech_simulate(plans, layout->world, list, costs, &all) != ECH_OK ||
        ech_simulate(first, layout->classes.n, list, costs, &some) != ECH_OK)
        return "a deadlock";
    if (memcmp(&all.end, &some.end, sizeof all.end) != 0) differs = "end";
    if (memcmp(&all.bubble, &some.bubble, sizeof all.bubble) != 0) differs = "bubble";
    if (!classes_have_links(&all, &some)) differs = "messages";
    for (int rank = 0; rank < layout->world && !differs; rank++)
        differs = classes_differ_on(&all, &some, layout, rank, plans[rank]->list[list].step.n);
    ech_simulation_free(&all);
    ech_simulation_free(&some);
    return differs;
}

/* Checks and simulates the plans of all ranks, and of one rank of each class (which it finds), in
 * units and in seconds, of a cluster if there is one. Returns what differs, or NULL. */
static inline const char *classes_disagree(const ech_plan *const *plans, ech_layout *layout,
                                           const ech_model *model, const ech_cluster *cluster,
                                           ech_list_kind list)
{
    if (!layout->classes.n) ech_layout_find_classes(layout, model, cluster, false);
    int n = layout->classes.n;
    ech_profile profile;
    ech_costs costs[2] = {{.seconds = false}, classes_costs(layout, model, &profile)};
    if (cluster) costs[1] = ech_costs_of(NULL, NULL, cluster);
    ECH_FREED const ech_plan **first = ech_calloc((size_t)n, sizeof *first);
    const char *differs = NULL;
    for (int c = 0; c < n; c++) first[c] = plans[layout->classes.first[c]];
    if (ech_check_plans(first, n, list) != ECH_OK || ech_check_queues(first, n, list) != ECH_OK)
        differs = "a check";
    for (int i = 0; i < 2 && !differs; i++)
        differs = classes_compare(plans, layout, list, &costs[i], first);
    free(profile.block);
    return differs;
}

#endif
