/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over ranks as threads.
 */
#include <sched.h>

#include "comm/checks.h"
#include "unit.h"

static const double deadline = 60;
enum { MOST = RANKS_OF_CHECKS };

static ech_status run_reduction(ech_comm *comm, void *context)
{
    return checks_reduction(comm, *(ech_reduction *)context);
}

static ech_status run_long_reduction(ech_comm *comm, void *context)
{
    return checks_long_reduction(comm, *(ech_reduction *)context);
}

static ech_status run_in_a_row(ech_comm *comm, void *context)
{
    return checks_sums_in_a_row(comm, *(ech_reduction *)context);
}

static void check_reduction(ech_reduction reduction)
{
    for (int n = 1; n <= MOST; n++)
        assert_int_equal(ranks_run(n, deadline, run_reduction, &reduction, NULL), ECH_OK);
    for (int n = 2; n <= 3; n++)
        assert_int_equal(ranks_run(n, deadline, run_long_reduction, &reduction, NULL), ECH_OK);
    for (int n = 1; n <= 3; n++)
        assert_int_equal(ranks_run(n, deadline, run_in_a_row, &reduction, NULL), ECH_OK);
}

/* The library's own needs MPI (mpi_collective.c). */
TEST(test_every_reduction)
{
    for (ech_reduction i = 0; i < ECH_REDUCTIONS; i++)
        if (ech_reduction_supported(ech_comm_find("local"), i)) check_reduction(i);
    for (ech_reduction i = ECH_REDUCTION_TORUS; i <= ECH_REDUCTION_HIERARCHICAL; i++)
        assert_int_equal(ranks_run(6, deadline, run_reduction, &i, NULL), ECH_OK);
}

/* Each element's sum is the serial one, so splitting a tensor in two changes no bit. */
static ech_status reduce_cut(ech_comm *comm, void *context)
{
    (void)context;
    enum { COUNT = 1001 };
    float whole[COUNT], halves[COUNT];
    char *scratch =
        malloc(ech_reduction_scratch(ECH_REDUCTION_DIRECT, ECH_F32, COUNT, checks_lineup(comm)));
    ech_group *group;
    ech_status st = checks_world(comm, &group);
    if (st == ECH_OK) {
        checks_fill(whole, ECH_F32, COUNT, ech_comm_rank(comm), false);
        checks_fill(halves, ECH_F32, COUNT, ech_comm_rank(comm), false);
        ech_tensor views[] = {ech_tensor_1d(whole, ECH_F32, COUNT),
                              ech_tensor_1d(halves, ECH_F32, 337),
                              ech_tensor_1d(halves + 337, ECH_F32, COUNT - 337)};
        for (int i = 0; i < 3 && st == ECH_OK; i++)
            st = ech_group_reduce(group, ECH_REDUCTION_DIRECT, &views[i], ECH_F32, scratch);
        ech_group_destroy(group);
    }
    free(scratch);
    ECH_TRY(st);
    RANKS_CHECK(memcmp(whole, halves, sizeof whole) == 0);
    return ECH_OK;
}

TEST(test_cut_changes_no_bit)
{
    for (int n = 2; n <= MOST; n++)
        assert_int_equal(ranks_run(n, deadline, reduce_cut, NULL, NULL), ECH_OK);
}

/* ---- halves ---- */

enum { ALL_HALVES = 1 << 16 };

static double half_value(uint16_t half, ech_dtype dtype)
{
    double value;
    ech_convert(&half, dtype, &value, ECH_F64, 1);
    return value;
}

/* Every half: itself on rank 0, another one on each other rank, so that exponents and signs meet in
 * every way. */
static uint16_t half_of_rank(int rank, int i)
{
    return (uint16_t)((unsigned)i * (rank ? 40503u + 2 * (unsigned)rank : 1u));
}

/* Within half a unit in the last place of the sum in double of the halves, but for the fp32
 * additions' roundings. */
static bool is_near(uint16_t half, double exact, double magnitude, ech_dtype dtype)
{
    double largest = dtype == ECH_F16 ? 65504 : 0x1.fep127;
    double ulp = dtype == ECH_F16 ? 0x1p-10 : 0x1p-7, least = dtype == ECH_F16 ? 0x1p-24 : 0x1p-133;
    double value = half_value(half, dtype), slack = magnitude * 0x1p-22 + least / 2;
    if (isnan(exact)) return isnan(value);
    if (isinf(value) || isinf(exact))
        return value == exact || fabs(exact) >= largest * (1 - 0x1p-20);
    return fabs(value - exact) <= fabs(exact) * ulp / 2 + slack;
}

static ech_status sum_all_halves(ech_comm *comm, void *context)
{
    ech_dtype dtype = *(ech_dtype *)context;
    int N = ech_comm_size(comm);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    uint16_t *x = malloc(ALL_HALVES * sizeof *x);
    for (int i = 0; i < ALL_HALVES; i++) x[i] = half_of_rank(ech_comm_rank(comm), i);
    ech_tensor view = ech_tensor_1d(x, dtype, ALL_HALVES);
    void *scratch =
        malloc(ech_reduction_scratch(ECH_REDUCTION_DIRECT, dtype, ALL_HALVES, checks_lineup(comm)));
    ech_status st = ech_group_reduce(group, ECH_REDUCTION_DIRECT, &view, dtype, scratch);
    bool near = true;
    if (st == ECH_OK) st = checks_same_bits(group, x, ALL_HALVES * sizeof *x);
    for (int i = 0; i < ALL_HALVES && ech_comm_rank(comm) == 0; i++) {
        double exact = 0, magnitude = 0;
        for (int r = 0; r < N; r++) {
            exact += half_value(half_of_rank(r, i), dtype);
            magnitude += fabs(half_value(half_of_rank(r, i), dtype));
        }
        near &= is_near(x[i], exact, magnitude, dtype);
    }
    free(scratch);
    free(x);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(near);
    return ECH_OK;
}

TEST(test_every_half)
{
    ech_dtype dtypes[] = {ECH_BF16, ECH_F16};
    for (int n = 2; n <= 4; n++)
        for (int t = 0; t < 2; t++)
            assert_int_equal(ranks_run(n, deadline, sum_all_halves, &dtypes[t], NULL), ECH_OK);
}

/* 1 + 3·2^-9 is nearer to 1 + 2^-7, the next bf16, than to 1; sums that were rounded after each
 * addition would stay 1. */
static ech_status round_once(ech_comm *comm, void *context)
{
    (void)context;
    static const float addends[] = {1, 0x1p-9f, 0x1p-9f, 0x1p-9f};
    int rank = ech_comm_rank(comm);
    char scratch[64];
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    float x = addends[rank];
    ech_tensor view = ech_tensor_1d(&x, ECH_F32, 1);
    ech_status st = ech_group_reduce(group, ECH_REDUCTION_DIRECT, &view, ECH_BF16, scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(x == 1 + 0x1p-7f);
    return ECH_OK;
}

TEST(test_rounded_once)
{
    assert_int_equal(ranks_run(4, deadline, round_once, NULL, NULL), ECH_OK);
}

/* One member alone begins a sum, and already sends several segments of it: the others come
 * later. */
static ech_status begin_alone(ech_comm *comm, void *context)
{
    _Atomic bool *begun = context;
    int64_t n = 1 << 22;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    checks_open open = {.x = malloc((size_t)n * 4), .expected = malloc((size_t)n * 4), .n = n};
    open.wire = ECH_F32;
    open.scratch =
        malloc(ech_reduction_scratch(ECH_REDUCTION_DIRECT, ECH_F32, n, checks_lineup(comm)));
    while (ech_comm_rank(comm) == 1 && !*begun) sched_yield();
    ech_status st = checks_begin(group, ECH_REDUCTION_DIRECT, &open);
    bool several = ech_group_count(group, ECH_COMM_REDUCES).messages > 1;
    *begun = true;
    if (st == ECH_OK) st = ech_sum_run(&open.sum);
    if (st == ECH_OK) st = ech_sum_end(&open.sum);
    bool same = st == ECH_OK && memcmp(open.x, open.expected, (size_t)n * 4) == 0;
    free(open.x);
    free(open.expected);
    free(open.scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(several && same);
    return ECH_OK;
}

TEST(test_beginning_waits_for_nobody)
{
    _Atomic bool begun = false;
    assert_int_equal(ranks_run(2, deadline, begin_alone, &begun, NULL), ECH_OK);
}

static ech_status refuse(ech_comm *comm, void *context)
{
    (void)context;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    int32_t whole[2] = {1, 2};
    float real[2] = {1, 2};
    ech_tensor integers = ech_tensor_1d(whole, ECH_I32, 2), reals = ech_tensor_1d(real, ECH_F32, 2);
    ech_status st = ech_group_reduce(group, ECH_REDUCTION_DIRECT, &integers, ECH_I32, NULL);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "int32"));
    st = ech_group_reduce(group, ECH_REDUCTION_LIBRARY, &reals, ECH_F32, NULL);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "parallel.comm"));
    st = ech_group_reduce(group, ECH_REDUCTION_RING, &reals, ECH_BF16, NULL);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "use direct"));
    ech_group_destroy(group);
    return ECH_OK;
}

TEST(test_refusals)
{
    assert_int_equal(ranks_run(2, deadline, refuse, NULL, NULL), ECH_OK);
    assert_false(ech_reduction_supported(ech_comm_find("local"), ECH_REDUCTION_LIBRARY));
    const ech_comm_backend *mpi = ech_comm_find("mpi"); /* NULL: this build lacks it */
    if (mpi) assert_true(ech_reduction_supported(mpi, ECH_REDUCTION_LIBRARY));
}

TEST(test_names)
{
    const char *names = ech_reduction_names();
    for (int i = 0; i < ECH_REDUCTIONS; i++) { /* a run file holds which one it is */
        const char *name = ech_reduction_name((ech_reduction)i);
        size_t n = strlen(name);
        assert_memory_equal(names, name, n);
        assert_int_equal(names[n], ' ');
        names += n + 1;
    }
    assert_int_equal(*names, '\0');
}

/* What the plan relies on for sizes that no test runs. */
TEST(test_formulas)
{
    int64_t n = (int64_t)1 << 36;
    for (int N = 1; N <= 1000; N += 111) {
        int64_t direct = 0, ring = 0, torus = 0;
        ech_lineup of = {.size = N};
        for (int i = 0; i < N; i++) {
            direct += ech_reduction_bytes(ECH_REDUCTION_DIRECT, ECH_F32, n, of, i);
            ring += ech_reduction_bytes(ECH_REDUCTION_RING, ECH_F32, n, of, i);
            torus += ech_reduction_bytes(ECH_REDUCTION_TORUS, ECH_F32, n, of, i);
        }
        assert_int_equal(direct, 2 * (N - 1) * n * 4);
        assert_int_equal(ring, 2 * (N - 1) * n * 4);
        assert_int_equal(torus, 2 * (N - 1) * n * 4);
        assert_true(ech_reduction_scratch(ECH_REDUCTION_DIRECT, ECH_F32, n, of) <= 64 << 20);
        assert_true(ech_reduction_scratch(ECH_REDUCTION_RING, ECH_F32, n, of) <= 2 << 20);
        assert_true(ech_reduction_scratch(ECH_REDUCTION_TORUS, ECH_F32, n, of) <= 2 << 20);
    }
    ech_lineup four = {.size = 4}, one = {.size = 1};
    assert_int_equal(ech_reduction_scratch(ECH_REDUCTION_DIRECT, ECH_F64, 10, four), 3 * 3 * 8);
    assert_int_equal(ech_reduction_scratch(ECH_REDUCTION_RING, ECH_F64, 10, four), 3 * 8);
    assert_int_equal(ech_reduction_scratch(ECH_REDUCTION_NAIVE, ECH_F64, 10, four), 3 * 10 * 8);
    assert_int_equal(ech_reduction_scratch(ECH_REDUCTION_DIRECT, ECH_F64, 10, one), 0);
}

static ech_status run_others(ech_comm *comm, void *context)
{
    (void)context;
    ECH_TRY(checks_messages(comm));
    ECH_TRY(checks_fold(comm));
    ECH_TRY(checks_gather(comm));
    ECH_TRY(checks_broadcast(comm));
    return checks_mixed_groups(comm);
}

TEST(test_other_collectives)
{
    for (int n = 1; n <= MOST; n++)
        assert_int_equal(ranks_run(n, deadline, run_others, NULL, NULL), ECH_OK);
}

/* Nobody leaves a barrier before the last has come. */
static ech_status meet(ech_comm *comm, void *context)
{
    _Atomic int *arrived = context;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    int N = ech_comm_size(comm);
    for (int turn = 1; turn <= 50; turn++) {
        ++*arrived;
        ECH_TRY(ech_group_barrier(group));
        RANKS_CHECK(*arrived >= turn * N);
        ECH_TRY(ech_group_barrier(group));
    }
    ech_group_destroy(group);
    return ECH_OK;
}

TEST(test_barrier)
{
    for (int n = 1; n <= MOST; n++) {
        _Atomic int arrived = 0;
        assert_int_equal(ranks_run(n, deadline, meet, &arrived, NULL), ECH_OK);
        assert_int_equal(arrived, 50 * n);
    }
}
