/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole files, ranges and folders, in a folder of the test's own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "unit.h"

static char folder[4096];

static int make_folder(void **state)
{
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ech-test-file-XXXXXX", root ? root : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return ech_file_remove_all(folder) == ECH_OK && !ech_file_exists(folder) ? 0 : -1;
}

static int count_entries(const char *path)
{
    DIR *entries = opendir(path);
    assert_non_null(entries);
    int n = 0;
    while (readdir(entries)) n++;
    closedir(entries);
    return n - 2;
}

TEST(test_write_and_read)
{
    char *path = ech_file_join(folder, "whole");
    assert_int_equal(ech_file_write(path, "first", 5), ECH_OK);
    assert_int_equal(ech_file_write(path, "a\0b", 3), ECH_OK);
    /* Replaced, and nothing temporary left beside it. */
    assert_int_equal(count_entries(folder), 1);
    char *bytes;
    size_t n;
    assert_int_equal(ech_file_read(path, 3, &bytes, &n), ECH_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "a\0b", 4);
    free(bytes);
    assert_int_equal(ech_file_write(path, NULL, 0), ECH_OK);
    assert_int_equal(ech_file_read(path, 0, &bytes, &n), ECH_OK);
    assert_int_equal(n, 0);
    assert_string_equal(bytes, "");
    free(bytes);
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

TEST(test_failed_write_leaves_the_old)
{
    char *path = ech_file_join(folder, "busy");
    char *inside = ech_file_join(path, "inside");
    assert_int_equal(ech_file_make_folder(path), ECH_OK);
    assert_int_equal(ech_file_write(inside, "x", 1), ECH_OK);
    /* A folder is in the way: rename fails, and the temporary file goes away. */
    assert_int_equal(ech_file_write(path, "new", 3), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), path));
    assert_int_equal(count_entries(folder), 1);
    assert_true(ech_file_exists(inside));
    assert_int_equal(ech_file_write("/nowhere/at/all", "x", 1), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), "No such file"));
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(inside);
    free(path);
}

TEST(test_read_refuses)
{
    char *path = ech_file_join(folder, "large");
    char *bytes = NULL;
    size_t n = 7;
    assert_int_equal(ech_file_write(path, "12345", 5), ECH_OK);
    assert_int_equal(ech_file_read(path, 4, &bytes, &n), ECH_EINPUT);
    assert_non_null(strstr(ech_last_error(), "larger than the 4 bytes"));
    assert_int_equal(ech_file_read(folder, 100, &bytes, &n), ECH_EINPUT);
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    assert_int_equal(ech_file_read(path, 100, &bytes, &n), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), path));
    assert_null(bytes);
    assert_int_equal(n, 7);
    /* A file without a size. */
    assert_int_equal(ech_file_read("/proc/self/status", 1 << 20, &bytes, &n), ECH_OK);
    assert_true(n > 100);
    free(bytes);
    free(path);
}

TEST(test_ranges)
{
    char *path = ech_file_join(folder, "ranges");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    char bytes[8] = "";
    assert_int_equal(ech_file_write_at(fd, path, "cd", 2, 2), ECH_OK);
    assert_int_equal(ech_file_write_at(fd, path, "ab", 2, 0), ECH_OK);
    assert_int_equal(ech_file_read_at(fd, path, bytes, 3, 1), ECH_OK);
    assert_string_equal(bytes, "bcd");
    assert_int_equal(ech_file_read_at(fd, path, bytes, 4, 1), ECH_EINPUT);
    assert_non_null(strstr(ech_last_error(), "1 bytes short"));
    assert_int_equal(ech_file_read_at(fd, path, bytes, 0, 100), ECH_OK);
    close(fd);
    assert_int_equal(ech_file_read_at(-1, path, bytes, 1, 0), ECH_EIO);
    assert_int_equal(ech_file_write_at(-1, path, bytes, 1, 0), ECH_EIO);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0) {
        assert_int_equal(ech_file_write_at(full, "full", "x", 1, 0), ECH_EIO);
        assert_non_null(strstr(ech_last_error(), "No space"));
        close(full);
    }
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

TEST(test_folders)
{
    char *deep = ech_file_join(folder, "a/b//c/");
    assert_int_equal(ech_file_make_folder(deep), ECH_OK);
    assert_int_equal(ech_file_make_folder(deep), ECH_OK);
    assert_true(ech_file_is_folder(deep));
    assert_int_equal(ech_file_sync_folder(deep), ECH_OK);
    int lock = -1, second = -1;
    assert_int_equal(ech_file_lock_folder(deep, 0, &lock), ECH_OK);
    assert_int_equal(ech_file_lock_folder(deep, 0, &second), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), "another run"));
    assert_int_equal(close(lock), 0);
    assert_int_equal(ech_file_lock_folder(deep, 0, &second), ECH_OK);
    assert_true(ech_file_is_same(deep, second));
    assert_false(ech_file_is_same(folder, second));
    assert_int_equal(close(second), 0);
    char *file = ech_file_join(deep, "file");
    char *below = ech_file_join(file, "folder");
    assert_int_equal(ech_file_write(file, "x", 1), ECH_OK);
    assert_true(ech_file_exists(file));
    assert_false(ech_file_is_folder(file));
    assert_true(ech_file_has(deep, "file"));
    assert_false(ech_file_has(deep, "fil"));
    assert_int_equal(ech_file_make_folder(file), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), "a file has that name"));
    assert_int_equal(ech_file_make_folder(below), ECH_EIO);
    assert_int_equal(ech_file_sync_folder(file), ECH_EIO);
    char *top = ech_file_join(folder, "a");
    assert_int_equal(ech_file_remove_all(top), ECH_OK);
    assert_false(ech_file_exists(top));
    assert_int_equal(ech_file_remove_all(top), ECH_OK);
    free(top);
    free(below);
    free(file);
    free(deep);
}

TEST(test_removal_does_not_follow_links)
{
    char *kept = ech_file_join(folder, "kept");
    char *doomed = ech_file_join(folder, "doomed");
    char *link = ech_file_join(doomed, "link");
    assert_int_equal(ech_file_make_folder(doomed), ECH_OK);
    assert_int_equal(ech_file_write(kept, "x", 1), ECH_OK);
    assert_int_equal(symlink(folder, link), 0);
    assert_int_equal(ech_file_remove_all(doomed), ECH_OK);
    assert_false(ech_file_exists(doomed));
    assert_true(ech_file_exists(kept));
    free(link);
    free(doomed);
    free(kept);
}

TEST(test_opens_regular_files_alone)
{
    int fd;
    int64_t bytes = -1;
    char *path = ech_file_join(folder, "name");
    assert_int_equal(ech_file_open(path, &fd, &bytes), ECH_EIO);
    assert_int_equal(ech_file_open(folder, &fd, &bytes), ECH_EINPUT);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ech_file_open(path, &fd, &bytes), ECH_EINPUT);
    assert_int_equal(bytes, -1);
    unlink(path);
    assert_int_equal(ech_file_write(path, "abc", 3), ECH_OK);
    assert_int_equal(ech_file_open(path, &fd, &bytes), ECH_OK);
    assert_int_equal(bytes, 3);
    close(fd);
    free(path);
}

TEST(test_join)
{
    const char *cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = ech_file_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

TEST(test_parent)
{
    const char *cases[][2] = {{"a/b", "a"}, {"/a/b", "/a"},  {"/b", "/"},
                              {"b", "."},   {"a/b/", "a/b"}, {"", "."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *parent = ech_file_parent(cases[i][0]);
        assert_string_equal(parent, cases[i][1]);
        free(parent);
    }
}

/* As root, a rename would replace the device itself. */
TEST(test_devices_stay)
{
    struct stat is;
    assert_int_equal(ech_file_write("/dev/full", "x", 1), ECH_EIO);
    assert_int_equal(ech_file_write("/dev/null", "x", 1), ECH_OK);
    assert_int_equal(stat("/dev/full", &is), 0);
    assert_true(S_ISCHR(is.st_mode));
    assert_int_equal(stat("/dev/null", &is), 0);
    assert_true(S_ISCHR(is.st_mode));
}

/* A path that names no regular file, directly or through a link, is refused without waiting for
 * data. */
TEST(test_only_regular_files)
{
    char *pipe = ech_file_join(folder, "pipe"), *link = ech_file_join(folder, "link");
    char *text = ech_file_join(folder, "text"), *bytes = NULL;
    int ends[2], fd = -1;
    char open_pipe[64];
    int64_t size;
    size_t n;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(open_pipe, sizeof open_pipe, "/dev/fd/%d", ends[0]);
    const char *const targets[] = {"/dev/zero", "/dev/null", "/dev/tty", "/dev/ptmx", pipe, folder};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(symlink(targets[i], link), 0);
        for (int k = 0; k < 2; k++) {
            const char *path = k ? link : targets[i];
            assert_int_not_equal(ech_file_read(path, 100, &bytes, &n), ECH_OK);
            assert_non_null(strstr(ech_last_error(), path));
            assert_int_not_equal(ech_file_open(path, &fd, &size), ECH_OK);
        }
        assert_int_equal(unlink(link), 0);
    }
    assert_int_not_equal(ech_file_read(open_pipe, 100, &bytes, &n), ECH_OK);
    assert_null(bytes);
    assert_int_equal(fd, -1);
    assert_int_equal(ech_file_write(text, "x", 1), ECH_OK);
    assert_int_equal(symlink(text, link), 0);
    assert_int_equal(ech_file_read(link, 100, &bytes, &n), ECH_OK);
    free(bytes);
    close(ends[0]);
    close(ends[1]);
    char *const made[] = {pipe, link, text};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(unlink(made[i]), 0);
        free(made[i]);
    }
}

ALL_TESTS(make_folder, remove_folder)
