/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of steps in a simulation: units, or seconds from a profile.
 */
#include "schedule/step/step.h"

ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile,
                       const ech_cluster *cluster)
{
    if (cluster)
        return (ech_costs){
            .seconds = true, .cluster = cluster, .rates = ech_rates_of_cluster(cluster)};
    if (!profile) return (ech_costs){.seconds = false};
    return (ech_costs){.seconds = true, .profile = profile, .rates = ech_rates_of(config, profile)};
}

double ech_step_bandwidth(const ech_step_query *q)
{
    return ech_rates_between(&q->costs->rates, q->among.members, q->among.first, q->among.last);
}

double ech_step_latency(const ech_step_query *q)
{
    const ech_rates *rates = &q->costs->rates;
    return rates->cluster
               ? ech_rates_latency(rates, q->among.members, q->among.first, q->among.last)
               : rates->latency * ech_cost_rounds(q->among.members);
}

/* Of a step that a device of the cluster, or its host, runs by itself. */
static double seconds_on_device(const ech_step_query *q)
{
    const ech_step_row *row = ech_step_row_of(q->step->kind);
    if (row->phase >= 0) return ech_block_seconds(q, false);
    if (!ech_step_has_bucket(q->step)) /* a delay, a few numbers */
        return row->methods->seconds ? row->methods->seconds(q) : 0;
    ech_work work = row->methods->work ? row->methods->work(q) : (ech_work){0};
    if (q->step->lane == ECH_LANE_HOST) return ech_cluster_host(q->costs->cluster, work.bytes);
    return work.bytes > 0 ? ech_cluster_kernel(q->costs->cluster, work.bytes) : 0;
}

double ech_costs_of_step(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_participants among)
{
    const ech_step_methods *methods = ech_step_row_of(step->kind)->methods;
    ech_step_query query = {.plan = plan,
                            .list = &plan->list[ECH_LIST_TRAIN],
                            .step = step,
                            .costs = costs,
                            .among = among};
    bool alone = step->lane == ECH_LANE_COMPUTE || step->lane == ECH_LANE_HOST;
    if (costs->cluster && alone) return seconds_on_device(&query);
    if (costs->seconds) return methods->seconds ? methods->seconds(&query) : 0;
    return ech_step_kind_phase(step->kind) >= 0 ? ech_block_units(plan, step) : 0;
}

double ech_costs_of_products(const ech_costs *costs, const ech_plan *plan, const ech_step *step)
{
    ech_step_query query = {
        .plan = plan, .list = &plan->list[ECH_LIST_TRAIN], .step = step, .costs = costs};
    return costs->cluster ? ech_block_seconds(&query, true) : 0;
}
