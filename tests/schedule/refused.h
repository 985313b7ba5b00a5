/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the checker: lists that pass, and lists that are refused with the words that the
 * message must contain. Include it after cmocka.
 */
#ifndef ECH_TESTS_SCHEDULE_REFUSED_H
#define ECH_TESTS_SCHEDULE_REFUSED_H

#include <string.h>

#include "check/check.h"
#include "base/log.h"
#include "schedule/lists.h"
#include "unit.h"

static inline void expect_sound(const lists *all)
{
    for (int rank = 0; rank < all->ranks; rank++)
        assert_int_equal(ech_check_list(all->plan[rank], lists_of(all, rank)), ECH_OK);
    assert_int_equal(ech_check_plans(lists_plans(all), all->ranks, ECH_LIST_TRAIN), ECH_OK);
    assert_int_equal(ech_check_queues(lists_plans(all), all->ranks, ECH_LIST_TRAIN), ECH_OK);
}

static inline void expect_message(ech_status status, const char *who, const char *why)
{
    assert_int_equal(status, ECH_EINTERNAL);
    if (!strstr(ech_last_error(), who) || !strstr(ech_last_error(), why))
        fail_msg("expected '%s' and '%s' in: %s", who, why, ech_last_error());
}

/* All ranks' lists together are refused. */
static inline void expect_refused(const lists *all, const char *who, const char *why)
{
    ech_clear_error();
    expect_message(ech_check_plans(lists_plans(all), all->ranks, ECH_LIST_TRAIN), who, why);
}

/* One rank's list alone is refused. */
static inline void expect_list_refused(const lists *all, int rank, const char *who, const char *why)
{
    ech_clear_error();
    expect_message(ech_check_list(all->plan[rank], lists_of(all, rank)), who, why);
}

static inline ech_step *step_of(const lists *all, int rank, ech_step_kind kind, int micro)
{
    int s = lists_find(lists_of(all, rank), kind, micro);
    assert_true(s >= 0);
    return &lists_of(all, rank)->step.at[s];
}

static inline ech_step *bucket_step(const lists *all, int rank, ech_step_kind kind, int bucket,
                                    int turn)
{
    ech_list *list = lists_of(all, rank);
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        if (step->kind == kind && step->index == bucket && step->turn == turn) return step;
    }
    fail();
    return NULL;
}

static inline lists three_stages(const char *schedule)
{
    return lists_build((lists_spec){.schedule = schedule, .stages = 3, .micro_batches = 4});
}

#endif
