/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves that the system refuses or cuts off: full disk, file size limit, read-only folder, kill -9.
 * Each time the older checkpoint must be there, whole.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/random.h"
#include "checkpoint/fixture.h"

/* The seed of the newest checkpoint, which must be whole: `a` or `b`. */
static int newest_seed(const char *directory, int a, int b)
{
    ech_checkpoint *checkpoint = NULL;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    assert_non_null(checkpoint);
    int seed = fixture_holds(checkpoint, a) ? a : b;
    assert_true(fixture_holds(checkpoint, seed));
    ech_checkpoint_close(checkpoint);
    return seed;
}

/* Saves step 2 of seed 2 with two ranks; returns whether it went well, on both or on neither. */
static bool try_save(const char *directory, fixture_job *job)
{
    *job = (fixture_job){.directory = directory, .cut = BY_ROWS, .step = 2, .seed = 2};
    fixture_save(2, job);
    assert_int_equal(job->results[0] == ECH_OK, job->results[1] == ECH_OK);
    return job->results[0] == ECH_OK;
}

static void assert_no_temporary(const char *directory)
{
    char *path = ech_file_join(directory, "step-00000002.tmp");
    assert_false(ech_file_exists(path));
    free(path);
}

/* A tmpfs of 256 KiB at a new folder, or NULL where this user may not mount. Only this process sees
 * it, so that it goes with the process however that ends. */
static char *mount_small(void)
{
    char *directory = scratch_make();
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("none", directory, "tmpfs", 0, "size=256k") == 0) {
        return directory;
    }
    print_message("cannot mount a tmpfs: %s\n", strerror(errno));
    scratch_remove(directory);
    return NULL;
}

static void unmount_small(char *directory)
{
    assert_int_equal(umount2(directory, MNT_DETACH), 0);
    scratch_remove(directory);
}

/* With every number of free pages, from none to enough. */
TEST(test_full_disk)
{
    char *directory = mount_small();
    if (!directory) skip();
    enum { PAGE = 4096, PAGES = 64 };
    fixture_save_one(directory, 1, 1);
    char *filler = ech_file_join(directory, "filler");
    fixture_job job;
    bool saved = false;
    int refused = 0;
    for (int pages = 0; !saved; pages++) {
        assert_true(pages < PAGES);
        int fd = open(filler, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int64_t at = 0;
        while (fallocate(fd, 0, at, PAGE) == 0) at += PAGE;
        assert_int_equal(ftruncate(fd, at - pages * PAGE), 0);
        close(fd);
        saved = try_save(directory, &job);
        if (saved) break;
        refused++;
        assert_non_null(strstr(job.error, "No space left"));
        assert_int_equal(newest_seed(directory, 1, 1), 1);
        assert_no_temporary(directory);
    }
    assert_true(refused > 3);
    assert_int_equal(newest_seed(directory, 2, 2), 2);
    free(filler);
    unmount_small(directory);
}

TEST(test_file_size_limit)
{
    enum { STEP = 128, ENOUGH = 64 * 1024 };
    char *directory = scratch_make();
    fixture_save_one(directory, 1, 1);
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    fixture_job job;
    int refused = 0;
    bool saved = false;
    for (rlim_t limit = 0; limit < ENOUGH && !saved; limit += STEP) {
        now = (struct rlimit){limit, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        saved = try_save(directory, &job);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        refused += !saved;
        if (saved) break;
        assert_non_null(strstr(job.error, "File too large"));
        assert_int_equal(newest_seed(directory, 1, 1), 1);
        assert_no_temporary(directory);
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_true(saved && refused > 20);
    assert_int_equal(newest_seed(directory, 2, 2), 2);
    scratch_remove(directory);
}

TEST(test_read_only_folder)
{
    char *directory = geteuid() == 0 ? mount_small() : scratch_make();
    if (!directory) skip(); /* root without the right to mount: nothing is read-only to it */
    fixture_save_one(directory, 1, 1);
    if (geteuid() == 0) {
        assert_int_equal(mount("none", directory, "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0);
    } else {
        assert_int_equal(chmod(directory, 0500), 0);
    }
    fixture_job job;
    assert_false(try_save(directory, &job));
    assert_int_equal(job.results[0], ECH_EIO);
    assert_int_equal(job.results[1], ECH_EABORTED);
    assert_non_null(strstr(job.error, "cannot write into the folder"));
    assert_int_equal(newest_seed(directory, 1, 1), 1);
    if (geteuid() == 0) {
        unmount_small(directory);
    } else {
        assert_int_equal(chmod(directory, 0700), 0);
        scratch_remove(directory);
    }
}

TEST(test_folder_that_cannot_be)
{
    char *directory = scratch_make();
    char *file = scratch_write(directory, "file", "x", 1), *below = ech_file_join(file, "below");
    fixture_job job;
    assert_false(try_save(below, &job));
    assert_int_equal(job.results[0], ECH_EIO);
    assert_non_null(strstr(job.error, file));
    free(below);
    free(file);
    scratch_remove(directory);
}

/* Removed between two saves, it is made again. */
TEST(test_folder_that_vanishes)
{
    char *directory = scratch_make(), *below = ech_file_join(directory, "checkpoints");
    fixture_job job;
    fixture_save_one(below, 1, 1);
    assert_int_equal(ech_file_remove_all(below), ECH_OK);
    assert_true(try_save(below, &job));
    assert_int_equal(newest_seed(below, 2, 2), 2);
    free(below);
    scratch_remove(directory);
}

/* What a link of a temporary folder's name points to is not ours to remove. */
TEST(test_link_in_the_way)
{
    char *directory = scratch_make(), *mine = scratch_write(directory, "mine", "x", 1);
    char *link = ech_file_join(directory, "step-00000002.tmp");
    fixture_job job;
    assert_int_equal(symlink(directory, link), 0);
    assert_true(try_save(directory, &job));
    assert_true(ech_file_exists(mine) && !ech_file_exists(link));
    assert_int_equal(newest_seed(directory, 2, 2), 2);
    free(link);
    free(mine);
    scratch_remove(directory);
}

static pid_t start_save(const char *directory, int64_t step, int seed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0) return child;
    fixture_job job = {.directory = directory, .cut = BY_ROWS, .step = step, .seed = seed};
    ranks_run(2, 60, fixture_save_rank, &job, NULL);
    _exit(job.results[0] == ECH_OK ? 0 : 1);
}

/* A process that saves is killed at a random part of the time that a save takes, with steps that
 * are new and steps that replace. Whatever the time: the newest checkpoint is the last one or the
 * one just saved. */
TEST(test_killed)
{
    enum { ROUNDS = 50 };
    char *directory = scratch_make();
    double start = ech_clock_now();
    int ended, last = 1, saved = 0;
    int64_t step = 1;
    assert_int_equal(waitpid(start_save(directory, step, last), &ended, 0) > 0 && ended == 0, 1);
    double most = 1.3 * (ech_clock_now() - start);
    for (int seed = 2; seed < ROUNDS + 2; seed++) {
        if (seed % 2) step++;
        pid_t child = start_save(directory, step, seed);
        uint32_t word = ech_random_word((ech_random_key){.seed = 7}, (uint64_t)seed);
        usleep((useconds_t)(ech_random_unit(word) * most * 1e6));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFSIGNALED(ended) || WEXITSTATUS(ended) == 0);
        int now = newest_seed(directory, last, seed);
        saved += now == seed;
        last = now;
    }
    print_message("%d of %d were saved before they were killed\n", saved, ROUNDS);
    fixture_save_one(directory, step + 1, 99);
    assert_int_equal(newest_seed(directory, 99, 99), 99);
    scratch_remove(directory);
}
