/* SPDX-License-Identifier: Apache-2.0
 *
 * Halves of reductions over ranks as threads.
 */
#include <sched.h>

#include "comm/checks_halves.h"
#include "unit.h"

static const double deadline = 60;
enum { MOST = 5 };
static const ech_reduction with_halves[] = {ECH_REDUCTION_DIRECT, ECH_REDUCTION_RING,
                                            ECH_REDUCTION_TORUS, ECH_REDUCTION_HIERARCHICAL};

static ech_status run_halves(ech_comm *comm, void *context)
{
    return checks_halves(comm, *(const ech_reduction *)context);
}

static ech_status run_in_a_row(ech_comm *comm, void *context)
{
    return checks_halves_in_a_row(comm, *(const ech_reduction *)context);
}

TEST(halves_have_the_bits_of_the_whole)
{
    for (int i = 0; i < 4; i++)
        for (int n = 1; n <= MOST; n++) {
            ech_reduction reduction = with_halves[i];
            assert_int_equal(ranks_run(n, deadline, run_halves, &reduction, NULL), ECH_OK);
        }
}

TEST(each_begins_before_the_one_before_it_ends)
{
    for (int i = 0; i < 4; i++)
        for (int n = 2; n <= 3; n++) {
            ech_reduction reduction = with_halves[i];
            assert_int_equal(ranks_run(n, deadline, run_in_a_row, &reduction, NULL), ECH_OK);
        }
}

/* An element of shard s is added in the order s + 1, s + 2, ..., s, and its last addend is its
 * owner's. */
static ech_status sum_around(ech_comm *comm, void *context)
{
    (void)context;
    enum { COUNT = 997 };
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    float x[COUNT], scratch[COUNT];
    checks_fill(x, ECH_F32, COUNT, rank, false);
    ech_tensor view = ech_tensor_1d(x, ECH_F32, COUNT);
    ech_status st = ech_group_reduce(group, ECH_REDUCTION_RING, &view, ECH_F32, scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    for (int s = 0; s < N; s++)
        for (int64_t i = ech_collective_shard_first(COUNT, N, s), n = 0;
             n < ech_collective_shard_count(COUNT, N, s); i++, n++) {
            float sum = (float)checks_element((s + 1) % N, i, false);
            for (int k = 2; k <= N; k++) sum += (float)checks_element((s + k) % N, i, false);
            RANKS_CHECK(N == 1 || x[i] == sum);
        }
    return ECH_OK;
}

TEST(ring_adds_its_owners_last)
{
    for (int n = 1; n <= MOST; n++)
        assert_int_equal(ranks_run(n, deadline, sum_around, NULL, NULL), ECH_OK);
}

/* Rank 0 begins alone, and has sent what it may: the other comes later. */
typedef struct alone {
    ech_reduction_part part;
    _Atomic bool begun;
} alone;

static ech_status begin_alone(ech_comm *comm, void *context)
{
    alone *a = context;
    int64_t n = 1 << 22;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    checks_link link = {.part = a->part, .n = n, .wire = ECH_F32};
    link.x = malloc((size_t)n * 4);
    link.expected = malloc((size_t)n * 4);
    link.scratch = malloc(
        ech_reduction_part_scratch(ECH_REDUCTION_DIRECT, a->part, ECH_F32, n, checks_lineup(comm)) +
        1);
    while (ech_comm_rank(comm) == 1 && !a->begun) sched_yield();
    ech_status st = checks_link_begin(group, ECH_REDUCTION_DIRECT, &link);
    bool sends = ech_group_count(group, ECH_COMM_SCATTERS).messages +
                     ech_group_count(group, ECH_COMM_GATHERS).messages >
                 0;
    a->begun = true;
    if (st == ECH_OK) st = ech_sum_run(&link.sum);
    if (st == ECH_OK) st = checks_link_end(group, &link);
    free(link.x);
    free(link.expected);
    free(link.scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(sends);
    return ECH_OK;
}

TEST(beginning_waits_for_nobody)
{
    for (ech_reduction_part part = ECH_REDUCTION_SCATTER; part <= ECH_REDUCTION_GATHER; part++) {
        alone a = {.part = part};
        assert_int_equal(ranks_run(2, deadline, begin_alone, &a, NULL), ECH_OK);
    }
}

static ech_status refuse(ech_comm *comm, void *context)
{
    ech_reduction reduction = *(ech_reduction *)context;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    float x[2] = {1, 2}, shard[2];
    int32_t whole[2] = {1, 2};
    ech_sum sum;
    ech_tensor view = ech_tensor_1d(x, ECH_F32, 2), integers = ech_tensor_1d(whole, ECH_I32, 2);
    ech_status st =
        ech_sum_begin_scatter(group, reduction, &view, ECH_F32, shard, false, NULL, &sum);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "use direct, ring"));
    st = ech_sum_begin_gather(group, reduction, &view, shard, &sum);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "use direct, ring"));
    st =
        ech_sum_begin_scatter(group, ECH_REDUCTION_RING, &view, ECH_BF16, shard, false, NULL, &sum);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "use direct"));
    st = ech_sum_begin_scatter(group, ECH_REDUCTION_DIRECT, &integers, ECH_I32, shard, false, NULL,
                               &sum);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "int32"));
    ech_group_destroy(group);
    return ECH_OK;
}

TEST(naive_has_no_halves)
{
    ech_reduction naive = ECH_REDUCTION_NAIVE;
    for (ech_reduction i = 0; i < ECH_REDUCTIONS; i++)
        assert_int_equal(ech_reduction_has_halves(i), i != naive);
    assert_int_equal(ranks_run(2, deadline, refuse, &naive, NULL), ECH_OK);
}

/* What plans rely on for sizes that no test runs. */
TEST(formulas)
{
    int64_t n = (int64_t)1 << 36;
    for (int i = 0; i < 3; i++) /* the last one's members do not send alike: test_paths.c */
        for (int N = 1; N <= 1024; N *= 2) {
            ech_reduction r = with_halves[i];
            ech_lineup of = {.size = N};
            for (int m = 0; m < N; m += (N + 4) / 5) {
                int64_t half = n / N * (N - 1);
                assert_int_equal(ech_reduction_part_elements(r, ECH_REDUCTION_SCATTER, n, of, m),
                                 half);
                assert_int_equal(ech_reduction_part_elements(r, ECH_REDUCTION_GATHER, n, of, m),
                                 half);
                assert_int_equal(ech_reduction_bytes(r, ECH_BF16, n, of, m), 2 * half * 2);
            }
            assert_int_equal(ech_reduction_part_scratch(r, ECH_REDUCTION_SCATTER, ECH_BF16, n, of),
                             ech_reduction_scratch(r, ECH_BF16, n, of));
            assert_int_equal(ech_reduction_part_scratch(r, ECH_REDUCTION_GATHER, ECH_BF16, n, of),
                             0);
        }
}

/* The last `stores` members have the shards: each gets the sum of its own, in member order, and
 * sends it to the others. */
typedef struct served {
    int stores;
    ech_dtype wire;
} served;

/* What the counters say is what plans say. */
static bool counts_are(const ech_group *group, const served *of, ech_reduction_part part, int64_t n,
                       ech_comm_counted kind)
{
    ech_lineup all = ech_group_lineup(group);
    ech_dtype wire = part == ECH_REDUCTION_SCATTER ? of->wire : ECH_F32;
    ech_comm_count counted = ech_group_count(group, kind);
    int64_t sent =
        ech_reduction_part_elements(ECH_REDUCTION_DIRECT, part, n, all, ech_group_index(group));
    return counted.bytes == sent * (int64_t)ech_dtype_bytes(wire) &&
           counted.messages ==
               ech_reduction_part_messages(part, wire, n, all, ech_group_index(group));
}

static ech_status scatter_to_stores(ech_group *group, const served *of, const ech_tensor *x,
                                    float *shard, ech_delivery delivery, void *scratch)
{
    ech_sum sum;
    ECH_TRY(ech_sum_begin_scatter(group, ECH_REDUCTION_DIRECT, x, of->wire, shard, delivery,
                                  scratch, &sum));
    ECH_TRY(ech_sum_run(&sum));
    return ech_sum_end(&sum);
}

/* Sums the same numbers once more. If the sum is added to the earlier one, it is twice as large; if
 * it is dropped, the earlier one stays. */
static ech_status add_and_drop(ech_comm *comm, void *context)
{
    const served *of = context;
    enum { COUNT = 100003 };
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm), workers = N - of->stores;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    ech_group_set_stores(group, of->stores);
    ech_lineup all = ech_group_lineup(group);
    int64_t first = ech_lineup_shard_first(&all, COUNT, rank);
    int64_t n = ech_lineup_shard_count(&all, COUNT, rank);
    void *scratch =
        malloc(1 + ech_reduction_part_scratch(ECH_REDUCTION_DIRECT, ECH_REDUCTION_SCATTER, ECH_F32,
                                              COUNT, all));
    float *x = calloc(COUNT, sizeof *x), *shard = calloc((size_t)n + 1, sizeof *shard);
    ech_tensor view = ech_tensor_1d(rank < workers ? x : NULL, ECH_F32, COUNT);
    static const ech_delivery deliveries[] = {ECH_DELIVER_OVER, ECH_DELIVER_ADDED,
                                              ECH_DELIVER_DROPPED, ECH_DELIVER_ADDED};
    static const int times[] = {1, 2, 2, 3};
    ech_status st = ECH_OK;
    bool sums = true;
    for (int k = 0; k < 4 && st == ECH_OK; k++) {
        for (int64_t i = 0; i < COUNT; i++) x[i] = (float)((i + 3 * rank) % 64);
        st =
            scatter_to_stores(group, of, &view, rank < workers ? x : shard, deliveries[k], scratch);
        for (int64_t i = 0; i < n; i++) {
            float expected = 0;
            for (int r = 0; r < workers; r++) expected += (float)((first + i + 3 * r) % 64);
            sums &= shard[i] == (float)times[k] * expected;
        }
    }
    free(x);
    free(shard);
    free(scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(sums);
    return ECH_OK;
}

static ech_status serve(ech_comm *comm, void *context)
{
    const served *of = context;
    enum { COUNT = 100003 };
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm), workers = N - of->stores;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    ech_group_set_stores(group, of->stores);
    ech_lineup all = ech_group_lineup(group);
    int64_t first = ech_lineup_shard_first(&all, COUNT, rank);
    int64_t n = ech_lineup_shard_count(&all, COUNT, rank);
    size_t scratch_bytes = ech_reduction_part_scratch(ECH_REDUCTION_DIRECT, ECH_REDUCTION_SCATTER,
                                                      of->wire, COUNT, all);
    bool serves = rank >= workers;
    float *x = calloc(COUNT, sizeof *x), *expected = calloc(COUNT, sizeof *x);
    float *shard = calloc((size_t)n + 1, sizeof *shard);
    void *scratch = malloc(scratch_bytes + 1);
    for (int64_t i = 0; i < COUNT; i++) { /* whole numbers up to 256, of which bf16 loses none */
        x[i] = (float)((i + 3 * rank) % 64);
        for (int r = 0; r < workers; r++) expected[i] += (float)((i + 3 * r) % 64);
    }
    ech_sum sum;
    ech_tensor view = ech_tensor_1d(serves ? NULL : x, ECH_F32, COUNT);
    ech_status st = ech_sum_begin_scatter(group, ECH_REDUCTION_DIRECT, &view, of->wire,
                                          serves ? shard : x + first, false, scratch, &sum);
    if (st == ECH_OK) st = ech_sum_run(&sum);
    if (st == ECH_OK) st = ech_sum_end(&sum);
    bool sums = (n > 0) == serves;
    for (int64_t i = 0; i < n; i++) sums &= shard[i] == expected[first + i];
    for (int64_t i = 0; i < COUNT; i++) x[i] = -1;
    if (st == ECH_OK)
        st = ech_sum_begin_gather(group, ECH_REDUCTION_DIRECT, &view, serves ? shard : x, &sum);
    if (st == ECH_OK) st = ech_sum_run(&sum);
    if (st == ECH_OK) st = ech_sum_end(&sum);
    for (int64_t i = 0; i < COUNT && !serves; i++) sums &= x[i] == expected[i];
    bool counts = counts_are(group, of, ECH_REDUCTION_SCATTER, COUNT, ECH_COMM_SCATTERS) &&
                  counts_are(group, of, ECH_REDUCTION_GATHER, COUNT, ECH_COMM_GATHERS);
    int64_t bytes = ech_group_count(group, ECH_COMM_SCATTERS).bytes +
                    ech_group_count(group, ECH_COMM_GATHERS).bytes;
    int64_t expected_bytes =
        serves ? workers * n * 4 : (int64_t)COUNT * (int64_t)ech_dtype_bytes(of->wire);
    free(x);
    free(expected);
    free(shard);
    free(scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(sums);
    RANKS_CHECK(counts && bytes == expected_bytes);
    return ECH_OK;
}

TEST(stores_sum_what_others_have)
{
    for (int n = 2; n <= MOST; n++)
        for (int stores = 1; stores < n; stores++)
            for (int narrow = 0; narrow < 2; narrow++) {
                served of = {stores, narrow ? ECH_BF16 : ECH_F32};
                assert_int_equal(ranks_run(n, deadline, serve, &of, NULL), ECH_OK);
            }
}

TEST(stores_add_to_what_they_have_and_drop)
{
    for (int n = 2; n <= MOST; n++)
        for (int stores = 1; stores < n; stores++) {
            served of = {stores, ECH_F32};
            assert_int_equal(ranks_run(n, deadline, add_and_drop, &of, NULL), ECH_OK);
        }
}
