/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch of sums over ranks: two values, however many sums are under way. The checker refuses
 * a sum that works where the one before it may not have ended.
 */

#include "schedule/fixture.h"
#include "unit.h"

static fixture plan_of(const char *more, int layers)
{
    return fixture_pipeline((fixture_shape){.schedule = "gpipe",
                                            .stages = 1,
                                            .data = 3,
                                            .micro_batches = 2,
                                            .layers = layers,
                                            .more = more});
}

/* Of the sums that have scratch. */
typedef struct scratch {
    int sums, values, same; /* same: has that of the sum before it */
    int64_t bytes;
} scratch;

static scratch scratch_of(const ech_plan *plan)
{
    scratch of = {0};
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ECH_FREED bool *found = ech_calloc(list->value.n, sizeof *found);
    int last = -1;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (!ech_step_is_sum(step) || step->scratch < 0) continue;
        size_t v = (size_t)step->scratch - plan->persistent.n;
        of.sums++;
        of.same += step->scratch == last;
        last = step->scratch;
        if (found[v]) continue;
        found[v] = true;
        of.values++;
        of.bytes += list->value.at[v].bytes;
    }
    return of;
}

/* A bucket has a whole parameter, however large; its sums go segment by segment. */
TEST(scratch_does_not_grow_with_the_largest_parameter)
{
    static const char *const words[] = {
        "parallel.zero=0",          "parallel.zero=3",
        "parallel.reduction=ring",  "parallel.reduction=torus",
        "parallel.reduction=naive", "parallel.reduction=hierarchical parallel.node_ranks=3"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int64_t bytes[2];
        for (int k = 0; k < 2; k++) {
            char more[200];
            snprintf(more, sizeof more, "%s model.vocab_size=%d", words[i], 400000 << 2 * k);
            fixture f = plan_of(more, 2);
            bytes[k] = scratch_of(f.plan[0]).bytes;
            fixture_free(&f);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_in_range(bytes[0], 1, 64 << 20);
    }
}

TEST(scratch_does_not_grow_with_the_number_of_sums)
{
    static const char *const words[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                        "parallel.reduction=ring", "parallel.reduction=torus"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        scratch few = {0};
        for (int layers = 2; layers <= 8; layers *= 4) {
            fixture f = plan_of(words[i], layers);
            scratch now = scratch_of(f.plan[0]);
            assert_true(now.sums > 3 * layers);
            assert_int_equal(now.values, 2);
            assert_int_equal(now.same, 0);
            if (layers == 2) few = now;
            assert_int_equal(now.bytes, few.bytes);
            fixture_free(&f);
        }
    }
}

TEST(a_sum_in_the_scratch_of_the_one_before_is_refused)
{
    fixture f = plan_of("parallel.zero=1", 2);
    ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
    const ech_step *last = NULL;
    int refused = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        if (step->lane == ECH_LANE_REDUCE && last && ech_step_is_sum(step) && step->scratch >= 0) {
            int was = step->scratch;
            step->scratch = last->scratch;
            for (int i = 0; i < step->accesses; i++)
                if (list->access.at[step->first_access + i].value == was)
                    list->access.at[step->first_access + i].value = last->scratch;
            assert_int_equal(ech_check_list(f.plan[0], list), ECH_EINTERNAL);
            assert_non_null(strstr(ech_last_error(), "has the scratch of the sum before it"));
            refused++;
            for (int i = 0; i < step->accesses; i++)
                if (list->access.at[step->first_access + i].value == last->scratch)
                    list->access.at[step->first_access + i].value = was;
            step->scratch = was;
        }
        if (step->lane == ECH_LANE_REDUCE) last = ech_step_is_sum(step) ? step : NULL;
    }
    assert_true(refused > 3);
    assert_int_equal(ech_check_list(f.plan[0], list), ECH_OK);
    fixture_free(&f);
}
