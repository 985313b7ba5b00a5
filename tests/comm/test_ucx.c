/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `ucx` passes the tests of collectives over threads, MPI and TCP, in memory and over
 * the network, and its jobs end as theirs do. test_ucx_meeting.c tests how ranks meet, and
 * test_ucx_kills.c how messages outlive a rank's death.
 */

#include <sys/mman.h>

#include "comm/processes.h"
#include "comm/ucx_or_skip.h"
#include "unit.h"

/* Under the thread sanitizer those of two threads a rank are enough. */
#ifdef __SANITIZE_THREAD__
static const bool of_one_thread = false;
#else
static const bool of_one_thread = true;
#endif

TEST(test_collectives)
{
    if (of_one_thread) expect_success(ucx, 3, check_collectives);
    expect_success(ucx, 2, check_threads);
}

static void expect_over_machines(int ranks, int machines, ranks_body body)
{
    expect_success_of(&(job){.backend = ucx,
                             .ranks = ranks,
                             .deadline = 60,
                             .body = body,
                             .context = &machines,
                             .machines = machines});
}

TEST(test_machines)
{
    if (of_one_thread) expect_over_machines(4, 2, check_collectives);
    expect_over_machines(2, 2, check_threads);
    expect_over_machines(2, 2, cross);
}

TEST(test_early_messages)
{
    expect_success(ucx, 2, cross);
}

/* ---- large messages, which are read out of the sender's memory ---- */

/* More than one call reads; both ways at once, and two with one tag. */
enum { LARGE = (20 << 20) + 12345 };

static unsigned char find_byte(int sender, int message, size_t at)
{
    return (unsigned char)((size_t)(sender + 3 * message) * 41 + at * 7 + (at >> 12));
}

static ech_status send_large(ech_comm *comm, void *context)
{
    (void)context;
    int own = ech_comm_rank(comm), peer = 1 - own;
    unsigned char *out[2], *in[2];
    ech_request sent[2], came[2];
    for (int i = 0; i < 2; i++) {
        out[i] = malloc(LARGE);
        in[i] = malloc(LARGE);
        for (size_t b = 0; b < LARGE; b++) out[i][b] = find_byte(own, i, b);
        ECH_TRY(ech_comm_send_start(comm, peer, 5, out[i], LARGE, &sent[i]));
    }
    for (int i = 0; i < 2; i++)
        ECH_TRY(ech_comm_receive_start(comm, peer, 5, in[i], LARGE, &came[i]));
    /* The second first: all that has come moves, whichever is waited for. */
    ECH_TRY(ech_comm_wait(comm, &came[1], 1));
    ECH_TRY(ech_comm_wait(comm, sent, 2));
    ECH_TRY(ech_comm_wait(comm, came, 1));
    for (int i = 0; i < 2; i++) {
        for (size_t b = 0; b < LARGE; b++) RANKS_CHECK(in[i][b] == find_byte(peer, i, b));
        free(in[i]);
        free(out[i]);
    }
    return ECH_OK;
}

TEST(test_large)
{
    int codes[MOST];
    char *log;
    job j = {.backend = ucx, .ranks = 2, .deadline = 60, .body = send_large};
    run(&j, codes, &log);
    if (codes[0] || codes[1] || *log) fail_msg("%d and %d: %s", codes[0], codes[1], log);
    free(log);
    j.may_not_read = true;
    run(&j, codes, &log);
    if (codes[0] || codes[1]) fail_msg("%d and %d: %s", codes[0], codes[1], log);
    const char *words = "rank 0 may not read the memory of rank 1 on the same machine";
    expect_in(log, words);
    assert_null(strstr(strstr(log, words) + strlen(words), "may not read")); /* said once */
    free(log);
}

typedef struct late {
    pid_t reader;
    atomic_bool has_tried;
} late;

static ech_status test_until_error(ech_comm *comm, ech_request *request, late *of)
{
    ech_status st = ECH_OK;
    while (st == ECH_OK && !request->done) {
        st = ucx->test(comm, request);
        usleep(1000);
    }
    if (of) atomic_store(&of->has_tried, true);
    RANKS_CHECK(st == ECH_ECOMM);
    return ECH_OK;
}

/* Rank 1 stops before it reads what rank 0 offers, and wakes when rank 0 has given it up and has
 * other data there. */
static ech_status read_late(ech_comm *comm, void *context)
{
    late *of = context;
    enum { BYTES = 1 << 20 };
    static char data[BYTES];
    int own = ech_comm_rank(comm);
    ech_request request = {
        .data = data, .peer = 1 - own, .tag = 2, .bytes = BYTES, .sends = own == 0};
    if (own == 1) {
        of->reader = getpid();
        ECH_TRY(ucx->start(comm, &request, NULL, data));
        raise(SIGSTOP);
        return test_until_error(comm, &request, of);
    }
    memset(data, 1, BYTES);
    ECH_TRY(ucx->start(comm, &request, data, NULL));
    ECH_TRY(test_until_error(comm, &request, NULL));
    memset(data, 2, BYTES);
    while (!atomic_load(&of->has_tried)) {
        kill(of->reader, SIGCONT);
        usleep(1000);
    }
    return ECH_OK;
}

TEST(test_late_reader)
{
    late *of = mmap(NULL, sizeof *of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(of != MAP_FAILED);
    expect_success_of(&(job){.backend = ucx,
                             .ranks = 2,
                             .deadline = 0.5,
                             .body = read_late,
                             .context = of,
                             .outlives = true});
    munmap(of, sizeof *of);
}

static ech_status do_nothing(ech_comm *comm, void *context)
{
    (void)context;
    RANKS_CHECK(strcmp(ech_comm_name(comm), "ucx") == 0);
    return ECH_OK;
}

TEST(test_alone)
{
    expect_success(ucx, 1, do_nothing);
}

/* ---- ends ---- */

static void expect_loss(int machines, int how, double deadline, const char *words)
{
    int codes[MOST];
    char *log;
    run(&(job){.backend = ucx,
               .ranks = 3,
               .deadline = deadline,
               .body = lose_one,
               .context = &how,
               .machines = machines},
        codes, &log);
    for (int r = 0; r < 3; r++)
        assert_int_equal(codes[r], r == 1 && how == SIGKILL ? -how : FAILED);
    expect_in(log, words);
    free(log);
}

TEST(test_ends)
{
    expect_loss(0, 0, 60, "");
    expect_loss(0, SIGSTOP, 60, "held up by rank 1: step 3, lost in block 5");
    expect_loss(0, SIGKILL, 60, "rank 1 "); /* the guard says it, or a rank */
    expect_loss(3, 0, 60, "");
    expect_loss(3, SIGKILL, 60,
                "rank 1 has failed, died or come to a stop: its messages with rank ");
}

TEST(test_misfit)
{
    int codes[MOST];
    char *log;
    run(&(job){.backend = ucx, .ranks = 2, .deadline = 60, .body = misfit}, codes, &log);
    assert_int_equal(codes[1], FAILED);
    expect_in(log, "rank 0 sends 8 bytes to rank 1 with tag 4, but the receive is for 12 bytes");
    free(log);
}

/* ---- what is refused at the start ---- */

static void expect_refusal(const job *j, const char *words)
{
    int codes[MOST];
    char *log;
    run(j, codes, &log);
    for (int r = 0; r < j->ranks; r++) assert_int_equal(codes[r], FAILED);
    expect_in(log, words);
    free(log);
}

/* Until a rank of the job has logged it. */
static void await_words(const running *of, const char *words)
{
    char log[4096] = "";
    for (int i = 0; !strstr(log, words) && i < 30000; i++) {
        usleep(1000);
        if (pread(fileno(of->file), log, sizeof log - 1, 0) < 0) break;
    }
    expect_in(log, words);
}

/* Rank 0 answers, then warns, and goes on waiting for its own. */
static void expect_other_secret(void)
{
    job j = {.backend = ucx, .ranks = 2, .deadline = 60, .body = do_nothing, .secret = "another"};
    running of;
    int codes[MOST];
    char *log;
    begin(&j, &of);
    await(&of, 1, codes);
    await_words(&of, "says that it is rank 1, but names another secret; it is refused");
    kill(of.child[0], SIGKILL);
    await(&of, 0, codes);
    finish(&of, &log);
    assert_int_equal(codes[0], -SIGKILL);
    assert_int_equal(codes[1], FAILED);
    expect_in(log, "rank 0 refuses this process as rank 1: its secret differs; set ECHELON_SECRET");
    free(log);
}

TEST(test_refusals)
{
    job j = {.backend = ucx, .ranks = 2, .deadline = 60, .body = do_nothing};
    j.size_text[1] = "4";
    expect_refusal(&j, "rank 1 was told that WORLD_SIZE is 4, but here it is 2");
    expect_refusal(&j, "rank 0 refuses this process: WORLD_SIZE is not 4 there");
    j.size_text[1] = NULL;
    j.machines = 2;
    j.setting[0] = "UCX_NET_DEVICES";
    j.setting[1] = "nosuch0";
    expect_refusal(&j,
                   "is an interface up (ip link), and one that UCX_NET_DEVICES and UCX_TLS allow?");
    j.machines = 0;
    j.setting[0] = NULL;
    j.ranks_text[0] = "first";
    j.ranks = 1;
    expect_refusal(&j, "RANK is \"first\"");
    j.ranks_text[0] = NULL;
    j.ranks = 2;
    expect_other_secret();
    j.setting[0] = "UCX_TPC_PORT_RANGE";
    j.setting[1] = "7000-7100";
    expect_refusal(&j, "UCX_TPC_PORT_RANGE: UCX 1.");
    j.setting[0] = "UCX_TCP_PORT_RANGE"; /* one that it knows */
    expect_success_of(&j);
}
