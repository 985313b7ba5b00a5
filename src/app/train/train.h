/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop of a rank, and signal handling.
 */
#ifndef ECH_APP_TRAIN_TRAIN_H
#define ECH_APP_TRAIN_TRAIN_H

#include "app/setup/setup.h"

typedef struct ech_trainer ech_trainer; /* app/train/trainer.h */
/* Called on every rank before each training step, and once more after the last. It may make what is
 * collective over ranks, such as ech_trainer_save. *ends: no further step, although some are
 * left. */
typedef ech_status ech_train_pause(ech_trainer *t, void *context, bool *ends);

/* Options of a training run, the same on all ranks. */
typedef struct ech_training {
    ech_train_pause *pause; /* with `context`; NULL: none */
    void *context;
    bool gradients; /* ech_exec_keep_gradients */
    bool profile;   /* --profile: print a step profile (app/step_profile/step_profile.h) */
    double elapsed; /* seconds of training.time_limit that earlier starts have used */
} ech_training;

/* Trains from the newest checkpoint, or from the beginning, to the last training step. An
 * ech_design_main whose context is an ech_training. Collective. */
ech_status ech_train_rank(ech_comm *comm, const ech_design *design, void *training);

/* Installs the handlers of a process with ranks, and starts a thread on which they run, also if all
 * other threads block these signals. SIGUSR1: save a checkpoint and continue. SIGUSR2, SIGTERM,
 * SIGHUP, SIGINT: finish the train list, save and stop; a second SIGINT ends the process. Error:
 * ECH_EIO, no other thread can be started. */
ech_status ech_train_catch_signals(void);
/* Ends the thread, forgets what was asked, and gives the process the handlers back that it had, if
 * no other training of this process needs them. Call it once for each success of
 * ech_train_catch_signals. */
void ech_train_leave_signals(void);

/* The requests of signals. An evaluator takes them (0: none since the last call), and passes them
 * to rank 0. */
enum { ECH_ASKED_TO_STOP = 1, ECH_ASKED_TO_SAVE = 2 };
int ech_train_take_asked(void);
void ech_train_ask(int asked);

#endif
