/* SPDX-License-Identifier: Apache-2.0
 *
 * Signal handling of a rank that trains: SIGUSR2, SIGTERM, SIGINT and SIGHUP ask it to stop after a
 * checkpoint, SIGUSR1 asks for one. What has been asked is flags, which the training loop reads
 * after each list.
 */
#include <signal.h>
#include <stdatomic.h>

#include "app/train/train.h"
#include "app/train/trainer.h"

/* Lock-free, so that handlers may set them, and ranks that are threads may read them. */
static atomic_bool asked_to_stop, asked_to_save, asked_by_hand;

/* Schedulers repeat signals, so only a second Ctrl-C ends the process at once. */
static void on_signal(int signal)
{
    if (signal == SIGUSR1)
        asked_to_save = true;
    else if (signal == SIGINT && atomic_exchange(&asked_by_hand, true)) {
        sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        raise(SIGINT);
    } else
        asked_to_stop = true;
}

const atomic_bool *ech_train_asked_to_stop(void)
{
    return &asked_to_stop;
}

bool ech_train_take_save(void)
{
    return atomic_exchange(&asked_to_save, false);
}

int ech_train_take_asked(void)
{
    int stop = atomic_exchange(&asked_to_stop, false) ? ECH_ASKED_TO_STOP : 0;
    return atomic_exchange(&asked_to_save, false) ? stop | ECH_ASKED_TO_SAVE : stop;
}

void ech_train_ask(int asked)
{
    if (asked & ECH_ASKED_TO_STOP) asked_to_stop = true;
    if (asked & ECH_ASKED_TO_SAVE) asked_to_save = true;
}

static const int signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};

void ech_train_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t caught;
    sigemptyset(&action.sa_mask);
    signal(SIGPIPE, SIG_IGN); /* the log's reader may end */
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now; /* an ignored signal (nohup, a shell's &) stays ignored */
        sigaction(signals[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaction(signals[i], &action, NULL);
        sigaddset(&caught, signals[i]);
    }
    sigprocmask(SIG_UNBLOCK, &caught, NULL);
}
