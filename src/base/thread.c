/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting threads on which no signal handler runs.
 */
#include "base/thread.h"

#include <signal.h>

/* Blocking one of these would end the process without the handler that reports it. */
static const int own_signals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

int ech_thread_start(pthread_t *thread, void *(*main)(void *), void *context)
{
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own_signals / sizeof *own_signals; i++)
        sigdelset(&blocked, own_signals[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before); /* the thread inherits it from its beginning */
    int error = pthread_create(thread, NULL, main, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
