/* SPDX-License-Identifier: Apache-2.0
 *
 * Which weights micro-batches read, by the papers' equations: what the serial program's RUN of
 * VERSIONS loads. PipeDream with n stages: w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+2), ...,
 * wn(t)), v the learning rate; with vertical sync all of version t-n+1 (Narayanan et al. 2019,
 * §3.3). PipeDream-2BW: W(t+1) = W(t) - v grad f(W(t-1)) (arXiv:2006.09503, §3.1). The delayed
 * update of ZeRO-Offload is the same (arXiv:2101.06840, §5.2); its list UNDELAYED reads the newest.
 */
#ifndef ECH_APP_VERIFY_REPLAY_H
#define ECH_APP_VERIFY_REPLAY_H

#include "schedule/schedule.h"

/* The weight version that global micro-batch q of training step `turn` reads on a stage: 0 is the
 * version at the span's begin, k the one k updates later, -1 the one before 0. Follows from the
 * papers' equations, not from orders or plans. */
int ech_replay_version(const ech_layout *layout, const ech_schedule *schedule, int turn, int64_t q,
                       int stage, bool backward);

#endif
