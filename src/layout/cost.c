/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds of messages, reductions and updates.
 */
#include "layout/cost.h"

#include <math.h>

ech_rates ech_rates_of(const ech_config *config, const ech_profile *profile)
{
    int64_t node = config ? config->parallel.node_ranks : ECH_AUTO;
    int64_t own = config ? config->parallel.node_bandwidth : ECH_AUTO;
    int64_t between = config ? config->parallel.network_bandwidth : ECH_AUTO;
    double inside = own == ECH_AUTO ? profile->bandwidth : (double)own;
    if (inside <= 0) inside = INFINITY; /* not measured */
    double copy = config ? (double)config->memory.offload_bandwidth : 0;
    return (ech_rates){.node = node == ECH_AUTO ? INT32_MAX : (int)node,
                       .inside = inside,
                       .between = between == ECH_AUTO ? inside : (double)between,
                       .copy = copy > 0 ? copy : inside,
                       .latency = profile->latency,
                       .update_seconds = profile->update_seconds,
                       .other_seconds = profile->other_seconds};
}

int ech_cost_rounds(int members)
{
    int n = 0;
    while ((int64_t)1 << n < members) n++;
    return n;
}

ech_rates ech_rates_of_cluster(const ech_cluster *cluster)
{
    return (ech_rates){.cluster = cluster,
                       .node = cluster->level[0].ranks,
                       .inside = cluster->level[0].bandwidth * cluster->level[0].share /
                                 cluster->step_factor,
                       .copy = cluster->device_host / cluster->step_factor,
                       .disk = cluster->host_disk / cluster->step_factor};
}

/* A unit of the level below has some of the members, and sends what crosses its border over the
 * links of all of them. */
static double between_units(const ech_cluster *cluster, int members, int first, int last)
{
    const ech_cluster_level *level = cluster->level,
                            *all = ech_cluster_level_of(cluster, first, last);
    double slowest = INFINITY;
    for (int below = 1;; below = level++->ranks) {
        int units = last / below - first / below + 1, together = members / units;
        if (together < 1) together = 1;
        if (together > level->links) together = level->links;
        if (units > 1) slowest = fmin(slowest, level->bandwidth * level->share * together);
        if (level == all) return slowest / cluster->step_factor;
    }
}

double ech_rates_between(const ech_rates *rates, int members, int first, int last)
{
    if (rates->cluster) return between_units(rates->cluster, members, first, last);
    return first / rates->node == last / rates->node ? rates->inside : rates->between;
}

double ech_rates_latency(const ech_rates *rates, int members, int first, int last)
{
    if (!rates->cluster) return rates->latency;
    return rates->cluster->step_factor * ech_cost_rounds(members) *
           ech_cluster_level_of(rates->cluster, first, last)->latency;
}

double ech_cost_message(const ech_rates *rates, double bytes, int from, int to)
{
    int first = from < to ? from : to, last = from < to ? to : from;
    return ech_rates_latency(rates, 2, first, last) +
           bytes / ech_rates_between(rates, 2, first, last);
}

double ech_cost_reduction(const ech_rates *rates, double bytes, int members, int first, int last)
{
    double n = members;
    if (members == 1) return 0;
    return ech_rates_latency(rates, members, first, last) +
           bytes * 2 * (n - 1) / n / ech_rates_between(rates, members, first, last);
}

double ech_cost_half(const ech_rates *rates, double bytes, int members, int first, int last)
{
    return ech_cost_reduction(rates, bytes / 2, members, first, last);
}

/* True if each row of `columns` members is on one machine. */
static bool rows_are_inside(ech_lineup of, int columns)
{
    for (int m = 1; m < of.machines; m++)
        if (of.first[m] % columns) return false;
    return true;
}

static double cost_torus(const ech_rates *rates, double bytes, ech_lineup of, int first, int last)
{
    int columns = ech_torus_columns(of.size), rows = of.size / columns;
    double slowest = ech_rates_between(rates, of.size, first, last);
    double row = rows_are_inside(of, columns) ? rates->inside : slowest;
    double latency = ech_rates_latency(rates, columns, first, last);
    if (rows > 1) latency += ech_rates_latency(rates, rows, first, last);
    return latency + bytes * (columns - 1) / columns / row + bytes * (rows - 1) / of.size / slowest;
}

static int largest_machine(ech_lineup of)
{
    int most = of.machines ? 0 : of.size;
    for (int m = 0; m < of.machines; m++) {
        int here = of.first[m + 1] - of.first[m];
        if (here > most) most = here;
    }
    return most;
}

/* A half sends everything one way within the machine, and the shards of its members the other
 * way. */
static double cost_hierarchical(const ech_rates *rates, ech_reduction_part part, double bytes,
                                ech_lineup of, int first, int last)
{
    bool whole = part == ECH_REDUCTION_WHOLE;
    double machines = of.machines ? of.machines : 1, others = largest_machine(of) - 1;
    double back = whole ? bytes : bytes / of.size, turns = whole ? 2 : 1;
    double latency = 2 * ech_rates_latency(rates, 2, first, last);
    if (of.machines > 1) latency += ech_rates_latency(rates, of.machines, first, last);
    return latency + others * (bytes + back) / rates->inside +
           turns * bytes * (machines - 1) / machines /
               ech_rates_between(rates, of.size, first, last);
}

double ech_cost_sum(const ech_rates *rates, ech_reduction reduction, ech_reduction_part part,
                    double bytes, ech_lineup of, int first, int last)
{
    bool whole = part == ECH_REDUCTION_WHOLE;
    if (of.size < 2) return 0;
    /* everything that a worker has, or that a server gets from all workers: whichever is more */
    if (of.stores) {
        double most = fmax(1, (double)(of.size - of.stores) / of.stores);
        return ech_rates_latency(rates, 2, first, last) +
               bytes * most / ech_rates_between(rates, of.size, first, last);
    }
    if (reduction == ECH_REDUCTION_TORUS)
        return cost_torus(rates, whole ? 2 * bytes : bytes, of, first, last);
    if (reduction == ECH_REDUCTION_HIERARCHICAL)
        return cost_hierarchical(rates, part, bytes, of, first, last);
    return (whole ? ech_cost_reduction : ech_cost_half)(rates, bytes, of.size, first, last);
}

/* A norm reads once what an update reads and writes; a copy reads and writes. */
double ech_cost_norm(const ech_rates *rates, double bytes)
{
    return rates->update_seconds * bytes / 3;
}

double ech_cost_update(const ech_rates *rates, double bytes)
{
    return rates->update_seconds * bytes * 2 / 3;
}

double ech_cost_stash(const ech_rates *rates, double bytes)
{
    return rates->update_seconds * bytes / 3;
}

double ech_cost_copy(const ech_rates *rates, double bytes, bool disk)
{
    return bytes / (disk && rates->disk > 0 ? rates->disk : rates->copy);
}
