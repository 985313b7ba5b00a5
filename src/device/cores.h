/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU affinity: which cores a thread may run on, and binding threads to cores.
 */
#ifndef ECH_DEVICE_CORES_H
#define ECH_DEVICE_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* A set of cores (logical CPUs) with the system's numbers. Empty on machines with more than
 * ECH_MOST_CORES. */
enum { ECH_MOST_CORES = 4096 };
typedef struct ech_core_set {
    uint64_t word[ECH_MOST_CORES / 64]; /* bit c % 64 of word[c / 64]: core c */
} ech_core_set;

/* The calling thread's affinity, as taskset, mpirun, Slurm or an earlier binding set it. */
ech_core_set ech_cores_mine(void);
int ech_cores_count(const ech_core_set *set);
bool ech_cores_overlap(const ech_core_set *a, const ech_core_set *b);
bool ech_cores_are_same(const ech_core_set *a, const ech_core_set *b);

/* The cores that are in both sets. */
ech_core_set ech_cores_common(const ech_core_set *a, const ech_core_set *b);
/* The set in a file of the system, "0-13,56-69"; none if there is no such file, or it has something
 * else. */
ech_core_set ech_cores_read(const char *path);

/* Lists the cores of a set to which `wanted` threads should be bound, in order: one hardware thread
 * of each physical core if these suffice, otherwise all, siblings next to each other. Returns the
 * number written to `core`, which has room for ECH_MOST_CORES; fewer than `wanted` only if the set
 * has fewer. */
int ech_cores_order(const ech_core_set *set, int wanted, int *core);

/* Binds the calling thread, and threads that it starts from now on, to these cores. A failure is
 * ignored: it only costs speed. */
void ech_cores_bind(const int *core, int n);
void ech_cores_bind_set(const ech_core_set *set);
/* Undoes the inherited binding of the calling thread: it may run on all cores that the process had
 * before its first thread was bound. */
void ech_cores_release(void);

#endif
