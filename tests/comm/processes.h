/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a function as N ranks, each a process that torchrun's variables describe: for tests of the
 * backends `tcp` and `ucx`; and what both are asked.
 */
#ifndef ECH_TESTS_COMM_PROCESSES_H
#define ECH_TESTS_COMM_PROCESSES_H

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/backend.h"
#include "comm/checks_halves.h"
#include "comm/checks_threads.h"
#include "unit.h"

enum { MOST = 8, FAILED = 1, SAID = 3 };

/* A job of n processes. Each runs `body` as a rank; its exit code is 0, or FAILED, or what the body
 * exits with. */
typedef struct job {
    const ech_comm_backend *backend;
    int ranks;
    double deadline;
    ranks_body body;
    void *context;
    const char *ranks_text[MOST]; /* RANK of each; NULL: its number */
    const char *size_text[MOST];  /* WORLD_SIZE of each; NULL: the number of ranks */
    int machines;                 /* that the ranks take themselves to be on; 0: this one */
    bool outlives;                /* a rank's death ends only messages with this rank */
    const char *secret;           /* all but rank 0's; NULL: none */
    const char *setting[2];       /* a further variable and its value; NULL: none */
    bool may_not_read;            /* the ranks' system refuses process_vm_readv */
} job;

static inline int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static inline void set_variables(const job *j, int rank, int port)
{
    char text[32];
    snprintf(text, sizeof text, "%d", rank);
    clearenv();
    setenv("RANK", j->ranks_text[rank] ? j->ranks_text[rank] : text, 1);
    snprintf(text, sizeof text, "%d", j->ranks);
    setenv("WORLD_SIZE", j->size_text[rank] ? j->size_text[rank] : text, 1);
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "localhost", 1);
    if (j->secret && rank > 0) setenv("ECHELON_SECRET", j->secret, 1);
    if (j->setting[0]) setenv(j->setting[0], j->setting[1], 1);
}

/* As a container's filter does. */
static inline void forbid_reads(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(SAID);
}

static inline int run_child(const job *j)
{
    ech_comm *comm;
    if (j->may_not_read) forbid_reads();
    ech_tcp_pretend_machines(j->machines);
    ech_comm_outlive(j->outlives);
    if (ech_comm_open(j->backend, 0, j->deadline, &comm) != ECH_OK) return FAILED;
    ech_log_set_rank(ech_comm_rank(comm));
    ech_status st = j->body(comm, j->context);
    if (st != ECH_OK) ech_comm_abort(comm, st);
    ech_comm_close(comm);
    return st == ECH_OK ? 0 : FAILED;
}

/* A job under way. */
typedef struct running {
    pid_t child[MOST];
    FILE *file; /* what they log */
    int port;
} running;

/* Starts a process as rank r. */
static inline void begin_rank(const job *j, running *of, int r)
{
    fflush(NULL);
    of->child[r] = fork();
    assert_true(of->child[r] >= 0);
    if (of->child[r] > 0) return;
    set_variables(j, r, of->port);
    dup2(fileno(of->file), STDERR_FILENO);
    ech_log_set_quiet(false);
    _exit(run_child(j));
}

static inline void begin(const job *j, running *of)
{
    of->port = free_port();
    of->file = tmpfile();
    assert_non_null(of->file);
    for (int r = 0; r < j->ranks; r++) begin_rank(j, of, r);
}

/* codes[r]: how rank r has ended; of a signal its number negated. */
static inline void await(const running *of, int r, int *codes)
{
    int status;
    assert_int_equal(waitpid(of->child[r], &status, 0), of->child[r]);
    codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What they have logged is in *log, which the caller frees. */
static inline void finish(const running *of, char **log)
{
    size_t n = (size_t)lseek(fileno(of->file), 0, SEEK_END);
    *log = calloc(n + 1, 1);
    assert_int_equal(pread(fileno(of->file), *log, n, 0), n);
    fclose(of->file);
}

static inline void run(const job *j, int *codes, char **log)
{
    running of;
    begin(j, &of);
    for (int r = 0; r < j->ranks; r++) await(&of, r, codes);
    finish(&of, log);
}

static inline void expect_success_of(const job *j)
{
    int codes[MOST];
    char *log;
    run(j, codes, &log);
    for (int r = 0; r < j->ranks; r++)
        if (codes[r] != 0) fail_msg("rank %d of %d: %d\n%s", r, j->ranks, codes[r], log);
    free(log);
}

static inline void expect_success(const ech_comm_backend *backend, int ranks, ranks_body body)
{
    expect_success_of(&(job){.backend = backend, .ranks = ranks, .deadline = 60, .body = body});
}

static inline void expect_in(const char *log, const char *words)
{
    if (!strstr(log, words)) fail_msg("not said: %s\n%s", words, log);
}

/* Of UCX, in /dev/shm. */
static inline int count_segments(void)
{
    int n = 0;
    DIR *folder = opendir("/dev/shm");
    for (const struct dirent *e; folder && (e = readdir(folder));)
        n += !strncmp(e->d_name, "ucx", 3);
    if (folder) closedir(folder);
    return n;
}

/* Those that stay: each has a name for a moment while it is made, those of tests beside this one,
 * too. */
static inline void expect_segments(int most)
{
    int n = count_segments();
    for (int i = 0; n > most && i < 30000; i++) {
        usleep(1000);
        n = count_segments();
    }
    assert_true(n <= most);
}

/* ---- bodies ---- */

static inline ech_status check_collectives(ech_comm *comm, void *context)
{
    const int *machines = context; /* NULL: one */
    int near = ech_comm_size(comm) / (machines ? *machines : 1);
    RANKS_CHECK(ech_comm_local_size(comm) == near);
    RANKS_CHECK(ech_comm_local_rank(comm) == ech_comm_rank(comm) % near);
    for (ech_reduction i = 0; i < ECH_REDUCTIONS; i++) {
        if (i == ECH_REDUCTION_LIBRARY) continue;
        ECH_TRY(checks_reduction(comm, i));
        ECH_TRY(checks_sums_in_a_row(comm, i));
        if (ech_reduction_has_halves(i)) ECH_TRY(checks_halves(comm, i));
    }
    ECH_TRY(checks_long_reduction(comm, ECH_REDUCTION_DIRECT));
    ECH_TRY(checks_messages(comm));
    ECH_TRY(checks_fold(comm));
    ECH_TRY(checks_gather(comm));
    ECH_TRY(checks_broadcast(comm));
    return checks_mixed_groups(comm);
}

static inline ech_status check_threads(ech_comm *comm, void *context)
{
    (void)context;
    return checks_threads(comm);
}

/* Messages that come long before their receives, in another order. */
static inline ech_status cross(ech_comm *comm, void *context)
{
    (void)context;
    enum { N = 20, LONG = 300000 };
    int peer = (ech_comm_rank(comm) + 1) % 2;
    static char to[N][LONG], from[N][LONG];
    ech_request sent[N], came[N];
    for (int i = 0; i < N; i++) {
        memset(to[i], 10 * ech_comm_rank(comm) + i, LONG);
        ECH_TRY(ech_comm_send_start(comm, peer, i % 3, to[i], (size_t)(LONG - i), &sent[i]));
    }
    for (int tag = 2; tag >= 0; tag--)
        for (int i = tag; i < N; i += 3) {
            ECH_TRY(ech_comm_receive_start(comm, peer, tag, from[i], (size_t)(LONG - i), &came[i]));
            if (i % 2) ECH_TRY(ech_comm_wait(comm, &came[i], 1));
        }
    ECH_TRY(ech_comm_wait(comm, came, N));
    ECH_TRY(ech_comm_wait(comm, sent, N));
    for (int i = 0; i < N; i++)
        for (int b = 0; b < LONG - i; b++) RANKS_CHECK(from[i][b] == 10 * peer + i);
    return ECH_OK;
}

static inline ech_status wait_for_one(ech_comm *comm)
{
    int in;
    ech_request request;
    ECH_TRY(ech_comm_receive_start(comm, 1, 9, &in, sizeof in, &request));
    return ech_comm_wait(comm, &request, 1);
}

static inline ech_status lose_one(ech_comm *comm, void *context)
{
    const int *how = context;
    ech_comm_set_position(comm, 3, ech_comm_rank(comm) == 1 ? "lost in block 5" : "receive");
    ECH_TRY(checks_meet(comm));
    if (*how == SIGSTOP) comm->deadline = 1;
    if (ech_comm_rank(comm) != 1) return wait_for_one(comm);
    if (*how == 0) return ECH_EIO;
    if (*how == SIGKILL) raise(SIGKILL);
    for (int i = 0; i < 30000 && ech_comm_check(comm) == ECH_OK; i++)
        usleep(1000); /* past the others' deadline */
    return ECH_EIO;
}

static inline ech_status misfit(ech_comm *comm, void *context)
{
    (void)context;
    char bytes[12] = {0};
    ech_request request;
    if (ech_comm_rank(comm) == 0) {
        ECH_TRY(ech_comm_send_start(comm, 1, 4, bytes, 8, &request));
        return ech_comm_wait(comm, &request, 1);
    }
    ECH_TRY(ech_comm_receive_start(comm, 0, 4, bytes, 12, &request));
    return ech_comm_wait(comm, &request, 1);
}

#endif
