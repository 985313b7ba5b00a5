/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of kinds of steps: whole, and of one piece.
 */

#include <string.h>

#include "schedule/step/step.h"
#include "unit.h"

TEST(rows_are_whole)
{
    for (ech_step_kind kind = 0; kind < ECH_STEPS; kind++) {
        const ech_step_methods *methods = ech_step_row_of(kind)->methods;
        ech_lane lane = ech_step_row_of(kind)->lane;
        assert_true(methods != NULL);
        bool copies = (lane == ECH_LANE_COPY_IN || lane == ECH_LANE_COPY_OUT) &&
                      kind != ECH_STEP_SNAPSHOT && kind != ECH_STEP_READ_UPDATE;
        bool talks = lane != ECH_LANE_COMPUTE && lane != ECH_LANE_COPY_IN &&
                     lane != ECH_LANE_COPY_OUT && lane != ECH_LANE_HOST && lane != ECH_LANE_DISK;
        assert_true(!(copies || talks) || (methods->print && methods->seconds));
        assert_true(!(copies || talks) || methods->touch || kind == ECH_STEP_MEET);
        bool meets = kind == ECH_STEP_PUBLISH || kind == ECH_STEP_MEET; /* without data */
        assert_int_equal(methods->count != NULL,
                         (copies || talks) && kind != ECH_STEP_REDUCE && !meets);
        for (ech_step_kind other = 0; other < kind; other++)
            assert_string_not_equal(ech_step_name(kind), ech_step_name(other));
    }
}

/* Only messages and what runs on the compute lane have a phase; messages come in pairs, one kind
 * for either end. */
TEST(phases_fit_lanes)
{
    int sends[ECH_MESSAGES] = {0}, receives[ECH_MESSAGES] = {0}, runs[ECH_PHASES] = {0};
    for (ech_step_kind kind = 0; kind < ECH_STEPS; kind++) {
        const ech_step_row *row = ech_step_row_of(kind);
        bool sent = ech_step_kind_sends(kind), received = ech_step_kind_receives(kind);
        int phase = ech_step_kind_phase(kind);
        if (sent || received) {
            bool of_block = ech_step_kind_message(kind) != ECH_MESSAGE_RING_TOKEN;
            assert_int_equal(row->phase == ECH_FORWARD || row->phase == ECH_BACKWARD_INPUT,
                             of_block);
            (sent ? sends : receives)[ech_step_kind_message(kind)]++;
            assert_int_equal(phase, -1);
        } else {
            assert_int_equal(row->phase, phase);
        }
        assert_int_equal(row->params == ECH_PARAMS_READ, phase >= 0);
        if (phase >= 0) runs[phase]++;
    }
    for (int i = 0; i < ECH_MESSAGES; i++) assert_true(sends[i] == 1 && receives[i] == 1);
    for (int i = 0; i < ECH_PHASES; i++) assert_int_equal(runs[i], 1);
}

/* Both ends name the boundary by the block after it. */
TEST(both_ends_name_one_boundary)
{
    static const ech_step_kind pairs[2][2] = {{ECH_STEP_SEND_ACT, ECH_STEP_RECV_ACT},
                                              {ECH_STEP_RECV_GRAD, ECH_STEP_SEND_GRAD}};
    for (int i = 0; i < 2;
         i++) { /* the one at the outputs of block 3, the other at the inputs of 4 */
        assert_int_equal(ech_step_boundary(&(ech_step){.kind = pairs[i][0], .block = 3}), 4);
        assert_int_equal(ech_step_boundary(&(ech_step){.kind = pairs[i][1], .block = 4}), 4);
    }
    for (ech_step_kind kind = 0; kind < ECH_STEPS; kind++) /* of what is held the block's number */
        if (ech_step_kind_is_held(kind))
            assert_int_equal(ech_step_boundary(&(ech_step){.kind = kind, .block = 3}), 3);
}

/* Plans of 64 ranks have ten millions: each byte more is ten MB. */
TEST(steps_are_small)
{
    assert_true(sizeof(ech_step) <= 80);
}

/* As plans print them, and the board shows them. */
TEST(steps_have_words)
{
    const struct {
        ech_step step;
        const char *words;
    } cases[] = {
        {{.kind = ECH_STEP_LOAD, .micro = 3}, "load 3"},
        {{.kind = ECH_STEP_FORWARD, .micro = 3, .block = 5}, "F0.3/5"},
        {{.kind = ECH_STEP_BACKWARD_WEIGHT,
          .chunk = 1,
          .first_call = 4,
          .calls = 6,
          .is_part = true},
         "W1.0/0[4-9]"},
        {{.kind = ECH_STEP_SEND_GRAD, .micro = 2, .block = 7, .peer = 1},
         "send_grad 0.2/7 to rank 1"},
        {{.kind = ECH_STEP_RECV_ACT, .block = 7, .peer = 1}, "recv_act 0.0/7 from rank 1"},
        {{.kind = ECH_STEP_SEND_KEPT, .micro = 2, .block = 1, .peer = 3},
         "send_kept 0.2/1 to rank 3"},
        {{.kind = ECH_STEP_RECV_BACK, .micro = 2, .block = 1, .peer = 3},
         "recv_back 0.2/1 from rank 3"},
        {{.kind = ECH_STEP_REDUCE_GRADS,
          .micro = -1,
          .block = -1,
          .index = 2,
          .group = ECH_GROUP_DATA},
         "reduce_grads bucket 2 over data"},
        {{.kind = ECH_STEP_SCATTER_GRADS,
          .micro = 1,
          .block = -1,
          .index = 2,
          .group = ECH_GROUP_DATA},
         "scatter_grads bucket 2, micro-batch 1, over data"},
        {{.kind = ECH_STEP_UPDATE, .index = 2}, "update bucket 2"},
        {{.kind = ECH_STEP_COLLECTIVE,
          .phase = ECH_BACKWARD_INPUT,
          .collective = ECH_COLLECTIVE_ALL_REDUCE,
          .group = ECH_GROUP_TENSOR,
          .first_call = 8,
          .calls = 1},
         "C B0.0/0[8] all_reduce over tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_text out = {0};
        ech_step_print(&cases[i].step, &out);
        assert_string_equal(out.at, cases[i].words);
        ech_text_free(&out);
    }
}
