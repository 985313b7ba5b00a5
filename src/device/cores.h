/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cores a thread may run on: sharing them out, and binding threads to them.
 */
#ifndef ECH_DEVICE_CORES_H
#define ECH_DEVICE_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Cores as the system numbers them. Machines with more are left alone: the set is empty then. */
enum { ECH_MOST_CORES = 4096 };
typedef struct ech_core_set {
    uint64_t word[ECH_MOST_CORES / 64];
} ech_core_set;

/* Those of the calling thread: what taskset, mpirun, Slurm or a binding before left it. */
ech_core_set ech_cores_mine(void);
int ech_cores_count(const ech_core_set *set);
bool ech_cores_overlap(const ech_core_set *a, const ech_core_set *b);
bool ech_cores_are_same(const ech_core_set *a, const ech_core_set *b);

/* The cores of a set in the order in which `wanted` threads take them: one of each physical core, if that is
 * enough, otherwise the threads of a physical core behind each other. Returns how many are in `core`, which
 * has room for ECH_MOST_CORES: at least `wanted`, or all. */
int ech_cores_order(const ech_core_set *set, int wanted, int *core);

/* From now on the calling thread runs on these cores alone, as threads that it starts do. A system that
 * refuses is slower, not wrong. */
void ech_cores_bind(const int *core, int n);
void ech_cores_bind_set(const ech_core_set *set);
/* A thread that a bound one has started, and that is to take whatever core is idle: the cores are those that
 * the process had before its first thread was bound. */
void ech_cores_release(void);

#endif
