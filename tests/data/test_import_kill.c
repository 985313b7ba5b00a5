/* SPDX-License-Identifier: Apache-2.0
 *
 * An import that is killed (kill -9) at its n-th write, sync, rename, cut or removal, for every n,
 * and then started again, makes the files that an uninterrupted one makes, byte for byte; nothing
 * half-written ever has a final name.
 */
#include "data/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "data/data.h"

/* ---- the calls that change files, counted; half of a fatal write is written ---- */

static int calls_left; /* 0: never killed */

static bool is_fatal(void)
{
    return calls_left > 0 && --calls_left == 0;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    bool fatal = is_fatal();
    ssize_t put = syscall(SYS_pwrite64, fd, bytes, fatal ? n / 2 : n, offset);
    if (fatal) die();
    return put;
}

int fsync(int fd)
{
    (void)fd; /* what was written outlives the process, if not the machine */
    if (is_fatal()) die();
    return 0;
}

int rename(const char *from, const char *to)
{
    if (is_fatal()) die();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int ftruncate(int fd, off_t n)
{
    if (is_fatal()) die();
    return (int)syscall(SYS_ftruncate, fd, n);
}

int unlink(const char *path)
{
    if (is_fatal()) die();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    if (is_fatal()) die();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- imports ---- */

static ech_status import(const char *out, int workers)
{
    ech_tokenizer *tokenizer;
    ech_import_count count;
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    ech_import_options options = {.texts.in = in_scratch("in"),
                                  .out = in_scratch(out),
                                  .tokenizer = tokenizer,
                                  .valid = 0.25,
                                  .workers = workers,
                                  .save_bytes = 1}; /* a journal after every piece */
    ech_status st = ech_data_import(&options, &count);
    ech_tokenizer_close(tokenizer);
    return st;
}

/* In another process, that is killed at call n; true: it was, false: it came to its end. */
static bool import_and_kill(int n, int workers)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        calls_left = n;
        _exit(import("t", workers) == ECH_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return !WIFEXITED(status);
}

static void make_texts(void)
{
    ech_file_make_folder(in_scratch("in"));
    for (int i = 0; i < 5; i++) {
        char name[32], text[400];
        snprintf(name, sizeof name, "in/%d.txt", i);
        for (int k = 0; k < 400; k++) text[k] = (char)('a' + (k * k + i) % 26);
        write_file(name, text, (size_t)(80 * i));
    }
    static const char lines[] =
        "{\"text\": \"one\"}\n{\"prompt\": \"two\", \"completion\": \"three\"}\n"
        "{\"text\": \"four\"}\n{\"text\": \"five\"}\n";
    write_file("in/2.jsonl", lines, sizeof lines - 1);
}

static const char *const suffixes[] = {"-train.bin", "-train.idx", "-valid.bin", "-valid.idx"};

static bool read_result(const char *out, int i, char **bytes, size_t *n)
{
    char name[32];
    snprintf(name, sizeof name, "%s%s", out, suffixes[i]);
    if (!ech_file_exists(in_scratch(name))) return false;
    assert_int_equal(ech_file_read(in_scratch(name), 1 << 20, bytes, n), ECH_OK);
    return true;
}

/* Files under final names, as far as they are there, are whole. Returns how many there are. */
static int check_results(void)
{
    int found = 0;
    for (int i = 0; i < 4; i++) {
        char *right, *bytes;
        size_t n, m;
        assert_true(read_result("whole", i, &right, &n));
        if (read_result("t", i, &bytes, &m)) {
            found++;
            assert_int_equal(m, n);
            assert_memory_equal(bytes, right, n);
            free(bytes);
        }
        free(right);
    }
    return found;
}

static void remove_results(void)
{
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%s", suffixes[i]);
        unlink(in_scratch(name));
    }
}

/* Killed once, or a second time while it goes on. */
static void kill_everywhere(bool twice)
{
    int kills = 0, n = 1;
    make_texts();
    assert_int_equal(import("whole", 1), ECH_OK);
    for (; import_and_kill(n, n % 4 + 1); n++) {
        check_results();
        if (twice) {
            kills += import_and_kill(n * 7 % 40 + 1, 1);
            check_results();
        }
        assert_int_equal(import("t", n % 3 + 1), ECH_OK);
        assert_int_equal(check_results(), 4);
        assert_false(ech_file_exists(in_scratch("t.tmp")));
        remove_results();
    }
    assert_int_equal(check_results(), 4);
    assert_true(n > 100 && (!twice || kills > 50));
}

TEST(test_killed_at_every_call)
{
    kill_everywhere(false);
}

TEST(test_killed_twice)
{
    kill_everywhere(true);
}
