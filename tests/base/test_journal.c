/* SPDX-License-Identifier: Apache-2.0
 *
 * Journals: whole records or none, on disks that fill up, and in files that vanish.
 */
#include "checkpoint/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/journal.h"

static ech_journal *open_journal(const char *path, bool anew)
{
    ech_journal *journal = NULL;
    assert_int_equal(ech_journal_open(path, anew, &journal), ECH_OK);
    return journal;
}

static void assert_holds(const char *path, const char *wanted)
{
    char *text;
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    assert_string_equal(text, wanted);
    free(text);
}

TEST(goes_on_or_begins_anew)
{
    char *folder = scratch_make(), *path = scratch_write(folder, "j", "before\n", 7);
    ech_journal *journal = open_journal(path, false);
    assert_true(ech_journal_add(journal, "a\n", 2));
    ech_journal_close(journal);
    assert_holds(path, "before\na\n");
    journal = open_journal(path, true);
    assert_holds(path, "");
    assert_true(ech_journal_add(journal, "b\n", 2));
    assert_int_equal(ech_journal_lost(journal), 0);
    ech_journal_close(journal);
    assert_holds(path, "b\n");
    free(path);
    scratch_remove(folder);
}

/* A limit on the size of files stands for a disk that fills up: it also takes a part of a
 * record. */
TEST(loses_whole_records_only)
{
    char *folder = scratch_make(), *path = ech_file_join(folder, "j");
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    ech_journal *journal = open_journal(path, true);
    assert_true(ech_journal_add(journal, "12345\n", 6));
    small = (struct rlimit){.rlim_cur = 9, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_false(ech_journal_add(journal, "abcde\n", 6));
    assert_holds(path, "12345\n");
    assert_false(ech_journal_add(journal, "fghij\n", 6));
    assert_true(ech_journal_add(journal, "xy\n", 3)); /* this one fits */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(ech_journal_add(journal, "klmno\n", 6));
    assert_int_equal(ech_journal_lost(journal), 2);
    ech_journal_close(journal);
    assert_holds(path, "12345\nxy\nklmno\n");
    free(path);
    scratch_remove(folder);
}

TEST(notices_that_its_file_was_removed)
{
    char *folder = scratch_make(), *path = ech_file_join(folder, "j");
    ech_journal *journal = open_journal(path, true);
    assert_true(ech_journal_add(journal, "a\n", 2));
    scratch_remove(folder);
    assert_false(ech_journal_add(journal, "b\n", 2));
    assert_int_equal(ech_journal_lost(journal), 1);
    ech_journal_close(journal);
    free(path);
}

TEST(refuses_what_cannot_be_opened)
{
    ech_journal *journal = NULL;
    char *folder = scratch_make();
    assert_int_equal(ech_journal_open(folder, false, &journal), ECH_EIO);
    assert_null(journal);
    assert_error_has(folder);
    char *pipe = ech_file_join(folder, "pipe"); /* read or not, it keeps nothing */
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(ech_journal_open(pipe, false, &journal), ECH_EIO);
    assert_error_has(pipe);
    int reader = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(ech_journal_open(pipe, false, &journal), ECH_EIO);
    assert_error_has("not a regular file");
    assert_null(journal);
    close(reader);
    free(pipe);
    scratch_remove(folder);
}
