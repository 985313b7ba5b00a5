/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon launch: starts a program as the ranks of one machine, as torchrun would, for
 * `parallel.comm: ucx`. `--ranks N` starts ranks by it, and the job monitor treats it as it does
 * mpirun (program/job/supervise.h).
 */
#include <argp.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/command.h"
#include "program/options.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/board.h"

static const char about[] = "Starts PROGRAM as N ranks of this machine, without MPI: each has "
                            "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, "
                            "MASTER_PORT and ECHELON_SECRET in its environment, by which "
                            "parallel.comm = ucx meets. Ends when all have ended; when "
                            "one fails, the others are killed after 3 seconds. SIGUSR1 and SIGUSR2 "
                            "go to rank 0; SIGTERM kills all ranks."
                            "\vFor example:\n\n"
                            "  echelon launch 4 echelon train run.yaml parallel.comm=ucx";

enum { MOST_RANKS = 4096 };
/* Seconds that ranks have to end by themselves after one has failed. */
static const double grace_seconds = 3;

typedef struct launch_arguments {
    const char *ranks;
} launch_arguments;

static const ech_word words[] = {{offsetof(launch_arguments, ranks), "how many ranks?", false}};

typedef struct ranks {
    ECH_LIST(pid_t) process; /* 0: it has ended */
    int left, code;          /* code: of the first that failed, else of one that has stopped */
    ech_board *board;        /* the job monitor's; NULL: there is none */
    double kill_at;          /* seconds on the clock; 0: none has failed */
    bool kills;              /* this process has killed ranks */
} ranks;

/* One that is free now, and held by *hold, bound: nobody who asks for any port gets it, and rank 0
 * may listen at it, since both say SO_REUSEADDR. */
static ech_status find_port(int *out, int *hold)
{
    const int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                 bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
                 getsockname(fd, (struct sockaddr *)&at, &n) == 0;
    int error = errno;
    if (!found && fd >= 0) close(fd);
    if (!found)
        ECH_FAIL(ECH_EIO, "cannot find a free port for the ranks to connect: %s",
                 ech_system_error(error));
    *hold = fd;
    *out = ntohs(at.sin_port);
    return ECH_OK;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* What all ranks have in common. *hold: as find_port's. */
static ech_status set_variables(int n, int *hold)
{
    int port;
    unsigned char drawn[16];
    char secret[2 * sizeof drawn + 1];
    ECH_TRY(find_port(&port, hold));
    if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        ECH_FAIL(ECH_EIO,
                 "cannot get random numbers (getrandom): %s; allow this call in the container",
                 strerror(errno));
    for (size_t i = 0; i < sizeof drawn; i++)
        snprintf(secret + 2 * i, 3, "%02x", (unsigned)drawn[i]);
    setenv("ECHELON_SECRET", secret, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    set_number("WORLD_SIZE", n);
    set_number("LOCAL_WORLD_SIZE", n);
    return ECH_OK;
}

/* In the child. It does not outlive this process. */
static void become(char **program, int rank, pid_t parent, const sigset_t *signals)
{
    enum { NOT_STARTED = 127 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(NOT_STARTED);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
    execvp(program[0], program);
    ech_fail_at(__FILE__, __LINE__, ECH_EIO, "%s: cannot be started: %s", program[0],
                ech_system_error(errno));
    _exit(NOT_STARTED);
}

static void kill_all(const ranks *of)
{
    for (size_t i = 0; i < of->process.n; i++)
        if (of->process.at[i]) kill(of->process.at[i], SIGKILL);
}

static ech_status start_all(ranks *of, int n, char **program, const sigset_t *signals)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pid_t child = fork();
        if (child == 0) become(program, r, parent, signals);
        if (child < 0) {
            int error = errno;
            kill_all(of);
            ECH_FAIL(ECH_EIO, "cannot start another process: %s", ech_system_error(error));
        }
        ECH_PUSH(of->process, child);
        of->left++;
    }
    return ECH_OK;
}

/* A rank has died: notes it on the board, and the signal, if that ends the job. Whether the others
 * go on without it. */
static bool lose(const ranks *of, pid_t process, int signal)
{
    ech_board *board = of->board;
    bool goes_on = false;
    for (int i = 0; board && i < board->slots; i++)
        if (atomic_load(&board->slot[i].process) == process) goes_on = ech_board_lose(board, i);
    bool begins = board && atomic_load(&board->progress) == 0; /* ranks may depend on it, though */
    if (board && (!goes_on || begins)) ech_board_note_signal(board, signal);
    return goes_on;
}

static void note_end(ranks *of, pid_t process, int status)
{
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    for (size_t i = 0; i < of->process.n; i++) {
        if (of->process.at[i] != process) continue;
        of->process.at[i] = 0;
        of->left--;
    }
    bool has_failed = code != ECH_EXIT_DONE && code != ECH_EXIT_STOPPED;
    if (of->kills || code == ECH_EXIT_DONE) return;
    if (WIFSIGNALED(status) && lose(of, process, WTERMSIG(status))) return;
    if (of->kill_at > 0) return;
    of->code = code;
    if (has_failed) of->kill_at = ech_clock_now() + grace_seconds;
}

static void take_signal(ranks *of, int signal)
{
    if (signal == SIGTERM || signal == SIGHUP) {
        of->kill_at = ech_clock_now();
        of->kills = true;
        of->code = 128 + signal;
    }
    bool passes = signal == SIGUSR1 || signal == SIGUSR2;
    if (passes && of->process.n && of->process.at[0]) kill(of->process.at[0], signal);
}

/* Until all have ended. The terminal's Ctrl-C goes to the ranks, too. */
static void watch(ranks *of, int fd)
{
    while (of->left > 0) {
        int status;
        struct signalfd_siginfo got;
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        bool waits = of->kill_at > 0;
        poll(&polled, 1, waits ? ech_clock_ms_until(of->kill_at) : -1);
        if (read(fd, &got, sizeof got) == (ssize_t)sizeof got) take_signal(of, (int)got.ssi_signo);
        for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) note_end(of, ended, status);
        if (of->kill_at <= 0 || ech_clock_now() < of->kill_at) continue;
        of->kills = true;
        kill_all(of);
        of->kill_at = ech_clock_now() + grace_seconds; /* one in an uninterruptible call */
    }
}

static ech_status launch(int n, char **program, int *code)
{
    ranks of = {.code = ECH_EXIT_DONE};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    const char *board = getenv(ECH_BOARD_VARIABLE);
    if (board) ECH_TRY(ech_board_file_open(board, n, &of.board));
    int hold;
    ECH_TRY(set_variables(n, &hold));
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) ECH_FAIL(ECH_EIO, "cannot set up signal handling: %s", ech_system_error(errno));
    ech_status status = start_all(&of, n, program, &signals);
    if (status == ECH_OK) watch(&of, fd);
    close(fd);
    close(hold);
    free(of.process.at);
    ech_board_file_unmap(of.board);
    *code = of.code;
    return status;
}

/* What follows N is the program's, options too. */
ech_status ech_command_launch(int argc, char **argv, int *code)
{
    const ech_command_line line = {
        .usage = "N PROGRAM ...", .about = about, .word = words, .words = 1};
    launch_arguments in = {0};
    int64_t n;
    ech_command_line_parse(&line, argc < 2 ? argc : 2, argv, &in);
    if (!ech_text_to_int(in.ranks, &n) || n < 1 || n > MOST_RANKS)
        ECH_FAIL(ECH_EUSAGE, "%s ranks: must be a number from 1 to %d", in.ranks, MOST_RANKS);
    if (argc < 3)
        ECH_FAIL(ECH_EUSAGE,
                 "which program? For example: echelon launch %s echelon train run.yaml "
                 "parallel.comm=ucx",
                 in.ranks);
    return launch((int)n, argv + 2, code);
}
