/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the command line of a launcher, and of the supervision of a child.
 */
#include "checkpoint/scratch.h"

#include <signal.h>

#include "program/job/launcher.h"
#include "program/job/supervise.h"

static void expect_line(const ech_launch *launch, const char *const *words, const char *wanted)
{
    ech_launch_line line;
    ech_text text = {0};
    ech_launch_line_begin(launch, &line);
    for (; *words; words++) ech_launch_line_add(&line, *words);
    ech_launch_line_add(&line, NULL);
    ech_launch_line_print(&line, &text);
    assert_string_equal(text.at, wanted);
    assert_null(line.word.at[line.word.n - 1]);
    ech_text_free(&text);
    ech_launch_line_free(&line);
}

TEST(prints_what_a_user_could_type)
{
    static const char *const words[] = {"train", "my run.yaml", NULL},
                             *const odd[] = {"train", "my run.yaml", "log.directory=it's", "",
                                             NULL},
                             *const train[] = {"train", NULL};
    ech_launch launch = {.version = "Open MPI 4.1.4",
                         .launcher = "/usr/bin/mpirun",
                         .program = "/opt/echelon",
                         .ranks = 4,
                         .cores = 8};
    static const char *const settings[] = {
        "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle",
        "OMPI_MCA_rmaps_base_oversubscribe"};
    for (int i = 0; i < 4; i++) unsetenv(settings[i]);
    expect_line(&launch, words,
                "OMPI_MCA_rmaps_base_oversubscribe=1 /usr/bin/mpirun -n 4 --bind-to none "
                "--quiet /opt/echelon train 'my run.yaml'");
    launch.ranks = 9;
    launch.is_root = true;
    expect_line(&launch, odd,
                "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 "
                "/usr/bin/mpirun -n 9 --bind-to none --quiet /opt/echelon train 'my run.yaml' "
                "'log.directory=it'\\''s' ''");
    setenv(settings[2], "0", 1);
    setenv(settings[3], "0", 1);
    launch.is_root = false;
    expect_line(&launch, train, "/usr/bin/mpirun -n 9 --bind-to none --quiet /opt/echelon train");
    unsetenv(settings[3]);
    launch.version = "Open MPI 5.0.11";
    expect_line(&launch, train,
                "/usr/bin/mpirun -n 9 --bind-to none --map-by :oversubscribe /opt/echelon train");
    launch.launcher = NULL;
    expect_line(&launch, train, "/opt/echelon train");
    launch.is_own = true;
    expect_line(&launch, train, "/opt/echelon launch 9 /opt/echelon train");
}

static ech_job_end supervise(char *const *words, int stop_signal)
{
    ech_monitor *monitor = NULL;
    ech_job_end end = {.code = -1};
    assert_int_equal(ech_monitor_create(1, 600, &monitor), ECH_OK);
    assert_int_equal(
        ech_supervise(&(ech_child){.words = words, .stop_signal = stop_signal}, monitor, &end),
        ECH_OK);
    ech_monitor_destroy(monitor);
    return end;
}

static ech_job_end supervise_shell(const char *script, int stop_signal)
{
    char *words[] = {(char[]){"sh"}, (char[]){"-c"}, ech_strdup(script), NULL};
    ech_job_end end = supervise(words, stop_signal);
    free(words[2]);
    return end;
}

static int run_shell(const char *script)
{
    return supervise_shell(script, SIGUSR2).code;
}

TEST(passes_exit_codes_on)
{
    assert_int_equal(run_shell("exit 0"), 0);
    assert_int_equal(run_shell("exit 75"), 75);
    assert_int_equal(run_shell("kill -9 $$"), 128 + 9);
    assert_int_equal(run_shell("read line && exit 5; exit 6"), 6);
    char *words[] = {(char[]){"/no/such/program"}, NULL};
    ech_job_end ending = supervise(words, SIGUSR2);
    assert_int_equal(ending.code, 127);
    assert_int_equal(ending.child_signal, 0);
    assert_int_equal(ending.stops, 0);
}

/* The child tells its parent to stop, as a terminal or a scheduler would, and waits for what
 * comes. */
TEST(translates_signals)
{
    assert_int_equal(run_shell("trap 'exit 10' USR1; kill -USR1 $PPID; "
                               "while :; do sleep 0.01; done"),
                     10);
    assert_int_equal(run_shell("trap 'exit 12' USR2; kill -TERM $PPID; "
                               "while :; do sleep 0.01; done"),
                     12);
    /* Schedulers repeat themselves. */
    assert_int_equal(run_shell("trap 'n=$((n + 1)); [ $n = 3 ] && exit 13; kill -TERM $PPID' USR2; "
                               "kill -TERM $PPID; while :; do sleep 0.01; done"),
                     13);
    /* A hand does so when it wants an end. */
    struct sigaction before, typed = {.sa_handler = SIG_DFL};
    sigaction(SIGINT, &typed, &before); /* a shell's & has it ignored */
    assert_int_equal(run_shell("trap 'exit 15' TERM; trap 'kill -INT $PPID' USR2; kill -INT $PPID; "
                               "while :; do sleep 0.01; done"),
                     128 + SIGKILL);
    sigaction(SIGINT, &before, NULL);
}

/* What it says of a signal then ends nobody: the ranks have yet to save. */
TEST(outlives_the_reader_of_its_log)
{
    int ends[2], before = dup(STDERR_FILENO);
    assert_true(before >= 0 && pipe(ends) == 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    ech_log_set_quiet(false);
    close(ends[1]);
    int code = run_shell("trap 'exit 12' USR2; kill -TERM $PPID; while :; do sleep 0.01; done");
    dup2(before, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(before);
    assert_int_equal(code, 12);
    /* A child meets SIGPIPE as ever. */
    assert_int_equal(run_shell("kill -PIPE $$; exit 0"), 128 + SIGPIPE);
}

/* A signal would end a child that is not ready for it; it gets it when it is. */
TEST(waits_until_the_child_is_ready)
{
    assert_int_equal(run_shell("kill -TERM $PPID; sleep 0.2; "
                               "trap 'exit 10' USR2; while :; do sleep 0.01; done"),
                     10);
    ech_job_end ending = supervise_shell("kill -USR2 $PPID; sleep 0.2; trap 'exit 10' USR2; "
                                         "while :; do sleep 0.01; done",
                                         SIGUSR2);
    assert_int_equal(ending.code, 10);
    assert_int_equal(ending.stops, 0);
    assert_true(ending.asked);
    ending = supervise_shell("kill -TERM $PPID; while :; do sleep 0.01; done", 0);
    assert_int_equal(ending.child_signal, SIGKILL);
    assert_int_equal(ending.stops, 2);
}

/* The launcher restores the signals: they work as before. */
TEST(leaves_signals_as_they_were)
{
    sigset_t before, after;
    sigprocmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(run_shell("exit 0"), 0);
    sigprocmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    assert_int_equal(sigismember(&before, SIGCHLD), sigismember(&after, SIGCHLD));
}
