/* SPDX-License-Identifier: Apache-2.0
 *
 * What moving and updating costs, in seconds: the one place that the partitioner and the simulator ask.
 * What blocks cost says the profile.
 */
#ifndef ECH_LAYOUT_COST_H
#define ECH_LAYOUT_COST_H

#include "layout/profile.h"

/* Ranks are numbered machine by machine. */
typedef struct ech_rates {
    int node; /* ranks of one machine */
    /* Bytes per second between two ranks of one machine, and of two; INFINITY: free. A rank sends one
     * message at a time, and receives one beside it. */
    double inside, between;
    double latency;        /* seconds of a message without bytes */
    double update_seconds; /* of norm and update, per byte of parameters */
    double other_seconds;  /* of whatever else a training step does */
} ech_rates;

/* By parallel.node_ranks, node_bandwidth and network_bandwidth, where they are "auto" by the profile.
 * config NULL: all ranks are on one machine. */
ech_rates ech_rates_of(const ech_config *config, const ech_profile *profile);
/* The slowest link that ranks first .. last speak over. */
double ech_rates_between(const ech_rates *rates, int first, int last);

/* A message between two ranks. */
double ech_cost_message(const ech_rates *rates, double bytes, int from, int to);
/* A sum of so many bytes over `members` of the ranks first .. last: each sends and receives
 * 2 (n - 1) / n of them. */
double ech_cost_reduction(const ech_rates *rates, double bytes, int members, int first, int last);
/* Norm, update, and a copy to the next version of the weights, of so many bytes of parameters. */
double ech_cost_norm(const ech_rates *rates, double bytes);
double ech_cost_update(const ech_rates *rates, double bytes);
double ech_cost_stash(const ech_rates *rates, double bytes);

#endif
