/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of all ranks' lists together, on lists that the passes have not made: asynchronous
 * ones pass, and of ranks that wait for each other it is said who waits for whom. Faults of
 * messages and waits are drawn by test_random.c, of layers that are cut by test_cut_random.c.
 */

#include "check/check.h"
#include "schedule/refused.h"
#include "unit.h"

TEST(test_sound_asynchronous)
{
    static const int replicas[][3] = {{1, 1, 1}, {1, 2, 2}, {4, 2, 1}};
    for (int r = 0; r < 3; r++)
        for (int m = 4; m <= 8; m += 4)
            for (int kind = 0; kind < 4; kind++) {
                lists all = lists_build(
                    (lists_spec){.schedule = kind == 3 ? "pipedream-2bw" : "pipedream",
                                 .weights = kind == 3 ? ECH_WEIGHTS_BUFFERED : ECH_WEIGHTS_STASHED,
                                 .stages = 3,
                                 .micro_batches = m,
                                 .turns = 5,
                                 .replicas = replicas[r],
                                 .vertical_sync = kind == 1,
                                 .no_stashing = kind == 2});
                expect_sound(&all);
                lists_free(&all);
            }
}

/* ---- messages ---- */

/* Messages across two boundaries may come in another order than they are received in: here a
 * receive of chunk 1 is posted before one of chunk 0 that is sent earlier. */
TEST(test_channels)
{
    lists all = lists_build((lists_spec){
        .schedule = "interleaved", .stages = 2, .chunks = 2, .micro_batches = 2, .eager = true});
    ech_list *list = lists_of(&all, 1);
    int one = lists_find(list, ECH_STEP_RECV_ACT, 1), other = one + 1;
    while (list->step.at[other].kind != ECH_STEP_RECV_ACT) other++;
    assert_int_equal(list->step.at[one].chunk, 0);
    assert_int_equal(list->step.at[other].chunk, 1);
    assert_true(lists_move(list, other, one));
    expect_sound(&all);
    lists_free(&all);
}

/* ---- collectives and waits ---- */

TEST(test_collectives_in_other_order)
{
    static const int replicas[] = {2, 2};
    lists all = lists_build((lists_spec){
        .schedule = "gpipe", .stages = 2, .blocks = 4, .micro_batches = 4, .replicas = replicas});
    expect_sound(&all);
    bucket_step(&all, 3, ECH_STEP_REDUCE_GRADS, 0, 0)->index = 1;
    expect_refused(&all, "rank 3: reduce_grads bucket 1 over data",
                   "meets another collective, reduce_grads bucket 0 over data, on rank 2");
    bucket_step(&all, 3, ECH_STEP_REDUCE_GRADS, 1, 0)->index = 0;
    int *param = &all.plan[3]->bucket_param.at[0]; /* as many elements, but not the same ones */
    *param -= 1;
    expect_refused(&all, "rank 3: reduce_grads bucket 0 over data",
                   "meets another collective, reduce_grads bucket 0 over data, on rank 2");
    *param += 1;
    expect_sound(&all);
    ech_list *list = lists_of(&all, 2);
    lists_drop(list, lists_find(list, ECH_STEP_REDUCE_GRADS, -1));
    expect_refused(&all, "rank 3: reduce_grads bucket 0 over data",
                   "meets another collective, reduce_grads bucket 1 over data, on rank 2");
    lists_drop(list, lists_find(list, ECH_STEP_REDUCE_GRADS, -1));
    list = lists_of(&all, 3);
    lists_drop(list, lists_find(list, ECH_STEP_REDUCE_GRADS, -1));
    expect_refused(&all, "rank 3: reduce_grads bucket 1 over data", "no collective, on rank 2");
    lists_free(&all);
}

/* A group's collectives on two lanes are two channels: their order among each other is each rank's
 * own. */
TEST(test_two_lanes_of_a_group)
{
    static const int replicas[] = {2, 2};
    lists all = lists_build((lists_spec){
        .schedule = "gpipe", .stages = 2, .blocks = 4, .micro_batches = 4, .replicas = replicas});
    ech_list *list = lists_of(&all, 3);
    int first = lists_find(list, ECH_STEP_REDUCE_GRADS, -1), second = first + 1;
    while (list->step.at[second].kind != ECH_STEP_REDUCE_GRADS) second++;
    assert_true(lists_move(list, second, first));
    expect_refused(&all, "rank 3: reduce_grads bucket 1 over data", "meets another collective");
    for (int rank = 2; rank < 4; rank++)
        bucket_step(&all, rank, ECH_STEP_REDUCE_GRADS, 1, 0)->lane = ECH_LANE_COLLECTIVE;
    assert_int_equal(ech_check_plans(lists_plans(&all), all.ranks, ECH_LIST_TRAIN), ECH_OK);
    lists_free(&all);
}

/* Each stage waits until what it sends is received, as if nothing could be sent beside
 * computing. */
TEST(test_circle)
{
    lists_spec spec = {.schedule = "1f1b", .stages = 4, .micro_batches = 8, .blocking = true};
    lists all = lists_build(spec);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(ech_check_list(all.plan[rank], lists_of(&all, rank)), ECH_OK);
    expect_refused(&all, "rank 3: W0.0/3 waits for rank 3's send_grad 0.0/3 to rank 2, which waits",
                   "which waits for rank 3's W0.0/3 again: a circle");
    lists_free(&all);
}

/* The first stage sends to two replicas in turns. The first of them receives once the second has:
 * fine where many messages are under way at once, but not where the first must have arrived before
 * the second begins. */
TEST(test_circle_of_queues)
{
    static const int replicas[] = {1, 2};
    lists all = lists_build(
        (lists_spec){.schedule = "gpipe", .stages = 2, .micro_batches = 2, .replicas = replicas});
    assert_int_equal(ech_check_queues(lists_plans(&all), all.ranks, ECH_LIST_TRAIN), ECH_OK);
    for (int rank = 1; rank <= 2; rank++) {
        ech_list *list = lists_of(&all, rank);
        int meet = lists_add(list, (ech_step){.kind = ECH_STEP_REDUCE,
                                              .group = ECH_GROUP_DATA,
                                              .chunk = -1,
                                              .micro = -1,
                                              .block = -1,
                                              .peer = -1,
                                              .index = ECH_SCALAR_LOSS,
                                              .count = 2});
        if (rank == 2) lists_after(list, lists_find(list, ECH_STEP_RECV_ACT, -1));
        assert_true(lists_move(list, meet, rank == 2));
        if (rank == 1) lists_edit(list, -1, lists_find(list, ECH_STEP_RECV_ACT, -1), 0);
    }
    assert_int_equal(ech_check_plans(lists_plans(&all), all.ranks, ECH_LIST_TRAIN), ECH_OK);
    ech_clear_error();
    expect_message(ech_check_queues(lists_plans(&all), all.ranks, ECH_LIST_TRAIN),
                   "rank 0's send_act 0.1/0 to rank 2, which waits for rank 0's send_act 0.0/0 to "
                   "rank 1",
                   "a circle");
    lists_free(&all);
}

/* Both orders are fine alone, but each waits for what the other does last. */
TEST(test_orders_against_each_other)
{
    static const ech_order_item first[] = {{ECH_F, 0, 0}, {ECH_B, 0, 0}, {ECH_W, 0, 0},
                                           {ECH_F, 0, 1}, {ECH_B, 0, 1}, {ECH_W, 0, 1}};
    static const ech_order_item last[] = {{ECH_F, 0, 0}, {ECH_F, 0, 1}, {ECH_B, 0, 0},
                                          {ECH_W, 0, 0}, {ECH_B, 0, 1}, {ECH_W, 0, 1}};
    ech_order orders[2] = {{0}};
    for (int i = 0; i < 6; i++) {
        ECH_PUSH(orders[0], first[i]);
        ECH_PUSH(orders[1], last[i]);
    }
    lists all = lists_build((lists_spec){.order = orders, .stages = 2, .micro_batches = 2});
    expect_refused(&all, "rank 0: B0.0/0 waits for rank 0's recv_grad 0.0/0 from rank 1",
                   "rank 0's F0.1/0, which waits for rank 0's B0.0/0 again: a circle");
    lists_free(&all);
    free(orders[0].at);
    free(orders[1].at);
}
