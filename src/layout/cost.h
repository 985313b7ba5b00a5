/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimates the seconds of messages, reductions and updates, for the partitioner and the simulator.
 * Times of blocks are in the profile. Nothing here fails or communicates.
 */
#ifndef ECH_LAYOUT_COST_H
#define ECH_LAYOUT_COST_H

#include "comm/collective.h"
#include "layout/cluster.h"
#include "layout/profile.h"

/* Bandwidths and latencies. Ranks are numbered machine by machine. */
typedef struct ech_rates {
    /* Whose levels replace the next three fields and the latency; NULL: none. Borrowed. */
    const ech_cluster *cluster;
    int node; /* ranks of one machine */
    /* Bytes per second between two ranks of one machine, and of two machines; INFINITY: messages
     * are free. A rank sends one message at a time, and may receive one simultaneously. */
    double inside, between;
    double copy;           /* bytes per second between the device and the host, each way */
    double disk;           /* of copies from or to disk; 0: the same as `copy` */
    double latency;        /* seconds of an empty message */
    double update_seconds; /* of norm and update together, per byte of parameters */
    double other_seconds;  /* of the rest of a training step: reading its batch, its scalars */
} ech_rates;

/* Rates from parallel.node_ranks, node_bandwidth and network_bandwidth, and
 * memory.offload_bandwidth (0: same as between ranks of a machine); where these are "auto", from
 * the profile. config NULL: all ranks are on one machine. */
ech_rates ech_rates_of(const ech_config *config, const ech_profile *profile);
/* Rates of a cluster. It is borrowed. */
ech_rates ech_rates_of_cluster(const ech_cluster *cluster);
/* Bytes per second of the slowest link between `members` evenly spaced ranks first .. last: of a
 * cluster, members on one unit together use the links of each. */
double ech_rates_between(const ech_rates *rates, int members, int first, int last);
/* Seconds that a collective between them takes without any bytes. */
double ech_rates_latency(const ech_rates *rates, int members, int first, int last);

/* Rounds of a tree over `members` ranks. */
int ech_cost_rounds(int members);
/* Seconds of a message between two ranks. */
double ech_cost_message(const ech_rates *rates, double bytes, int from, int to);
/* Seconds of an all-reduce of `bytes` over n = `members` ranks between `first` and `last`,
 * inclusive: each sends and receives 2 (n - 1) / n x bytes. */
double ech_cost_reduction(const ech_rates *rates, double bytes, int members, int first, int last);
/* Seconds of a reduce-scatter or an all-gather: each member sends and receives (n - 1) / n x
 * bytes. */
double ech_cost_half(const ech_rates *rates, double bytes, int members, int first, int last);
/* Seconds of an all-reduce, or half of one, by the given algorithm over the members of the lineup,
 * between ranks `first` and `last`. TORUS: along rows, at the rate within a machine if each row is
 * on one machine, then along columns. HIERARCHICAL: at the leader of the largest machine. All other
 * algorithms: as above. */
double ech_cost_sum(const ech_rates *rates, ech_reduction reduction, ech_reduction_part part,
                    double bytes, ech_lineup of, int first, int last);
/* Seconds of NORM, of UPDATE and of STASH (the copy to the next weight version), for `bytes` of
 * parameters. */
double ech_cost_norm(const ech_rates *rates, double bytes);
double ech_cost_update(const ech_rates *rates, double bytes);
double ech_cost_stash(const ech_rates *rates, double bytes);
/* Seconds of a copy from one space to another; disk: one of them is the disk. */
double ech_cost_copy(const ech_rates *rates, double bytes, bool disk);

#endif
