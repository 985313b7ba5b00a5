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

double ech_rates_between(const ech_rates *rates, int first, int last)
{
    return first / rates->node == last / rates->node ? rates->inside : rates->between;
}

double ech_cost_message(const ech_rates *rates, double bytes, int from, int to)
{
    return rates->latency + bytes / ech_rates_between(rates, from, to);
}

double ech_cost_reduction(const ech_rates *rates, double bytes, int members, int first, int last)
{
    double n = members;
    if (members == 1) return 0;
    return rates->latency + bytes * 2 * (n - 1) / n / ech_rates_between(rates, first, last);
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

static double cost_torus(const ech_rates *rates, double bytes, ech_lineup of, double slowest)
{
    int columns = ech_torus_columns(of.size), rows = of.size / columns;
    double row = rows_are_inside(of, columns) ? rates->inside : slowest;
    return rates->latency * (rows > 1 ? 2 : 1) + bytes * (columns - 1) / columns / row +
           bytes * (rows - 1) / of.size / slowest;
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
                                ech_lineup of, double slowest)
{
    bool whole = part == ECH_REDUCTION_WHOLE;
    double machines = of.machines ? of.machines : 1, others = largest_machine(of) - 1;
    double back = whole ? bytes : bytes / of.size, turns = whole ? 2 : 1;
    return rates->latency * (machines > 1 ? 3 : 2) + others * (bytes + back) / rates->inside +
           turns * bytes * (machines - 1) / machines / slowest;
}

double ech_cost_sum(const ech_rates *rates, ech_reduction reduction, ech_reduction_part part,
                    double bytes, ech_lineup of, int first, int last)
{
    double slowest = ech_rates_between(rates, first, last);
    bool whole = part == ECH_REDUCTION_WHOLE;
    if (of.size < 2) return 0;
    /* everything that a worker has, or that a server gets from all workers: whichever is more */
    if (of.stores) {
        double most = fmax(1, (double)(of.size - of.stores) / of.stores);
        return rates->latency + bytes * most / slowest;
    }
    if (reduction == ECH_REDUCTION_TORUS)
        return cost_torus(rates, whole ? 2 * bytes : bytes, of, slowest);
    if (reduction == ECH_REDUCTION_HIERARCHICAL)
        return cost_hierarchical(rates, part, bytes, of, slowest);
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

double ech_cost_copy(const ech_rates *rates, double bytes)
{
    return bytes / rates->copy;
}
