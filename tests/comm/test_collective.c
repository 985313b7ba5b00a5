/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of comm/collective.h over threads, their predictions, and how they end.
 */

#include "comm/checks_collective.h"
#include "unit.h"

static const double deadline = 60;
enum { MOST = RANKS_OF_CHECKS };

static ech_status run_collectives(ech_comm *comm, void *context)
{
    (void)context;
    return checks_collectives(comm);
}

static ech_status run_long_collectives(ech_comm *comm, void *context)
{
    (void)context;
    return checks_long_collectives(comm);
}

TEST(test_against_naive)
{
    for (int n = 1; n <= MOST; n++)
        assert_int_equal(ranks_run(n, deadline, run_collectives, NULL, NULL), ECH_OK);
}

TEST(test_long)
{
    for (int n = 1; n <= 3; n++)
        assert_int_equal(ranks_run(n, deadline, run_long_collectives, NULL, NULL), ECH_OK);
}

/* ---- predictions ---- */

TEST(test_names)
{
    assert_string_equal(ech_collective_name(ECH_COLLECTIVE_NONE), "none");
    assert_string_equal(ech_collective_name(ECH_COLLECTIVE_ALL_REDUCE), "all_reduce");
    assert_string_equal(ech_collective_name(ECH_COLLECTIVE_SHIFT), "shift");
    assert_string_equal(ech_collective_name(ECH_COLLECTIVE_EXCHANGE_ROWS), "exchange_rows");
    assert_int_equal(ECH_COLLECTIVES, 8);
}

static int64_t total_bytes(ech_collective collective, int64_t n, int N)
{
    int64_t bytes = 0;
    for (int i = 0; i < N; i++)
        bytes += ech_collective_traffic(collective, ECH_F32, n, (ech_lineup){.size = N}, i).bytes;
    return bytes;
}

/* What plans rely on for sizes that no test runs. */
TEST(test_formulas)
{
    for (int N = 1; N <= 1000; N += 111) {
        int64_t n = ((int64_t)1 << 36) / N * N + (N > 1), whole = n / N * N;
        assert_int_equal(total_bytes(ECH_COLLECTIVE_ALL_REDUCE, n, N), 2 * (N - 1) * n * 4);
        assert_int_equal(total_bytes(ECH_COLLECTIVE_ALL_GATHER, n, N), (N - 1) * n * 4);
        assert_int_equal(total_bytes(ECH_COLLECTIVE_REDUCE_SCATTER, n, N), (N - 1) * n * 4);
        assert_int_equal(total_bytes(ECH_COLLECTIVE_ALL_TO_ALL, whole, N), (N - 1) * whole * 4);
        assert_int_equal(total_bytes(ECH_COLLECTIVE_SHIFT, n, N), N > 1 ? N * n * 4 : 0);
        assert_int_equal(total_bytes(ECH_COLLECTIVE_EXCHANGE_ROWS, whole, N), (N - 1) * whole * 4);
        assert_int_equal(ech_collective_most(ECH_COLLECTIVE_EXCHANGE_ROWS, ECH_F32, n,
                                             (ech_lineup){.size = N}, 0, false),
                         N > 1 ? n * 4 : 0);
        assert_int_equal(ech_collective_most(ECH_COLLECTIVE_EXCHANGE_ROWS, ECH_F32, n,
                                             (ech_lineup){.size = N}, 0, true),
                         (N - 1) * n * 4);
        assert_int_equal(ech_collective_most(ECH_COLLECTIVE_ALL_TO_ALL, ECH_F32, whole,
                                             (ech_lineup){.size = N}, 0, true),
                         ech_collective_traffic(ECH_COLLECTIVE_ALL_TO_ALL, ECH_F32, whole,
                                                (ech_lineup){.size = N}, 0)
                             .bytes);
        assert_int_equal(total_bytes(ECH_COLLECTIVE_NONE, n, N), 0);
        for (int c = 0; c < ECH_COLLECTIVES; c++)
            assert_true(ech_collective_scratch((ech_collective)c, ECH_F32, n,
                                               (ech_lineup){.size = N}) <= 64 << 20);
    }
    assert_int_equal(
        ech_collective_scratch(ECH_COLLECTIVE_ALL_REDUCE, ECH_F64, 10, (ech_lineup){.size = 4}),
        3 * 3 * 8);
    assert_int_equal(
        ech_collective_scratch(ECH_COLLECTIVE_REDUCE_SCATTER, ECH_F32, 10, (ech_lineup){.size = 4}),
        36);
    assert_int_equal(
        ech_collective_scratch(ECH_COLLECTIVE_ALL_GATHER, ECH_F32, 10, (ech_lineup){.size = 4}), 0);
    assert_int_equal(
        ech_collective_scratch(ECH_COLLECTIVE_ALL_REDUCE, ECH_F32, 10, (ech_lineup){.size = 1}), 0);
    assert_int_equal(
        ech_collective_traffic(ECH_COLLECTIVE_ALL_GATHER, ECH_F32, 3, (ech_lineup){.size = 4}, 3)
            .messages,
        0);
    assert_int_equal(
        ech_collective_traffic(ECH_COLLECTIVE_ALL_GATHER, ECH_F32, 3, (ech_lineup){.size = 4}, 2)
            .messages,
        3);
    assert_int_equal(ech_collective_traffic(ECH_COLLECTIVE_REDUCE_SCATTER, ECH_F32, 3,
                                            (ech_lineup){.size = 4}, 3)
                         .messages,
                     3);
    assert_int_equal(ech_collective_traffic(ECH_COLLECTIVE_REDUCE_SCATTER, ECH_F32, 3,
                                            (ech_lineup){.size = 4}, 0)
                         .messages,
                     2);
}

/* ---- one sum, whichever way ---- */

/* The two halves of an all-reduce, ECH_REDUCTION_DIRECT and the all-reduce give the same bits. */
static ech_status sum_thrice(ech_comm *comm, void *context)
{
    (void)context;
    enum { COUNT = 1001 };
    int N = ech_comm_size(comm), rank = ech_comm_rank(comm);
    float at_once[COUNT], in_halves[COUNT], direct[COUNT], scratch[COUNT * MOST];
    ech_tensor x[] = {ech_tensor_1d(at_once, ECH_F32, COUNT),
                      ech_tensor_1d(in_halves, ECH_F32, COUNT),
                      ech_tensor_1d(direct, ECH_F32, COUNT)};
    for (int i = 0; i < 3; i++) checks_fill(x[i].data, ECH_F32, COUNT, rank, false);
    float *mine = in_halves + ech_collective_shard_first(COUNT, N, rank);
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    ech_status st = ech_group_all_reduce(group, &x[0], scratch);
    if (st == ECH_OK) st = ech_group_reduce_scatter(group, &x[1], mine, scratch);
    if (st == ECH_OK) st = ech_group_all_gather(group, in_halves, mine, sizeof *mine, COUNT);
    if (st == ECH_OK) st = ech_group_reduce(group, ECH_REDUCTION_DIRECT, &x[2], ECH_F32, scratch);
    ech_group_destroy(group);
    ECH_TRY(st);
    RANKS_CHECK(memcmp(at_once, in_halves, sizeof at_once) == 0);
    RANKS_CHECK(memcmp(at_once, direct, sizeof at_once) == 0);
    return ECH_OK;
}

TEST(test_same_bits)
{
    for (int n = 1; n <= MOST; n++)
        assert_int_equal(ranks_run(n, deadline, sum_thrice, NULL, NULL), ECH_OK);
}

static ech_status refuse(ech_comm *comm, void *context)
{
    (void)context;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    int32_t integers[2] = {1, 2}, mine[2];
    ech_tensor x = ech_tensor_1d(integers, ECH_I32, 2);
    ech_status st = ech_group_all_reduce(group, &x, NULL);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "all_reduce over group world"));
    st = ech_group_reduce_scatter(group, &x, mine, NULL);
    RANKS_CHECK(st == ECH_EUNSUPPORTED && strstr(ech_last_error(), "int32"));
    RANKS_CHECK(ech_group_count(group, ECH_COMM_COLLECTIVES).calls == 0);
    ech_group_destroy(group);
    return ECH_OK;
}

TEST(test_refusals)
{
    assert_int_equal(ranks_run(2, deadline, refuse, NULL, NULL), ECH_OK);
}

/* ---- several threads ---- */

static ech_status run_threads(ech_comm *comm, void *context)
{
    (void)context;
    return checks_threads_collectives(comm);
}

TEST(test_threads_at_once)
{
    for (int n = 1; n < RANKS_OF_CHECKS; n++)
        assert_int_equal(ranks_run(n, deadline, run_threads, NULL, NULL), ECH_OK);
}

/* ---- ends ---- */

enum { ELEMENTS = 64 };

/* Calls one collective over `group` with buffers of its own. */
static ech_status call(ech_group *group, ech_collective collective, int64_t n)
{
    float *in = calloc(ELEMENTS * RANKS_MOST, sizeof *in);
    float *out = calloc(ELEMENTS * RANKS_MOST, sizeof *out);
    float *scratch = calloc(ELEMENTS * RANKS_MOST, sizeof *scratch);
    ech_tensor x = ech_tensor_1d(in, ECH_F32, n);
    int64_t counts[RANKS_MOST];
    ech_status st = ECH_EINTERNAL;
    switch (collective) {
    case ECH_COLLECTIVE_ALL_REDUCE:
        st = ech_group_all_reduce(group, &x, scratch);
        break;
    case ECH_COLLECTIVE_ALL_GATHER:
        st = ech_group_all_gather(group, out, in, sizeof *in, n);
        break;
    case ECH_COLLECTIVE_REDUCE_SCATTER:
        st = ech_group_reduce_scatter(group, &x, out, scratch);
        break;
    case ECH_COLLECTIVE_ALL_TO_ALL:
        st = ech_group_all_to_all(group, in, out, (size_t)n * sizeof *in);
        break;
    case ECH_COLLECTIVE_EXCHANGE_ROWS:
        for (int i = 0; i < RANKS_MOST; i++) counts[i] = n;
        st = ech_group_exchange_rows(group, in, out,
                                     &(ech_row_exchange){.sends = counts,
                                                         .receives = counts,
                                                         .room = ELEMENTS * RANKS_MOST,
                                                         .most = ELEMENTS,
                                                         .rows = ELEMENTS,
                                                         .bytes = sizeof *in});
        break;
    case ECH_COLLECTIVE_SHIFT:
        st = ech_group_shift(group, 1, in, out, (size_t)n * sizeof *in);
        break;
    case ECH_COLLECTIVE_SLIDE:
        st = ech_group_slide(group, 1, in, out, (size_t)n * sizeof *in);
        break;
    case ECH_COLLECTIVE_NONE:
    case ECH_COLLECTIVES:
        break;
    }
    free(in);
    free(out);
    free(scratch);
    return st;
}

typedef struct script {
    ech_collective of_zero, of_one; /* NONE: fails at once */
    int64_t n_of_zero, n_of_one;
    char error[2][256]; /* each rank's last */
} script;

static ech_status play(ech_comm *comm, void *context)
{
    script *s = context;
    int rank = ech_comm_rank(comm);
    ech_collective collective = rank == 1 ? s->of_one : s->of_zero;
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    ech_status st = ECH_EIO;
    if (collective != ECH_COLLECTIVE_NONE)
        st = call(group, collective, rank == 1 ? s->n_of_one : s->n_of_zero);
    if (rank < 2) snprintf(s->error[rank], sizeof s->error[rank], "%s", ech_last_error());
    ech_group_destroy(group);
    return st;
}

/* Members that disagree on the size: nobody gets a result, and one says why. */
TEST(test_other_sizes)
{
    for (int c = ECH_COLLECTIVE_ALL_REDUCE; c < ECH_COLLECTIVES; c++) {
        script s = {.of_zero = (ech_collective)c, .of_one = (ech_collective)c};
        s.n_of_zero = ELEMENTS;
        s.n_of_one = ELEMENTS / 2;
        ech_status results[2] = {ECH_OK, ECH_OK};
        assert_int_equal(ranks_run(2, deadline, play, &s, results), ECH_EINTERNAL);
        for (int r = 0; r < 2; r++)
            assert_true(results[r] == ECH_EINTERNAL || results[r] == ECH_EABORTED);
        int blames = results[0] == ECH_EINTERNAL ? 0 : 1;
        assert_non_null(strstr(s.error[blames], "but the receive is for"));
    }
}

/* Members that call different ones wait in vain and never mix data. */
TEST(test_other_collectives)
{
    for (int c = ECH_COLLECTIVE_ALL_REDUCE; c < ECH_COLLECTIVES; c++) {
        ech_collective other =
            c + 1 < ECH_COLLECTIVES ? (ech_collective)(c + 1) : ECH_COLLECTIVE_ALL_REDUCE;
        script s = {.of_zero = (ech_collective)c, .of_one = other};
        s.n_of_zero = s.n_of_one = ELEMENTS;
        ech_status results[2] = {ECH_OK, ECH_OK};
        assert_int_equal(ranks_run(2, 0.05, play, &s, results), ECH_ECOMM);
        for (int r = 0; r < 2; r++) {
            assert_true(results[r] == ECH_ECOMM || results[r] == ECH_EABORTED);
            char expected[64];
            snprintf(expected, sizeof expected, "%s over group world",
                     ech_collective_name(r ? other : (ech_collective)c));
            if (results[r] == ECH_ECOMM) assert_non_null(strstr(s.error[r], expected));
        }
    }
}

typedef struct wrong_counts {
    int64_t sends, receives; /* of rank 1, to and from rank 2 */
    int64_t slice;
    char error[3][256]; /* each rank's */
} wrong_counts;

static ech_status exchange_wrongly(ech_comm *comm, void *context)
{
    enum { ROOM = 8 };
    wrong_counts *w = context;
    int rank = ech_comm_rank(comm);
    int64_t sends[] = {2, 2, 2}, receives[] = {2, 2, 2};
    char to[3 * ROOM] = {0}, from[3 * ROOM];
    ech_group *group;
    ECH_TRY(checks_world(comm, &group));
    if (rank == 1) sends[2] = w->sends, receives[2] = w->receives;
    ech_row_exchange what = {.sends = sends,
                             .receives = receives,
                             .room = ROOM,
                             .most = ROOM,
                             .rows = w->slice,
                             .bytes = 1};
    ech_status st = ECH_OK;
    for (; what.first < ROOM && st == ECH_OK; what.first += w->slice)
        st = ech_group_exchange_rows(group, to, from, &what);
    snprintf(w->error[rank], sizeof w->error[rank], "%s", ech_last_error());
    ech_group_destroy(group);
    return st;
}

/* Counts that do not fit, or not the peer's: one rank says so, and names both. */
TEST(test_wrong_counts)
{
    const struct {
        int64_t sends, receives;
        const char *said;
        int64_t slice;
    } cases[] = {{9, 2, "rank 1 would send 9 rows to rank 2", 8},
                 {-1, 2, "rank 1 would send -1 rows to rank 2", 8},
                 {2, 9, "rank 2 says that it sends 9 rows to rank 1", 8},
                 {2, -4, "rank 2 says that it sends -4 rows to rank 1", 8},
                 {5, 2, "rank 1 says that it has 9 rows of 8", 8},
                 {3, 2, "rank 1 sends 3 bytes to rank 2", 8},
                 {4, 2, "rank 1 sends 2 bytes to rank 2", 2},
                 {2, 4, "rank 2 sends 0 bytes to rank 1", 2},
                 {0, 2, "rank 1 sends 0 bytes to rank 2", 8},
                 {2, 0, "rank 2 sends 2 bytes to rank 1", 8},
                 {2, 3, "rank 2 sends 2 bytes to rank 1", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wrong_counts w = {
            .sends = cases[i].sends, .receives = cases[i].receives, .slice = cases[i].slice};
        ech_status results[3];
        bool said = false;
        assert_int_equal(ranks_run(3, deadline, exchange_wrongly, &w, results), ECH_EINTERNAL);
        for (int r = 0; r < 3; r++)
            said |= results[r] == ECH_EINTERNAL && strstr(w.error[r], cases[i].said);
        if (!said) fail_msg("\"%s\" is not said", cases[i].said);
    }
}

/* A sum hides no number below 0, which the case above with -4 rows is then. */
TEST(test_pieces)
{
    const int32_t table[] = {1, 2, 3, 0, 0, 0, 9, -4, 5, INT32_MAX, INT32_MAX, INT32_MAX};
    const int64_t wanted[] = {6, 0, -4, 3 * (int64_t)INT32_MAX};
    int64_t rows[4];
    ech_row_sums(table, 4, 3, rows);
    assert_memory_equal(rows, wanted, sizeof wanted);
}

/* A member that fails: all others come out of the collective. */
TEST(test_abort)
{
    for (int c = ECH_COLLECTIVE_ALL_REDUCE; c < ECH_COLLECTIVES; c++) {
        script s = {.of_zero = (ech_collective)c, .n_of_zero = ELEMENTS};
        ech_status results[4] = {ECH_OK, ECH_OK, ECH_OK, ECH_OK};
        assert_int_equal(ranks_run(4, deadline, play, &s, results), ECH_EIO);
        assert_int_equal(results[1], ECH_EIO);
        if (c != ECH_COLLECTIVE_SLIDE) assert_int_equal(results[0], ECH_EABORTED);
        assert_int_equal(results[2], ECH_EABORTED);
        /* A shift by one goes from member 2 to 3 to 0: 3 may have ended before. */
        if (c != ECH_COLLECTIVE_SHIFT && c != ECH_COLLECTIVE_SLIDE)
            assert_int_equal(results[3], ECH_EABORTED);
    }
}
