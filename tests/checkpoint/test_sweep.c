/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults at every single call that changes a file during a save: the process killed, a disk that is
 * full or broken, writes that take less than they are given, or store another bit than they were
 * given. Whatever happens where: the newest whole checkpoint is the last one or the one being
 * saved, and the next save clears what was left.
 */
#include <signal.h>
#include <sys/wait.h>

#include "checkpoint/faults.h"
#include "checkpoint/fixture.h"
#include "checkpoint/folder.h"

enum { RANKS = 2, MOST_CALLS = 1000 };

/* A save of step 2 with seed 2 that meets a fault. */
typedef struct trial {
    const char *directory;
    bool replaces; /* a step 2 of seed 1 is there already */
    faults_kind kind;
    int64_t at;
} trial;

static bool prunes; /* a removal that fails is only warned of */

/* Saves, then removes all but the newest. Returns whether both went well. */
static bool save_and_prune(const trial *t, fixture_job *job, int64_t *calls)
{
    *job = (fixture_job){.directory = t->directory, .cut = BY_ROWS, .step = 2, .seed = 2};
    faults_arm(t->directory, t->kind, t->at);
    fixture_save(RANKS, job);
    bool saved = job->results[0] == ECH_OK;
    assert_int_equal(saved, job->results[1] == ECH_OK);
    prunes = saved;
    if (saved && ech_checkpoint_prune(t->directory, 1, 0, INT64_MAX) != ECH_OK) {
        saved = false;
        snprintf(job->error, sizeof job->error, "%s", ech_last_error());
    }
    prunes = false;
    *calls = faults_count();
    faults_arm("", FAULTS_NONE, 0);
    return saved;
}

/* In a process of its own, which is killed. */
static void save_and_die(const trial *t)
{
    pid_t child = fork();
    int ended;
    assert_true(child >= 0);
    if (child == 0) {
        fixture_job job;
        int64_t calls;
        save_and_prune(t, &job, &calls);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (!WIFSIGNALED(ended) || WTERMSIG(ended) != SIGKILL)
        fail_msg("call %lld: it was not killed", (long long)t->at);
}

static char *prepare(bool replaces)
{
    char *directory = scratch_make();
    fixture_save_one(directory, 1, 1);
    if (replaces) fixture_save_one(directory, 2, 1);
    return directory;
}

static int newest(const trial *t)
{
    ech_checkpoint *checkpoint = NULL;
    if (ech_checkpoint_open_newest(t->directory, true, &checkpoint) != ECH_OK || !checkpoint)
        fail_msg("kind %d at call %lld: no checkpoint is left", t->kind, (long long)t->at);
    int seed = fixture_holds(checkpoint, 1) ? 1 : fixture_holds(checkpoint, 2) ? 2 : 0;
    ech_checkpoint_close(checkpoint);
    if (seed == 0)
        fail_msg("kind %d at call %lld: the newest is none that was saved", t->kind,
                 (long long)t->at);
    return seed;
}

/* Folders besides checkpoints, or files, below the directory. */
static void assert_clean(const trial *t)
{
    ech_folders folders = {0};
    assert_int_equal(ech_folder_list(t->directory, &folders), ECH_OK);
    for (size_t i = 0; i < folders.n; i++)
        if (folders.at[i].kind != ECH_FOLDER_FINAL)
            fail_msg("kind %d at call %lld leaves %s", t->kind, (long long)t->at,
                     folders.at[i].path);
    ech_folders_free(&folders);
}

static void save_again(const trial *t)
{
    fixture_job job = {.directory = t->directory, .cut = BY_COLUMNS, .step = 3, .seed = 2};
    fixture_save(3, &job);
    assert_int_equal(job.results[0], ECH_OK);
    assert_int_equal(newest(t), 2);
    assert_clean(t);
}

static int64_t count_calls(bool replaces)
{
    char *directory = prepare(replaces);
    trial t = {.directory = directory, .replaces = replaces};
    fixture_job job;
    int64_t calls;
    assert_true(save_and_prune(&t, &job, &calls));
    assert_true(calls > 20 && calls < MOST_CALLS);
    scratch_remove(directory);
    return calls;
}

/* Returns how many saves had reached the disk before they were killed. */
static int kill_at_every_call(bool replaces)
{
    int64_t calls = count_calls(replaces);
    int saved = 0;
    for (int64_t at = 1; at <= calls; at++) {
        char *directory = prepare(replaces);
        trial t = {directory, replaces, FAULTS_KILL, at};
        save_and_die(&t);
        saved += newest(&t) == 2;
        save_again(&t);
        scratch_remove(directory);
    }
    print_message("%lld calls, in %d of them the new checkpoint was there\n", (long long)calls,
                  saved);
    return saved;
}

TEST(test_killed_at_every_call)
{
    assert_true(kill_at_every_call(false) > 0);
    assert_true(kill_at_every_call(true) > 0);
}

/* Making a folder that is there may fail in any way. */
static int64_t fault_at;
static bool harmless;

static void watch_folders(int64_t number, const char *call, const char *path)
{
    if (number == fault_at)
        harmless = prunes || (strcmp(call, "mkdir") == 0 && ech_file_is_folder(path));
}

/* A fault that is met must be reported, with the file, on every rank, if it is in the way of the
 * new checkpoint; one that is not must not. */
static void fail_at_every_call(faults_kind kind, const char *says)
{
    for (int replaces = 0; replaces < 2; replaces++) {
        int64_t calls = count_calls(replaces);
        for (int64_t at = 1; at <= calls; at++) {
            char *directory = prepare(replaces);
            trial t = {directory, replaces, kind, at};
            fixture_job job;
            int64_t ignored;
            fault_at = at;
            harmless = false;
            faults_watch(watch_folders);
            bool saved = save_and_prune(&t, &job, &ignored);
            faults_watch(NULL);
            /* a full disk is not noticed after the last call that needs space */
            if (saved && !harmless && kind != FAULTS_FULL)
                fail_msg("kind %d at call %lld was not seen", kind, (long long)at);
            if (!saved && job.results[0] != ECH_EABORTED &&
                (!strstr(job.error, says) || !strstr(job.error, directory)))
                fail_msg("kind %d at call %lld says: %s", kind, (long long)at, job.error);
            int seed = newest(&t);
            assert_true(!saved || seed == 2);
            save_again(&t);
            scratch_remove(directory);
        }
    }
}

TEST(test_broken_at_every_call)
{
    fail_at_every_call(FAULTS_EIO, "Input/output error");
}

TEST(test_full_at_every_call)
{
    fail_at_every_call(FAULTS_ENOSPC, "No space left");
    fail_at_every_call(FAULTS_FULL, "No space left");
}

TEST(test_short_writes)
{
    char *directory = prepare(true);
    trial t = {directory, true, FAULTS_SHORT, 1};
    fixture_job job;
    int64_t calls;
    assert_true(save_and_prune(&t, &job, &calls));
    assert_true(calls > count_calls(true)); /* they were continued */
    assert_int_equal(newest(&t), 2);
    assert_clean(&t);
    scratch_remove(directory);
}

static bool writes;

static void watch_writes(int64_t number, const char *call, const char *path)
{
    (void)path;
    if (number == fault_at) writes = strcmp(call, "pwrite") == 0;
}

/* What was written wrongly is never taken for what was to be saved, whichever file it is. */
TEST(test_flipped_at_every_write)
{
    int64_t calls = count_calls(false);
    int flipped = 0;
    for (int64_t at = 1; at <= calls; at++) {
        char *directory = prepare(false);
        trial t = {directory, false, FAULTS_FLIP, at};
        fixture_job job;
        int64_t ignored;
        fault_at = at;
        writes = false;
        faults_watch(watch_writes);
        bool saved = save_and_prune(&t, &job, &ignored);
        faults_watch(NULL);
        flipped += writes;
        if (saved == writes) fail_msg("a bit flipped at call %lld was not seen", (long long)at);
        if (writes && job.results[0] != ECH_EABORTED && !strstr(job.error, "back differ"))
            fail_msg("a bit flipped at call %lld says: %s", (long long)at, job.error);
        assert_int_equal(newest(&t), saved ? 2 : 1);
        save_again(&t);
        scratch_remove(directory);
    }
    assert_true(flipped > 10);
}

int main(void)
{
    faults_skip_fsync();
    return unit_run(NULL);
}
