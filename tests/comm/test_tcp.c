/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `tcp`: processes that meet by torchrun's variables, in place of MPI under `nccl`. What holds for collectives over
 * threads and MPI holds over it, and jobs end as theirs do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/backend.h"
#include "comm/checks_halves.h"
#include "comm/checks_threads.h"
#include "comm/launch.h"

enum { MOST = 5, FAILED = 1, SAID = 3 };

/* A job of n processes. Each runs `body` as a rank; its exit code is 0, or FAILED, or what the body exits with. */
typedef struct job {
    const ech_comm_backend *backend;
    int ranks;
    double deadline;
    ranks_body body;
    void *context;
    const char *ranks_text[MOST]; /* RANK of each; NULL: its number */
} job;

static int free_port(void)
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

static void set_variables(const job *j, int rank, int port)
{
    char text[32];
    snprintf(text, sizeof text, "%d", rank);
    clearenv();
    setenv("RANK", j->ranks_text[rank] ? j->ranks_text[rank] : text, 1);
    snprintf(text, sizeof text, "%d", j->ranks);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "localhost", 1);
}

static int run_child(const job *j)
{
    ech_comm *comm;
    if (ech_comm_open(j->backend, 0, j->deadline, &comm) != ECH_OK) return FAILED;
    ech_log_set_rank(ech_comm_rank(comm));
    ech_status st = j->body(comm, j->context);
    if (st != ECH_OK) ech_comm_abort(comm);
    ech_comm_close(comm);
    return st == ECH_OK ? 0 : FAILED;
}

/* codes[r]: how rank r has ended; of a signal its number negated. What they log is in *log, which the caller frees. */
static void run(const job *j, int *codes, char **log)
{
    int port = free_port();
    pid_t child[MOST];
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(NULL);
    for (int r = 0; r < j->ranks; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] > 0) continue;
        set_variables(j, r, port);
        dup2(fileno(file), STDERR_FILENO);
        _exit(run_child(j));
    }
    for (int r = 0; r < j->ranks; r++) {
        int status;
        assert_int_equal(waitpid(child[r], &status, 0), child[r]);
        codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    size_t n = (size_t)lseek(fileno(file), 0, SEEK_END);
    *log = calloc(n + 1, 1);
    assert_int_equal(pread(fileno(file), *log, n, 0), n);
    fclose(file);
}

static void expect_success(const ech_comm_backend *backend, int ranks, ranks_body body)
{
    int codes[MOST];
    char *log;
    run(&(job){.backend = backend, .ranks = ranks, .deadline = 60, .body = body}, codes, &log);
    for (int r = 0; r < ranks; r++)
        if (codes[r] != 0) fail_msg("rank %d of %d: %d\n%s", r, ranks, codes[r], log);
    free(log);
}

static void expect_in(const char *log, const char *words)
{
    if (!strstr(log, words)) fail_msg("not said: %s\n%s", words, log);
}

/* ---- collectives ---- */

static ech_status check_collectives(ech_comm *comm, void *context)
{
    (void)context;
    RANKS_CHECK(ech_comm_local_size(comm) == ech_comm_size(comm));
    RANKS_CHECK(ech_comm_local_rank(comm) == ech_comm_rank(comm));
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

static ech_status check_threads(ech_comm *comm, void *context)
{
    (void)context;
    return checks_threads(comm);
}

static void test_collectives(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n += n - 1) expect_success(&ech_comm_tcp, n, check_collectives);
    expect_success(&ech_comm_tcp, 2, check_threads);
}

/* Messages that come long before their receives, in another order. */
static ech_status cross(ech_comm *comm, void *context)
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

static void test_early_messages(void **state)
{
    (void)state;
    expect_success(&ech_comm_tcp, 2, cross);
}

static ech_status fold_by_nccl(ech_comm *comm, void *context)
{
    (void)context;
    ech_group *group;
    double sum = ech_comm_rank(comm) + 1;
    ECH_TRY(checks_world(comm, &group));
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, &sum, 1));
    ech_group_destroy(group);
    RANKS_CHECK(strcmp(ech_comm_name(comm), "nccl") == 0 && fabs(sum - 6) == 0);
    return ECH_OK;
}

static void test_control_of_nccl(void **state)
{
    (void)state;
    expect_success(ech_comm_find("nccl"), 3, fold_by_nccl);
}

/* ---- ends ---- */

static ech_status wait_for_one(ech_comm *comm)
{
    int in;
    ech_request request;
    ECH_TRY(ech_comm_receive_start(comm, 1, 9, &in, sizeof in, &request));
    return ech_comm_wait(comm, &request, 1);
}

static ech_status lose_one(ech_comm *comm, void *context)
{
    const int *how = context;
    ech_comm_set_position(comm, 3, ech_comm_rank(comm) == 1 ? "lost in block 5" : "receive");
    if (ech_comm_rank(comm) != 1) return wait_for_one(comm);
    if (*how == 0) return ECH_EIO;
    if (*how == SIGKILL) raise(SIGKILL);
    usleep(3000000); /* past the others' deadline */
    return ECH_EIO;
}

static void expect_loss(int how, double deadline, const char *words)
{
    int codes[MOST];
    char *log;
    run(&(job){.backend = &ech_comm_tcp,
               .ranks = 3,
               .deadline = deadline,
               .body = lose_one,
               .context = &how},
        codes, &log);
    for (int r = 0; r < 3; r++)
        assert_int_equal(codes[r], r == 1 && how == SIGKILL ? -how : FAILED);
    expect_in(log, words);
    free(log);
}

static void test_ends(void **state)
{
    (void)state;
    expect_loss(0, 60, "");
    expect_loss(SIGSTOP, 1, "held up by rank 1: step 3, lost in block 5");
    expect_loss(SIGKILL, 60, "rank 1 ");
}

static ech_status misfit(ech_comm *comm, void *context)
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

static void test_misfit(void **state)
{
    (void)state;
    int codes[MOST];
    char *log;
    run(&(job){.backend = &ech_comm_tcp, .ranks = 2, .deadline = 60, .body = misfit}, codes, &log);
    assert_int_equal(codes[1], FAILED);
    expect_in(log, "rank 0 sends 8 bytes to rank 1 with tag 4, but the receive is for 12 bytes");
    free(log);
}

/* ---- variables ---- */

static void test_wrong_variables(void **state)
{
    (void)state;
    int codes[MOST];
    char *log;
    job twice = {.backend = &ech_comm_tcp,
                 .ranks = 3,
                 .deadline = 60,
                 .body = check_collectives,
                 .ranks_text = {NULL, NULL, "1"}};
    run(&twice, codes, &log);
    for (int r = 0; r < 3; r++) assert_int_equal(codes[r], FAILED);
    expect_in(log, "a process says that it is rank 1 of 3");
    free(log);
    job word = {.backend = &ech_comm_tcp, .ranks = 1, .deadline = 60, .ranks_text = {"first"}};
    run(&word, codes, &log);
    expect_in(log, "RANK is \"first\"");
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),     cmocka_unit_test(test_early_messages),
        cmocka_unit_test(test_control_of_nccl), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_misfit),          cmocka_unit_test(test_wrong_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
