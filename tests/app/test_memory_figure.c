/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that Chen's plans save: with sharing and in-place gradients it is the list's peak of
 * working memory, without either the sum of all values, and recomputed segments take less.
 */
#include "app/grid_run.h"
#include "app/plan/figure.h"
#include "schedule/peaks.h"
#include "unit.h"

static ech_memory_bytes bytes_of(const char *words)
{
    grid_plans g = grid_plan("gpt2", words);
    const ech_plan *plan = g.plan[0];
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_memory_bytes of = ech_memory_bytes_of(plan);
    ech_working working = ech_plan_working(plan);
    int64_t all = 0;
    for (size_t i = 0; i < list->value.n; i++)
        if (ech_memory_is_working(list->value.at[i].kind)) all += list->value.at[i].bytes;
    assert_int_equal(of.neither, all);
    assert_true(working.list == list);
    /* The peak has the scalars that live as long as the plan, too. */
    assert_true(of.both < working.bytes && of.both > working.bytes * 99 / 100);
    grid_plans_free(&g);
    return of;
}

TEST(sharing_and_in_place_save_memory)
{
    static const char words[] = "model.num_hidden_layers=6 ";
    ech_memory_bytes plain = bytes_of(words);
    assert_true(plain.in_place < plain.neither && plain.shared < plain.in_place);
    assert_true(plain.both <= plain.shared && plain.longest == 0);
    ech_memory_bytes again = bytes_of("model.num_hidden_layers=6 memory.recompute=full "
                                      "memory.recompute_blocks=2");
    assert_true(again.both < plain.both && again.longest == 2);
}

TEST(figure_names_each_plan)
{
    ech_text text = {0};
    grid_plans g = grid_plan("gpt2", "model.num_hidden_layers=6");
    assert_int_equal(ech_memory_figure(&g.design, &text), ECH_OK);
    static const char *const rows[] = {"own bytes", "in place",   "share bytes",
                                       "both",      "recomputed", "Chen et al. 2016"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_non_null(strstr(text.at, rows[i]));
    ech_text_free(&text);
    grid_plans_free(&g);
}

ALL_TESTS(grid_setup, fixture_teardown)
