/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for collectives over any backend: bodies that every rank of a job runs, as threads
 * (test_reduce.c) or as processes (mpi_reduce.c).
 */
#ifndef ECH_TESTS_COMM_CHECKS_H
#define ECH_TESTS_COMM_CHECKS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ranks.h"

static const int64_t checks_counts[] = {0, 1, 2, 3, 7, 1000, 100003};
enum { CHECKS_COUNTS = 7, CHECKS_CANARY = 64 };

/* All ranks, on pretended machines of two, of which the last may have one. */
static inline ech_lineup checks_lineup(const ech_comm *comm)
{
    static _Thread_local int first[RANKS_MOST + 1];
    int ranks[RANKS_MOST], N = ech_comm_size(comm);
    for (int r = 0; r < N; r++) ranks[r] = r;
    int machines = ech_lineup_divide(ranks, N, 2, first);
    return (ech_lineup){.size = N, .machines = machines, .first = first};
}

/* A group of all ranks. */
static inline ech_status checks_world(ech_comm *comm, ech_group **out)
{
    int ranks[RANKS_MOST];
    ech_lineup of = checks_lineup(comm);
    for (int r = 0; r < of.size; r++) ranks[r] = r;
    ECH_TRY(ech_group_create(comm, "world", ranks, of.size, out));
    ech_group_set_machines(*out, of.first, of.machines);
    return ECH_OK;
}

/* All ranks are there: a deadline that is set then is not one of their starts. */
static inline ech_status checks_meet(ech_comm *comm)
{
    ech_group *world;
    ECH_TRY(checks_world(comm, &world));
    ech_status st = ech_group_barrier(world);
    ech_group_destroy(world);
    return st;
}

/* Rank r's element i: small whole numbers, whose sums are exact, or fractions, whose are not. */
static inline double checks_element(int rank, int64_t i, bool whole)
{
    uint32_t word = ((uint32_t)i + 1) * 2654435761u ^ ((uint32_t)rank + 1) * 2246822519u;
    word = (word ^ word >> 15) * 3266489917u;
    word ^= word >> 13;
    return whole ? (double)(word % 2001) - 1000 : (double)word * 0x1p-32 - 0.5;
}

enum { CHECKS_BLOCK = 512 };

/* Rounds n <= CHECKS_BLOCK values to a type. */
static inline void checks_round(double *values, ech_dtype dtype, int64_t n)
{
    double memory[CHECKS_BLOCK];
    ech_convert(values, ECH_F64, memory, dtype, n);
    ech_convert(memory, dtype, values, ECH_F64, n);
}

static inline int64_t checks_elements(double *values, int rank, int64_t at, int64_t end, bool whole)
{
    int64_t n = end - at < CHECKS_BLOCK ? end - at : CHECKS_BLOCK;
    for (int64_t i = 0; i < n; i++) values[i] = checks_element(rank, at + i, whole);
    return n;
}

static inline void checks_fill(void *x, ech_dtype dtype, int64_t n, int rank, bool whole)
{
    double values[CHECKS_BLOCK];
    for (int64_t at = 0; at < n; at += CHECKS_BLOCK) {
        int64_t some = checks_elements(values, rank, at, n, whole);
        ech_convert(values, ECH_F64, (char *)x + (size_t)at * ech_dtype_bytes(dtype), dtype, some);
    }
}

/* The sum in rank order of what travels as `wire`: rounded after every addition to the type that is
 * added in, and once more at the end. A single rank's stays as it is. */
static inline void checks_serial_sum(void *x, ech_dtype dtype, ech_dtype wire, int64_t n, int ranks,
                                     bool whole)
{
    double sum[CHECKS_BLOCK], addend[CHECKS_BLOCK];
    ech_dtype added = wire == ECH_F64 ? ECH_F64 : ECH_F32;
    for (int64_t at = 0; at < n; at += CHECKS_BLOCK) {
        int64_t some = checks_elements(sum, 0, at, n, whole);
        checks_round(sum, dtype, some);
        if (ranks > 1) checks_round(sum, wire, some);
        for (int r = 1; r < ranks; r++) {
            checks_elements(addend, r, at, n, whole);
            checks_round(addend, dtype, some);
            checks_round(addend, wire, some);
            for (int64_t i = 0; i < some; i++) sum[i] += addend[i];
            checks_round(sum, added, some);
        }
        if (ranks > 1) checks_round(sum, wire, some);
        ech_convert(sum, ECH_F64, (char *)x + (size_t)at * ech_dtype_bytes(dtype), dtype, some);
    }
}

/* Whether all members hold member 0's bytes. */
static inline ech_status checks_same_bits(ech_group *group, const void *x, size_t bytes)
{
    if (bytes == 0) return ECH_OK;
    void *first = malloc(bytes);
    memcpy(first, x, bytes);
    ech_status st = ech_group_broadcast(group, 0, first, bytes);
    bool same = memcmp(first, x, bytes) == 0;
    free(first);
    ECH_TRY(st);
    RANKS_CHECK(same);
    return ECH_OK;
}

/* The counters against the formula, summed over the members. */
static inline ech_status checks_bytes(ech_group *group, ech_reduction reduction, ech_dtype wire,
                                      int64_t n, int64_t before)
{
    int64_t N = ech_group_size(group), bytes = n * (int64_t)ech_dtype_bytes(wire);
    int64_t sent = ech_group_count(group, ECH_COMM_REDUCES).bytes - before;
    RANKS_CHECK(sent == ech_reduction_bytes(reduction, wire, n, ech_group_lineup(group),
                                            ech_group_index(group)));
    double total = (double)sent;
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, &total, 1));
    if (reduction == ECH_REDUCTION_DIRECT || reduction == ECH_REDUCTION_RING ||
        reduction == ECH_REDUCTION_TORUS)
        RANKS_CHECK((int64_t)total == 2 * (N - 1) * bytes);
    /* All but the leaders send all they have, these around their ring and back to their
     * machines. */
    int64_t machines = ech_group_lineup(group).machines;
    if (reduction == ECH_REDUCTION_HIERARCHICAL && N > 1)
        RANKS_CHECK((int64_t)total == 2 * (N - machines) * bytes + 2 * (machines - 1) * bytes);
    if (reduction == ECH_REDUCTION_NAIVE) RANKS_CHECK((int64_t)total == N * (N - 1) * bytes);
    return ECH_OK;
}

typedef struct checks_case {
    ech_reduction reduction;
    ech_dtype dtype, wire;
    int64_t n;
    bool whole;
} checks_case;

/* Reduces x, with canaries after x and after the scratch. */
static inline ech_status checks_reduce_guarded(ech_group *group, const checks_case *c, char *x)
{
    size_t bytes = (size_t)c->n * ech_dtype_bytes(c->dtype);
    size_t scratch_bytes =
        ech_reduction_scratch(c->reduction, c->wire, c->n, ech_group_lineup(group));
    char *scratch = malloc(scratch_bytes + CHECKS_CANARY);
    char canary[CHECKS_CANARY];
    memset(canary, 0x5a, sizeof canary);
    memset(scratch + scratch_bytes, 0x5a, CHECKS_CANARY);
    memset(x + bytes, 0x5a, CHECKS_CANARY);
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n);
    ech_status st = ech_group_reduce(group, c->reduction, &view, c->wire, scratch);
    bool intact = memcmp(scratch + scratch_bytes, canary, CHECKS_CANARY) == 0 &&
                  memcmp(x + bytes, canary, CHECKS_CANARY) == 0;
    free(scratch);
    ECH_TRY(st);
    RANKS_CHECK(intact);
    return ECH_OK;
}

static inline ech_status checks_one_reduce(ech_group *group, const checks_case *c, char *x,
                                           char *expected)
{
    size_t bytes = (size_t)c->n * ech_dtype_bytes(c->dtype);
    int N = ech_group_size(group);
    int64_t before = ech_group_count(group, ECH_COMM_REDUCES).bytes;
    checks_fill(x, c->dtype, c->n, ech_group_index(group), c->whole);
    checks_serial_sum(expected, c->dtype, c->wire, c->n, N, c->whole);
    ECH_TRY(checks_reduce_guarded(group, c, x));
    /* Whole numbers add exactly in any order; in member order all numbers as in a serial sum. */
    bool ordered = c->reduction == ECH_REDUCTION_DIRECT || c->reduction == ECH_REDUCTION_NAIVE;
    if (c->whole || ordered) RANKS_CHECK(memcmp(x, expected, bytes) == 0);
    ECH_TRY(checks_same_bits(group, x, bytes));
    if (c->reduction == ECH_REDUCTION_LIBRARY) return ECH_OK;
    return checks_bytes(group, c->reduction, c->wire, c->n, before);
}

/* Types of elements, kept and on their way. */
static const struct checks_types {
    ech_dtype dtype, wire;
} checks_types[] = {
    {ECH_F64, ECH_F64},  {ECH_F32, ECH_F32}, {ECH_BF16, ECH_BF16}, {ECH_F16, ECH_F16},
    {ECH_F32, ECH_BF16}, {ECH_F32, ECH_F16}, {ECH_F64, ECH_F32},   {ECH_F64, ECH_BF16},
};
enum { CHECKS_TYPES = sizeof checks_types / sizeof *checks_types };

static inline bool checks_takes(ech_reduction reduction, const struct checks_types *t)
{
    return ech_reduction_takes(reduction, t->wire, t->wire != t->dtype);
}

/* One way to reduce, for all counts, all types that it takes, exact and inexact sums. */
static inline ech_status checks_reduction(ech_comm *comm, ech_reduction reduction)
{
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    size_t most = (size_t)checks_counts[CHECKS_COUNTS - 1] * 8 + CHECKS_CANARY;
    char *x = malloc(most), *expected = malloc(most);
    ech_status st = ECH_OK;
    for (int i = 0; i < CHECKS_COUNTS * CHECKS_TYPES * 2 && st == ECH_OK; i++) {
        const struct checks_types *t = &checks_types[i / 2 % CHECKS_TYPES];
        checks_case c = {.reduction = reduction,
                         .dtype = t->dtype,
                         .wire = t->wire,
                         .n = checks_counts[i / 2 / CHECKS_TYPES],
                         .whole = i % 2};
        /* What is wrong with many elements or whole numbers is so with two types. */
        bool brief = i / 2 % CHECKS_TYPES > 1 && (c.whole || c.n > 1000);
        if (checks_takes(reduction, t) && !brief) st = checks_one_reduce(group, &c, x, expected);
    }
    free(x);
    free(expected);
    ech_group_destroy(group);
    return st;
}

/* Pieces of several segments, so that these overlap. */
static inline ech_status checks_long_reduction(ech_comm *comm, ech_reduction reduction)
{
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    int64_t n = (1 << 20) + 5;
    char *x = malloc((size_t)n * 8 + CHECKS_CANARY), *expected = malloc((size_t)n * 8);
    ech_status st = ECH_OK;
    for (int i = 1; i < CHECKS_TYPES && st == ECH_OK; i += 4) { /* fp32, and what is narrowed */
        const struct checks_types *t = &checks_types[i];
        checks_case c = {.reduction = reduction, .dtype = t->dtype, .wire = t->wire, .n = n};
        c.whole = reduction != ECH_REDUCTION_DIRECT && reduction != ECH_REDUCTION_NAIVE;
        if (checks_takes(reduction, t)) st = checks_one_reduce(group, &c, x, expected);
    }
    free(x);
    free(expected);
    ech_group_destroy(group);
    return st;
}

typedef struct checks_open {
    ech_sum sum;
    float *x, *expected;
    ech_dtype wire;
    char *scratch;
    int64_t n;
} checks_open;

static inline ech_status checks_begin(ech_group *group, ech_reduction reduction, checks_open *open)
{
    int N = ech_group_size(group);
    ech_tensor view = ech_tensor_1d(open->x, ECH_F32, open->n);
    checks_fill(open->x, ECH_F32, open->n, ech_group_index(group), true);
    checks_serial_sum(open->expected, ECH_F32, open->wire, open->n, N, true);
    return ech_sum_begin(group, reduction, &view, open->wire, open->scratch, &open->sum);
}

/* Each sum begins before the one in front of it ends, over two groups in turn. */
static inline ech_status checks_chain(ech_group *const *groups, ech_reduction reduction,
                                      checks_open *open, int sums)
{
    int64_t bytes = 0, expected = 0;
    for (int i = 0; i < sums; i++) {
        ech_group *group = groups[i % 2];
        if (i == 0) ECH_TRY(checks_begin(group, reduction, &open[0]));
        ECH_TRY(ech_sum_run(&open[i].sum));
        if (i + 1 < sums) ECH_TRY(checks_begin(groups[(i + 1) % 2], reduction, &open[i + 1]));
        ECH_TRY(ech_sum_end(&open[i].sum));
        RANKS_CHECK(memcmp(open[i].x, open[i].expected, (size_t)open[i].n * 4) == 0);
        expected += ech_reduction_bytes(reduction, open[i].wire, open[i].n, ech_group_lineup(group),
                                        ech_group_index(group));
    }
    for (int g = 0; g < 2; g++) {
        bytes += ech_group_count(groups[g], ECH_COMM_REDUCES).bytes;
        RANKS_CHECK(ech_group_count(groups[g], ECH_COMM_REDUCES).calls == (sums + 1 - g) / 2);
    }
    RANKS_CHECK(bytes == expected);
    return ECH_OK;
}

static inline ech_status checks_sums_in_a_row(ech_comm *comm, ech_reduction reduction)
{
    static const int64_t counts[] = {(1 << 20) + 5, 7, 0, 1 << 19, 100003, 1, 1};
    enum { SUMS = 7 };
    checks_open open[SUMS];
    ech_group *groups[2] = {NULL};
    ech_status st = ECH_OK;
    for (int g = 0; g < 2 && st == ECH_OK; g++) st = checks_world(comm, &groups[g]);
    for (int i = 0; i < SUMS; i++) {
        size_t bytes = (size_t)counts[i] * 4;
        bool narrows = i % 2 && ech_reduction_takes(reduction, ECH_F16, true);
        ech_dtype wire = narrows ? ECH_F16 : ECH_F32;
        open[i] = (checks_open){
            .x = malloc(bytes + 1),
            .expected = malloc(bytes + 1),
            .wire = wire,
            .scratch =
                malloc(ech_reduction_scratch(reduction, wire, counts[i], checks_lineup(comm)) + 1),
            .n = counts[i]};
    }
    if (st == ECH_OK) st = checks_chain(groups, reduction, open, SUMS);
    for (int i = 0; i < SUMS; i++) {
        free(open[i].x);
        free(open[i].expected);
        free(open[i].scratch);
    }
    for (int g = 0; g < 2; g++) ech_group_destroy(groups[g]);
    return st;
}

static inline ech_status checks_fold(ech_comm *comm)
{
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    double sum[3] = {rank + 1, 0.1, rank == N - 1 ? (double)NAN : 1};
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, sum, 3));
    double serial = 0.1;
    for (int r = 1; r < N; r++) serial += 0.1;
    RANKS_CHECK(sum[0] == N * (N + 1) / 2.0 && sum[1] == serial && isnan(sum[2]));

    double max[3] = {-rank - 5, rank, rank == 0 ? (double)NAN : 1};
    ECH_TRY(ech_group_fold(group, ECH_FOLD_MAX, max, 3));
    RANKS_CHECK(max[0] == -5 && max[1] == N - 1 && isnan(max[2]));

    static const int counts[] = {0, 1, 63, 64, 65, 128, 150, 1000}; /* 64 go in one message */
    for (int c = 0; c < 8; c++) {
        double many[1001];
        for (int i = 0; i < 1001; i++) many[i] = rank + i;
        ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, many, counts[c]));
        for (int i = 0; i < counts[c]; i++) RANKS_CHECK(many[i] == N * i + N * (N - 1) / 2.0);
        for (int i = counts[c]; i < 1001; i++) RANKS_CHECK(many[i] == rank + i);
    }
    RANKS_CHECK(ech_group_count(group, ECH_COMM_OTHERS).calls == 10);
    RANKS_CHECK(ech_group_count(group, ECH_COMM_REDUCES).calls == 0);
    ech_group_destroy(group);
    return ECH_OK;
}

/* Sends as many bytes as a fold does before its broadcast. */
static inline ech_status checks_gather(ech_comm *comm)
{
    enum { MOST = 100 };
    static const int counts[] = {0, 1, MOST};
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    int *whole = malloc(sizeof *whole * (size_t)N * MOST), mine[MOST];
    int64_t bytes = 0;
    for (int i = 0; i < MOST; i++) mine[i] = rank * MOST + i;
    for (int c = 0; c < 3; c++) {
        size_t n = (size_t)counts[c];
        memset(whole, 0, sizeof *whole * (size_t)N * MOST);
        ECH_TRY(ech_group_gather(group, rank == 0 ? whole : NULL, mine, n * sizeof *mine));
        for (size_t i = 0; i < n * (size_t)N; i++)
            RANKS_CHECK(whole[i] == (rank == 0 ? (int)(i / n * MOST + i % n) : 0));
        bytes += rank == 0 ? 0 : (int64_t)(n * sizeof *mine);
        RANKS_CHECK(ech_group_count(group, ECH_COMM_OTHERS).bytes == bytes);
    }
    free(whole);
    ech_group_destroy(group);
    return ECH_OK;
}

static inline ech_status checks_broadcast(ech_comm *comm)
{
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    double messages = 0;
    for (int root = 0; root < N; root++) {
        char text[32] = "";
        if (rank == root) snprintf(text, sizeof text, "from %d", root);
        char expected[32];
        snprintf(expected, sizeof expected, "from %d", root);
        ECH_TRY(ech_group_broadcast(group, root, text, sizeof text));
        RANKS_CHECK(strcmp(text, expected) == 0);
    }
    ech_comm_count count = ech_group_count(group, ECH_COMM_OTHERS);
    RANKS_CHECK(count.calls == N && count.bytes == 32 * count.messages);
    messages = (double)count.messages;
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, &messages, 1));
    RANKS_CHECK((int)messages == N * (N - 1));
    ech_group_destroy(group);
    return ECH_OK;
}

/* Messages between neighbours in order, with two tags out of order, and of no bytes. */
static inline ech_status checks_messages(ech_comm *comm)
{
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    int next = (rank + 1) % N, previous = (rank + N - 1) % N;
    int out[3] = {rank, rank + 100, rank + 200}, in[3] = {-1, -1, -1};
    int last_tag = (1 << 20) - 1;
    ech_request requests[8];
    ECH_TRY(ech_comm_send_start(comm, next, 0, &out[0], sizeof(int), &requests[0]));
    ECH_TRY(ech_comm_send_start(comm, next, 0, &out[1], sizeof(int), &requests[1]));
    ECH_TRY(ech_comm_send_start(comm, next, last_tag, &out[2], sizeof(int), &requests[2]));
    ECH_TRY(ech_comm_send_start(comm, next, 5, NULL, 0, &requests[3]));
    ECH_TRY(ech_comm_receive_start(comm, previous, 5, NULL, 0, &requests[4]));
    ECH_TRY(ech_comm_receive_start(comm, previous, last_tag, &in[2], sizeof(int), &requests[5]));
    ECH_TRY(ech_comm_receive_start(comm, previous, 0, &in[0], sizeof(int), &requests[6]));
    ECH_TRY(ech_comm_receive_start(comm, previous, 0, &in[1], sizeof(int), &requests[7]));
    ECH_TRY(ech_comm_wait(comm, requests, 8));
    RANKS_CHECK(in[0] == previous && in[1] == previous + 100 && in[2] == previous + 200);
    bool done = false;
    ECH_TRY(ech_comm_test(comm, &requests[0], &done));
    RANKS_CHECK(done);
    return ECH_OK;
}

/* World, its halves and pairs at once, each with messages of the caller's in between, over
 * many tags: none mix. */
static inline ech_status checks_mixed_groups(ech_comm *comm)
{
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    int half[RANKS_MOST], halves = 0;
    for (int r = 0; r < N; r++)
        if (r % 2 == rank % 2) half[halves++] = r;
    ech_group *world, *parity, *again;
    ECH_TRY(checks_world(comm, &world));
    ECH_TRY(ech_group_create(comm, "parity", half, halves, &parity));
    ECH_TRY(checks_world(comm, &again));
    for (int turn = 0; turn < 40; turn++) {
        float mine = (float)(rank + turn), other = -1, sums[3] = {mine, mine, mine};
        ech_request requests[2];
        ECH_TRY(ech_comm_receive_start(comm, (rank + N - 1) % N, turn, &other, 4, &requests[0]));
        ech_group *groups[3] = {world, parity, again};
        float scratch[RANKS_MOST];
        for (int g = 0; g < 3; g++) {
            ech_tensor x = ech_tensor_1d(&sums[g], ECH_F32, 1);
            ECH_TRY(ech_group_reduce(groups[g], ECH_REDUCTION_DIRECT, &x, ECH_F32, scratch));
        }
        ECH_TRY(ech_comm_send_start(comm, (rank + 1) % N, turn, &mine, 4, &requests[1]));
        ECH_TRY(ech_group_barrier(parity));
        ECH_TRY(ech_comm_wait(comm, requests, 2));
        float all = 0, some = 0;
        for (int r = 0; r < N; r++) {
            all += (float)(r + turn);
            if (r % 2 == rank % 2) some += (float)(r + turn);
        }
        RANKS_CHECK(other == (float)((rank + N - 1) % N + turn));
        RANKS_CHECK(sums[0] == all && sums[1] == some && sums[2] == all);
    }
    ech_group_destroy(again);
    ech_group_destroy(parity);
    ech_group_destroy(world);
    return ECH_OK;
}

#endif
