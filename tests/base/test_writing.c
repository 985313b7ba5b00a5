/* SPDX-License-Identifier: Apache-2.0
 *
 * Files are written as regular files alone: not through links, and never into pipes, which would
 * wait.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/journal.h"
#include "base/log.h"
#include "base/writing.h"
#include "unit.h"

static char folder[64];

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/echelon-writing-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return ech_file_remove_all(folder) == ECH_OK ? 0 : -1;
}

static void expect_text(const char *path, const char *text)
{
    char *now;
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 10, &now, &n), ECH_OK);
    assert_string_equal(now, text);
    free(now);
}

TEST(test_what_is_refused)
{
    static const char *const kinds[] = {"a link", "a link", "a pipe", "a folder", "a link"};
    char *target = ech_file_join(folder, "target"), *path = ech_file_join(folder, "name");
    assert_int_equal(ech_file_write_inside(target, "mine", 4), ECH_OK);
    for (int kind = 0; kind < 5; kind++) {
        int fd = -1;
        ech_journal *journal = NULL;
        if (kind == 0) assert_int_equal(symlink("target", path), 0);
        if (kind == 1) assert_int_equal(symlink("nowhere", path), 0);
        if (kind == 2) assert_int_equal(mkfifo(path, 0600), 0);
        if (kind == 3) assert_int_equal(mkdir(path, 0700), 0);
        if (kind == 4) assert_int_equal(symlink("/dev/null", path), 0);
        assert_int_equal(ech_file_open_to_write(path, O_WRONLY | O_CREAT | O_TRUNC, &fd), ECH_EIO);
        assert_non_null(strstr(ech_last_error(), kinds[kind]));
        assert_int_equal(ech_file_open_to_write(path, O_RDWR, &fd), ECH_EIO);
        assert_int_equal(ech_file_write_inside(path, "new", 3), ECH_EIO);
        assert_non_null(strstr(ech_last_error(), kinds[kind]));
        for (int anew = 0; anew < 2; anew++)
            assert_int_equal(ech_journal_open(path, anew, &journal), ECH_EIO);
        assert_int_equal(fd, -1);
        expect_text(target, "mine");
        assert_int_equal(remove(path), 0);
    }
    char *nowhere = ech_file_join(folder, "nowhere");
    assert_false(ech_file_exists(nowhere));
    free(nowhere);
    free(target);
    free(path);
}

TEST(test_what_is_written)
{
    int fd;
    char *path = ech_file_join(folder, "name");
    assert_int_equal(ech_file_write_inside(path, "first", 5), ECH_OK);
    assert_int_equal(ech_file_write_inside(path, "second", 6), ECH_OK);
    expect_text(path, "second");
    assert_int_equal(ech_file_open_to_write(path, O_WRONLY, &fd), ECH_OK);
    assert_int_equal(write(fd, "S", 1), 1);
    close(fd);
    expect_text(path, "Second");
    assert_int_equal(ech_file_open_to_write(path, O_WRONLY | O_CREAT | O_TRUNC, &fd), ECH_OK);
    close(fd);
    expect_text(path, "");
    free(path);
}

EACH_TEST(begin, end)
