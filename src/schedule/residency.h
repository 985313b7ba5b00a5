/* SPDX-License-Identifier: Apache-2.0
 *
 * Residency: when what does not lie where it is used is brought there, and when it is taken away. A
 * resource is what is brought as one: a bucket's weights or states, a block's kept values. Its uses
 * and those of the others of its class are one sequence, in the order of the compute lane.
 *
 * While a use is under way the resources of that one and of the `prefetch` uses behind it are
 * there, or on their way, and no others: so at most 1 + prefetch at once. Whose next use is among
 * those stays.
 */
#ifndef ECH_SCHEDULE_RESIDENCY_H
#define ECH_SCHEDULE_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"

typedef struct ech_use {
    int resource;
    /* the use makes it: there is nothing to bring. Only the first use of a resource may */
    bool makes;
    bool writes; /* the use changes what is there */
} ech_use;

/* From when a resource comes until it goes; `first`, `last` and the next two fields are indices of
 * uses. */
typedef struct ech_stay {
    int resource;
    int first, last; /* the uses that find it there: these two, and its others between them */
    bool brought;    /* false: `first` makes it */
    bool written;    /* one of its uses makes or changes it */
    bool returns; /* the resource has another stay later: what is written must be kept elsewhere */
    /* There is room for it when this use has ended and what goes then has gone, and then it is
     * brought; -1: from the beginning. */
    int room_after;
    /* When it goes, its memory is that of what this use needs, which waits for it; -1: nobody
     * does. */
    int gone_before;
    int takes; /* the stay, by its index in the list, whose room it takes; -1: there was room */
} ech_stay;
typedef ECH_LIST(ech_stay) ech_stay_list;

/* Appends the stays of n uses of resources 0 .. resources - 1, by their first uses: so those that
 * are brought are brought in this order. prefetch >= 0. */
void ech_residency(const ech_use *uses, size_t n, int resources, int prefetch, ech_stay_list *out);

#endif
