/* SPDX-License-Identifier: Apache-2.0
 *
 * When a job is started again, and when not. (With launchers and kills: restarts.sh.)
 */
#include "checkpoint/scratch.h"

#include <signal.h>

#include "program/command.h"
#include "program/job/job.h"

/* By a fault of its own, and by somebody else. */
static const ech_job_end killed = {.code = 1, .killed = true, .signal = SIGSEGV, .steps = 3};
static const ech_job_end shot = {.code = 137, .killed = true, .signal = SIGKILL, .steps = 3};

static int64_t completed; /* when the last checkpoint was */

static void expect(ech_restarts *restarts, ech_job_end end, int64_t newest, bool goes_on,
                   const char *wanted)
{
    const char *why = "unset";
    const ech_job_saved saved = {.step = newest, .completed = completed};
    assert_int_equal(ech_restarts_go_on(restarts, &end, &saved, &why), goes_on);
    if (wanted)
        assert_non_null(strstr(why, wanted));
    else
        assert_null(why);
}

TEST(leaves_ends_alone)
{
    ech_restarts r = {.most = 9, .saved.step = -1};
    expect(&r, (ech_job_end){.code = ECH_EXIT_DONE, .steps = 3}, 9, false, NULL);
    expect(&r, (ech_job_end){.code = ECH_EXIT_USAGE}, 9, false, NULL);
    expect(&r, (ech_job_end){.code = ECH_EXIT_STOPPED, .steps = 3}, 9, false, NULL);
    expect(&r, (ech_job_end){.code = 1, .killed = true, .asked = true, .steps = 3}, 9, false, NULL);
    assert_int_equal(r.used, 0);
    r.most = 0;
    expect(&r, killed, 9, false, NULL);
}

TEST(goes_on_as_long_as_something_is_won)
{
    ech_restarts r = {.most = 3, .saved.step = -1};
    for (int i = 0; i < 3; i++) {
        expect(&r, killed, 10 * i, true, NULL);
        assert_int_equal(r.used, i + 1);
        assert_int_equal(r.saved.step, 10 * i);
    }
    expect(&r, killed, 30, false, "all restarts are used up");
    assert_int_equal(r.used, 3);
}

TEST(gives_up_where_nothing_is_won)
{
    ech_restarts r = {.most = 9, .saved.step = 20};
    expect(&r, killed, 20, true, NULL);
    assert_int_equal(r.idle, 1);
    expect(&r, killed, 30, true, NULL);
    assert_int_equal(r.idle, 0);
    expect(&r, killed, 30, true, NULL);
    expect(&r, killed, 30, false, "no new checkpoint");
    /* A checkpoint that did not verify was removed: that is no gain either. */
    r = (ech_restarts){.most = 9, .saved.step = 20};
    expect(&r, killed, 10, true, NULL);
    expect(&r, killed, 10, false, "no new checkpoint");
}

/* The run was resumed from an older checkpoint, and saves below the damaged one. */
TEST(goes_on_below_a_damaged_checkpoint)
{
    ech_restarts r = {.most = 9, .saved.step = 100};
    for (int i = 0; i < 4; i++) {
        completed++;
        expect(&r, killed, 100, true, NULL);
        assert_int_equal(r.idle, 0);
    }
    expect(&r, killed, 100, true, NULL);
    expect(&r, killed, 100, false, "no new checkpoint");
    completed = 0;
}

/* Kills from outside are no failures of the program, however many come before its first save: it
 * only restarts more slowly. Other failures count as always. */
TEST(outlives_kills_from_outside)
{
    ech_restarts r = {.most = 60, .saved.step = 20};
    for (int i = 0; i < 59; i++) {
        ech_job_end end = shot;
        end.signal = i % 2 ? SIGKILL : SIGTERM;
        end.steps = i % 3; /* also before the first step */
        expect(&r, end, 20, true, NULL);
        assert_int_equal(r.idle, 0);
        assert_true(r.vain);
    }
    expect(&r, shot, 30, true, NULL);
    assert_false(r.vain);
    expect(&r, shot, 30, false, "all restarts are used up");

    r = (ech_restarts){.most = 9, .saved.step = 20};
    expect(&r, killed, 20, true, NULL);
    expect(&r, shot, 20, true, NULL);
    expect(&r, killed, 20, false, "no new checkpoint");
    /* Nobody knows of what: its own doing. */
    r = (ech_restarts){.most = 9, .saved.step = 20};
    expect(&r, (ech_job_end){.code = 1, .killed = true, .steps = 3}, 20, true, NULL);
    expect(&r, (ech_job_end){.code = 1, .steps = 3}, 20, false, "no new checkpoint");
    /* What limits do to a program comes again. */
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGXCPU, SIGSYS};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        r = (ech_restarts){.most = 9, .saved.step = 20, .idle = 1};
        expect(&r, (ech_job_end){.code = 1, .killed = true, .signal = own[i], .steps = 3}, 20,
               false, "no new checkpoint");
    }
}

/* Beside a process that still has the run's folders, or in folders that are not the run's any
 * more. */
TEST(does_not_start_where_it_could_not_go_on)
{
    ech_restarts r = {.most = 9, .saved.step = -1};
    ech_job_end end = shot;
    end.stays = true;
    expect(&r, end, 30, false, "has not ended");
    r = (ech_restarts){.most = 9, .saved.step = -1};
    expect(&r, (ech_job_end){.code = 1, .final = true, .steps = 9}, -1, false, "would not go on");
}

TEST(does_not_repeat_what_cannot_begin)
{
    ech_restarts r = {.most = 9, .saved.step = -1};
    expect(&r, (ech_job_end){.code = 1}, -1, false, "before its first step");
    r = (ech_restarts){.most = 9, .saved.step = -1};
    expect(&r, (ech_job_end){.code = 137, .killed = true}, -1, true, NULL);
    expect(&r, (ech_job_end){.code = 1, .steps = 2}, 5, true, NULL);
}
