/* SPDX-License-Identifier: Apache-2.0
 *
 * Serial replay of replicas that are apart, as the reference for verify: one rank trains one replica after the other, each with
 * weights, optimizer states and micro-batches of its own; behind every parallel.sync_every steps the outer optimizer is computed
 * element by element from the papers' equations (Stich 2019; Douillard et al. 2023):
 *
 *     d = mean over replicas of (a - w);  m = momentum m + d;  a = a - rate (d + momentum m);  w = a of each replica
 *
 * and behind other steps, where replicas gossip, w of each is the mean of its own, the next one's and the last one's, around a ring
 * (Lian et al. 2017).
 *
 * Nothing is collective.
 */
#ifndef ECH_APP_VERIFY_APART_H
#define ECH_APP_VERIFY_APART_H

#include "app/verify/verify.h"

typedef struct ech_apart ech_apart;

/* `alone`: an opened run of one rank, in the same precision as `layout`, at its initial parameters. Borrows both. */
ech_status ech_apart_create(const ech_compared_run *layout, ech_compared_run *alone,
                            ech_apart **out);
void ech_apart_destroy(ech_apart *apart); /* accepts NULL */
/* Makes `alone` the replica as it was stored last, before a training step. */
void ech_apart_load(ech_apart *apart, int replica);
/* Stores what `alone` is now as that replica. */
void ech_apart_store(ech_apart *apart, int replica);
/* Stores as each replica what it is where they have met. */
void ech_apart_meet(ech_apart *apart);
/* The same where each has mixed with its neighbours. */
void ech_apart_mix(ech_apart *apart);

#endif
