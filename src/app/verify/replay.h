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

#include "app/verify/contestant.h"

typedef struct ech_replay ech_replay;

/* `alone` plays for `layout`: opened, of one rank, with clip_norm 0 (a stage clips by its own norm, which
 * the replay does for it) and at its initial parameters, in the same precision. Both are borrowed. */
ech_replay *ech_replay_create(const ech_contestant *layout, ech_contestant *alone,
                              double clip_norm);
void ech_replay_destroy(ech_replay *replay); /* accepts NULL */

/* One training step: the turn `turn` of the span that begins at step - turn. */
ech_status ech_replay_step(ech_replay *replay, int64_t step, int turn);

#endif
