/* SPDX-License-Identifier: Apache-2.0
 *
 * Signal handling of a rank that trains: SIGUSR2, SIGTERM, SIGINT and SIGHUP ask it to stop after a
 * checkpoint, SIGUSR1 asks for one. What has been asked is flags, which the training loop reads
 * after each list. The handlers run on a thread of their own, since no handler may run on a thread
 * that computes (base/thread.h). The end of the last training that catches signals clears the flags
 * and gives the process its own handlers back.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "app/train/train.h"
#include "app/train/trainer.h"
#include "base/thread.h"

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

/* ---- the handlers and their thread ---- */

static const int signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};
enum { SIGNALS = sizeof signals / sizeof *signals };

static struct {
    pthread_mutex_t lock; /* of the fields below */
    int users;            /* trainings that catch signals */
    pthread_t thread;     /* while there are users */
    sem_t ends;
    struct sigaction before[SIGNALS], before_pipe; /* the process's own handlers */
} catcher = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void install_handlers(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &ignored, &catcher.before_pipe); /* the log's reader may end */
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction *before = &catcher.before[i];
        sigaction(signals[i], NULL, before);
        /* an ignored signal (nohup, a shell's &) stays ignored */
        if (before->sa_handler != SIG_IGN) sigaction(signals[i], &action, NULL);
    }
}

/* Others that the process has installed since then stay. */
static void restore_handlers(void)
{
    struct sigaction now;
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == on_signal)
            sigaction(signals[i], &catcher.before[i], NULL);
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
        sigaction(SIGPIPE, &catcher.before_pipe, NULL);
}

static void *take_signals(void *unused)
{
    sigset_t caught;
    sigemptyset(&caught);
    for (int i = 0; i < SIGNALS; i++) sigaddset(&caught, signals[i]);
    pthread_setname_np(pthread_self(), "echelon-signals");
    pthread_sigmask(SIG_UNBLOCK, &caught, NULL);
    while (sem_wait(&catcher.ends) != 0) continue; /* a handler has run */
    return unused;
}

/* Installs handlers and starts their thread for the first user. The lock is held. */
static ech_status add_user(void)
{
    if (catcher.users == 0) {
        sem_init(&catcher.ends, 0, 0);
        install_handlers(); /* first: the thread gets at once what has come already */
        if (ech_thread_start(&catcher.thread, take_signals, NULL) != 0) {
            restore_handlers();
            sem_destroy(&catcher.ends);
            ECH_FAIL(ECH_EIO, "cannot start another thread for signals: " ECH_NO_THREAD);
        }
    }
    catcher.users++;
    return ECH_OK;
}

ech_status ech_train_catch_signals(void)
{
    pthread_mutex_lock(&catcher.lock);
    ech_status status = add_user();
    pthread_mutex_unlock(&catcher.lock);
    return status;
}

void ech_train_leave_signals(void)
{
    pthread_mutex_lock(&catcher.lock);
    if (--catcher.users == 0) {
        sem_post(&catcher.ends);
        pthread_join(catcher.thread, NULL);
        sem_destroy(&catcher.ends);
        restore_handlers();
        asked_to_stop = asked_to_save = asked_by_hand = false;
    }
    pthread_mutex_unlock(&catcher.lock);
}
