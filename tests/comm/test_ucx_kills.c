/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `ucx` when a rank is killed or stopped while all pairs of ranks exchange messages.
 * Transfers with the lost rank end in an error that names it, and so do receives that have got no
 * byte yet. The other ranks lose no message and no byte, and end as they should. No shared memory
 * is left. ECHELON_UCX_KILLS=200 is the long form: 200 kills and a quarter as many stops.
 */

#include <sched.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "comm/processes.h"
#include "comm/ucx_or_skip.h"
#include "unit.h"

enum { LARGEST = 1 << 19, ROUNDS_AFTER = 30, NEVER = 77 };
static const double idle_seconds = 1e-3;

/* What the parent and the ranks share. */
typedef struct shared {
    atomic_int rounds[MOST]; /* that each rank has completed with any other */
    atomic_bool lost;        /* the victim was sent its signal */
    atomic_int known_ms[MOST];
    double lost_at;
    int victim;
    unsigned seed;
} shared;

/* The exchange with one other rank: in each round a message each way, of a length that follows from
 * the round. */
typedef struct pair {
    int peer;
    unsigned round;
    unsigned char *out, *in;
    size_t bytes;
    ech_request sent, came, never; /* never: a receive that nothing reaches */
    bool over;
} pair;

static size_t find_bytes(const shared *s, int a, int b, unsigned round)
{
    unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);
    unsigned x = (s->seed + 31 * low + 1009 * high + round * 2654435761u) * 2246822519u;
    x ^= x >> 13;
    return x % 8 == 0 ? 1 + x / 8 % LARGEST : x % 3 == 0 ? 1 + x / 8 % 9000 : 1 + x / 8 % 64;
}

static unsigned char find_byte(int sender, unsigned round, size_t at)
{
    return (unsigned char)((unsigned)sender * 37 + round * 11 + (unsigned)at * 3);
}

/* The first byte says whether the sender has what it wants. */
static ech_status begin_round(ech_comm *comm, const shared *s, pair *p, bool content)
{
    int own = ech_comm_rank(comm), tag = (int)(p->round % 3);
    p->bytes = find_bytes(s, own, p->peer, p->round);
    for (size_t i = 1; i < p->bytes; i++) p->out[i] = find_byte(own, p->round, i);
    p->out[0] = content;
    p->came = (ech_request){.data = p->in, .peer = p->peer, .tag = tag, .bytes = p->bytes};
    p->sent = (ech_request){
        .data = p->out, .peer = p->peer, .tag = tag, .bytes = p->bytes, .sends = true};
    ECH_TRY(ucx->start(comm, &p->came, NULL, p->in));
    return ucx->start(comm, &p->sent, p->out, NULL);
}

static ech_status test_one(ech_comm *comm, ech_request *request)
{
    return request->done ? ECH_OK : ucx->test(comm, request);
}

/* *content: whether the peer has what it wants. */
static ech_status check_round(const pair *p, bool *content)
{
    for (size_t i = 1; i < p->bytes; i++) RANKS_CHECK(p->in[i] == find_byte(p->peer, p->round, i));
    *content = p->in[0] != 0;
    return ECH_OK;
}

/* All that was under way with the victim must say so. */
static ech_status end_with_victim(ech_comm *comm, shared *s, pair *p)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d has failed", s->victim);
    RANKS_CHECK(p->peer == s->victim && atomic_load(&s->lost));
    RANKS_CHECK(strstr(ech_last_error(), name));
    atomic_store(&s->known_ms[ech_comm_rank(comm)], (int)(1000 * (ech_clock_now() - s->lost_at)));
    ech_status st = ECH_OK;
    while (st == ECH_OK && !p->never.done) st = ucx->test(comm, &p->never);
    RANKS_CHECK(st == ECH_ECOMM && strstr(ech_last_error(), name));
    ech_request next = {.data = p->in, .peer = p->peer, .bytes = 1};
    RANKS_CHECK(ucx->start(comm, &next, NULL, p->in) == ECH_ECOMM);
    p->over = true;
    return ECH_OK;
}

typedef struct rank_state {
    pair pair[MOST];
    int pairs, after; /* after: rounds of all pairs since the victim was lost */
    bool knows;
} rank_state;

static ech_status step(ech_comm *comm, shared *s, rank_state *all, pair *p)
{
    bool content = all->knows && all->after >= ROUNDS_AFTER * (all->pairs - 1), other;
    if (p->over) return ECH_OK;
    ech_status st = test_one(comm, &p->came);
    if (st == ECH_OK) st = test_one(comm, &p->sent);
    if (st == ECH_OK && (!p->came.done || !p->sent.done)) return ECH_OK;
    if (st == ECH_OK) {
        ECH_TRY(check_round(p, &other));
        atomic_fetch_add(&s->rounds[ech_comm_rank(comm)], 1);
        all->after += all->knows;
        if (p->out[0] && other) {
            p->over = true;
            return ECH_OK;
        }
        p->round++;
        st = begin_round(comm, s, p, content);
        if (st == ECH_OK) return st;
    }
    ECH_TRY(end_with_victim(comm, s, p));
    all->knows = true;
    return ECH_OK;
}

static ech_status run_all(ech_comm *comm, shared *s, rank_state *all)
{
    for (int i = 0; i < all->pairs; i++) {
        pair *p = &all->pair[i];
        p->never = (ech_request){.data = &p->round, .peer = p->peer, .tag = NEVER, .bytes = 4};
        ECH_TRY(ucx->start(comm, &p->never, NULL, p->in + LARGEST));
        ECH_TRY(begin_round(comm, s, p, false));
    }
    double moved_at = ech_clock_now();
    for (int open = 1, before = -1; open > 0;) {
        double now = ech_clock_now();
        int rounds = atomic_load(&s->rounds[ech_comm_rank(comm)]);
        if (rounds != before) moved_at = now;
        before = rounds;
        open = 0;
        for (int i = 0; i < all->pairs; i++) {
            ECH_TRY(step(comm, s, all, &all->pair[i]));
            open += !all->pair[i].over;
        }
        if (now - moved_at > idle_seconds)
            usleep(200);
        else
            sched_yield();
    }
    return ECH_OK;
}

static ech_status exchange(ech_comm *comm, void *context)
{
    shared *s = context;
    rank_state all = {0};
    for (int r = 0; r < ech_comm_size(comm); r++) {
        if (r == ech_comm_rank(comm)) continue;
        pair *p = &all.pair[all.pairs++];
        p->peer = r;
        p->out = malloc(LARGEST + 1);
        p->in = malloc(LARGEST + 8);
    }
    ech_status st = run_all(comm, s, &all);
    if (st != ECH_OK) fprintf(stderr, "rank %d: %s\n", ech_comm_rank(comm), ech_last_error());
    for (int i = 0; i < all.pairs; i++) {
        free(all.pair[i].in);
        free(all.pair[i].out);
    }
    return st;
}

/* ---- the parent ---- */

/* A child that signals the victim while it exchanges messages. */
static void strike(shared *s, pid_t victim, int sent)
{
    unsigned wait_us = s->seed * 2654435761u % 20000;
    double began = ech_clock_now();
    while (atomic_load(&s->rounds[s->victim]) < 20 && ech_clock_now() - began < 30) usleep(200);
    usleep(wait_us);
    s->lost_at = ech_clock_now();
    atomic_store(&s->lost, true);
    kill(victim, sent);
}

static void lose_amid(int ranks, int machines, int sent, unsigned seed, int *longest_ms)
{
    job j = {.backend = ucx,
             .ranks = ranks,
             .deadline = sent == SIGSTOP ? 2.5 : 60,
             .body = exchange,
             .machines = machines,
             .outlives = true};
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    s->seed = seed;
    s->victim = (int)(seed * 7 % (unsigned)ranks);
    j.context = s;
    running of;
    char *log;
    int codes[MOST];
    begin(&j, &of);
    strike(s, of.child[s->victim], sent);
    for (int r = 0; r < ranks; r++)
        if (r != s->victim) await(&of, r, codes);
    if (sent == SIGSTOP)
        kill(of.child[s->victim], SIGKILL); /* it would wake in a job that has ended */
    await(&of, s->victim, codes);
    finish(&of, &log);
    for (int r = 0; r < ranks; r++)
        if (codes[r] != (r == s->victim ? -SIGKILL : 0))
            fail_msg(
                "%d ranks, %d machines, signal %d, seed %u, victim %d: rank %d ends with %d\n%s",
                ranks, machines, sent, seed, s->victim, r, codes[r], log);
    for (int r = 0; r < ranks; r++)
        if (atomic_load(&s->known_ms[r]) > *longest_ms) *longest_ms = atomic_load(&s->known_ms[r]);
    free(log);
    munmap(s, sizeof *s);
}

/* {ranks, machines}: in memory, over the network, and both. */
static const int jobs[][2] = {{2, 0}, {4, 0}, {8, 0}, {2, 2}, {4, 2}};
enum { JOBS = sizeof jobs / sizeof *jobs };

static void lose_many(int sent, int n)
{
    int longest_ms = 0, before = count_segments();
    for (int i = 0; i < n; i++)
        lose_amid(jobs[i % JOBS][0], jobs[i % JOBS][1], sent, (unsigned)(i + 1), &longest_ms);
    expect_segments(before);
    printf("%d ranks lost, known after %d ms at most\n", n, longest_ms);
}

TEST(test_kills)
{
    lose_many(SIGKILL, ucx_kills(10, 1));
}

TEST(test_stops)
{
    lose_many(SIGSTOP, ucx_kills(4, 4));
}
