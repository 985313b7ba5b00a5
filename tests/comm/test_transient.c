/* SPDX-License-Identifier: Apache-2.0
 *
 * What killed jobs leave is removed by the next, and nothing else is.
 */
#include "checkpoint/scratch.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "comm/transient.h"

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Another job's sweep may have it, and removes it then. */
static void expect_swept(const char *path)
{
    ech_transient_sweep();
    for (int i = 0; i < 30000 && is_there(path); i++) {
        usleep(1000);
        ech_transient_sweep();
    }
    assert_false(is_there(path));
}

TEST(keeps_what_somebody_holds)
{
    for (int is_folder = 0; is_folder < 2; is_folder++) {
        ech_transient held, other, gone;
        assert_int_equal(ech_transient_create(is_folder, &held), ECH_OK);
        assert_int_equal(ech_transient_create(is_folder, &other), ECH_OK);
        assert_int_equal(ech_transient_create(is_folder, &gone), ECH_OK);
        assert_string_not_equal(held.path, other.path);
        assert_int_equal(ech_file_is_folder(held.path), is_folder);
        ech_transient_remove(&gone);
        assert_false(is_there(gone.path));
        if (is_folder) {
            char *inside = ech_file_join(held.path, "a");
            assert_int_equal(ech_file_make_folder(inside), ECH_OK);
            free(inside);
        }
        ech_transient_sweep();
        assert_true(is_there(held.path) && is_there(other.path));
        close(held.hold); /* as the system does for who is killed */
        expect_swept(held.path);
        assert_true(is_there(other.path));
        close(other.hold);
        expect_swept(other.path);
    }
}

/* A launcher that outlives who started it still needs its folder. */
TEST(keeps_what_a_child_has_inherited)
{
    ech_transient made = {0};
    int told[2], status;
    assert_int_equal(pipe(told), 0);
    pid_t parent = fork();
    if (parent == 0) {
        if (ech_transient_create(true, &made) != ECH_OK) _exit(1);
        pid_t child = fork();
        if (child == 0) {
            execlp("sleep", "sleep", "1000", NULL);
            _exit(1);
        }
        if (write(told[1], &made, sizeof made) != (ssize_t)sizeof made) _exit(1);
        if (write(told[1], &child, sizeof child) != (ssize_t)sizeof child) _exit(1);
        raise(SIGKILL);
    }
    pid_t child;
    assert_int_equal(read(told[0], &made, sizeof made), sizeof made);
    assert_int_equal(read(told[0], &child, sizeof child), sizeof child);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    ech_transient_sweep();
    assert_true(is_there(made.path));
    int life = open(made.path, O_RDONLY | O_CLOEXEC);
    kill(child, SIGKILL);
    assert_int_equal(flock(life, LOCK_EX), 0); /* until it is gone */
    close(life);
    expect_swept(made.path);
    close(told[0]);
    close(told[1]);
}

/* Names that are almost ours, of another user, and files of other kinds. */
TEST(touches_nothing_else)
{
    static const char *const endings[] = {"",        "-12",        "-12-",       "-12-34x",
                                          "-x-34",   "-12-34-56",  "-12-34.tmp", "0-12-34",
                                          "-12--34", "-links-here"};
    char path[512], link[512], *scratch = scratch_make(), *before = getenv("TMPDIR");
    if (before) before = ech_strdup(before);
    assert_int_equal(setenv("TMPDIR", scratch, 1), 0);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%s/echelon-%u%s", scratch, (unsigned)geteuid(), endings[i]);
        assert_int_equal(ech_file_write(path, "mine", 4), ECH_OK);
    }
    snprintf(link, sizeof link, "%s/echelon-%u-12-34", scratch, (unsigned)geteuid());
    assert_int_equal(symlink(path, link), 0);
    ech_transient_sweep();
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%s/echelon-%u%s", scratch, (unsigned)geteuid(), endings[i]);
        assert_true(is_there(path));
    }
    assert_true(is_there(link));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(ech_file_write(link, "left", 4), ECH_OK);
    expect_swept(link);
    unsetenv("TMPDIR");
    if (before) setenv("TMPDIR", before, 1);
    free(before);
    scratch_remove(scratch);
}
