/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous training, told again by one rank, one micro-batch after the other: each forward and
 * backward of each stage is given the very version of the weights that the schedule promises, and the
 * newest weights are updated. What a pipeline trained must equal this.
 *
 * PipeDream with n stages: w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+2), ..., wn(t)); with vertical
 * sync all of version t-n+1 (Narayanan et al. 2019, §3.3). PipeDream-2BW: W(t+1) = W(t) - v grad
 * f(W(t-1)) (arXiv:2006.09503, §3.1).
 */
#ifndef ECH_APP_VERIFY_REPLAY_H
#define ECH_APP_VERIFY_REPLAY_H

#include "app/verify/compared_run.h"

typedef struct ech_replay ech_replay;

/* `alone` plays for `layout`: opened, of one rank, with clip_norm 0 (a stage clips by its own norm, which
 * the replay does for it) and at its initial parameters, in the same precision. Both are borrowed. */
ech_replay *ech_replay_create(const ech_compared_run *layout, ech_compared_run *alone,
                              double clip_norm);
void ech_replay_destroy(ech_replay *replay); /* accepts NULL */

/* One training step: the turn `turn` of a span; its newest version are the weights in place. In front of
 * each step of the list `prepare` puts those there that it must see; when the gradients are whole, `finish`
 * clips them stage by stage and puts the newest back; behind the list, `remember` keeps what the update has
 * made. */
void ech_replay_begin(ech_replay *replay, int turn);
void ech_replay_prepare(ech_replay *replay, const ech_step *next);
void ech_replay_finish(ech_replay *replay, ech_exec *exec);
void ech_replay_remember(ech_replay *replay);

/* Which version of the weights, in updates since the span began, global micro-batch q of training step
 * `turn` reads on a stage. From the papers' equations alone, not from orders or plans. */
int ech_replay_version(const ech_layout *layout, const ech_schedule *schedule, int turn, int64_t q,
                       int stage, bool backward);

#endif
