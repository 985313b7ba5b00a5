/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of micro-batches: each stands for one turn, micro-batch and sequence chunk, in their
 * order, and lists of every grid count them so.
 */

#include "schedule/fixture.h"
#include "schedule/numbering.h"
#include "unit.h"

TEST(numbers_count_chunks_then_micro_batches_then_turns)
{
    for (int m = 1; m <= 4; m++)
        for (int chunks = 1; chunks <= 3; chunks++) {
            ech_numbering numbering = {.micro_batches = m, .sequence_chunks = chunks};
            int number = 0;
            for (int turn = 0; turn < 3; turn++)
                for (int k = 0; k < m; k++)
                    for (int c = 0; c < chunks; c++, number++) {
                        ech_micro at = ech_micro_at(numbering, number);
                        assert_int_equal(at.turn, turn);
                        assert_int_equal(at.micro_batch, k);
                        assert_int_equal(at.sequence_chunk, c);
                        assert_int_equal(ech_micro_number(numbering, at), number);
                        assert_int_equal(ech_micro_whole(numbering, at), turn * m + k);
                    }
        }
}

/* Every number of a train list is forwarded once on each of its blocks, in the turn that it stands
 * for. */
static void check_list(const fixture *f, int rank, int turns, int chunks)
{
    const ech_list *list = fixture_list(f, rank);
    int m = ech_layout_micro_batches(f->of.layout, rank), first, end;
    assert_int_equal(list->numbering.micro_batches, m);
    assert_int_equal(list->numbering.sequence_chunks, chunks);
    assert_int_equal(list->micro_batches, turns * m * chunks);
    ech_layout_blocks(f->of.layout, rank, 0, &first, &end);
    int *forwards = ech_calloc((size_t)list->micro_batches, sizeof *forwards);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_FORWARD || step->first_call > 0) continue;
        forwards[step->micro]++;
        assert_int_equal(step->turn, ech_micro_at(list->numbering, step->micro).turn);
    }
    for (int i = 0; i < list->micro_batches; i++) assert_int_equal(forwards[i], end - first);
    free(forwards);
}

TEST(lists_number_micro_batches_so)
{
    for (int chunks = 1; chunks <= 2; chunks++)
        for (int turns = 1; turns <= 3; turns++) {
            ech_text more = {0};
            ech_text_append(&more, "memory.sequence_chunks=%d", chunks);
            fixture f =
                fixture_pipeline((fixture_shape){.schedule = turns > 1 ? "pipedream" : "1f1b",
                                                 .stages = 2,
                                                 .replicas = "[2,1]",
                                                 .micro_batches = 4,
                                                 .turns = turns > 1 ? turns : 0,
                                                 .more = more.at});
            for (int rank = 0; rank < f.ranks; rank++) check_list(&f, rank, turns, chunks);
            fixture_free(&f);
            ech_text_free(&more);
        }
}
