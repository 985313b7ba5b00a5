/* SPDX-License-Identifier: Apache-2.0
 *
 * The space disk in plans: values there are placed, counted and checked as in the other spaces, and
 * change nothing in them.
 */
#include <string.h>

#include "schedule/fixture.h"
#include "schedule/peaks.h"
#include "unit.h"

enum { BLOCK = 4096, VALUES = 12 };

/* As the passes would leave a value of the disk that steps touch in these ticks. */
static void add(ech_list *list, int64_t bytes, int born, int dies)
{
    ECH_PUSH(list->value, (ech_value){.kind = ECH_MEMORY_ACTIVATIONS_ON_DISK,
                                      .block = -1,
                                      .local = -1,
                                      .micro = -1,
                                      .index = -1,
                                      .bytes = bytes,
                                      .offset = -1,
                                      .born = born,
                                      .dies = dies,
                                      .successor = -1});
}

static void place(ech_plan *plan, ech_list *list)
{
    ech_pass_offsets(plan, list, ECH_SPACE_DISK);
    plan->arena_bytes[ECH_SPACE_DISK] =
        plan->persistent_bytes[ECH_SPACE_DISK] + list->bytes[ECH_SPACE_DISK];
    memset(list->full_kind, 0, sizeof list->full_kind); /* counted once before */
    memset(list->working_kind, 0, sizeof list->working_kind);
    ech_pass_peaks(plan, list);
}

TEST(values_on_disk_are_placed)
{
    fixture f = fixture_pipeline((fixture_shape){
        .schedule = "1f1b", .stages = 2, .tensor = 1, .micro_batches = 4, .layers = 4});
    ech_plan *plan = f.plan[0];
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int64_t before[ECH_MEMORY_KINDS], peak[ECH_MEMORY_KINDS];
    assert_int_equal(plan->arena_bytes[ECH_SPACE_DISK], 0);
    ech_plan_peaks(plan, before);
    ech_arena_use use_before = ech_plan_arena_use(plan);
    int64_t working = ech_plan_working(plan).bytes;

    /* Two live at once, each of an odd number of bytes: whole blocks of the disk are theirs. */
    for (int i = 0; i < VALUES; i++) add(list, 5000 + i % 2 * 3000, i, i + 1);
    place(plan, list);
    assert_int_equal(plan->arena_bytes[ECH_SPACE_DISK], 4 * BLOCK);
    assert_int_equal(ech_plan_lower_bound(plan, ECH_SPACE_DISK), 4 * BLOCK);
    size_t first = list->value.n - VALUES;
    for (size_t i = first; i < list->value.n; i++)
        assert_int_equal(list->value.at[i].offset % BLOCK, 0);
    assert_int_equal(ech_check_plan(plan), ECH_OK);

    ech_plan_peaks(plan, peak);
    assert_int_equal(peak[ECH_MEMORY_ACTIVATIONS_ON_DISK], 4 * BLOCK);
    peak[ECH_MEMORY_ACTIVATIONS_ON_DISK] = 0;
    assert_memory_equal(peak, before, sizeof peak);
    assert_int_equal(ech_plan_working(plan).bytes, working);
    ech_arena_use use = ech_plan_arena_use(plan);
    assert_int_equal(use.kind[ECH_MEMORY_ACTIVATIONS_ON_DISK] + use.between[ECH_SPACE_DISK],
                     4 * BLOCK);
    assert_int_equal(use.between[ECH_SPACE_DEVICE], use_before.between[ECH_SPACE_DEVICE]);

    /* One byte less than a block's boundary, and what lives with it. */
    list->value.at[first].offset += 1;
    assert_int_not_equal(ech_check_plan(plan), ECH_OK);
    list->value.at[first].offset -= 1;
    int64_t own = list->value.at[first + 1].offset;
    list->value.at[first + 1].offset = list->value.at[first].offset;
    assert_int_not_equal(ech_check_plan(plan), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "overlap"));
    list->value.at[first + 1].offset = own;
    assert_int_equal(ech_check_plan(plan), ECH_OK);
    fixture_free(&f);
}

/* Persistent values come first, and then the values of lists. */
TEST(persistent_values_on_disk)
{
    fixture f = fixture_pipeline((fixture_shape){
        .schedule = "gpipe", .stages = 1, .tensor = 1, .micro_batches = 2, .layers = 2});
    ech_plan *plan = f.plan[0];
    ech_list list = {.ticks = 3};
    size_t values = plan->persistent.n;
    ech_plan_add_persistent(plan, ECH_MEMORY_OPTIMIZER_ON_DISK, 0, 1);
    ech_plan_add_persistent(plan, ECH_MEMORY_PARAMETERS_ON_DISK, 0, BLOCK + 1);
    assert_int_equal(plan->persistent.at[values + 1].offset, BLOCK);
    assert_int_equal(plan->persistent_bytes[ECH_SPACE_DISK], 3 * BLOCK);
    add(&list, BLOCK, 0, 2);
    place(plan, &list);
    assert_int_equal(list.value.at[0].offset, 3 * BLOCK);
    assert_int_equal(plan->arena_bytes[ECH_SPACE_DISK], 4 * BLOCK);
    ech_list_free(&list);
    fixture_free(&f);
}
