/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of ranks that have ended, and when nothing is. (With launchers and kills:
 * mpi_death.sh.)
 */
#include "checkpoint/scratch.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "program/job/monitor.h"
#include "comm/board.h"
#include "comm/life.h"

enum { RANKS = 3 };

/* A job of ranks that this process starts itself. */
typedef struct job {
    ech_monitor *monitor;
    ech_board *board; /* as a rank sees it */
    ech_transient file;
} job;

static void begin(job *j)
{
    *j = (job){0};
    assert_int_equal(ech_monitor_create(RANKS, 600, &j->monitor), ECH_OK);
    assert_int_equal(ech_board_file_take(RANKS, &j->file, &j->board), ECH_OK);
    assert_string_equal(j->file.path, getenv(ECH_BOARD_VARIABLE));
}

static void end(job *j)
{
    assert_int_equal(access(j->file.path, F_OK), 0);
    ech_board_file_unmap(j->board);
    ech_monitor_destroy(j->monitor);
    assert_int_equal(access(j->file.path, F_OK), -1);
    assert_null(getenv(ECH_BOARD_VARIABLE));
}

/* A process that comes as a rank, says where it is, and dies, or leaves before. */
static void run_rank(const job *j, int rank, int peer, bool leaves)
{
    fflush(NULL);
    pid_t process = fork();
    int status;
    if (process == 0) {
        ech_board_join(j->board, rank, rank);
        ech_board_set_position(j->board, rank, 7, "F0.1/2");
        if (peer >= 0) ech_board_set_wait(j->board, rank, ECH_BOARD_RANK, peer);
        if (leaves) ech_board_leave(j->board, rank);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFSIGNALED(status));
}

static void run_ranks(const job *j, bool leave)
{
    run_rank(j, 0, 1, leave);
    run_rank(j, 1, -1, leave);
    run_rank(j, 2, 0, leave);
}

/* `said` NULL: nothing is reported. Returns the completed end. */
static ech_job_end expect(const job *j, ech_job_end ending, const char *said)
{
    ech_clear_error();
    assert_int_equal(ech_monitor_report(j->monitor, &ending), said ? ECH_ECOMM : ECH_OK);
    assert_string_equal(ech_last_error(), said ? said : "");
    assert_int_equal(ending.killed, said != NULL);
    return ending;
}

TEST(names_whom_the_others_wait_for)
{
    job j;
    begin(&j);
    run_ranks(&j, false);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 0}, NULL);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 2}, NULL);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 75}, NULL);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 143, .stops = 2}, NULL);
    ech_job_end launched = expect(
        &j, (ech_job_end){.is_launcher = true, .code = 139, .stops = 1},
        "the job has died; likely for rank 1: step 7, F0.1/2, does not wait (the launcher's exit "
        "code is 139, which means signal 11 (Segmentation fault))");
    assert_int_equal(launched.signal, SIGSEGV);
    expect(
        &j, (ech_job_end){.is_launcher = true, .code = 1},
        "the job has died; likely for rank 1: step 7, F0.1/2, does not wait (the launcher's exit "
        "code is 1)");
    expect(&j, (ech_job_end){.is_launcher = true, .code = 143, .child_signal = SIGTERM},
           "the job has died (the launcher was ended by signal 15 (Terminated))");
    ech_job_end ended =
        expect(&j, (ech_job_end){.code = 139, .child_signal = SIGSEGV},
               "the job has died (its process was ended by signal 11 (Segmentation fault))");
    assert_int_equal(ended.signal, SIGSEGV);
    ended = expect(&j, (ech_job_end){.code = 139},
                   "the job has died; likely for rank 1: step 7, F0.1/2, does not wait (its exit "
                   "code is 139)");
    assert_int_equal(ended.signal, 0); /* an exit code of its own */
    end(&j);
}

/* Ranks that fail say why, and ranks that are done have nothing to say. */
TEST(adds_nothing_to_what_ranks_say)
{
    job j;
    begin(&j);
    run_ranks(&j, false);
    ech_board_abort(j.board, 2);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 1}, NULL);
    end(&j);
    begin(&j);
    run_ranks(&j, true);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 1}, NULL);
    end(&j);
}

/* A launcher has seen that a rank was killed as it began, and the others say that they lack it: the
 * kill is the reason, also where the job could go on without that rank later. */
TEST(tells_a_kill_that_the_launcher_has_seen)
{
    job j;
    for (int came = 0; came < 2; came++) {
        begin(&j);
        if (came) run_ranks(&j, false);
        if (came) ech_board_abort(j.board, 2);
        ech_board_note_signal(j.board, SIGKILL);
        ech_board_note_signal(j.board, SIGTERM); /* the first one counts */
        ech_job_end ending = {.is_launcher = true, .code = 1};
        assert_int_equal(ech_monitor_report(j.monitor, &ending), ECH_ECOMM);
        assert_true(ending.killed);
        assert_int_equal(ending.signal, SIGKILL);
        assert_non_null(strstr(ech_last_error(), "a rank was ended by signal 9 (Killed)"));
        end(&j);
    }
}

/* Ranks that had come and died before anybody looked have died all the same: that others then give
 * up explains nothing. */
TEST(sees_deaths_that_it_has_missed)
{
    job j;
    int ready[2], life = -1;
    if (ech_life_open(getpid(), ech_life_space(), &life) != ECH_LIFE_SHOWN) skip();
    close(life);
    begin(&j);
    run_ranks(&j, false);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(write(ready[1], "", 1), 1);
    assert_true(ech_monitor_wait(j.monitor, ready[0]));
    ech_board_abort(j.board, 2);
    expect(
        &j, (ech_job_end){.is_launcher = true, .code = 1},
        "the job has died; likely for rank 1: step 7, F0.1/2, does not wait (the launcher's exit "
        "code is 1)");
    close(ready[0]);
    close(ready[1]);
    end(&j);
}

/* A rank that gives up since another one has died, whether the monitor has seen that or not: the
 * death is the reason. */
TEST(sees_a_death_that_a_rank_has_found)
{
    job j;
    begin(&j);
    run_ranks(&j, false);
    ech_board_note_death(j.board, 1);
    ech_board_abort(j.board, 2);
    expect(
        &j, (ech_job_end){.is_launcher = true, .code = 1},
        "the job has died; likely for rank 1: step 7, F0.1/2, does not wait (the launcher's exit "
        "code is 1)");
    end(&j);
}

TEST(knows_a_job_without_ranks)
{
    ech_monitor *monitor = NULL;
    assert_int_equal(ech_monitor_create(RANKS, 600, &monitor), ECH_OK);
    job j = {.monitor = monitor};
    expect(&j, (ech_job_end){.is_launcher = true, .code = 127}, NULL);
    expect(&j, (ech_job_end){.code = 1}, NULL); /* it was the rank itself, and has said why */
    expect(&j, (ech_job_end){.is_launcher = true, .code = 1},
           "the launcher ended before it started a rank; run the command above in a shell, without "
           "--quiet, to see why (the launcher's exit code is 1)");
    ech_monitor_destroy(monitor);
}

/* A job of which ranks die before they come: nobody is on the board, and their launcher (here: this
 * process, which does not even look after them) hangs. */
TEST(sees_deaths_before_the_board)
{
    job j;
    int never[2], life = -1;
    pid_t process[2];
    if (ech_life_open(getpid(), ech_life_space(), &life) != ECH_LIFE_SHOWN) skip();
    close(life);
    begin(&j);
    ech_monitor_follow(j.monitor, getpid(), true);
    assert_int_equal(pipe(never), 0);
    for (int i = 0; i < 2; i++) {
        process[i] = fork();
        while (process[i] == 0) pause();
    }
    kill(process[1], SIGTERM);
    assert_false(ech_monitor_wait(j.monitor, never[0]));
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(process[i], &status, 0), process[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == (i == 1 ? SIGTERM : SIGKILL));
    }
    /* What a launcher says that had to be killed is not what the rank died of. */
    ech_job_end ended = {.is_launcher = true, .code = 128 + SIGKILL, .child_signal = SIGKILL};
    assert_int_equal(expect(&j, ended, NULL).signal, SIGTERM);
    ech_board_file_unmap(j.board);
    ech_monitor_destroy(j.monitor);
    close(never[0]);
    close(never[1]);
}

/* A rank that outlives its launcher is waited for, and then it is killed. */
TEST(leaves_nobody_behind)
{
    job j;
    int ready[2], status;
    char byte = 0;
    begin(&j);
    assert_int_equal(pipe(ready), 0);
    pid_t process = fork();
    if (process == 0) {
        ech_board_join(j.board, 0, 0);
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_true(ech_monitor_wait(j.monitor, ready[0]));
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(waitpid(process, &status, WNOHANG), 0);
    expect(&j, (ech_job_end){.is_launcher = true, .code = 137, .child_signal = SIGKILL},
           "the job has died (the launcher was ended by signal 9 (Killed))");
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ready[0]);
    close(ready[1]);
    end(&j);
}

/* ---- ranks that stand still ---- */

typedef enum idle { ASLEEP, STOPPED, BUT_EVALUATOR } idle;

/* Ranks that do nothing of themselves any more: asleep without an end, or stopped; or so is all but
 * an evaluator. */
static void begin_idle(job *j, double deadline, pid_t process[RANKS], idle how)
{
    bool stopped = how == STOPPED;
    int ready[2];
    char byte = 0;
    *j = (job){0};
    assert_int_equal(ech_monitor_create(RANKS, deadline, &j->monitor), ECH_OK);
    if (how == BUT_EVALUATOR) ech_monitor_set_evaluators(j->monitor, RANKS - 1);
    assert_int_equal(ech_board_file_take(RANKS, &j->file, &j->board), ECH_OK);
    assert_int_equal(pipe(ready), 0);
    for (int i = 0; i < RANKS; i++) {
        process[i] = fork();
        if (process[i] == 0) {
            ech_board_join(j->board, i, i);
            ech_board_set_position(j->board, i, 7, "F0.1/2");
            if (write(ready[1], &byte, 1) != 1) _exit(1);
            if (stopped) raise(SIGSTOP);
            if (stopped) _exit(5); /* it was let go on */
            while (how == BUT_EVALUATOR && i == RANKS - 1) sched_yield();
            for (;;) pause();
        }
        int status = 0;
        assert_int_equal(read(ready[0], &byte, 1), 1);
        bool works = how == BUT_EVALUATOR && i == RANKS - 1;
        for (ech_life_signs signs = {0}; !stopped && !works && signs.state != 'S'; sched_yield())
            ech_life_look(process[i], &signs); /* until it is at rest, however long that takes */
        if (!stopped) continue;
        assert_int_equal(waitpid(process[i], &status, WUNTRACED), process[i]);
        assert_true(WIFSTOPPED(status));
    }
    close(ready[0]);
    close(ready[1]);
}

static void expect_end(pid_t process, int signal, int code)
{
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    if (signal)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* Nobody waits, so nobody knows the deadline but the monitor. Its child is this process, which does
 * not end when its ranks do: it is to be killed, and then to be given up. */
TEST(ends_a_job_that_stands_still)
{
    for (idle how = ASLEEP; how <= BUT_EVALUATOR; how++) {
        bool stopped = how == STOPPED;
        job j;
        int never[2], life = -1;
        pid_t process[RANKS];
        char wanted[256];
        if (ech_life_open(getpid(), ech_life_space(), &life) != ECH_LIFE_SHOWN) skip();
        close(life);
        begin_idle(&j, 0.2, process, how);
        assert_int_equal(pipe(never), 0);
        assert_false(ech_monitor_wait(j.monitor, never[0]));
        if (stopped) assert_false(ech_monitor_wait(j.monitor, never[0]));
        for (int i = 0; i < RANKS; i++) expect_end(process[i], SIGKILL, 0);
        snprintf(wanted, sizeof wanted,
                 "no rank has made progress for 0.2 s (parallel.deadline), so the job was ended: "
                 "rank 0 (process %d) is %s",
                 (int)process[0], stopped ? "stopped" : "asleep");
        ech_job_end ended = expect(
            &j, (ech_job_end){.is_launcher = true, .code = 137, .child_signal = SIGKILL}, wanted);
        assert_int_equal(ended.stays, stopped);
        close(never[0]);
        close(never[1]);
        end(&j);
    }
}

/* Who is to end has to act: stopped ranks are let go on. */
TEST(lets_stopped_ranks_go_on)
{
    job j;
    int ready[2], life = -1;
    pid_t process[RANKS];
    if (ech_life_open(getpid(), ech_life_space(), &life) != ECH_LIFE_SHOWN) skip();
    close(life);
    begin_idle(&j, 600, process, STOPPED);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(write(ready[1], "", 1), 1);
    assert_true(ech_monitor_wait(j.monitor, ready[0])); /* it meets them */
    ech_monitor_note_stop(j.monitor);
    for (int i = 0; i < RANKS; i++) expect_end(process[i], 0, 5);
    close(ready[0]);
    close(ready[1]);
    end(&j);
}
