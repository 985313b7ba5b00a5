/* SPDX-License-Identifier: Apache-2.0
 *
 * Resource limits from this process's control groups (cgroups(7), versions 1 and 2): the smallest
 * limit of its own group and its ancestors.
 */
#ifndef ECH_DEVICE_CONTROL_GROUP_H
#define ECH_DEVICE_CONTROL_GROUP_H

#include <stddef.h>

/* Locations: the file that names this process's groups, "/proc/self/cgroup", and their folder,
 * "/sys/fs/cgroup". */
typedef struct ech_control_groups {
    const char *list, *folder;
} ech_control_groups;
extern const ech_control_groups ech_control_groups_here;

/* The limit on memory, at most `bytes`. */
size_t ech_control_memory(const ech_control_groups *of, size_t bytes);
/* The quota of processor time in whole cores, from 1 to `cores`. More threads would be throttled.
 * */
int ech_control_cores(const ech_control_groups *of, int cores);

#endif
