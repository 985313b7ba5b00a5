/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairings: which send meets which receive, over all ranks' lists of a kind. Of the messages of one
 * kind (activations, gradients) from one rank to another across one boundary, the n-th sent is the
 * n-th received. Private to this room.
 */
#ifndef ECH_SIMULATE_PAIRING_H
#define ECH_SIMULATE_PAIRING_H

#include "schedule/schedule.h"
#include "simulate/simulate.h"

typedef struct ech_pairing {
    int ranks;
    int **partner;               /* [ranks][steps]: step of the peer's list; -1: no message, or it
                                    meets nobody */
    int *first_link;             /* [ranks + 1]: of each sender, in link */
    ECH_LIST(ech_link_use) link; /* by from, then to */
} ech_pairing;

void ech_pairing_create(const ech_plan *const *plans, int n, ech_list_kind list, ech_pairing *out);
void ech_pairing_free(ech_pairing *pairing);

#endif
