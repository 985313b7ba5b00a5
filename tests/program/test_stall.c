/* SPDX-License-Identifier: Apache-2.0
 *
 * When a job stands still as a whole, and when it only seems to.
 */
#include "checkpoint/scratch.h"

#include "program/job/stall.h"

enum { DEADLINE = 60 };

/* Looks once a second at the same observation, until a look reports a stall of the wanted kind.
 * Returns the number of looks. */
static int look_on(ech_stall *stall, ech_observation seen, ech_stall_kind wanted)
{
    for (int looks = 1; looks <= 3 * DEADLINE; looks++) {
        ech_stall_kind why = ech_stall_update(stall, &seen, 1);
        if (!why) continue;
        assert_int_equal(why, wanted);
        return looks;
    }
    assert_int_equal(wanted, ECH_STALL_NONE);
    return 0;
}

static ech_stall begin(ech_observation seen)
{
    ech_stall stall = {.deadline = DEADLINE};
    assert_int_equal(ech_stall_update(&stall, &seen, 0), ECH_STALL_NONE);
    return stall;
}

TEST(sees_that_nobody_does_anything)
{
    ech_observation seen = {.pulse = 7, .ticks = 500, .shown = 3};
    ech_stall stall = begin(seen);
    assert_int_equal(look_on(&stall, seen, ECH_STALL_IDLE), DEADLINE);
    seen.suspended = 3; /* whatever keeps them */
    stall = begin(seen);
    assert_int_equal(look_on(&stall, seen, ECH_STALL_IDLE), DEADLINE);
}

/* A change on the board or a moment of the processor is a sign of life, of any rank. */
TEST(begins_anew_with_each_sign_of_life)
{
    ech_observation seen = {.pulse = 7, .ticks = 500, .shown = 3};
    ech_stall stall = begin(seen);
    for (int i = 0; i < 10 * DEADLINE; i++) {
        if (i % (DEADLINE - 1) == 0) seen.pulse++;
        assert_int_equal(ech_stall_update(&stall, &seen, 1), ECH_STALL_NONE);
    }
    seen.pulse++;
    stall = begin(seen);
    for (int i = 0; i < 10 * DEADLINE; i++) {
        if (i % (DEADLINE - 1) == 0) seen.ticks++;
        assert_int_equal(ech_stall_update(&stall, &seen, 1), ECH_STALL_NONE);
    }
}

/* Who was stopped with the ranks, and wakes up hours later, has seen nothing of these hours. */
TEST(counts_only_what_it_has_seen)
{
    ech_observation seen = {.pulse = 7, .ticks = 500, .shown = 3};
    ech_stall stall = begin(seen);
    assert_int_equal(ech_stall_update(&stall, &seen, 3600), ECH_STALL_NONE);
    seen.ticks++;
    assert_int_equal(ech_stall_update(&stall, &seen, 1), ECH_STALL_NONE);
}

/* Without processes to look at, it does not know. */
TEST(knows_nothing_of_hidden_processes)
{
    ech_observation seen = {.pulse = 7};
    ech_stall stall = begin(seen);
    assert_int_equal(look_on(&stall, seen, ECH_STALL_NONE), 0);
}

TEST(has_less_patience_behind_a_stop)
{
    ech_observation seen = {.pulse = 7, .ticks = 500, .shown = 3, .suspended = 3, .asked = true};
    ech_stall stall = begin(seen);
    assert_int_equal(look_on(&stall, seen, ECH_STALL_SUSPENDED), 10);
    /* Seen between the suspension and the stop: both have lasted as long, and the stop is said. */
    ech_observation before = seen;
    before.asked = false;
    stall = (ech_stall){.deadline = 5};
    ech_stall_update(&stall, &before, 0);
    assert_int_equal(look_on(&stall, seen, ECH_STALL_SUSPENDED), 5);
    seen.suspended = 2; /* one can still act, or waits */
    stall = begin(seen);
    assert_int_equal(look_on(&stall, seen, ECH_STALL_IDLE), DEADLINE);
    /* A rank in an endless loop uses the processor and gets nowhere. */
    stall = begin(seen);
    for (int i = 1; i < DEADLINE; i++) {
        seen.ticks += 90;
        assert_int_equal(ech_stall_update(&stall, &seen, 1), ECH_STALL_NONE);
    }
    seen.ticks += 90;
    assert_int_equal(ech_stall_update(&stall, &seen, 1), ECH_STALL_UNRESPONSIVE);
    /* Without the stop it might be a very long step. */
    seen.asked = false;
    stall = begin(seen);
    for (int i = 1; i < 3 * DEADLINE; i++) {
        seen.ticks += 90;
        assert_int_equal(ech_stall_update(&stall, &seen, 1), ECH_STALL_NONE);
    }
}
