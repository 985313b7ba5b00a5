/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for the halves of a reduction over any backend: a scatter has the bits of the whole
 * reduction's shards, a gather copies, and both send what was predicted. Run by test_halves.c
 * (threads) and mpi_reduce.c (processes).
 */
#ifndef ECH_TESTS_COMM_CHECKS_HALVES_H
#define ECH_TESTS_COMM_CHECKS_HALVES_H

#include "comm/checks.h"

/* A buffer that is followed by a canary. */
static inline char *checks_guarded(size_t bytes)
{
    char *at = malloc(bytes + CHECKS_CANARY);
    memset(at, 0, bytes);
    memset(at + bytes, 0x5a, CHECKS_CANARY);
    return at;
}

static inline bool checks_guard_end(char *at, size_t bytes)
{
    char canary[CHECKS_CANARY];
    memset(canary, 0x5a, sizeof canary);
    bool intact = memcmp(at + bytes, canary, CHECKS_CANARY) == 0;
    free(at);
    return intact;
}

typedef struct checks_shard {
    int64_t first, n; /* elements */
    size_t at, bytes;
} checks_shard;

static inline checks_shard checks_own_shard(const ech_group *group, const checks_case *c)
{
    int N = ech_group_size(group), index = ech_group_index(group);
    size_t item = ech_dtype_bytes(c->dtype);
    checks_shard s = {ech_collective_shard_first(c->n, N, index),
                      ech_collective_shard_count(c->n, N, index), 0, 0};
    s.at = (size_t)s.first * item;
    s.bytes = (size_t)s.n * item;
    return s;
}

/* Returns how many elements all members together send in a half: each element of a shard N - 1
 * times. HIERARCHICAL's leaders hold whole sums, so a leader sends all that N members send, less
 * its own shard. */
static inline int64_t checks_half_elements(const ech_group *group, const checks_case *c)
{
    ech_lineup of = ech_group_lineup(group);
    int64_t all = of.size * c->n;
    if (c->reduction != ECH_REDUCTION_HIERARCHICAL || of.size == 1) return all - c->n;
    for (int m = 0; m < of.machines; m++)
        all -= ech_collective_shard_count(c->n, of.size, of.first[m]);
    return all;
}

/* What a half has sent since *before: as predicted, and nothing else was. */
static inline ech_status checks_half_counted(ech_group *group, const checks_case *c,
                                             ech_reduction_part part, const ech_comm_count *before)
{
    bool scatters = part == ECH_REDUCTION_SCATTER;
    int N = ech_group_size(group), index = ech_group_index(group);
    ech_dtype wire = scatters ? c->wire : c->dtype;
    ech_comm_counted kind = scatters ? ECH_COMM_SCATTERS : ECH_COMM_GATHERS;
    ech_comm_count now = ech_group_count(group, kind);
    int64_t elements =
        ech_reduction_part_elements(c->reduction, part, c->n, ech_group_lineup(group), index);
    RANKS_CHECK(now.calls == before->calls + 1);
    RANKS_CHECK(now.elements - before->elements == elements);
    RANKS_CHECK(now.bytes - before->bytes == elements * (int64_t)ech_dtype_bytes(wire));
    if (c->n % N == 0 && c->reduction != ECH_REDUCTION_HIERARCHICAL)
        RANKS_CHECK(elements == c->n / N * (N - 1));
    if (c->reduction == ECH_REDUCTION_DIRECT) {
        ech_collective like = scatters ? ECH_COLLECTIVE_REDUCE_SCATTER : ECH_COLLECTIVE_ALL_GATHER;
        ech_collective_sends sends =
            ech_collective_traffic(like, wire, c->n, ech_group_lineup(group), index);
        RANKS_CHECK(now.messages - before->messages == sends.messages);
        RANKS_CHECK(now.bytes - before->bytes == sends.bytes);
    }
    double total = (double)(now.elements - before->elements);
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, &total, 1));
    RANKS_CHECK((int64_t)total == checks_half_elements(group, c));
    return ECH_OK;
}

/* Scatters x over `group`, whose reduces count nothing; `shard` as in ech_sum_begin_scatter. */
static inline ech_status checks_scatter(ech_group *group, const checks_case *c, char *x,
                                        char *shard, bool adds)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_SCATTERS);
    ech_comm_count whole = ech_group_count(group, ECH_COMM_REDUCES);
    size_t bytes = ech_reduction_part_scratch(c->reduction, ECH_REDUCTION_SCATTER, c->wire, c->n,
                                              ech_group_lineup(group));
    char *scratch = checks_guarded(bytes);
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n);
    ech_sum sum;
    ech_status st =
        ech_sum_begin_scatter(group, c->reduction, &view, c->wire, shard, adds, scratch, &sum);
    if (st == ECH_OK) st = ech_sum_run(&sum);
    if (st == ECH_OK) st = ech_sum_end(&sum);
    bool intact = checks_guard_end(scratch, bytes);
    ECH_TRY(st);
    RANKS_CHECK(intact);
    RANKS_CHECK(ech_group_count(group, ECH_COMM_REDUCES).calls == whole.calls);
    return checks_half_counted(group, c, ECH_REDUCTION_SCATTER, &before);
}

static inline ech_status checks_gather_shards(ech_group *group, const checks_case *c, char *x,
                                              char *shard)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_GATHERS);
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n);
    ech_sum sum;
    ECH_TRY(ech_sum_begin_gather(group, c->reduction, &view, shard, &sum));
    ECH_TRY(ech_sum_run(&sum));
    ECH_TRY(ech_sum_end(&sum));
    return checks_half_counted(group, c, ECH_REDUCTION_GATHER, &before);
}

typedef struct checks_halves_memory {
    char *x, *whole;      /* the addends; the sum by ech_group_reduce */
    char *shard, *wanted; /* a shard; of what is added to it, both together */
} checks_halves_memory;

static inline ech_status checks_halves_in(ech_group *group, const checks_case *c,
                                          const checks_halves_memory *m)
{
    int index = ech_group_index(group);
    size_t bytes = (size_t)c->n * ech_dtype_bytes(c->dtype);
    checks_shard own = checks_own_shard(group, c);
    checks_fill(m->whole, c->dtype, c->n, index, c->whole);
    checks_fill(m->shard, c->dtype, own.n, index + 20, c->whole);
    ECH_TRY(checks_reduce_guarded(group, c, m->whole));

    /* Added to a shard that is elsewhere. */
    if (own.n > 0) {
        ech_tensor kept = ech_tensor_1d(m->shard, c->dtype, own.n),
                   wanted = ech_tensor_1d(m->wanted, c->dtype, own.n),
                   sum = ech_tensor_2d(m->whole + own.at, c->dtype, 1, own.n);
        ech_tensor_add_parts(&kept, &sum, 0, &wanted);
    }
    checks_fill(m->x, c->dtype, c->n, index, c->whole);
    ECH_TRY(checks_scatter(group, c, m->x, m->shard, true));
    RANKS_CHECK(memcmp(m->shard, m->wanted, own.bytes) == 0);

    /* Written there, and gathered. */
    checks_fill(m->x, c->dtype, c->n, index, c->whole);
    ECH_TRY(checks_scatter(group, c, m->x, m->shard, false));
    RANKS_CHECK(memcmp(m->shard, m->whole + own.at, own.bytes) == 0);
    memset(m->x, 0, bytes);
    ECH_TRY(checks_gather_shards(group, c, m->x, m->shard));
    RANKS_CHECK(memcmp(m->x, m->whole, bytes) == 0);
    RANKS_CHECK(memcmp(m->shard, m->whole + own.at, own.bytes) == 0);

    /* In place. */
    checks_fill(m->x, c->dtype, c->n, index, c->whole);
    ECH_TRY(checks_scatter(group, c, m->x, m->x + own.at, false));
    RANKS_CHECK(memcmp(m->x + own.at, m->whole + own.at, own.bytes) == 0);
    ECH_TRY(checks_gather_shards(group, c, m->x, m->x + own.at));
    RANKS_CHECK(memcmp(m->x, m->whole, bytes) == 0);
    return ECH_OK;
}

static inline ech_status checks_halves_of(ech_group *group, const checks_case *c)
{
    size_t bytes = (size_t)c->n * ech_dtype_bytes(c->dtype);
    size_t own = checks_own_shard(group, c).bytes;
    checks_halves_memory m = {.x = checks_guarded(bytes),
                              .whole = malloc(bytes + CHECKS_CANARY),
                              .shard = checks_guarded(own),
                              .wanted = malloc(own + 1)};
    ech_status st = checks_halves_in(group, c, &m);
    bool intact = checks_guard_end(m.x, bytes);
    intact &= checks_guard_end(m.shard, own);
    free(m.whole);
    free(m.wanted);
    ECH_TRY(st);
    RANKS_CHECK(intact);
    return ECH_OK;
}

/* LIBRARY takes equal shards, and adds in an order of its own. */
static inline int64_t checks_halves_count(const ech_group *group, ech_reduction reduction,
                                          int64_t n)
{
    int N = ech_group_size(group);
    return reduction == ECH_REDUCTION_LIBRARY ? (n + N - 1) / N * N : n;
}

/* All counts and types, exact and inexact sums; pieces of several segments in two types. */
static inline ech_status checks_halves(ech_comm *comm, ech_reduction reduction)
{
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    ech_status st = ECH_OK;
    for (int i = 0; i < (CHECKS_COUNTS + 1) * CHECKS_TYPES && st == ECH_OK; i++) {
        const struct checks_types *t = &checks_types[i % CHECKS_TYPES];
        int count = i / CHECKS_TYPES;
        bool is_long = count == CHECKS_COUNTS, brief = i % 4 != 1;
        checks_case c = {.reduction = reduction, .dtype = t->dtype, .wire = t->wire};
        bool exact = reduction == ECH_REDUCTION_LIBRARY;
        c.n = is_long ? (1 << 19) + 5 : checks_counts[count];
        c.n = checks_halves_count(group, reduction, c.n);
        if (!checks_takes(reduction, t) || (c.n > 1000 && brief)) continue;
        if (is_long && ech_comm_size(comm) > 3) continue;
        if (!exact) st = checks_halves_of(group, &c);
        c.whole = true;
        if (st == ECH_OK && (exact || c.n <= 1000)) st = checks_halves_of(group, &c);
    }
    /* What is gathered may be of any type. */
    enum { MOST = 1003 + RANKS_MOST };
    checks_case bytes = {.reduction = reduction,
                         .dtype = ECH_U8,
                         .wire = ECH_U8,
                         .n = checks_halves_count(group, reduction, 1003)};
    char x[MOST] = {0}, shard[MOST];
    checks_shard own = checks_own_shard(group, &bytes);
    for (int64_t i = 0; i < own.n; i++) shard[i] = (char)(own.first + i);
    if (st == ECH_OK) st = checks_gather_shards(group, &bytes, x, shard);
    bool right = true;
    for (int i = 0; i < bytes.n; i++) right &= x[i] == (char)i;
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(right);
    return ECH_OK;
}

/* ---- sums and halves in a row, each of which begins before the one in front of it ends ---- */

typedef struct checks_link {
    ech_reduction_part part;
    int64_t n;
    ech_dtype wire;
    ech_sum sum;
    float *x, *expected; /* what x or `shard` becomes */
    char *scratch;
} checks_link;

static inline ech_status checks_link_begin(ech_group *group, ech_reduction reduction,
                                           checks_link *l)
{
    int N = ech_group_size(group), index = ech_group_index(group);
    ech_tensor view = ech_tensor_1d(l->x, ECH_F32, l->n);
    float *own = l->x + ech_collective_shard_first(l->n, N, index);
    checks_fill(l->x, ECH_F32, l->n, index, true);
    checks_serial_sum(l->expected, ECH_F32, l->wire, l->n, N, true);
    if (l->part == ECH_REDUCTION_GATHER) {
        memcpy(own, l->expected + (own - l->x),
               (size_t)ech_collective_shard_count(l->n, N, index) * 4);
        return ech_sum_begin_gather(group, reduction, &view, own, &l->sum);
    }
    if (l->part == ECH_REDUCTION_SCATTER)
        return ech_sum_begin_scatter(group, reduction, &view, l->wire, own, false, l->scratch,
                                     &l->sum);
    return ech_sum_begin(group, reduction, &view, l->wire, l->scratch, &l->sum);
}

static inline ech_status checks_link_end(const ech_group *group, const checks_link *l)
{
    int N = ech_group_size(group), index = ech_group_index(group);
    bool all = l->part != ECH_REDUCTION_SCATTER;
    int64_t first = all ? 0 : ech_collective_shard_first(l->n, N, index);
    int64_t n = all ? l->n : ech_collective_shard_count(l->n, N, index);
    ECH_TRY(ech_sum_end(&l->sum));
    RANKS_CHECK(memcmp(l->x + first, l->expected + first, (size_t)n * 4) == 0);
    return ECH_OK;
}

enum { CHECKS_LINKS = 14 };

static inline ech_status checks_links(ech_group *group, ech_reduction reduction, checks_link *links)
{
    for (int i = 0; i < CHECKS_LINKS; i++) {
        if (i == 0) ECH_TRY(checks_link_begin(group, reduction, &links[0]));
        ECH_TRY(ech_sum_run(&links[i].sum));
        if (i + 1 < CHECKS_LINKS) ECH_TRY(checks_link_begin(group, reduction, &links[i + 1]));
        ECH_TRY(checks_link_end(group, &links[i]));
    }
    return ECH_OK;
}

/* Reduces every part after every other: long ones, short ones, and one without elements. */
static inline ech_status checks_halves_in_a_row(ech_comm *comm, ech_reduction reduction)
{
    static const struct {
        char part;
        int64_t n;
    } row[CHECKS_LINKS] = {
        {'s', (1 << 20) + 5}, {'s', 1 << 18}, {'g', 100003},  {'w', 1 << 19}, {'w', 7},    {'s', 0},
        {'w', 100003},        {'g', 1},       {'g', 1 << 18}, {'s', 1 << 19}, {'g', 1000}, {'s', 3},
        {'s', 1 << 18},       {'w', 1 << 18}};
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    checks_link links[CHECKS_LINKS];
    for (int i = 0; i < CHECKS_LINKS; i++) {
        size_t bytes = (size_t)row[i].n * 4;
        char p = row[i].part;
        ech_reduction_part part = p == 's'   ? ECH_REDUCTION_SCATTER
                                  : p == 'g' ? ECH_REDUCTION_GATHER
                                             : ECH_REDUCTION_WHOLE;
        bool narrows = i % 3 == 1 && ech_reduction_takes(reduction, ECH_F16, true);
        ech_dtype wire = narrows ? ECH_F16 : ECH_F32;
        size_t scratch =
            ech_reduction_part_scratch(reduction, part, wire, row[i].n, checks_lineup(comm));
        links[i] = (checks_link){.part = part,
                                 .n = row[i].n,
                                 .wire = wire,
                                 .x = malloc(bytes + 1),
                                 .expected = malloc(bytes + 1),
                                 .scratch = malloc(scratch + 1)};
    }
    ech_status st = checks_links(group, reduction, links);
    for (int i = 0; i < CHECKS_LINKS; i++) {
        free(links[i].x);
        free(links[i].expected);
        free(links[i].scratch);
    }
    ech_group_destroy(group);
    return st;
}

#endif
