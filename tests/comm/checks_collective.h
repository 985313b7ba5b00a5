/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for the collectives of comm/collective.h over any backend: each against a naive
 * computation, in place and not, within its buffers, with the messages and bytes that were
 * predicted. Run by test_collective.c (threads) and mpi_collective.c (processes).
 */
#ifndef ECH_TESTS_COMM_CHECKS_COLLECTIVE_H
#define ECH_TESTS_COMM_CHECKS_COLLECTIVE_H

#include <stdatomic.h>

#include "comm/checks_threads.h"

/* ---- buffers with canaries ---- */

typedef struct checks_buffer {
    char *at; /* [bytes], canaries before and after */
    size_t bytes;
} checks_buffer;

static inline checks_buffer checks_buffer_new(size_t bytes)
{
    char *whole = malloc(bytes + 2 * CHECKS_CANARY);
    memset(whole, 0x5a, bytes + 2 * CHECKS_CANARY);
    return (checks_buffer){.at = whole + CHECKS_CANARY, .bytes = bytes};
}

/* Frees it; whether its canaries live. */
static inline bool checks_buffer_end(checks_buffer *b)
{
    char canary[CHECKS_CANARY];
    memset(canary, 0x5a, sizeof canary);
    bool intact = memcmp(b->at - CHECKS_CANARY, canary, CHECKS_CANARY) == 0 &&
                  memcmp(b->at + b->bytes, canary, CHECKS_CANARY) == 0;
    free(b->at - CHECKS_CANARY);
    return intact;
}

/* ---- counters ---- */

/* What was counted since *before: the prediction, and nothing elsewhere. */
static inline ech_status checks_counted(const ech_group *group, ech_collective collective,
                                        ech_dtype dtype, int64_t n, ech_comm_count *before)
{
    int index = ech_group_index(group);
    ech_comm_count now = ech_group_count(group, ECH_COMM_COLLECTIVES);
    RANKS_CHECK(now.calls == before->calls + 1);
    RANKS_CHECK(now.bytes - before->bytes ==
                ech_collective_traffic(collective, dtype, n, ech_group_lineup(group), index).bytes);
    RANKS_CHECK(
        now.messages - before->messages ==
        ech_collective_traffic(collective, dtype, n, ech_group_lineup(group), index).messages);
    RANKS_CHECK(ech_group_count(group, ECH_COMM_REDUCES).calls == 0);
    RANKS_CHECK(ech_group_count(group, ECH_COMM_OTHERS).calls == 0);
    *before = now;
    return ECH_OK;
}

/* ---- sums ---- */

typedef struct checks_sum {
    ech_group *group;
    ech_dtype dtype;
    int64_t n;
    checks_buffer x, mine, scratch;
    char *serial, *before; /* the sum; x as it was */
} checks_sum;

static inline checks_sum checks_sum_new(ech_group *group, ech_collective collective,
                                        ech_dtype dtype, int64_t n)
{
    size_t item = ech_dtype_bytes(dtype), bytes = (size_t)n * item;
    int N = ech_group_size(group), index = ech_group_index(group);
    checks_sum s = {.group = group, .dtype = dtype, .n = n};
    s.x = checks_buffer_new(bytes);
    s.mine = checks_buffer_new((size_t)ech_collective_shard_count(n, N, index) * item);
    s.scratch =
        checks_buffer_new(ech_collective_scratch(collective, dtype, n, ech_group_lineup(group)));
    s.serial = malloc(bytes + 1);
    s.before = malloc(bytes + 1);
    checks_fill(s.x.at, dtype, n, index, false);
    checks_fill(s.before, dtype, n, index, false);
    checks_serial_sum(s.serial, dtype, dtype, n, N, false);
    return s;
}

static inline bool checks_sum_end(checks_sum *s)
{
    bool intact = checks_buffer_end(&s->x);
    intact &= checks_buffer_end(&s->mine);
    intact &= checks_buffer_end(&s->scratch);
    free(s->serial);
    free(s->before);
    return intact;
}

static inline ech_status checks_all_reduce(ech_group *group, ech_dtype dtype, int64_t n)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    checks_sum s = checks_sum_new(group, ECH_COLLECTIVE_ALL_REDUCE, dtype, n);
    ech_tensor x = ech_tensor_1d(s.x.at, dtype, n);
    ech_status st = ech_group_all_reduce(group, &x, s.scratch.at);
    bool right = memcmp(s.x.at, s.serial, s.x.bytes) == 0, intact = checks_sum_end(&s);
    ECH_TRY(st);
    RANKS_CHECK(right && intact);
    return checks_counted(group, ECH_COLLECTIVE_ALL_REDUCE, dtype, n, &before);
}

/* Whether x is as it was, but for this member's shard when that was summed in place. */
static inline bool checks_kept(const checks_sum *s, bool in_place)
{
    size_t item = ech_dtype_bytes(s->dtype);
    int N = ech_group_size(s->group), index = ech_group_index(s->group);
    size_t first = (size_t)ech_collective_shard_first(s->n, N, index) * item,
           after = first + s->mine.bytes;
    if (!in_place) return memcmp(s->x.at, s->before, s->x.bytes) == 0;
    return memcmp(s->x.at, s->before, first) == 0 &&
           memcmp(s->x.at + after, s->before + after, s->x.bytes - after) == 0;
}

static inline ech_status checks_reduce_scatter(ech_group *group, ech_dtype dtype, int64_t n,
                                               bool in_place)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    checks_sum s = checks_sum_new(group, ECH_COLLECTIVE_REDUCE_SCATTER, dtype, n);
    int64_t shard = ech_collective_shard_first(n, ech_group_size(group), ech_group_index(group));
    size_t first = (size_t)shard * ech_dtype_bytes(dtype);
    char *mine = in_place ? s.x.at + first : s.mine.at;
    ech_tensor x = ech_tensor_1d(s.x.at, dtype, n);
    ech_status st = ech_group_reduce_scatter(group, &x, mine, s.scratch.at);
    bool right = memcmp(mine, s.serial + first, s.mine.bytes) == 0;
    bool unchanged = checks_kept(&s, in_place), intact = checks_sum_end(&s);
    ECH_TRY(st);
    RANKS_CHECK(right && unchanged && intact);
    return checks_counted(group, ECH_COLLECTIVE_REDUCE_SCATTER, dtype, n, &before);
}

/* ---- moves ---- */

/* Byte i of what member `from` sends to member `to`. */
static inline char checks_byte(int from, int to, size_t i)
{
    return (char)(from * 91 + to * 29 + (int)(i * 7 + i / 251) % 256);
}

static inline ech_status checks_all_gather(ech_group *group, ech_dtype dtype, int64_t n,
                                           bool in_place)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    int N = ech_group_size(group), index = ech_group_index(group);
    size_t item = ech_dtype_bytes(dtype);
    size_t own = (size_t)ech_collective_shard_count(n, N, index) * item;
    checks_buffer whole = checks_buffer_new((size_t)n * item), apart = checks_buffer_new(own);
    char *mine =
        in_place ? whole.at + (size_t)ech_collective_shard_first(n, N, index) * item : apart.at;
    for (size_t i = 0; i < own; i++) mine[i] = checks_byte(index, 0, i);
    ech_status st = ech_group_all_gather(group, whole.at, mine, item, n);
    bool right = true;
    size_t at = 0;
    for (int m = 0; m < N; m++)
        for (size_t i = 0; i < (size_t)ech_collective_shard_count(n, N, m) * item; i++, at++)
            right &= whole.at[at] == checks_byte(m, 0, i);
    for (size_t i = 0; i < own; i++) right &= mine[i] == checks_byte(index, 0, i);
    right &= at == whole.bytes;
    bool intact = checks_buffer_end(&whole);
    intact &= checks_buffer_end(&apart);
    ECH_TRY(st);
    RANKS_CHECK(right && intact);
    return checks_counted(group, ECH_COLLECTIVE_ALL_GATHER, dtype, n, &before);
}

/* Pieces of n elements. */
static inline ech_status checks_all_to_all(ech_group *group, ech_dtype dtype, int64_t n)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    int N = ech_group_size(group), index = ech_group_index(group);
    size_t bytes = (size_t)n * ech_dtype_bytes(dtype);
    checks_buffer to = checks_buffer_new((size_t)N * bytes);
    checks_buffer from = checks_buffer_new((size_t)N * bytes);
    for (int m = 0; m < N; m++)
        for (size_t i = 0; i < bytes; i++) to.at[(size_t)m * bytes + i] = checks_byte(index, m, i);
    ech_status st = ech_group_all_to_all(group, to.at, from.at, bytes);
    bool right = true;
    for (int m = 0; m < N; m++)
        for (size_t i = 0; i < bytes; i++) {
            right &= from.at[(size_t)m * bytes + i] == checks_byte(m, index, i);
            right &= to.at[(size_t)m * bytes + i] == checks_byte(index, m, i);
        }
    bool intact = checks_buffer_end(&to);
    intact &= checks_buffer_end(&from);
    ECH_TRY(st);
    RANKS_CHECK(right && intact);
    return checks_counted(group, ECH_COLLECTIVE_ALL_TO_ALL, dtype, n * N, &before);
}

/* Rows from member `from` to member `to`, by a pattern: equally many; odd numbers, none among them;
 * all to member 0; all to the next one; none at all. */
enum { CHECKS_PATTERNS = 5 };
static inline int64_t checks_rows(int pattern, int from, int to, int N, int64_t room)
{
    if (pattern == 0) return room / 2;
    if (pattern == 1)
        return (from * 5 + to * 3 + 1) % 4 == 0 ? 0 : (from * 7 + to * 11) % (room + 1);
    if (pattern == 2) return to == 0 ? room : 0;
    return pattern == 3 && to == (from + 1) % N ? room : 0;
}

typedef struct checks_rows_run {
    ech_group *group;
    int64_t sends[RANKS_MOST], receives[RANKS_MOST], most, slice;
    size_t bytes;
    checks_buffer packed, slices, back;
    bool right;
    int64_t sent, messages; /* as they should be */
} checks_rows_run;

static inline void checks_count_slice(checks_rows_run *r, const ech_row_exchange *x)
{
    for (int m = 0; m < ech_group_size(r->group); m++) {
        int64_t left = x->sends[m] - x->first, rows = left < x->rows ? left : x->rows;
        if (m == ech_group_index(r->group) || left < 0) continue;
        r->messages += r->bytes > 0;
        r->sent += rows * (int64_t)r->bytes;
    }
}

/* Sends one slice there and back. Nothing is written after the rows in use. */
static inline ech_status checks_slice(checks_rows_run *r, int64_t first)
{
    int N = ech_group_size(r->group), index = ech_group_index(r->group);
    ech_row_exchange x = {.sends = r->sends,
                          .receives = r->receives,
                          .room = N * r->most,
                          .most = r->most,
                          .first = first,
                          .rows = r->slice,
                          .bytes = r->bytes};
    memset(r->slices.at, 0x5a, r->slices.bytes);
    ECH_TRY(ech_group_exchange_rows(r->group, r->packed.at, r->slices.at, &x));
    checks_count_slice(r, &x);
    for (int m = 0; m < N; m++)
        for (size_t i = 0; i < (size_t)r->slice * r->bytes; i++) {
            size_t at = (size_t)first * r->bytes + i;
            bool used = at < (size_t)r->receives[m] * r->bytes;
            char is = r->slices.at[(size_t)(m * r->slice) * r->bytes + i];
            r->right &= is == (used ? checks_byte(m, index, at) : 0x5a);
        }
    x.sends = r->receives;
    x.receives = r->sends;
    x.packs = true;
    ECH_TRY(ech_group_exchange_rows(r->group, r->slices.at, r->back.at, &x));
    checks_count_slice(r, &x);
    return ECH_OK;
}

/* Splits of `most` rows at most, in slices. Counters are the sums of the counts. */
static inline ech_status checks_exchange_rows(ech_group *group, int64_t most, size_t bytes,
                                              int pattern, int rounds)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES), now;
    int N = ech_group_size(group), index = ech_group_index(group);
    checks_rows_run r = {.group = group,
                         .most = most,
                         .slice = (most + rounds - 1) / rounds,
                         .bytes = most ? bytes : 0,
                         .right = true};
    size_t all = (size_t)(N * most) * bytes, at = 0;
    r.packed = checks_buffer_new(all);
    r.back = checks_buffer_new(all);
    r.slices = checks_buffer_new((size_t)(N * r.slice) * bytes);
    for (int m = 0; m < N; m++) {
        r.sends[m] = checks_rows(pattern, index, m, N, most);
        r.receives[m] = checks_rows(pattern, m, index, N, most);
        for (size_t i = 0; i < (size_t)r.sends[m] * bytes; i++)
            r.packed.at[at++] = checks_byte(index, m, i);
    }
    memset(r.packed.at + at, 0x5a, all - at);
    ech_status st = ECH_OK;
    for (int round = 0; round < rounds && st == ECH_OK; round++)
        st = checks_slice(&r, round * r.slice);
    r.right &= memcmp(r.packed.at, r.back.at, all) == 0;
    bool intact = checks_buffer_end(&r.packed);
    intact &= checks_buffer_end(&r.slices);
    intact &= checks_buffer_end(&r.back);
    ECH_TRY(st);
    RANKS_CHECK(r.right && intact);
    now = ech_group_count(group, ECH_COMM_COLLECTIVES);
    RANKS_CHECK(now.calls == before.calls + 2 * rounds);
    RANKS_CHECK(now.messages == before.messages + r.messages);
    RANKS_CHECK(now.bytes == before.bytes + r.sent);
    return ECH_OK;
}

static inline ech_status checks_exchanges(ech_group *group)
{
    static const int64_t most[] = {0, 1, 3, 64, 5000};
    ech_status st = ECH_OK;
    for (int i = 0; i < 5 * CHECKS_PATTERNS && st == ECH_OK; i++)
        for (int rounds = 1; rounds < 4 && st == ECH_OK; rounds++)
            st = checks_exchange_rows(group, most[i / CHECKS_PATTERNS], i % 2 ? 7 : 64,
                                      i % CHECKS_PATTERNS, rounds);
    return st;
}

/* ---- slices of rows by counts ---- */

enum { CHECKS_SLICES = 3 };

typedef struct checks_slices {
    ech_group *group;
    ech_dtype dtype;
    int64_t counts[RANKS_MOST * CHECKS_SLICES], width; /* width: numbers of a row */
    ech_row_slices of;
    int64_t own, others; /* rows in use of this member's slices, and of the others' */
    checks_buffer whole, mine, scratch;
} checks_slices;

static inline checks_slices checks_slices_new(ech_group *group, ech_dtype dtype, int64_t rows,
                                              int64_t width, int pattern)
{
    int N = ech_group_size(group), index = ech_group_index(group);
    checks_slices r = {.group = group, .dtype = dtype, .width = width};
    int64_t n = N * CHECKS_SLICES * rows * width;
    for (int m = 0; m < N; m++)
        for (int w = 0; w < CHECKS_SLICES; w++) {
            int64_t used = checks_rows(pattern, w, m, N, rows);
            r.counts[m * CHECKS_SLICES + w] = used;
            *(m == index ? &r.own : &r.others) += used;
        }
    r.of = (ech_row_slices){.slices = CHECKS_SLICES, .rows = rows};
    r.whole = checks_buffer_new((size_t)n * ech_dtype_bytes(dtype));
    r.mine = checks_buffer_new((size_t)(n / N) * ech_dtype_bytes(dtype));
    r.scratch = checks_buffer_new(
        ech_collective_scratch(ECH_COLLECTIVE_REDUCE_SCATTER, dtype, n, ech_group_lineup(group)));
    return r;
}

static inline bool checks_slices_end(checks_slices *r)
{
    bool intact = checks_buffer_end(&r->whole);
    intact &= checks_buffer_end(&r->mine);
    intact &= checks_buffer_end(&r->scratch);
    return intact;
}

/* Whether the rows in use of n slices from the first one on are those of `is`, and the others as
 * buffers begin. */
static inline bool checks_slices_are(const checks_slices *r, const char *at, const char *is,
                                     const int64_t *counts, int64_t n)
{
    size_t row = (size_t)r->width * ech_dtype_bytes(r->dtype);
    bool right = true;
    for (int64_t w = 0; w < n; w++) {
        size_t first = (size_t)(w * r->of.rows) * row, used = (size_t)counts[w] * row;
        right &= memcmp(at + first, is + first, used) == 0;
        for (size_t i = used; i < (size_t)r->of.rows * row; i++) right &= at[first + i] == 0x5a;
    }
    return right;
}

static inline ech_status checks_sent(const checks_slices *r, ech_comm_count *before, int64_t rows)
{
    ech_comm_count now = ech_group_count(r->group, ECH_COMM_COLLECTIVES);
    RANKS_CHECK(now.calls == before->calls + 1);
    RANKS_CHECK(now.bytes - before->bytes == rows * r->width * (int64_t)ech_dtype_bytes(r->dtype));
    RANKS_CHECK(rows > 0 || now.messages == before->messages);
    *before = now;
    return ECH_OK;
}

/* Both ways, against what the collectives of even shards give. */
static inline ech_status checks_move_slices(ech_group *group, ech_dtype dtype, int64_t rows,
                                            int64_t width, int pattern)
{
    int N = ech_group_size(group), index = ech_group_index(group);
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    checks_slices r = checks_slices_new(group, dtype, rows, width, pattern);
    const int64_t *own = r.counts + index * CHECKS_SLICES;
    int64_t n = N * CHECKS_SLICES * rows * width;
    char *sum = malloc(r.whole.bytes + 1), *mine = sum + (size_t)index * r.mine.bytes;
    r.of.counts = r.counts;
    checks_serial_sum(sum, dtype, dtype, n, N, false);
    ech_tensor x = ech_tensor_1d(r.whole.at, dtype, n);
    checks_fill(r.whole.at, dtype, n, index, false);
    ech_status st = ech_group_scatter_rows(group, &x, r.mine.at, r.scratch.at, &r.of);
    bool right = checks_slices_are(&r, r.mine.at, mine, own, CHECKS_SLICES);
    if (st == ECH_OK) st = checks_sent(&r, &before, N > 1 ? r.others : 0);
    memset(r.whole.at, 0x5a, r.whole.bytes);
    if (st == ECH_OK) st = ech_group_gather_rows(group, &x, mine, &r.of);
    right &= checks_slices_are(&r, r.whole.at, sum, r.counts, N * CHECKS_SLICES);
    if (st == ECH_OK) st = checks_sent(&r, &before, (N - 1) * r.own);
    bool intact = checks_slices_end(&r);
    free(sum);
    ECH_TRY(st);
    RANKS_CHECK(right && intact);
    return ECH_OK;
}

static inline ech_status checks_all_slices(ech_group *group)
{
    static const int64_t rows[] = {0, 3, 90};
    ech_status st = ECH_OK;
    for (int i = 0; i < 3 * CHECKS_PATTERNS && st == ECH_OK; i++)
        st = checks_move_slices(group, checks_types[i % 4].dtype, rows[i / CHECKS_PATTERNS],
                                i % 2 ? 5 : 16, i % CHECKS_PATTERNS);
    return st;
}

static inline ech_status checks_shift(ech_group *group, ech_dtype dtype, int64_t n, int distance)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    int N = ech_group_size(group), index = ech_group_index(group);
    int source = (((index - distance) % N) + N) % N;
    size_t bytes = (size_t)n * ech_dtype_bytes(dtype);
    checks_buffer to = checks_buffer_new(bytes), from = checks_buffer_new(bytes);
    for (size_t i = 0; i < bytes; i++) to.at[i] = checks_byte(index, 1, i);
    ech_status st = ech_group_shift(group, distance, to.at, from.at, bytes);
    bool right = true;
    for (size_t i = 0; i < bytes; i++) {
        right &= from.at[i] == checks_byte(source, 1, i);
        right &= to.at[i] == checks_byte(index, 1, i);
    }
    bool intact = checks_buffer_end(&to);
    intact &= checks_buffer_end(&from);
    ECH_TRY(st);
    RANKS_CHECK(right && intact);
    bool copies = distance % N == 0;
    return checks_counted(group, copies ? ECH_COLLECTIVE_NONE : ECH_COLLECTIVE_SHIFT, dtype, n,
                          &before);
}

/* Whoever has no member at that distance keeps what its buffer had. */
static inline ech_status checks_slide(ech_group *group, ech_dtype dtype, int64_t n, int distance)
{
    ech_comm_count before = ech_group_count(group, ECH_COMM_COLLECTIVES);
    int N = ech_group_size(group), index = ech_group_index(group), source = index - distance;
    size_t bytes = (size_t)n * ech_dtype_bytes(dtype);
    checks_buffer to = checks_buffer_new(bytes), from = checks_buffer_new(bytes);
    for (size_t i = 0; i < bytes; i++) {
        to.at[i] = checks_byte(index, 1, i);
        from.at[i] = 3;
    }
    ech_status st = ech_group_slide(group, distance, to.at, from.at, bytes);
    bool right = true, receives = source >= 0 && source < N;
    for (size_t i = 0; i < bytes; i++)
        right &= from.at[i] == (receives ? checks_byte(source, 1, i) : 3);
    bool intact = checks_buffer_end(&to);
    intact &= checks_buffer_end(&from);
    ECH_TRY(st);
    RANKS_CHECK(right && intact);
    bool sends = index + distance >= 0 && index + distance < N;
    return checks_counted(group, sends ? ECH_COLLECTIVE_SLIDE : ECH_COLLECTIVE_NONE, dtype, n,
                          &before);
}

/* ---- all of them ---- */

/* Every collective once with n elements, over a group that is used for nothing else. */
static inline ech_status checks_collectives_of(ech_group *group, ech_dtype dtype, int64_t n)
{
    ECH_TRY(checks_all_reduce(group, dtype, n));
    for (int in_place = 0; in_place < 2; in_place++) {
        ECH_TRY(checks_reduce_scatter(group, dtype, n, in_place));
        ECH_TRY(checks_all_gather(group, dtype, n, in_place));
    }
    ECH_TRY(checks_all_to_all(group, dtype, n));
    for (int distance = -3; distance <= 3; distance++)
        ECH_TRY(checks_shift(group, dtype, n, distance));
    for (int distance = -3; distance <= 3; distance++)
        if (distance) ECH_TRY(checks_slide(group, dtype, n, distance));
    return ECH_OK;
}

static inline ech_status checks_collectives(ech_comm *comm)
{
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    ech_status st = ECH_OK;
    for (int i = 0; i < CHECKS_COUNTS * 4 && st == ECH_OK; i++)
        if (i % 4 < 2 || checks_counts[i / 4] <= 1000)
            st = checks_collectives_of(group, checks_types[i % 4].dtype, checks_counts[i / 4]);
    /* Bytes move too. */
    if (st == ECH_OK) st = checks_all_gather(group, ECH_U8, 1001, false);
    if (st == ECH_OK) st = checks_all_to_all(group, ECH_U8, 17);
    if (st == ECH_OK) st = checks_exchanges(group);
    if (st == ECH_OK) st = checks_all_slices(group);
    ech_group_destroy(group);
    return st;
}

/* Pieces of several segments of a sum, where the first one has a segment more than the others. */
static inline ech_status checks_long_collectives(ech_comm *comm)
{
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    int64_t N = ech_comm_size(comm), segment = (1 << 20) / 4;
    ech_status st = checks_all_reduce(group, ECH_F32, 2 * N * segment + 1);
    if (st == ECH_OK) st = checks_all_reduce(group, ECH_BF16, 2 * N * segment + 1);
    for (int in_place = 0; in_place < 2 && st == ECH_OK; in_place++)
        st = checks_reduce_scatter(group, in_place ? ECH_F32 : ECH_F16, N * segment + 1, in_place);
    if (st == ECH_OK) st = checks_all_gather(group, ECH_F64, N * segment + 1, false);
    if (st == ECH_OK) st = checks_move_slices(group, ECH_F64, 700, 60, 1);
    ech_group_destroy(group);
    return st;
}

/* ---- several threads of a rank ---- */

static inline ech_status checks_use_collectives(ech_comm *comm, void *context)
{
    (void)comm;
    static const int64_t counts[] = {1, 7, 1000, 40000};
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 4; i++)
            ECH_TRY(checks_collectives_of(context, turn % 2 ? ECH_F32 : ECH_F64, counts[i]));
    return ECH_OK;
}

/* Rows again and again, in a number that differs from member to member and from turn to turn. */
static inline ech_status checks_use_exchanges(ech_comm *comm, void *context)
{
    (void)comm;
    for (int turn = 0; turn < 8; turn++) ECH_TRY(checks_exchanges(context));
    return ECH_OK;
}

/* Exchanges inside of blocks and sums between them, on two threads. Every second rank begins its
 * exchanges when its sums have ended, while the others wait in theirs: whoever is late with one
 * holds up no sum. */
typedef struct checks_late {
    ech_group *exchanges, *sums;
    atomic_bool *summed; /* this rank's sums have ended */
} checks_late;

static inline ech_status checks_late_exchanges(ech_comm *comm, void *context)
{
    checks_late *late = context;
    while (ech_comm_rank(comm) % 2 && !atomic_load(late->summed)) sched_yield();
    return checks_use_exchanges(comm, late->exchanges);
}

static inline ech_status checks_own_sums(ech_comm *comm, void *context)
{
    checks_late *late = context;
    ech_status st = checks_use_group(comm, late->sums);
    atomic_store(late->summed, true);
    return st;
}

/* Two groups with collectives, then one beside messages, then beside gradient reductions. */
static inline ech_status checks_threads_collectives(ech_comm *comm)
{
    ech_group *one, *other, *gradients;
    ECH_TRY(checks_world(comm, &one));
    ECH_TRY(checks_world(comm, &other));
    ECH_TRY(checks_world(comm, &gradients));
    ech_status st = checks_both(comm, checks_use_collectives, one, checks_use_collectives, other);
    if (st == ECH_OK)
        st = checks_both(comm, checks_use_collectives, one, checks_use_messages, NULL);
    if (st == ECH_OK)
        st = checks_both(comm, checks_use_collectives, one, checks_use_group, gradients);
    if (st == ECH_OK)
        st = checks_both(comm, checks_use_exchanges, one, checks_use_group, gradients);
    atomic_bool summed = false;
    checks_late late = {one, gradients, &summed};
    if (st == ECH_OK) st = checks_both(comm, checks_late_exchanges, &late, checks_own_sums, &late);
    ech_group_destroy(gradients);
    ech_group_destroy(other);
    ech_group_destroy(one);
    return st;
}

#endif
