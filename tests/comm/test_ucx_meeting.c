/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of `ucx` meet: strangers, ranks that come twice or once more, a false rank 0, IPv6.
 */

#include <fcntl.h>

#include "comm/processes.h"
#include "comm/tcp_state.h"
#include "comm/ucx_address.h"
#include "comm/ucx_or_skip.h"
#include "unit.h"

static ech_status do_nothing(ech_comm *comm, void *context)
{
    (void)context;
    return checks_meet(comm);
}

/* At 127.0.0.`host`. -1: nobody listens there. */
static int try_connect(int port, int host)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK - 1 + (uint32_t)host)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    close(fd);
    return -1;
}

static int connect_to(int port, const char *text, bool ends)
{
    int fd = -1;
    for (int i = 0; (fd = try_connect(port, 1)) < 0; i++) {
        if (i > 30000) fail_msg("nobody listens at port %d", port);
        usleep(1000);
    }
    assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
    if (ends) close(fd);
    return ends ? -1 : fd;
}

/* Of processes that end their connections, and of any number that have one and say no more, the
 * ranks take no notice. A log has a few lines of them. No other machine reaches ranks that are all
 * on this one. */
TEST(test_strangers)
{
    enum { SILENT = 200 };
    job j = {.backend = ucx, .ranks = 2, .deadline = 60, .body = do_nothing};
    running of = {.port = free_port(), .file = tmpfile()};
    int codes[MOST], silent[SILENT], lines = 0;
    char *log;
    begin_rank(&j, &of, 0);
    connect_to(of.port, "", true);
    assert_int_equal(try_connect(of.port, 2), -1);
    connect_to(of.port, "GET / HTTP/1.1\r\n\r\n", true);
    for (int i = 0; i < SILENT; i++) silent[i] = connect_to(of.port, "", false);
    begin_rank(&j, &of, 1);
    for (int r = 0; r < 2; r++) await(&of, r, codes);
    for (int i = 0; i < SILENT; i++) close(silent[i]);
    finish(&of, &log);
    if (codes[0] || codes[1]) fail_msg("%d and %d: %s", codes[0], codes[1], log);
    expect_in(log, "a process at 127.0.0.1 has connected and does not say which rank it is");
    for (const char *at = log; (at = strchr(at, '\n')); at++) lines++;
    assert_in_range(lines, 1, 10);
    free(log);
}

/* ---- what killed ranks leave ---- */

/* Files of this user in /dev/shm or one of its folders, whose name begins with that. */
static int count_files(const char *folder, const char *name)
{
    int n = 0;
    DIR *listing = opendir(folder);
    for (const struct dirent *e; listing && (e = readdir(listing));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strncmp(e->d_name, name, strlen(name)) == 0) n++;
        if (strncmp(e->d_name, "echelon-", strlen("echelon-")) == 0) n += count_files(path, name);
    }
    if (listing) closedir(listing);
    return n;
}

static ech_status tell_folder(ech_comm *comm, void *context)
{
    const int *pipes = context;
    const char *folder = getenv("UCX_POSIX_DIR");
    char path[512] = "";
    if (folder) snprintf(path, sizeof path, "%s", folder);
    if (ech_comm_rank(comm) == 1) return checks_meet(comm);
    ECH_TRY(checks_meet(comm));
    if (write(pipes[1], path, sizeof path) != sizeof path) return ECH_EIO;
    if (pipes[2]) raise(SIGKILL);
    return ECH_OK;
}

/* UCX's files are in a folder of the rank's own. A file that a killed rank leaves there is removed,
 * with the folder, by whoever starts next; a rank that ends removes both. */
TEST(test_left_memory)
{
    for (int kills = 0; kills < 2; kills++) {
        int pipes[3], codes[MOST];
        char path[512], left[600], *log;
        assert_int_equal(pipe(pipes), 0);
        pipes[2] = kills;
        job j = {
            .backend = ucx, .ranks = 2, .deadline = 60, .body = tell_folder, .context = pipes};
        run(&j, codes, &log);
        free(log);
        assert_int_equal(codes[0], kills ? -SIGKILL : 0);
        assert_int_equal(read(pipes[0], path, sizeof path), sizeof path);
        assert_int_equal(strncmp(path, "/dev/shm/echelon-", strlen("/dev/shm/echelon-")), 0);
        /* A test beside this one may have swept a killed rank's folder already. */
        if (!kills) assert_int_equal(access(path, F_OK), -1);
        snprintf(left, sizeof left, "%s/ucx_shm_posix_left", path);
        if (kills) close(open(left, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        ech_transient_sweep();
        assert_int_equal(access(path, F_OK), -1);
        close(pipes[0]);
        close(pipes[1]);
    }
    assert_int_equal(count_files("/dev/shm", "ucx_shm_posix_left"), 0);
}

/* ---- a false rank 0 ---- */

/* Meets rank 1 as a rank 0 of another machine does, and says n bytes in place of its address. */
static void deceive(int listener, const void *bytes, size_t n)
{
    ech_tcp_card cards[2] = {{.size = 2, .machine = "another"}};
    char verdict = ECH_TCP_WELCOME, more[4096];
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(recv(fd, &cards[1], sizeof cards[1], MSG_WAITALL), sizeof cards[1]);
    assert_int_equal(send(fd, &verdict, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(send(fd, cards, sizeof cards, MSG_NOSIGNAL), sizeof cards);
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
    while (recv(fd, more, sizeof more, 0) > 0) continue;
    close(fd);
}

TEST(test_false_leader)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    /* The seal is wrong; is right, but UCX asserts something else; there is no address. */
    for (int kind = 0; kind < 3; kind++) {
        job j = {.backend = ucx, .ranks = 2, .deadline = 60, .body = do_nothing};
        running of = {.port = ntohs(at.sin_port), .file = tmpfile()};
        int codes[MOST];
        char *log;
        struct {
            ech_ucx_told head;
            unsigned char address[104];
        } told = {.head.length = kind < 2 ? sizeof told.address : 1ull << 40};
        memset(told.address, 7, sizeof told.address);
        if (kind == 1) told.head.seal = ech_ucx_seal(told.address, sizeof told.address);
        begin_rank(&j, &of, 1);
        deceive(listener, &told, sizeof told);
        await(&of, 1, codes);
        finish(&of, &log);
        assert_int_equal(codes[1], FAILED);
        expect_in(log, kind == 1 ? "error: UCX cannot read the address of rank 0"
                                 : "error: rank 0 sent an invalid address");
        free(log);
    }
    close(listener);
}

/* ---- after the meeting ---- */

static ech_status wait_for_word(ech_comm *comm, void *context)
{
    char byte;
    const int *pipes = context;
    bool leads = ech_comm_rank(comm) == 0;
    if (leads && write(pipes[3], "", 1) != 1) return ECH_EIO;
    if (leads && read(pipes[0], &byte, 1) != 1) return ECH_EIO;
    return checks_meet(comm);
}

/* Processes whose ranks are there end while the job goes on. */
TEST(test_taken_ranks)
{
    int pipes[4], codes[MOST]; /* to rank 0, and from it */
    char *log, byte;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(pipe(pipes + 2), 0);
    job j = {
        .backend = ucx, .ranks = 2, .deadline = 600, .body = wait_for_word, .context = pipes};
    running of;
    begin(&j, &of);
    assert_int_equal(read(pipes[2], &byte, 1), 1);
    for (int r = 0; r < 2; r++) {
        running again = of;
        again.file = tmpfile();
        begin_rank(&j, &again, 1 - r);
        await(&again, 1 - r, codes);
        finish(&again, &log);
        assert_int_equal(codes[1 - r], FAILED);
        expect_in(log, r == 0 ? "rank 0 refuses this process: rank 1 is there already"
                              : "rank 0 cannot listen at MASTER_PORT");
        free(log);
    }
    assert_int_equal(write(pipes[1], "", 1), 1);
    for (int r = 0; r < 2; r++) await(&of, r, codes);
    finish(&of, &log);
    if (codes[0] || codes[1]) fail_msg("%d and %d: %s", codes[0], codes[1], log);
    expect_in(log, "says that it is rank 1, but that one is there already; it is refused");
    free(log);
    for (int i = 0; i < 4; i++) close(pipes[i]);
}

TEST(test_ipv6)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (!has) skip();
    expect_success_of(&(job){.backend = ucx,
                             .ranks = 3,
                             .deadline = 60,
                             .body = do_nothing,
                             .setting = {"MASTER_ADDR", "::1"}});
}

/* A rank that dies while the others are awaited, and is started once more, is the rank: whenever it
 * was. */
TEST(test_second_start)
{
    for (int moment = 0; moment < 3; moment++) {
        job j = {.backend = ucx, .ranks = 3, .deadline = 60, .body = do_nothing};
        running of = {.port = free_port(), .file = tmpfile()};
        int codes[MOST];
        char *log;
        begin_rank(&j, &of, 0);
        begin_rank(&j, &of, 1);
        usleep((useconds_t)(150000 * moment));
        kill(of.child[1], SIGKILL);
        await(&of, 1, codes);
        assert_int_equal(codes[1], -SIGKILL);
        begin_rank(&j, &of, 1);
        begin_rank(&j, &of, 2);
        for (int r = 0; r < 3; r++) await(&of, r, codes);
        finish(&of, &log);
        if (codes[0] || codes[1] || codes[2]) fail_msg("%s", log);
        free(log);
    }
}
