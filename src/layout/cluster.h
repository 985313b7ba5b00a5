/* SPDX-License-Identifier: Apache-2.0
 *
 * A cluster file describes devices and the network between them, for plans and simulations of
 * machines that are not there (docs/clusters.md).
 */
#ifndef ECH_LAYOUT_CLUSTER_H
#define ECH_LAYOUT_CLUSTER_H

#include "base/status.h"
#include "layer/layer.h"

enum { ECH_MOST_LEVELS = 6 };

/* Ranks are numbered so that each level consists of whole units of the level below it. */
typedef struct ech_cluster_level {
    int ranks;        /* of a unit, as a machine; INT32_MAX: all */
    double bandwidth; /* bytes per second that one rank sends to another unit of the level below,
                         while it receives as many */
    double latency;   /* seconds of an empty message */
    double share;     /* fraction of the bandwidth that messages and collectives reach */
    int links;        /* a collective that joins units of the level below uses the links of at most
                         this many ranks of each unit */
} ech_cluster_level;

typedef struct ech_cluster {
    char name[64];
    double flops[ECH_DTYPES]; /* peak rate of products by type; 0: unknown */
#define NUMBER(section, name, unit, least, most, initial, help) double section##_##name;
#include "layout/cluster.def"
    int levels;
    ech_cluster_level level[ECH_MOST_LEVELS]; /* from the innermost one on */
} ech_cluster;

/* Reads a cluster file, which is untrusted. Errors name file, line and key. */
ech_status ech_cluster_read(const char *path, ech_cluster *out);
/* The same from memory; `name` stands for the file in errors. */
ech_status ech_cluster_parse(const char *text, size_t n, const char *name, ech_cluster *out);
/* Refuses a number of ranks that does not consist of whole units. */
ech_status ech_cluster_check(const ech_cluster *cluster, const char *path, int ranks);

/* The innermost level on which ranks `first` and `last` are in one unit. */
const ech_cluster_level *ech_cluster_level_of(const ech_cluster *cluster, int first, int last);
/* Seconds of matrix products of a type, including their memory traffic of `bytes`. attention: the
 * products make attention's scores and outputs, which have an efficiency of their own. */
double ech_cluster_products(const ech_cluster *cluster, const ech_products *products,
                            ech_dtype dtype, bool attention, double bytes);
/* Seconds of a kernel that reads and writes `bytes`. */
double ech_cluster_kernel(const ech_cluster *cluster, double bytes);
/* The same for an update that the host computes. */
double ech_cluster_host(const ech_cluster *cluster, double bytes);

#endif
