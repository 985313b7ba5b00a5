/* SPDX-License-Identifier: Apache-2.0
 *
 * One child, and the signals between it and the world.
 */
#include "app/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/descendant.h"
#include "base/log.h"

enum { NOT_STARTED = 127 };

/* What is waited for. What this process was told to ignore (nohup, a shell's &) stays ignored. */
static void choose_signals(sigset_t *out)
{
    static const int signals[] = {SIGCHLD, SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};
    sigemptyset(out);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now;
        sigaction(signals[i], NULL, &now);
        if (signals[i] == SIGCHLD || now.sa_handler != SIG_IGN) sigaddset(out, signals[i]);
    }
}

/* In the child. A group of its own: the terminal's Ctrl-C goes to the parent alone. */
static void become(char *const *words, pid_t parent, const sigset_t *mask)
{
    int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(NOT_STARTED);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(words[0], words);
    ech_fail_at(
        __FILE__, __LINE__, ECH_EIO,
        "%s: cannot be started: %s; install this MPI's launcher, or use parallel.comm=local",
        words[0], strerror(errno));
    _exit(NOT_STARTED);
}

/* To a rank, or to a launcher that has no rank here. */
static void hand_on(pid_t launcher, int signal)
{
    pid_t rank = ech_descendant_find(launcher);
    kill(rank ? rank : launcher, signal);
}

static void stop(pid_t child, int stop_signal, int *stops)
{
    if (*stops == 0) {
        ech_log_info("stopping; once more to stop without saving");
        hand_on(child, stop_signal);
    } else {
        ech_log_info("stopping now");
        kill(child, *stops == 1 ? SIGTERM : SIGKILL);
    }
    (*stops)++;
}

/* Until the child has ended. */
static int watch(pid_t child, const sigset_t *signals, int stop_signal)
{
    int stops = 0, status, got;
    for (;;) {
        if (sigwait(signals, &got) != 0) continue;
        if (got == SIGCHLD) {
            if (waitpid(child, &status, WNOHANG) != child) continue;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (got == SIGUSR1 || got == SIGUSR2)
            hand_on(child, got);
        else
            stop(child, stop_signal, &stops);
    }
}

ech_status ech_supervise(char *const *words, int stop_signal, int *code)
{
    sigset_t signals, before;
    pid_t parent = getpid();
    choose_signals(&signals);
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t child = fork();
    if (child == 0) become(words, parent, &before);
    if (child < 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        ECH_FAIL(ECH_EIO, "the system starts no further process for %s: %s", words[0],
                 strerror(errno));
    }
    *code = watch(child, &signals, stop_signal);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ECH_OK;
}
