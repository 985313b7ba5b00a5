/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations = peer: how many micro-batches each stage has, counted from the lives
 * of values, against the paper's formula; that no more go than must; that what goes comes back; and
 * that nobody waits longer.
 */

#include "schedule/fixture.h"
#include "schedule/segments.h"
#include "simulate/simulate.h"
#include "unit.h"

/* A value that the block keeps until its W. */
static int kept_local(const ech_plan *plan, int block)
{
    const ech_block *of = plan->model->block.at[block];
    ECH_FREED bool *kept = ech_calloc(of->value.n, sizeof *kept);
    ech_plan_find_kept(plan, block, kept);
    int local = (int)of->value.n - 1;
    while (!kept[local] || of->value.at[local].source == ECH_FROM_BLOCK) local--;
    return local;
}

/* The most values at once of the block's local, of whatever micro-batch, and of another block's
 * local that are held. */
static int count_live(const ech_plan *plan, int block, int local, int held, int held_local)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ECH_FREED int *change = ech_calloc((size_t)list->ticks + 1, sizeof *change);
    int now = 0, most = 0;
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        bool own = v->kind == ECH_MEMORY_ACTIVATIONS && v->block == block && v->local == local;
        bool other =
            v->kind == ECH_MEMORY_ACTIVATIONS_OF_PEER && v->block == held && v->local == held_local;
        if (!own && !other) continue;
        change[v->born]++;
        change[v->dies + 1]--;
    }
    for (int tick = 0; tick < list->ticks; tick++) {
        now += change[tick];
        if (now > most) most = now;
    }
    return most;
}

static int count_kind(const ech_plan *plan, ech_step_kind kind)
{
    int n = 0;
    for (size_t s = 0; s < plan->list[ECH_LIST_TRAIN].step.n; s++)
        n += plan->list[ECH_LIST_TRAIN].step.at[s].kind == kind;
    return n;
}

/* The last block of a rank's last chunk but the head, which keeps little. */
static int block_of(const ech_plan *plan)
{
    int first, end;
    ech_layout_blocks(plan->layout, plan->rank, plan->layout->chunks - 1, &first, &end);
    return end - 1 - (end == (int)plan->model->block.n);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Stage s of p has p - s micro-batches without, with it (p + 2) / 2 at most, rounded up, and those
 * that hold for others one more while it is under way. */
TEST(stages_have_what_the_paper_says)
{
    for (int p = 2; p <= 12; p++)
        for (int m = p; m <= 3 * p; m += p) {
            fixture f =
                fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                 .stages = p,
                                                 .micro_batches = m,
                                                 .layers = 2 * p - 2,
                                                 .more = "memory.offload_activations=peer"});
            int most = (p + 3) / 2;
            for (int s = 0; s < p; s++) {
                const ech_plan *plan = f.plan[s], *other = f.plan[p - 1 - s];
                int block = block_of(plan), theirs = block_of(other);
                int all = count_live(plan, block, kept_local(plan, block), theirs,
                                     kept_local(other, theirs));
                assert_int_equal(plan->peer, p - s > most   ? p - 1 - s
                                             : s + 1 > most ? p - 1 - s
                                                            : -1);
                if (s + 1 > most ? all <= p - s || all > most + 1 : all != smaller(p - s, most))
                    fail_msg("stage %d of %d has %d of %d micro-batches", s, p, all, m);
                assert_int_equal(count_kind(plan, ECH_STEP_SEND_KEPT),
                                 count_kind(other, ECH_STEP_RECV_KEPT));
                assert_int_equal(count_kind(plan, ECH_STEP_SEND_KEPT),
                                 count_kind(plan, ECH_STEP_RECV_BACK));
                assert_int_equal(count_kind(plan, ECH_STEP_RECV_KEPT),
                                 count_kind(plan, ECH_STEP_SEND_BACK));
            }
            assert_int_equal(ech_check_plans((const ech_plan *const *)f.plan, p, ECH_LIST_TRAIN),
                             ECH_OK);
            fixture_free(&f);
        }
}

static double end_of(fixture_shape shape)
{
    fixture f = fixture_pipeline(shape);
    ech_costs costs = {.seconds = false};
    ech_simulation s;
    assert_int_equal(
        ech_simulate((const ech_plan *const *)f.plan, f.ranks, ECH_LIST_TRAIN, &costs, &s), ECH_OK);
    double end = s.end;
    ech_simulation_free(&s);
    fixture_free(&f);
    return end;
}

static const fixture_shape shapes[] = {
    {.schedule = "1f1b", .stages = 4, .micro_batches = 8},
    {.schedule = "1f1b", .stages = 8, .micro_batches = 20},
    {.schedule = "1f1b", .stages = 5, .micro_batches = 7},
    {.schedule = "interleaved", .stages = 4, .chunks = 2, .micro_batches = 8},
    {.schedule = "interleaved", .stages = 6, .chunks = 3, .micro_batches = 12},
    {.schedule = "1f1b", .stages = 4, .micro_batches = 6, .data = 2},
    {.schedule = "pipedream", .stages = 5, .micro_batches = 5, .turns = 3},
    {.schedule = "pipedream-2bw", .stages = 4, .micro_batches = 4, .turns = 4}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void compare(const fixture_shape *shape, const char *more)
{
    char words[200];
    fixture_shape with = *shape, without = *shape;
    snprintf(words, sizeof words, "memory.offload_activations=peer%s", more);
    with.more = words;
    without.more = more;
    double end = end_of(with), plain = end_of(without);
    if (end > plain * (strstr(more, "recompute") ? 1.02 : 1 + 1e-9))
        fail_msg("%s, %d stages%s: %g, without %g", shape->schedule, shape->stages, more, end,
                 plain);
}

/* Where messages cost nothing; what is made again is not in the time by which the acceptor's steps
 * are placed. */
TEST(nobody_waits_longer)
{
    static const char *const more[] = {"", " memory.prefetch=0", " memory.prefetch=2",
                                       " memory.recompute=full", " memory.sequence_chunks=2"};
    for (size_t i = 0; i < SHAPES; i++)
        for (size_t k = 0; k < sizeof more / sizeof *more; k++) compare(&shapes[i], more[k]);
}

/* Each evictor has less than without, and its acceptor no more than the evictor had. */
TEST(the_fuller_has_less)
{
    for (size_t i = 0; i < SHAPES; i++) {
        int64_t bytes[2][FIXTURE_MOST_RANKS];
        int holds = 0;
        for (int with = 0; with < 2; with++) {
            fixture_shape shape = shapes[i];
            shape.layers = 2 * shape.stages * (shape.chunks ? shape.chunks : 1) - 2;
            shape.more = with ? "memory.offload_activations=peer" : "";
            fixture f = fixture_pipeline(shape);
            for (int rank = 0; rank < f.ranks; rank++)
                bytes[with][rank] = f.plan[rank]->list[ECH_LIST_TRAIN].working;
            for (int rank = 0; rank < f.ranks && with; rank++) {
                const ech_plan *plan = f.plan[rank];
                bool evicts = count_kind(plan, ECH_STEP_SEND_KEPT) > 0;
                int64_t before = bytes[0][rank], now = bytes[1][rank];
                int64_t theirs = plan->peer < 0 ? before : bytes[0][plan->peer];
                bool right = evicts ? now < before : now <= theirs;
                if (plan->peer < 0) right = now == before;
                if (!right)
                    fail_msg("%s, rank %d of %d: %lld bytes, without %lld", shape.schedule, rank,
                             f.ranks, (long long)now, (long long)before);
                holds += evicts;
            }
            fixture_free(&f);
        }
        assert_true(holds > 0);
    }
}
