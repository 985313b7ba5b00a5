/* SPDX-License-Identifier: Apache-2.0
 *
 * Training: the loop over the calendar, on every rank.
 */
#ifndef ECH_APP_TRAIN_TRAIN_H
#define ECH_APP_TRAIN_TRAIN_H

#include "app/setup/setup.h"

/* What a training run is started with; the same on all ranks. */
typedef struct ech_training {
    bool profile;   /* measures where the time of steps goes (app/step_profile/step_profile.h) */
    double elapsed; /* seconds of training.time_limit that earlier starts have taken */
    bool stopped;   /* out, rank 0: ended early after a signal or at the limit, saved: exit 75 */
} ech_training;

/* Trains from start or newest checkpoint to the last step. Collective. An ech_design_main over an
 * ech_training. */
ech_status ech_train_rank(ech_comm *comm, const ech_design *design, void *training);

/* Keeps SIGUSR1, SIGUSR2 and SIGTERM back until this process knows whether it has ranks, so that none
 * ends it at the start. */
void ech_train_hold_signals(void);
/* In a process that has ranks, also for what was kept back: SIGUSR1 saves and goes on; SIGUSR2,
 * SIGTERM, SIGHUP and SIGINT finish the step, save and stop; a second SIGINT ends the process. */
void ech_train_catch_signals(void);

#endif
