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
#include <sys/signalfd.h>
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

/* The next signal; 0: the child hangs. */
static int next_signal(int fd, ech_witness *witness)
{
    for (;;) {
        struct signalfd_siginfo got;
        if (!ech_witness_wait(witness, fd)) return 0;
        if (read(fd, &got, sizeof got) == (ssize_t)sizeof got) return (int)got.ssi_signo;
    }
}

static bool has_ended(pid_t child, ech_ending *ending)
{
    int status;
    if (waitpid(child, &status, WNOHANG) != child) return false;
    ending->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ending->code = ending->signal ? 128 + ending->signal : WEXITSTATUS(status);
    return true;
}

/* Until the child has ended. */
static void watch(pid_t child, int fd, int stop_signal, ech_witness *witness, ech_ending *ending)
{
    *ending = (ech_ending){0};
    for (;;) {
        int got = next_signal(fd, witness);
        if (got == SIGCHLD) {
            if (has_ended(child, ending)) return;
        } else if (got == SIGUSR1 || got == SIGUSR2) {
            hand_on(child, got);
        } else if (got == 0) {
            kill(child, SIGKILL);
        } else {
            stop(child, stop_signal, &ending->stops);
        }
    }
}

ech_status ech_supervise(char *const *words, int stop_signal, ech_witness *witness,
                         ech_ending *ending)
{
    sigset_t signals, before;
    pid_t parent = getpid();
    /* That a launcher is stopped or goes on is nobody's end. */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP}, NULL);
    choose_signals(&signals);
    fflush(NULL);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) ECH_FAIL(ECH_EIO, "the system shows no signals: %s", strerror(errno));
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t child = fork();
    if (child == 0) become(words, parent, &before);
    if (child < 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(fd);
        ECH_FAIL(ECH_EIO, "the system starts no further process for %s: %s", words[0],
                 strerror(errno));
    }
    watch(child, fd, stop_signal, witness, ending);
    close(fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ECH_OK;
}
