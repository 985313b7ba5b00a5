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

/* A norm reads once what an update reads and writes, and a copy is read and written. */
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
