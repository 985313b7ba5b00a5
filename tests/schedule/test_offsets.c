/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: values of other micro-batches have the offsets of those before them, so that neither
 * the arena nor the search grows with micro-batches; and it wastes little.
 */
#include <stdlib.h>

#include "schedule/fixture.h"
#include "unit.h"

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static size_t count_offsets(const ech_list *list)
{
    int64_t *offset = ech_calloc(list->value.n + 1, sizeof *offset);
    size_t n = list->value.n, distinct = 0;
    for (size_t i = 0; i < n; i++) offset[i] = list->value.at[i].offset;
    qsort(offset, n, sizeof *offset, by_number);
    for (size_t i = 0; i < n; i++) distinct += i == 0 || offset[i] != offset[i - 1];
    free(offset);
    return distinct;
}

static size_t count_offsets_of(const char *schedule, int micro_batches)
{
    fixture f = fixture_pipeline((fixture_shape){.schedule = schedule,
                                                 .stages = 2,
                                                 .tensor = 2,
                                                 .micro_batches = micro_batches,
                                                 .layers = 4});
    size_t most = 0;
    for (int rank = 0; rank < f.ranks; rank++) {
        const ech_list *list = &f.plan[rank]->list[ECH_LIST_TRAIN];
        size_t n = count_offsets(list);
        if (n > most) most = n;
        assert_true((double)list->bytes[ECH_SPACE_DEVICE] <=
                    1.05 * (double)list->lower_bound[ECH_SPACE_DEVICE]);
    }
    fixture_free(&f);
    return most;
}

TEST(offsets_do_not_grow_with_micro_batches)
{
    static const char *const schedules[] = {"1f1b", "zero-bubble", "naive"};
    for (int i = 0; i < 3; i++) {
        size_t few = count_offsets_of(schedules[i], 12), many = count_offsets_of(schedules[i], 48);
        assert_int_equal(many, few);
    }
    /* All micro-batches are kept at once: their offsets do grow. */
    assert_true(count_offsets_of("gpipe", 12) < count_offsets_of("gpipe", 48));
}
