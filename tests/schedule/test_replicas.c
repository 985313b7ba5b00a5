/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas of stages, and tables that two stages share: who does which micro-batch, and whose
 * gradients are added up.
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "unit.h"

/* ---- micro-batches ---- */

/* done[((turn * virtual stages + virtual stage) * M + q) * 3 + phase]: the rank that did it, plus one. */
static int *at(const fixture *f, int *done, int turn, int stage, int q, int phase)
{
    int stages = f->of.layout->stages * f->of.layout->chunks, M = (int)f->of.layout->micro_batches;
    return &done[((turn * stages + stage) * M + q) * 3 + phase];
}

/* Micro-batch q is replica q mod r's. */
static void note_work(const fixture *f, int rank, int *done)
{
    const ech_layout *layout = f->of.layout;
    const ech_list *list = fixture_list(f, rank);
    int own = list->numbering.micro_batches, replica = layout->coordinates[rank].data;
    int r = layout->replicas[layout->coordinates[rank].stage];
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane != ECH_LANE_COMPUTE || step->block < 0) continue;
        int phase = ech_step_kind_phase(step->kind), first, end;
        ech_layout_blocks(layout, rank, step->chunk, &first, &end);
        assert_true(step->block >= first && step->block < end);
        assert_int_equal(step->turn, step->micro / own);
        if (step->block != (phase == ECH_FORWARD ? first : end - 1) || step->first_call > 0)
            continue;
        int stage = step->chunk * layout->stages + layout->coordinates[rank].stage;
        int q = step->micro % own * r + replica;
        int *who = at(f, done, step->turn, stage, q, phase);
        assert_int_equal(*who, 0);
        *who = rank + 1;
    }
}

/* Every micro-batch of a step once per stage, forward and backward on one replica. */
static void check_work(const fixture *f)
{
    int stages = f->of.layout->stages * f->of.layout->chunks, M = (int)f->of.layout->micro_batches;
    int turns = f->schedule->turns, last = (int)f->of.model->block.n - 1;
    int *done = ech_calloc((size_t)(turns * stages * M * 3), sizeof *done);
    for (int rank = 0; rank < f->ranks; rank++) note_work(f, rank, done);
    for (int turn = 0; turn < turns; turn++)
        for (int stage = 0; stage < stages; stage++)
            for (int q = 0; q < M; q++) {
                int forward = *at(f, done, turn, stage, q, ECH_FORWARD);
                assert_true(forward > 0);
                assert_int_equal(f->of.layout->coordinates[forward - 1].stage,
                                 stage % f->of.layout->stages);
                /* An embedding alone has no B, a head no W of its own. */
                int backward = *at(f, done, turn, stage, q, ECH_BACKWARD_INPUT);
                if (f->of.layout->first_block[stage + 1] > 1) assert_int_equal(backward, forward);
                int weight = *at(f, done, turn, stage, q, ECH_BACKWARD_WEIGHT);
                if (f->of.layout->first_block[stage + 1] <= last) assert_int_equal(weight, forward);
            }
    free(done);
}

static void check_loads(const fixture *f)
{
    const ech_layout *layout = f->of.layout;
    for (int s = 0; s < layout->stages; s++) {
        int all = 0, least = (int)layout->micro_batches, most = 0;
        for (int rank = layout->first_rank[s]; rank < layout->first_rank[s + 1]; rank++) {
            int load = fixture_list(f, rank)->micro_batches / f->schedule->turns;
            all += load;
            if (load < least) least = load;
            if (load > most) most = load;
        }
        assert_int_equal(all, layout->micro_batches);
        assert_true(most - least <= 1 && least > 0);
    }
}

/* Each stage's buckets are summed over its replicas, once a turn; one replica sums nothing. */
static void check_reductions(const fixture *f)
{
    for (int rank = 0; rank < f->ranks; rank++) {
        const ech_list *list = fixture_list(f, rank);
        int replicas = f->of.layout->replicas[f->of.layout->coordinates[rank].stage], n = 0;
        for (size_t s = 0; s < list->step.n; s++) {
            if (list->step.at[s].kind != ECH_STEP_REDUCE_GRADS) continue;
            assert_int_equal(list->step.at[s].group, ECH_GROUP_DATA);
            n++;
        }
        assert_int_equal(n, replicas > 1 ? (int)f->plan[rank]->bucket.n * f->schedule->turns : 0);
    }
}

static void check(const char *schedule, int stages, const char *replicas, int M)
{
    fixture f =
        fixture_pipeline((fixture_shape){.schedule = schedule,
                                         .stages = stages,
                                         .replicas = replicas,
                                         .micro_batches = M,
                                         .turns = fixture_is_asynchronous(schedule) ? 3 : 0});
    for (int kind = 0; kind < ECH_LIST_KINDS; kind++) fixture_check(&f, (ech_list_kind)kind);
    check_work(&f);
    check_loads(&f);
    check_reductions(&f);
    fixture_free(&f);
}

TEST(test_replicas)
{
    static const struct {
        const char *replicas;
        int stages;
    } rows[] = {{"[3,1]", 2},   {"[1,2,1]", 3}, {"[2,1]", 2},     {"[1,3]", 2},
                {"[2,3,1]", 3}, {"[4,1,2]", 3}, {"[1,2,2,1]", 4}, {"[2,2]", 2}};
    static const char *const names[] = {"1f1b", "gpipe", "naive"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            for (int M = 4; M <= 9; M++) check(names[n], rows[i].stages, rows[i].replicas, M);
        check("pipedream", rows[i].stages, rows[i].replicas, 12);
    }
}

/* With as many replicas everywhere, too, and chunks. */
TEST(test_chunks)
{
    for (int data = 1; data <= 3; data++)
        for (int v = 1; v <= 3; v++) {
            fixture f = fixture_pipeline((fixture_shape){.schedule = "interleaved",
                                                         .stages = 2,
                                                         .chunks = v,
                                                         .data = data,
                                                         .micro_batches = 4});
            check_work(&f);
            check_loads(&f);
            check_reductions(&f);
            fixture_free(&f);
        }
}

/* ---- shared tables ---- */

static int bucket_of(const fixture *f, int rank, int param)
{
    const ech_plan *plan = f->plan[rank];
    int bucket = plan->param[param].bucket, times = 0;
    for (size_t i = 0; i < plan->bucket_param.n; i++) times += plan->bucket_param.at[i] == param;
    assert_int_equal(times, bucket >= 0);
    return bucket;
}

/* How often the rank sums up the bucket over first and last stage. */
static int count_tied(const fixture *f, int rank, int bucket)
{
    int n = 0;
    for (size_t s = 0; s < fixture_list(f, rank)->step.n; s++) {
        const ech_step *step = &fixture_list(f, rank)->step.at[s];
        if (step->kind != ECH_STEP_REDUCE_GRADS) continue;
        assert_int_equal(step->group, f->plan[rank]->bucket.at[step->index].group);
        n += step->index == bucket && step->group == ECH_GROUP_TIED;
    }
    return n;
}

static void check_tied(const fixture *f, int param)
{
    const ech_layout *layout = f->of.layout;
    const ech_bucket *first = NULL;
    int tied = 0, members[FIXTURE_MOST_RANKS];
    for (int rank = 0; rank < f->ranks; rank++) {
        int stage = layout->coordinates[rank].stage, bucket = bucket_of(f, rank, param);
        bool holds = stage == 0 || stage == layout->stages - 1;
        assert_int_equal(ech_layout_holds(layout, rank, param), holds);
        assert_int_equal(f->plan[rank]->param[param].elements > 0, holds);
        assert_int_equal(bucket >= 0, holds);
        if (!holds) continue;
        const ech_bucket *b = &f->plan[rank]->bucket.at[bucket];
        assert_int_equal(b->group, ECH_GROUP_TIED);
        assert_int_equal(count_tied(f, rank, bucket), 1);
        assert_int_equal(ech_layout_members(layout, f->of.model, rank, ECH_GROUP_TIED, members),
                         layout->replicas[0] + layout->replicas[layout->stages - 1]);
        /* All that hold it have the same bucket. */
        if (!first) first = b;
        assert_int_equal(b->elements, first->elements);
        assert_int_equal(b->params, first->params);
        tied++;
    }
    assert_int_equal(tied, layout->replicas[0] + layout->replicas[layout->stages - 1]);
}

TEST(test_tied)
{
    static const fixture_shape shapes[] = {
        {.schedule = "1f1b", .stages = 2, .micro_batches = 4},
        {.schedule = "gpipe", .stages = 3, .data = 2, .micro_batches = 3, .architecture = "llama"},
        {.schedule = "zero-bubble", .stages = 4, .micro_batches = 5},
        {.schedule = "interleaved", .stages = 3, .chunks = 2, .data = 2, .micro_batches = 3},
        {.schedule = "1f1b", .stages = 3, .replicas = "[2,1,3]", .micro_batches = 7},
        {.schedule = "naive", .stages = 2, .data = 3, .micro_batches = 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fixture_shape shape = shapes[i];
        shape.more = "model.tie_word_embeddings=true";
        fixture f = fixture_pipeline(shape);
        for (int kind = 0; kind < ECH_LIST_KINDS; kind++) fixture_check(&f, (ech_list_kind)kind);
        check_tied(&f, 0); /* the token table is the model's first parameter */
        for (int p = 1; p < (int)f.of.model->param.n; p++)
            assert_int_equal(ech_layout_addends(f.of.layout, f.of.model, p), ECH_GROUP_DATA);
        fixture_free(&f);
    }
}

/* On one stage alone the table is like any other parameter. */
TEST(test_tied_on_one_stage)
{
    for (int data = 1; data <= 2; data++) {
        fixture f = fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                     .stages = 1,
                                                     .data = data,
                                                     .micro_batches = 2,
                                                     .more = "model.tie_word_embeddings=true"});
        assert_int_equal(ech_layout_addends(f.of.layout, f.of.model, 0), ECH_GROUP_DATA);
        assert_int_equal(f.plan[0]->bucket.at[bucket_of(&f, 0, 0)].group, ECH_GROUP_DATA);
        assert_int_equal(count_tied(&f, 0, bucket_of(&f, 0, 0)), 0);
        fixture_free(&f);
    }
}
