/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes between each pair of ranks in a reduction and its halves are counted message by
 * message below the groups, and compared with the formulae. In a torus a rank sends only to the
 * next one in its row and in its column. In a hierarchy a rank sends to its leader, and leaders
 * send around a ring.
 */

#include "comm/backend.h"
#include "comm/checks.h"
#include "unit.h"

enum { MOST = 12 };

/* [from][to] bytes of elements; a thread counts its own row. */
typedef struct paths {
    ech_reduction reduction;
    ech_reduction_part part;
    int each; /* ranks of a machine */
    int64_t n;
    int64_t sent[MOST][MOST];
    bool counts[MOST];
} paths;
static paths *counted;

static ech_status start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    if (request->sends && counted->counts[comm->rank])
        counted->sent[comm->rank][request->peer] += (int64_t)request->bytes;
    return comm->opened->start(comm, request, from, to);
}

static ech_status run_part(ech_group *group, const paths *p)
{
    ECH_FREED float *x = calloc((size_t)p->n + 1, sizeof *x);
    ech_lineup of = ech_group_lineup(group);
    ECH_FREED char *scratch =
        calloc(ech_reduction_part_scratch(p->reduction, p->part, ECH_F32, p->n, of) + 1, 1);
    ech_tensor view = ech_tensor_1d(x, ECH_F32, p->n);
    float *own = x + ech_collective_shard_first(p->n, of.size, ech_group_index(group));
    ech_sum sum;
    if (p->part == ECH_REDUCTION_WHOLE)
        return ech_group_reduce(group, p->reduction, &view, ECH_F32, scratch);
    if (p->part == ECH_REDUCTION_SCATTER)
        ECH_TRY(
            ech_sum_begin_scatter(group, p->reduction, &view, ECH_F32, own, false, scratch, &sum));
    else
        ECH_TRY(ech_sum_begin_gather(group, p->reduction, &view, own, &sum));
    ECH_TRY(ech_sum_run(&sum));
    return ech_sum_end(&sum);
}

static ech_status count_paths(ech_comm *comm, void *context)
{
    paths *p = context;
    ech_comm_backend backend = *comm->backend;
    const ech_comm_backend *before = comm->backend;
    int N = ech_comm_size(comm), ranks[MOST], first[MOST + 1];
    ech_group *group;
    for (int r = 0; r < N; r++) ranks[r] = r;
    ECH_TRY(ech_group_create(comm, "world", ranks, N, &group));
    ech_group_set_machines(group, first, ech_lineup_divide(ranks, N, p->each, first));
    backend.start = start;
    comm->backend = &backend;
    p->counts[comm->rank] = true;
    ech_status st = run_part(group, p);
    p->counts[comm->rank] = false;
    comm->backend = before;
    ech_group_destroy(group);
    return st;
}

static void count(paths *p, int N)
{
    counted = p;
    assert_int_equal(ranks_run(N, 60, count_paths, p, NULL), ECH_OK);
}

/* Of S bytes each half sends (X - 1) / X S along rows and (Y - 1) / (X Y) S along columns. */
TEST(torus_sends_along_rows_and_columns)
{
    static const struct {
        int N, X;
    } grids[] = {{4, 2}, {6, 3}, {8, 4}, {9, 3}, {12, 4}};
    for (int g = 0; g < 5; g++)
        for (ech_reduction_part part = 0; part < ECH_REDUCTION_PARTS; part++) {
            int N = grids[g].N, X = grids[g].X, Y = N / X;
            paths p = {.reduction = ECH_REDUCTION_TORUS, .part = part, .each = N, .n = 1000 * N};
            int64_t S = p.n * 4, turns = part == ECH_REDUCTION_WHOLE ? 2 : 1;
            assert_int_equal(ech_torus_columns(N), X);
            count(&p, N);
            for (int r = 0; r < N; r++)
                for (int to = 0; to < N; to++) {
                    bool along = to == r / X * X + (r + 1) % X, down = to == (r + X) % N;
                    int64_t bytes =
                        along * turns * (X - 1) * (S / X) + down * turns * (Y - 1) * (S / N);
                    assert_int_equal(p.sent[r][to], bytes);
                }
        }
}

/* In each half of a reduction of S bytes a leader sends (M - 1) / M S to the next leader. It sends
 * all S bytes to the other ranks of its machine, or each rank's shard. */
TEST(hierarchy_sends_through_leaders)
{
    static const struct {
        int N, L;
    } grids[] = {{4, 2}, {6, 3}, {6, 2}, {8, 4}, {6, 1}, {4, 4}};
    for (int g = 0; g < 6; g++)
        for (ech_reduction_part part = 0; part < ECH_REDUCTION_PARTS; part++) {
            int N = grids[g].N, L = grids[g].L, M = N / L;
            paths p = {
                .reduction = ECH_REDUCTION_HIERARCHICAL, .part = part, .each = L, .n = 1000 * N};
            int64_t S = p.n * 4, turns = part == ECH_REDUCTION_WHOLE ? 2 : 1;
            int64_t up = part == ECH_REDUCTION_GATHER ? S / N : S;
            int64_t back = part == ECH_REDUCTION_SCATTER ? S / N : S;
            count(&p, N);
            for (int r = 0; r < N; r++)
                for (int to = 0; to < N; to++) {
                    int leader = r / L * L;
                    bool next = M > 1 && r == leader && to == (r + L) % N;
                    bool inside = r == leader && to > r && to < r + L;
                    int64_t bytes = next * turns * (M - 1) * (S / M) + inside * back +
                                    (r != leader && to == leader) * up;
                    assert_int_equal(p.sent[r][to], bytes);
                }
        }
}

/* Machines and shards that are not equal: what is counted is what was predicted. */
TEST(uneven_ones_send_what_is_predicted)
{
    static const ech_reduction reductions[] = {ECH_REDUCTION_TORUS, ECH_REDUCTION_HIERARCHICAL};
    for (int i = 0; i < 2; i++)
        for (int N = 2; N <= 8; N++)
            for (int each = 1; each <= 5; each += 2)
                for (ech_reduction_part part = 0; part < ECH_REDUCTION_PARTS; part++) {
                    paths p = {.reduction = reductions[i], .part = part, .each = each, .n = 997};
                    int ranks[MOST], first[MOST + 1];
                    for (int r = 0; r < N; r++) ranks[r] = r;
                    ech_lineup of = {.size = N,
                                     .machines = ech_lineup_divide(ranks, N, each, first),
                                     .first = first};
                    count(&p, N);
                    for (int r = 0; r < N; r++) {
                        int64_t sent = 0;
                        for (int to = 0; to < N; to++) sent += p.sent[r][to];
                        assert_int_equal(
                            sent, 4 * ech_reduction_part_elements(p.reduction, part, p.n, of, r));
                    }
                }
}
