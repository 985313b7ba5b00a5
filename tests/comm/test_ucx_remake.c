/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `ucx`: a rank is killed or stopped while all exchange messages, and the others form a
 * new group with a process that takes its place. The new group loses no message and no byte, and
 * gets none from the old one, since every message names its group. The rank that was stopped wakes
 * while the new group is at work, and ends with an error. ECHELON_UCX_KILLS=200 is the long form:
 * 200 kills and a quarter as many stops.
 */

#include <sys/mman.h>

#include "comm/processes.h"
#include "comm/tcp_state.h"
#include "comm/ucx_or_skip.h"
#include "unit.h"

enum { LARGEST = 1 << 18, OLD = 1, NEW = 2, ROUNDS = 12 };

/* What the parent and the ranks share. */
typedef struct shared {
    atomic_int rounds[NEW + 1]; /* of each group, that rank 0 has completed */
    atomic_int leaving;         /* ranks that have seen an error in the old group */
    atomic_bool struck, may_end;
    unsigned seed;
} shared;

static size_t find_bytes(const shared *s, int sender, int round)
{
    unsigned x = (s->seed + 31 * (unsigned)sender + (unsigned)round * 2654435761u) * 2246822519u;
    x ^= x >> 13;
    return 1 + x / 8 % (x % 8 == 0 ? LARGEST : x % 3 == 0 ? 9000 : 64);
}

static unsigned char find_byte(int group, int sender, int round, size_t at)
{
    return (unsigned char)(group * 101 + sender * 37 + round * 11 + (int)(at % 251) * 3);
}

/* A message each way between all. */
static ech_status do_round(ech_comm *comm, const shared *s, int group, int round,
                           unsigned char *data)
{
    int own = ech_comm_rank(comm), size = ech_comm_size(comm), n = 0;
    unsigned char *out = data + (size_t)own * LARGEST;
    size_t bytes = find_bytes(s, own, round);
    ech_request open[2 * MOST];
    for (size_t i = 0; i < bytes; i++) out[i] = find_byte(group, own, round, i);
    for (int r = 0; r < size; r++) {
        if (r == own) continue;
        ECH_TRY(ech_comm_receive_start(comm, r, round % 3, data + (size_t)r * LARGEST,
                                       find_bytes(s, r, round), &open[n++]));
        ECH_TRY(ech_comm_send_start(comm, r, round % 3, out, bytes, &open[n++]));
    }
    ECH_TRY(ech_comm_wait(comm, open, n));
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < find_bytes(s, r, round); i++)
            if (data[(size_t)r * LARGEST + i] != find_byte(group, r, round, i))
                RANKS_CHECK(!"a byte of another message");
    return ECH_OK;
}

/* Until the parent says that the new group may end. */
static ech_status talk(ech_comm *comm, shared *s, int group, unsigned char *data)
{
    ECH_CLEANUP(ech_group_destroy_at) ech_group *world = NULL;
    ECH_TRY(checks_world(comm, &world));
    for (int round = 0;; round++) {
        double goes_on = group == OLD || round < ROUNDS || !atomic_load(&s->may_end);
        ECH_TRY(do_round(comm, s, group, round, data));
        ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, &goes_on, 1));
        if (ech_comm_rank(comm) == 0) atomic_fetch_add(&s->rounds[group], 1);
        if (goes_on < 1) return ECH_OK;
    }
}

/* The old group, and after a loss the new one; or that alone, of a process that takes a place. */
static ech_status live(ech_comm *comm, void *context)
{
    shared *s = context;
    ech_comm *now = comm;
    uint32_t before = ech_tcp_generation();
    unsigned char *data = malloc((size_t)MOST * LARGEST);
    ech_status st = ECH_OK;
    if (!atomic_load(&s->struck)) {
        st = talk(comm, s, OLD, data);
        RANKS_CHECK(st == ECH_ECOMM || st == ECH_EABORTED);
        atomic_fetch_add(&s->leaving, 1);
        st = ech_comm_remake(&now);
        if (st != ECH_OK) _exit(FAILED);
        RANKS_CHECK(ech_tcp_generation() != before);
    }
    st = talk(now, s, NEW, data);
    if (st != ECH_OK) fprintf(stderr, "in the new group: %s\n", ech_last_error());
    free(data);
    if (st == ECH_OK) ech_comm_close(now);
    _exit(st == ECH_OK ? 0 : SAID);
}

/* ---- the parent ---- */

static void await_count(atomic_int *count, int least)
{
    for (int i = 0; atomic_load(count) < least; i++) {
        if (i > 60000) fail_msg("%d of %d", atomic_load(count), least);
        usleep(1000);
    }
}

static void take_place(int ranks, int machines, int sent, unsigned seed)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    s->seed = seed;
    job j = {.backend = ucx,
             .ranks = ranks,
             .deadline = sent == SIGSTOP ? 2.5 : 60,
             .body = live,
             .context = s,
             .machines = machines,
             .outlives = true};
    running of;
    char *log;
    int codes[MOST], code, victim = (int)(seed * 7 % (unsigned)ranks);
    begin(&j, &of);
    await_count(&s->rounds[OLD], 3);
    usleep(seed * 2654435761u % 20000);
    pid_t old = of.child[victim];
    kill(old, sent);
    await_count(&s->leaving, 1);
    atomic_store(&s->struck, true);
    begin_rank(&j, &of, victim);
    await_count(&s->rounds[NEW], 2);
    kill(old, SIGCONT);
    running last = {.child = {old}};
    await(&last, 0, &code);
    atomic_store(&s->may_end, true);
    for (int r = 0; r < ranks; r++) await(&of, r, codes);
    finish(&of, &log);
    bool good = code == (sent == SIGKILL ? -SIGKILL : FAILED);
    for (int r = 0; r < ranks; r++) good &= codes[r] == 0;
    if (!good)
        fail_msg("%d ranks, %d machines, signal %d, seed %u, rank %d: %d, its place %d\n%s", ranks,
                 machines, sent, seed, victim, code, codes[victim], log);
    free(log);
    munmap(s, sizeof *s);
}

/* {ranks, machines}: in memory, over the network, and both. */
static const int jobs[][2] = {{2, 0}, {4, 2}, {8, 0}, {2, 2}, {4, 0}};
enum { JOBS = sizeof jobs / sizeof *jobs };

static void take_places(int sent, int n)
{
    int before = count_segments();
    for (int i = 0; i < n; i++)
        take_place(jobs[i % JOBS][0], jobs[i % JOBS][1], sent, (unsigned)(i + 1));
    expect_segments(before);
}

TEST(test_kills)
{
    take_places(SIGKILL, ucx_kills(5, 1));
}

TEST(test_stops)
{
    take_places(SIGSTOP, ucx_kills(3, 4));
}

/* As often as a second has sixteenths: the clock alone would give the same number twice. */
static ech_status remake_often(ech_comm *comm, void *context)
{
    (void)context;
    for (int i = 0; i < 16; i++) {
        uint32_t before = ech_tcp_generation();
        if (ech_comm_remake(&comm) != ECH_OK) _exit(FAILED);
        RANKS_CHECK(ech_tcp_generation() != before);
    }
    ech_comm_close(comm);
    _exit(0);
}

TEST(test_generations)
{
    expect_success_of(
        &(job){.backend = ucx, .ranks = 2, .deadline = 60, .body = remake_often, .outlives = true});
}
