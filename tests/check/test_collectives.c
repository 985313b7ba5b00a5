/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of lists of layers that are cut over ranks, on lists of the passes with one fault each: parts
 * of programs and collectives missing, doubled, out of order, or not waited for.
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/refused.h"
#include "unit.h"

/* ---- lists ---- */

/* Steps alone, of all ranks. */
static fixture outlines(fixture_shape shape)
{
    fixture f;
    assert_int_equal(fixture_try(fixture_shape_config(&shape), fixture_world(&shape), &f), ECH_OK);
    for (int rank = 0; rank < f.ranks; rank++) {
        ech_plan_request request = fixture_request(&f, rank);
        request.outline = true;
        assert_int_equal(ech_checked_plan_create(&request, &f.plan[rank]), ECH_OK);
    }
    return f;
}

static ech_list *train_of(const fixture *f, int rank)
{
    return &f->plan[rank]->list[ECH_LIST_TRAIN];
}

/* One stage, two tensor ranks, two micro-batches; blocks: embedding, two layers, head. */
static fixture two_tensor_ranks(const char *more)
{
    return outlines((fixture_shape){.schedule = "gpipe",
                                    .stages = 1,
                                    .tensor = 2,
                                    .micro_batches = 2,
                                    .layers = 2,
                                    .more = more});
}

static void expect_refusal(const fixture *f, int rank, const char *who, const char *why)
{
    ech_clear_error();
    expect_message(ech_check_list(f->plan[rank], train_of(f, rank)), who, why);
}

static void expect_fine(const fixture *f)
{
    for (int rank = 0; rank < f->ranks; rank++)
        assert_int_equal(ech_check_list(f->plan[rank], train_of(f, rank)), ECH_OK);
    assert_int_equal(ech_check_plans(fixture_plans(f), f->ranks, ECH_LIST_TRAIN), ECH_OK);
}

/* The n-th step of a kind of that phase, block and micro-batch; of COLLECTIVE those with calls, unless n < 0:
 * the one that makes whole. */
static int find(const ech_list *list, ech_step_kind kind, ech_phase phase, int block, int micro,
                int n)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != kind || step->phase != phase || step->block != block ||
            step->micro != micro)
            continue;
        if (step->calls == 0 ? n < 0 : n-- == 0) return s;
    }
    fail();
    return -1;
}

/* Lets step s no longer wait for `other`. */
static void forget(ech_list *list, int s, int other)
{
    ech_step *step = &list->step.at[s];
    int *after = &list->after.at[step->first_after], kept = 0;
    for (int i = 0; i < step->afters; i++)
        if (after[i] != other) after[kept++] = after[i];
    assert_int_equal(kept, step->afters - 1);
    step->afters = kept;
}

/* The first compute step that waits for `other`. */
static int waiter_of(const ech_list *list, int other)
{
    for (int s = other + 1; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->afters && step->lane == ECH_LANE_COMPUTE; i++)
            if (list->after.at[step->first_after + i] == other) return s;
    }
    fail();
    return -1;
}

enum { LAYER = 1 };

/* ---- parts of programs ---- */

TEST(test_parts)
{
    fixture f = two_tensor_ranks(NULL);
    ech_list *list = train_of(&f, 1);
    expect_fine(&f);
    int part = find(list, ECH_STEP_FORWARD, ECH_FORWARD, LAYER, 1, 1);
    ech_step *step = &list->step.at[part], was = *step;
    step->calls--;
    expect_refusal(&f, 1, "(F0.1/1", "calls, of which");
    *step = was;
    step->first_call--;
    expect_refusal(&f, 1, "(F0.1/1", "which are none for it"); /* the collective before */
    *step = was;
    step->first_call = list->step.at[part - 2].first_call;
    step->calls = 1;
    expect_refusal(&f, 1, "(F0.1/1", "does again what step");
    *step = was;
    step->first_call += 1000;
    expect_refusal(&f, 1, "(F0.1/1", "which are none for it");
    *step = was;
    expect_fine(&f);
    lists_drop(list, part);
    expect_refusal(&f, 1, "(F0.1/1", "calls, of which");
    fixture_free(&f);
}

/* ---- collectives ---- */

TEST(test_missing)
{
    fixture f = two_tensor_ranks(NULL);
    ech_list *list = train_of(&f, 0);
    lists_drop(list, find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, LAYER, 0, 1));
    expect_refusal(&f, 0, "(F0.0/1", "calls, of which");
    assert_int_not_equal(ech_check_plans(fixture_plans(&f), f.ranks, ECH_LIST_TRAIN), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "meets another collective"));
    fixture_free(&f);
}

/* Two of them take each other's place, or one comes twice and the other never: as many calls as before. */
TEST(test_doubled)
{
    fixture f = two_tensor_ranks(NULL);
    ech_list *list = train_of(&f, 0);
    ech_step *first = &list->step.at[find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, LAYER, 0, 0)];
    ech_step *second = &list->step.at[find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, LAYER, 0, 1)];
    int one = first->first_call, other = second->first_call;
    second->first_call = one;
    expect_refusal(&f, 0, "all_reduce over tensor)", "comes out of its program's order");
    second->first_call = other;
    first->first_call = other;
    expect_refusal(&f, 0, "all_reduce over tensor)", "comes out of its program's order");
    second->first_call = one;
    expect_refusal(&f, 0, "all_reduce over tensor)", "comes out of its program's order");
    first->first_call = one;
    second->first_call = other;
    first->micro = 1;
    expect_refusal(&f, 0, "(F0.0/1", "calls, of which");
    first->micro = 0;
    expect_fine(&f);
    fixture_free(&f);
}

TEST(test_other_collective)
{
    fixture f = two_tensor_ranks(NULL);
    ech_list *list = train_of(&f, 0);
    ech_step *step = &list->step.at[find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, LAYER, 0, 0)];
    step->collective = ECH_COLLECTIVE_ALL_GATHER;
    expect_refusal(&f, 0, "all_gather over tensor)", "should be all_reduce over tensor");
    step->collective = ECH_COLLECTIVE_ALL_REDUCE;
    step->group = ECH_GROUP_CONTEXT;
    expect_refusal(&f, 0, "all_reduce over context)", "should be all_reduce over tensor");
    step->group = ECH_GROUP_TENSOR;
    step->calls = 0;
    expect_refusal(&f, 0, "(F0.0/1", "calls, of which");
    step->calls = 1;
    step->calls = 2;
    expect_refusal(&f, 0, "all_reduce over tensor)", "which are none for it");
    step->calls = 1;
    expect_fine(&f);
    fixture_free(&f);
}

/* Where nothing is cut. */
TEST(test_alone)
{
    fixture f = outlines(
        (fixture_shape){.schedule = "gpipe", .stages = 1, .micro_batches = 2, .layers = 2});
    ech_list *list = train_of(&f, 0);
    ech_step *f0 = &list->step.at[find(list, ECH_STEP_FORWARD, ECH_FORWARD, LAYER, 0, 0)];
    ech_step whole = *f0;
    whole.kind = ECH_STEP_COLLECTIVE;
    whole.collective = ECH_COLLECTIVE_ALL_GATHER;
    whole.group = ECH_GROUP_TENSOR;
    whole.calls = whole.afters = 0;
    lists_add(list, whole);
    expect_refusal(&f, 0, "all_gather over tensor)", "has no ranks to do it with");
    fixture_free(&f);
}

/* ---- waits ---- */

/* Each collective in turn is not waited for by the step that does. (With one micro-batch, who waits reads.) */
TEST(test_not_waited_for)
{
    static const char *const ways[] = {NULL, "parallel.sequence=true", "parallel.sequence=keep"};
    for (int i = 0; i < 3; i++) {
        fixture f = outlines((fixture_shape){.schedule = "gpipe",
                                             .stages = 1,
                                             .tensor = 2,
                                             .micro_batches = 1,
                                             .layers = 2,
                                             .more = ways[i]});
        ech_list *list = train_of(&f, 1);
        int refused = 0;
        for (int s = 0; s < (int)list->step.n; s++) {
            if (list->step.at[s].kind != ECH_STEP_COLLECTIVE) continue;
            int waiter = waiter_of(list, s);
            ech_step was = list->step.at[waiter];
            int after[8];
            assert_in_range(was.afters, 1, 8);
            memcpy(after, &list->after.at[was.first_after], (size_t)was.afters * sizeof *after);
            forget(list, waiter, s);
            expect_refusal(&f, 1, "rank 1: step", "does not wait for who writes what it reads");
            list->step.at[waiter] = was;
            memcpy(&list->after.at[was.first_after], after, (size_t)was.afters * sizeof *after);
            refused++;
        }
        /* Of embedding, two layers, head. */
        static const int collectives[] = {1 + 2 * 4 + 2, 2 + 2 * 10 + 3, 2 + 2 * 8 + 3};
        assert_int_equal(refused, collectives[i]);
        expect_fine(&f);
        fixture_free(&f);
    }
}

/* A collective begins before what it reads is made. */
TEST(test_begins_too_early)
{
    fixture f = two_tensor_ranks("parallel.sequence=true");
    ech_list *list = train_of(&f, 0);
    int scatter = find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, LAYER, 0, 1);
    assert_int_equal(list->step.at[scatter].collective, ECH_COLLECTIVE_REDUCE_SCATTER);
    assert_int_equal(list->step.at[scatter].afters, 1);
    list->step.at[scatter].afters = 0;
    expect_refusal(&f, 0, "reduce_scatter over tensor)",
                   "does not wait for who writes what it reads");
    list->step.at[scatter].afters = 1;
    expect_fine(&f);
    /* Or stands before it, with nothing to wait for. */
    list->after.at[list->step.at[scatter].first_after] =
        find(list, ECH_STEP_FORWARD, ECH_FORWARD, LAYER, 0, 0);
    assert_true(lists_move(list, scatter, scatter - 1));
    expect_refusal(&f, 0, "reduce_scatter over tensor)", "comes out of its program's order");
    fixture_free(&f);
}

/* A W part stands before the collective that makes the gradient it reads. */
TEST(test_weight_too_early)
{
    fixture f = two_tensor_ranks("parallel.sequence=true");
    ech_list *list = train_of(&f, 0);
    int gather = find(list, ECH_STEP_COLLECTIVE, ECH_BACKWARD_INPUT, LAYER, 0, 2);
    int weight = find(list, ECH_STEP_BACKWARD_WEIGHT, ECH_BACKWARD_WEIGHT, LAYER, 0, 4);
    assert_int_equal(list->step.at[gather].collective, ECH_COLLECTIVE_ALL_GATHER);
    assert_true(weight > gather);
    list->step.at[weight].afters = 0;
    for (int at = weight; at > gather; at--) assert_true(lists_move(list, at, at - 1));
    expect_refusal(&f, 0, "(W0.0/1", "comes out of its program's order");
    fixture_free(&f);
}

/* ---- what is still being read ---- */

/* What the call does to the value. */
static ech_operand *find_operand(ech_block *block, const ech_block_call *call, int value)
{
    for (int i = 0; i < call->operands; i++) {
        ech_operand *o = &block->operand.at[call->first_operand + i];
        if (ech_operand_is_value(o) && o->value == value) return o;
    }
    fail_msg("the call does nothing to value %d", value);
    return NULL;
}

/* Keys and values are sent around while they are attended to: both read. So a made-up program, whose last
 * call writes them again, must wait for the shift as well. */
TEST(test_overwritten)
{
    fixture f = outlines((fixture_shape){
        .schedule = "gpipe", .stages = 1, .context = 2, .micro_batches = 1, .layers = 1});
    ech_list *list = train_of(&f, 0);
    ech_block *block = f.of.model->block.at[LAYER];
    int shift = find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, LAYER, 0, 0);
    int during = find(list, ECH_STEP_FORWARD, ECH_FORWARD, LAYER, 0, 1);
    assert_int_equal(list->step.at[shift].collective, ECH_COLLECTIVE_SHIFT);
    assert_int_equal(during, shift + 1);
    const ech_block_call *sent = &block->program[ECH_FORWARD].at[list->step.at[shift].first_call];
    int kv = block->node.at[sent->node].in[0];
    ech_block_call *attend = &block->program[ECH_FORWARD].at[list->step.at[during].first_call];
    ech_operand *read = find_operand(block, attend, kv);
    assert_int_equal(read->mode, ECH_READ);
    expect_fine(&f);
    read->mode = ECH_ADD; /* now it writes what is under way */
    expect_refusal(&f, 0, "(F0.0/1", "does not wait for who reads what it writes");
    lists_edit(list, -1, during, shift);
    assert_int_equal(ech_check_list(f.plan[0], list), ECH_OK);
    fixture_free(&f);
}

/* ---- pieces ---- */

/* Across stages each tensor rank sends a part of what all of them have; a gather makes it whole. */
static fixture two_stages(const char *more)
{
    return outlines((fixture_shape){.schedule = "1f1b",
                                    .stages = 2,
                                    .tensor = 2,
                                    .micro_batches = 2,
                                    .layers = 2,
                                    .more = more});
}

TEST(test_pieces)
{
    fixture f = two_stages(NULL);
    expect_fine(&f);
    ech_list *list = train_of(&f, 2);
    int first, end;
    ech_layout_blocks(f.of.layout, 2, 0, &first, &end);
    int whole = find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, first, 1, -1);
    int received = lists_find(list, ECH_STEP_RECV_ACT, 1), waiter = waiter_of(list, whole);
    assert_int_equal(list->step.at[waiter].kind, ECH_STEP_FORWARD);

    /* It does not wait for what it gathers. */
    ech_step was = list->step.at[whole];
    int after[4];
    assert_in_range(was.afters, 1, 4);
    memcpy(after, &list->after.at[was.first_after], (size_t)was.afters * sizeof *after);
    forget(list, whole, received);
    lists_edit(list, -1, waiter, received); /* though the reader waits for the message */
    expect_refusal(&f, 2, "all_gather over tensor)", "does not wait for who writes what it writes");
    fixture_free(&f);

    /* The reader does not wait for it. */
    f = two_stages(NULL);
    list = train_of(&f, 2);
    forget(list, waiter, whole);
    lists_edit(list, -1, waiter, received);
    expect_refusal(&f, 2, "(F0.1/2", "does not wait for who writes what it reads");
    fixture_free(&f);

    /* Nobody makes it whole. */
    f = two_stages(NULL);
    list = train_of(&f, 2);
    lists_drop(list, whole);
    lists_edit(list, -1, waiter - 1, received);
    expect_refusal(&f, 2, "(F0.1/2", "comes out of its program's order");
    fixture_free(&f);

    /* It is made whole twice. */
    f = two_stages(NULL);
    list = train_of(&f, 2);
    list->step.at[find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, first, 0, -1)].micro = 1;
    expect_refusal(&f, 2, "all_gather over tensor)", "gathers shards that are not there");
    fixture_free(&f);

    /* Under sequence parallelism ranks send what they have; there is nothing to make whole. */
    f = two_stages("parallel.sequence=true");
    expect_fine(&f);
    list = train_of(&f, 2);
    int gather = find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, first, 0, 0);
    ech_step more = list->step.at[gather];
    more.calls = 0;
    lists_add(list, more);
    expect_refusal(&f, 2, "all_gather over tensor)", "gathers what does not come in shards");
    fixture_free(&f);
}

/* Pieces of a sample come first to last, and their backwards last to first. */
static void swap_pieces(ech_list *list, ech_phase phase)
{
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        if (ech_step_kind_phase(step->kind) >= 0 && step->phase == phase) step->micro ^= 1;
    }
}

TEST(test_pieces_of_samples)
{
    fixture f = outlines((fixture_shape){.schedule = "gpipe",
                                         .stages = 1,
                                         .micro_batches = 2,
                                         .layers = 2,
                                         .more = "memory.sequence_chunks=2"});
    ech_list *list = train_of(&f, 0);
    assert_int_equal(list->numbering.sequence_chunks, 2);
    expect_fine(&f);
    swap_pieces(list, ECH_FORWARD);
    expect_refusal(&f, 0, "(F0.1/0", "begins before its sequence chunk before is there");
    swap_pieces(list, ECH_FORWARD);
    swap_pieces(list, ECH_BACKWARD_INPUT);
    swap_pieces(list, ECH_BACKWARD_WEIGHT);
    expect_refusal(&f, 0, "(B0.0/1", "begins before its sequence chunk after is there");
    fixture_free(&f);
}

/* What is sent ends with a collective: the message waits for that, not only for the compute step before. */
TEST(test_sent_too_early)
{
    fixture f = outlines((fixture_shape){.schedule = "gpipe",
                                         .architecture = "llama",
                                         .stages = 2,
                                         .tensor = 2,
                                         .micro_batches = 2,
                                         .layers = 1,
                                         .more = "parallel.partition=[0,1]"});
    expect_fine(&f);
    ech_list *list = train_of(&f, 1);
    int sum = find(list, ECH_STEP_COLLECTIVE, ECH_FORWARD, 0, 1, 0);
    int send = lists_find(list, ECH_STEP_SEND_ACT, 1);
    forget(list, send, sum);
    expect_refusal(&f, 1, "(send_act 0.1/0 to rank 3)",
                   "does not wait for who writes what it reads");
    fixture_free(&f);
}
