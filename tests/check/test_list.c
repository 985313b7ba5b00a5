/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of one rank's chunks, versions and memory, on lists that the passes have not made:
 * each seeded fault is found and named. Faults of work and buckets are drawn by test_mutants.c.
 */

#include "check/checker.h"
#include "schedule/refused.h"
#include "unit.h"

/* ---- chunks ---- */

/* The step of that kind, chunk and micro-batch 0. */
static int find_of_chunk(const ech_list *list, ech_step_kind kind, int chunk)
{
    int s = 0;
    while (list->step.at[s].kind != kind || list->step.at[s].chunk != chunk ||
           list->step.at[s].micro != 0)
        s++;
    return s;
}

/* In a V the last stage's second chunk continues where its first one ends, without a message, and
 * the backward runs the other way. The first stage's two chunks are not adjacent. */
TEST(test_neighbours_on_one_rank)
{
    for (int back = 0; back < 2; back++) {
        ech_step_kind kind = back ? ECH_STEP_BACKWARD_INPUT : ECH_STEP_FORWARD;
        lists all = lists_build((lists_spec){
            .schedule = "zero-bubble-v", .stages = 2, .chunks = 2, .micro_batches = 3});
        ech_list *list = lists_of(&all, 1);
        expect_sound(&all);
        int earlier = find_of_chunk(list, kind, back), later = find_of_chunk(list, kind, !back);
        assert_true(earlier < later);
        ech_step was = list->step.at[earlier];
        list->step.at[earlier].chunk = list->step.at[later].chunk;
        list->step.at[earlier].block = list->step.at[later].block;
        list->step.at[later].chunk = was.chunk;
        list->step.at[later].block = was.block;
        expect_list_refused(&all, 1, back ? "(B0.0/1)" : "(F1.0/2)",
                            back ? "begins before its gradient is there"
                                 : "begins before its input is there");
        lists_free(&all);
    }
}

/* ---- versions ---- */

static lists stashed(bool vertical_sync)
{
    return lists_build((lists_spec){.schedule = "pipedream",
                                    .weights = ECH_WEIGHTS_STASHED,
                                    .stages = 3,
                                    .micro_batches = 1,
                                    .turns = 6,
                                    .vertical_sync = vertical_sync});
}

/* Two updates come between F and B of stage 0's micro-batches in the steady state: version x is
 * made over by x + 3 as long as 3 are kept, and by x + 2, too early, if only 2 are. */
TEST(test_versions_that_are_kept)
{
    lists all = stashed(false);
    all.plan[0]->versions = 3;
    expect_sound(&all);
    all.plan[0]->versions = 2;
    expect_list_refused(&all, 0, "rank 0: step", "which is overwritten (of 2 that are kept)");
    lists_free(&all);
}

TEST(test_vertical_sync)
{
    lists all = stashed(true);
    expect_sound(&all);
    ech_step_kind kinds[] = {ECH_STEP_FORWARD, ECH_STEP_BACKWARD_INPUT, ECH_STEP_BACKWARD_WEIGHT};
    for (int i = 0; i < 3; i++) step_of(&all, 2, kinds[i], 4)->version++;
    expect_refused(&all, "rank 2: F0.4/2", "the first stage read version 2");
    lists_free(&all);
}

/* ---- memory ---- */

/* A forward writes two values, its backward reads both: 0 at tick 0, 1 at tick 1. */
TEST(test_memory)
{
    lists all = lists_build((lists_spec){.schedule = "gpipe", .stages = 1, .micro_batches = 2});
    ech_plan *plan = all.plan[0];
    ech_list *list = lists_of(&all, 0);
    plan->arena_bytes[ECH_SPACE_DEVICE] = 256;
    for (int i = 0; i < 2; i++) {
        int write = lists_find(list, ECH_STEP_FORWARD, i);
        int read = lists_find(list, ECH_STEP_BACKWARD_WEIGHT, i);
        ECH_PUSH(list->value, (ech_value){.kind = ECH_MEMORY_ACTIVATIONS,
                                          .block = -1,
                                          .index = i,
                                          .bytes = 64,
                                          .offset = 64 * i,
                                          .successor = -1,
                                          .born = write,
                                          .dies = read});
        int touches[2] = {write, read};
        for (int k = 0; k < 2; k++) {
            ech_step *step = &list->step.at[touches[k]];
            step->first_access = (int)list->access.n;
            step->accesses = 1;
            ECH_PUSH(list->access, (ech_access){.value = i, .tick = step->tick, .write = k == 0});
        }
    }
    expect_sound(&all);
    list->value.at[1].offset = 32;
    expect_list_refused(&all, 0, "overlap in memory", "activations 1; activations 0");
    list->value.at[1].offset = 224;
    expect_list_refused(&all, 0, "outside of its arena", "activations 1");
    list->value.at[1].kind = ECH_MEMORY_STAGING; /* has an arena of its own */
    list->value.at[1].offset = 0;
    expect_list_refused(&all, 0, "outside of its arena", "staging 1");
    plan->arena_bytes[ECH_SPACE_HOST] = 64;
    expect_sound(&all);
    list->value.at[1].kind = ECH_MEMORY_ACTIVATIONS;
    list->value.at[1].offset = 64;
    list->value.at[1].dies--;
    expect_list_refused(&all, 0, "(W0.1/0)", "touches activations 1, which lives from 1 to");
    list->value.at[1].dies++;
    list->access.at[2].write = false;
    expect_list_refused(&all, 0, "(F0.1/0)", "reads a value that nothing has written");
    list->access.at[2].write = true;
    expect_sound(&all);
    lists_free(&all);
}

/* Three values of 64 bytes: of weights, states and, in an arena of its own, staging. */
TEST(test_memory_of_persistent_values)
{
    static const ech_memory_kind kinds[] = {ECH_MEMORY_PARAMETERS, ECH_MEMORY_STAGING,
                                            ECH_MEMORY_OPTIMIZER};
    static const int64_t wrong[] = {32, 63, 65, 128};
    lists all = lists_build((lists_spec){.schedule = "gpipe", .stages = 1, .micro_batches = 2});
    ech_plan *plan = all.plan[0];
    for (int i = 0; i < 3; i++) {
        int64_t *bytes = &plan->persistent_bytes[ech_memory_space(kinds[i])];
        ECH_PUSH(plan->persistent,
                 (ech_value){.kind = kinds[i], .block = -1, .bytes = 64, .offset = *bytes});
        *bytes += 64;
    }
    assert_int_equal(ech_check_persistent(plan), ECH_OK);
    for (int i = 0; i < 4; i++) {
        plan->persistent.at[2].offset = wrong[i];
        ech_clear_error();
        expect_message(ech_check_plan(plan), "rank 0: a persistent value", "optimizer");
    }
    lists_free(&all);
}

/* What is received lives from when the receive may begin until the step that waits for it. */
TEST(test_memory_of_messages)
{
    lists all = lists_build((lists_spec){.schedule = "gpipe", .stages = 2, .micro_batches = 2});
    ech_list *list = lists_of(&all, 1);
    int receive = lists_find(list, ECH_STEP_RECV_ACT, 1), read = receive + 1;
    int before = lists_find(list, ECH_STEP_FORWARD, 0);
    all.plan[1]->arena_bytes[ECH_SPACE_DEVICE] = 64;
    ECH_PUSH(list->value, (ech_value){.kind = ECH_MEMORY_ACTIVATIONS,
                                      .block = -1,
                                      .bytes = 64,
                                      .successor = -1,
                                      .born = before + 1,
                                      .dies = read});
    ECH_PUSH(list->access, (ech_access){.value = 0, .tick = receive, .write = true});
    list->step.at[receive].first_access = 0;
    list->step.at[receive].accesses = 1;
    expect_sound(&all);
    list->value.at[0].born++;
    expect_list_refused(&all, 1, "(recv_act 0.1/1 from rank 0)", "runs in ticks");
    list->value.at[0].born--;
    list->value.at[0].dies--;
    expect_list_refused(&all, 1, "(recv_act 0.1/1 from rank 0)", "runs in ticks");
    lists_free(&all);
}
