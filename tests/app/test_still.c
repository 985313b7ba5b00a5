/* SPDX-License-Identifier: Apache-2.0
 *
 * When a job stands still as a whole, and when it only seems to.
 */
#include "checkpoint/scratch.h"

#include "app/job/still.h"

enum { DEADLINE = 60 };

/* Looks a second apart, all with the same sight, until one says something; how many, and what. */
static int look_on(ech_still *still, ech_sight sight, ech_still_why wanted)
{
    for (int looks = 1; looks <= 3 * DEADLINE; looks++) {
        ech_still_why why = ech_still_note(still, &sight, 1);
        if (!why) continue;
        assert_int_equal(why, wanted);
        return looks;
    }
    assert_int_equal(wanted, ECH_STILL_NOT);
    return 0;
}

static ech_still begin(ech_sight sight)
{
    ech_still still = {.deadline = DEADLINE};
    assert_int_equal(ech_still_note(&still, &sight, 0), ECH_STILL_NOT);
    return still;
}

static void sees_that_nobody_does_anything(void **state)
{
    (void)state;
    ech_sight sight = {.pulse = 7, .ticks = 500, .shown = 3};
    ech_still still = begin(sight);
    assert_int_equal(look_on(&still, sight, ECH_STILL_IDLE), DEADLINE);
    sight.held = 3; /* whatever keeps them */
    still = begin(sight);
    assert_int_equal(look_on(&still, sight, ECH_STILL_IDLE), DEADLINE);
}

/* A change on the board or a moment of the processor is a sign of life, of any rank. */
static void begins_anew_with_each_sign_of_life(void **state)
{
    (void)state;
    ech_sight sight = {.pulse = 7, .ticks = 500, .shown = 3};
    ech_still still = begin(sight);
    for (int i = 0; i < 10 * DEADLINE; i++) {
        if (i % (DEADLINE - 1) == 0) sight.pulse++;
        assert_int_equal(ech_still_note(&still, &sight, 1), ECH_STILL_NOT);
    }
    sight.pulse++;
    still = begin(sight);
    for (int i = 0; i < 10 * DEADLINE; i++) {
        if (i % (DEADLINE - 1) == 0) sight.ticks++;
        assert_int_equal(ech_still_note(&still, &sight, 1), ECH_STILL_NOT);
    }
}

/* Who was stopped with the ranks, and wakes up hours later, has seen nothing of these hours. */
static void counts_only_what_it_has_seen(void **state)
{
    (void)state;
    ech_sight sight = {.pulse = 7, .ticks = 500, .shown = 3};
    ech_still still = begin(sight);
    assert_int_equal(ech_still_note(&still, &sight, 3600), ECH_STILL_NOT);
    sight.ticks++;
    assert_int_equal(ech_still_note(&still, &sight, 1), ECH_STILL_NOT);
}

/* Without processes to look at, it does not know. */
static void knows_nothing_of_hidden_processes(void **state)
{
    (void)state;
    ech_sight sight = {.pulse = 7};
    ech_still still = begin(sight);
    assert_int_equal(look_on(&still, sight, ECH_STILL_NOT), 0);
}

static void has_less_patience_behind_a_stop(void **state)
{
    (void)state;
    ech_sight sight = {.pulse = 7, .ticks = 500, .shown = 3, .held = 3, .asked = true};
    ech_still still = begin(sight);
    assert_int_equal(look_on(&still, sight, ECH_STILL_HELD), 10);
    sight.held = 2; /* one can still act, or waits */
    still = begin(sight);
    assert_int_equal(look_on(&still, sight, ECH_STILL_IDLE), DEADLINE);
    /* A rank in an endless loop uses the processor and gets nowhere. */
    still = begin(sight);
    for (int i = 1; i < DEADLINE; i++) {
        sight.ticks += 90;
        assert_int_equal(ech_still_note(&still, &sight, 1), ECH_STILL_NOT);
    }
    sight.ticks += 90;
    assert_int_equal(ech_still_note(&still, &sight, 1), ECH_STILL_DEAF);
    /* Without the stop it might be a very long step. */
    sight.asked = false;
    still = begin(sight);
    for (int i = 1; i < 3 * DEADLINE; i++) {
        sight.ticks += 90;
        assert_int_equal(ech_still_note(&still, &sight, 1), ECH_STILL_NOT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_that_nobody_does_anything),
        cmocka_unit_test(begins_anew_with_each_sign_of_life),
        cmocka_unit_test(counts_only_what_it_has_seen),
        cmocka_unit_test(knows_nothing_of_hidden_processes),
        cmocka_unit_test(has_less_patience_behind_a_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
