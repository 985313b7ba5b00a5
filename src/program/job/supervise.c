/* SPDX-License-Identifier: Apache-2.0
 *
 * A child, and the signals that are forwarded to it.
 */
#include "program/job/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/job/rank_process.h"
#include "base/log.h"

enum { NOT_STARTED = 127, AGAIN_MS = 50 };

/* The signals to wait for. Those that this process ignores (nohup, a shell's &) stay ignored. */
static void choose_signals(sigset_t *out)
{
    static const int signals[] = {SIGCHLD, SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGALRM};
    sigemptyset(out);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now;
        sigaction(signals[i], NULL, &now);
        if (signals[i] == SIGCHLD || now.sa_handler != SIG_IGN) sigaddset(out, signals[i]);
    }
}

/* In the child. A group of its own: the terminal's Ctrl-C goes to the parent alone. No signal that
 * this process waits for is blocked or ignored there. */
static void become(char *const *words, pid_t parent, const sigset_t *signals)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(NOT_STARTED);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(words[0], words);
    ech_fail_at(
        __FILE__, __LINE__, ECH_EIO,
        "%s: cannot be started: %s; install Open MPI's launcher (Debian's openmpi-bin), or set "
        "parallel.comm=local, whose ranks are threads",
        words[0], strerror(errno));
    _exit(NOT_STARTED);
}

/* The child, how it ends, and the signals to be forwarded. */
typedef struct supervision {
    const ech_child *child;
    ech_monitor *monitor;
    pid_t process;
    bool pending[NSIG]; /* signals for a rank that no rank has a handler for yet */
    bool by_hand;       /* Ctrl-C was typed */
    bool killed;        /* the child was, since it hangs */
    ech_job_end end;
} supervision;

/* Forwards `signal` (0: none) and those pending that a rank has handlers for by now; sooner, it
 * would die of them. */
static void forward(supervision *c, int signal)
{
    const struct itimerval soon = {.it_value = {.tv_usec = AGAIN_MS * 1000}};
    bool any = false;
    c->pending[signal] = signal != 0;
    for (int s = 1; s < NSIG; s++) {
        if (!c->pending[s]) continue;
        pid_t rank = c->process;
        if (c->child->is_launcher)
            rank = ech_rank_process_find(c->process, s);
        else if (!ech_rank_process_catches(rank, s))
            rank = 0;
        c->pending[s] = rank == 0 || kill(rank, s) != 0;
        any |= c->pending[s];
    }
    if (any) setitimer(ITIMER_REAL, &soon, NULL);
}

/* One that is left would end this process when it is no longer blocked. */
static void forget_alarm(void)
{
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    while (sigtimedwait(&alarm, NULL, &(struct timespec){0}) > 0) continue;
}

/* Schedulers repeat signals, so only a second Ctrl-C ends the job at once (train.c has the same
 * rule). */
static void stop(supervision *c, int signal)
{
    bool first = c->end.stops == 0, again = signal == SIGINT && c->by_hand;
    c->by_hand |= signal == SIGINT;
    c->end.asked = true;
    ech_monitor_note_stop(c->monitor);
    if (first) c->end.stops = 1;
    if (c->child->stop_signal && !again) {
        if (first)
            ech_log_info("stopping; Ctrl-C %s to stop without saving",
                         signal == SIGINT ? "once more" : "twice");
        forward(c, c->child->stop_signal);
        return;
    }
    ech_log_info("stopping now");
    kill(c->process, c->child->is_launcher && c->end.stops == 1 ? SIGTERM : SIGKILL);
    ech_monitor_note_stop_now(c->monitor);
    c->end.stops++;
}

static bool has_ended(supervision *c)
{
    int status;
    if (waitpid(c->process, &status, WNOHANG) != c->process) return false;
    c->end.child_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    c->end.code = c->end.child_signal ? 128 + c->end.child_signal : WEXITSTATUS(status);
    return true;
}

/* Kills the child; true if that was done before and the child is to be left alone. */
static bool give_up(supervision *c)
{
    if (!c->killed) {
        kill(c->process, SIGKILL);
        c->killed = true;
        return false;
    }
    c->end.child_signal = SIGKILL;
    c->end.code = 128 + SIGKILL;
    return true;
}

/* Until the child has ended. */
static void watch(supervision *c, int fd)
{
    for (;;) {
        struct signalfd_siginfo got;
        bool hangs = !ech_monitor_wait(c->monitor, fd);
        if (hangs && give_up(c)) return;
        if (hangs || read(fd, &got, sizeof got) != (ssize_t)sizeof got) continue;
        int signal = (int)got.ssi_signo;
        if (signal == SIGCHLD) {
            if (has_ended(c)) return;
        } else if (signal == SIGALRM) {
            forward(c, 0);
        } else if (signal == SIGUSR1) {
            forward(c, signal);
        } else if (signal == SIGUSR2) {
            c->end.asked = true;
            ech_monitor_note_stop(c->monitor);
            forward(c, signal);
        } else {
            stop(c, signal);
        }
    }
}

ech_status ech_supervise(const ech_child *child, ech_monitor *monitor, ech_job_end *end)
{
    sigset_t signals, before;
    pid_t parent = getpid();
    supervision c = {
        .child = child, .monitor = monitor, .end = {.is_launcher = child->is_launcher}};
    /* No SIGCHLD when a launcher is stopped or continued. */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP}, NULL);
    signal(SIGPIPE, SIG_IGN); /* the reader of the log may go; the ranks save all the same */
    choose_signals(&signals);
    fflush(NULL);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) ECH_FAIL(ECH_EIO, "cannot set up signal handling: %s", ech_system_error(errno));
    sigprocmask(SIG_BLOCK, &signals, &before);
    c.process = fork();
    int error = errno;
    if (c.process == 0) become(child->words, parent, &signals);
    if (c.process > 0) {
        ech_monitor_follow(monitor, c.process, child->is_launcher);
        watch(&c, fd);
        forget_alarm();
    }
    close(fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (c.process < 0)
        ECH_FAIL(ECH_EIO, "cannot start another process for %s: %s", child->words[0],
                 ech_system_error(error));
    *end = c.end;
    return ECH_OK;
}
