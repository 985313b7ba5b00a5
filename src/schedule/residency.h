/* SPDX-License-Identifier: Apache-2.0
 *
 * Residency: when offloaded or sharded data is brought to where it is used, and when it is removed.
 * A RESOURCE is the unit that is moved: a bucket's weights or states, or a block's kept values. The
 * uses of all resources of a class form one sequence, in the order of the compute lane.
 *
 * During a use, the resources of this use and of the next `prefetch` uses are resident or on their
 * way, and no others: at most 1 + prefetch at the same time. A resource that one of these uses
 * needs again stays.
 */
#ifndef ECH_SCHEDULE_RESIDENCY_H
#define ECH_SCHEDULE_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"

typedef struct ech_use {
    int resource;
    /* the use creates it, so nothing is brought; only a resource's first use may */
    bool makes;
    bool writes; /* the use changes it */
} ech_use;

/* A stay of a resource, from its arrival to its removal. `first`, `last`, `room_after` and
 * `gone_before` are indices of uses. */
typedef struct ech_stay {
    int resource;
    int first, last; /* first and last use that find it resident */
    bool brought;    /* false: `first` creates it */
    bool written;    /* one of its uses creates or changes it */
    bool returns;    /* the resource has a later stay: written data must be saved elsewhere */
    /* It is brought once this use has ended and the resources removed then are gone; -1: from the
     * beginning. */
    int room_after;
    /* The use whose resource reuses its memory and waits for its removal; -1: none. */
    int gone_before;
    int takes; /* the stay (index in the list) whose room it reuses; -1: there was room */
} ech_stay;
typedef ECH_LIST(ech_stay) ech_stay_list;

/* Appends the stays of n uses of resources 0 .. resources - 1 in the order of their first uses,
 * which is also the order in which they are brought. prefetch >= 0. */
void ech_residency(const ech_use *uses, size_t n, int resources, int prefetch, ech_stay_list *out);

#endif
