/* SPDX-License-Identifier: Apache-2.0
 *
 * Serial replay of asynchronous training, as the reference for verify: one rank computes the micro-batches one after
 * the other. Before each forward and backward it loads, for every stage, the weight version that the papers' equations
 * give; the newest version is updated. An asynchronous pipeline must give the same weights. Nothing is collective, and
 * there are no errors.
 *
 * PipeDream with n stages: w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+2), ..., wn(t)), v the learning rate; with
 * vertical sync all of version t-n+1 (Narayanan et al. 2019, §3.3). PipeDream-2BW: W(t+1) = W(t) - v grad f(W(t-1))
 * (arXiv:2006.09503, §3.1), and so the delayed update of ZeRO-Offload (arXiv:2101.06840, §5.2), whose clipping is the
 * whole model's and so left to `alone`; its list UNDELAYED reads the newest version.
 */
#ifndef ECH_APP_VERIFY_REPLAY_H
#define ECH_APP_VERIFY_REPLAY_H

#include "app/verify/verify.h"

typedef struct ech_replay ech_replay;

/* `alone`: an opened run of one rank, in the same precision as `layout`, at its initial parameters. clip_norm above 0:
 * with optimizer.clip_norm 0: the replay clips each stage's gradients to that with the stage's own norm, as an asynchronous
 * pipeline does. Borrows `layout` and `alone`. */
ech_replay *ech_replay_create(const ech_compared_run *layout, ech_compared_run *alone,
                              double clip_norm);
void ech_replay_destroy(ech_replay *replay); /* accepts NULL */

/* The next three are called, in this order, for each training step of the replay, which is one
 * train list of `alone`. */

/* Before the list: begins training step `turn` of such a list of `layout`; the weights in `alone` are taken as the newest
 * version. */
void ech_replay_begin(ech_replay *replay, ech_list_kind list, int turn);
/* Before each step of the list: loads the version that the step must read; before an update also
 * the factor by which the stage clips. */
void ech_replay_prepare(ech_replay *replay, const ech_step *next);
/* After the list: stores the updated weights as the next version. */
void ech_replay_remember(ech_replay *replay);

/* The weight version that global micro-batch q of training step `turn` reads on a stage: 0 is the version at the span's
 * begin, k the one k updates later, -1 the one before 0. Follows from the papers' equations, not from orders or
 * plans. */
int ech_replay_version(const ech_layout *layout, const ech_schedule *schedule, int turn, int64_t q,
                       int stage, bool backward);

#endif
