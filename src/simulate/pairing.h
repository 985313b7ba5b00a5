/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs each send with its receive, over all ranks' lists of a kind. Among messages of one kind (activations or
 * gradients) from one rank to another across one boundary, the n-th send meets the n-th receive. Private to this
 * room.
 */
#ifndef ECH_SIMULATE_PAIRING_H
#define ECH_SIMULATE_PAIRING_H

#include "schedule/schedule.h"
#include "simulate/simulate.h"

typedef struct ech_pairing {
    int ranks;
    int **partner; /* [ranks][steps]: the step of the peer's list; -1: no message, or one
                                    without a partner */
    int *first_link;             /* [ranks + 1]: of each sender, in link */
    ECH_LIST(ech_link_use) link; /* by from, then to */
} ech_pairing;

void ech_pairing_create(const ech_plan *const *plans, int n, ech_list_kind list, ech_pairing *out);
void ech_pairing_free(ech_pairing *pairing);

#endif
