/* SPDX-License-Identifier: Apache-2.0
 *
 * An error is one line, written at once, remembered per thread; quiet threads print nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "unit.h"

static int standard_error, reading_end;

/* In packet mode each read gives one write, so a line in one packet was written at once. */
static void start_capture(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_DIRECT | O_NONBLOCK | O_CLOEXEC), 0);
    standard_error = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    ech_log_set_quiet(false);
    close(ends[1]);
    reading_end = ends[0];
}

/* The next write, "" if there is none; false then. */
static bool next_write(char *out, size_t size)
{
    ssize_t n = read(reading_end, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void end_capture(void)
{
    dup2(standard_error, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(standard_error);
    close(reading_end);
}

static ech_status fail_with(ech_status st, const char *text)
{
    ECH_FAIL(st, "%s is %d", text, 4);
}

static ech_status pass_up(int *reached)
{
    ECH_TRY(fail_with(ECH_EINPUT, "inner"));
    *reached = 1;
    return ECH_OK;
}

TEST(test_system_errors)
{
    assert_string_equal(ech_system_error(EMFILE),
                        "Too many open files; raise the limit on open files (ulimit -n)");
    assert_non_null(strstr(ech_system_error(ENOSPC), "No space left on device; free some space"));
    assert_string_equal(ech_system_error(EDOM), strerror(EDOM)); /* nothing is known to work */
}

TEST(test_lines)
{
    start_capture();
    ech_status st = fail_with(ECH_EUSAGE, "width");
    ech_log_set_rank(3);
    fail_with(ECH_EUSAGE, "width");
    ech_log_info("step %d", 7);
    ech_log_warn("slow");
    ech_log_set_rank(-1);
    ech_log_info("done");
    fail_with(ECH_EUSAGE, "a\nb\033c");
    const char *expected[] = {"echelon: error: width is 4\n",
                              "echelon: rank 3: error: width is 4\n",
                              "echelon: rank 3: step 7\n",
                              "echelon: rank 3: warning: slow\n",
                              "echelon: done\n",
                              "echelon: error: a b c is 4\n",
                              ""};
    char seen[7][256];
    for (int i = 0; i < 7; i++) next_write(seen[i], sizeof seen[i]);
    end_capture();
    assert_int_equal(st, ECH_EUSAGE);
    for (int i = 0; i < 7; i++) assert_string_equal(seen[i], expected[i]);
}

/* Errors that only the authors of Echelon can mend. */
TEST(test_own_faults)
{
    char seen[512];
    start_capture();
    fail_with(ECH_EINTERNAL, "width");
    next_write(seen, sizeof seen);
    end_capture();
    assert_ptr_equal(strstr(seen, "echelon: error: width is 4 ("), seen);
    assert_non_null(strstr(seen, "test_status.c:"));
    assert_non_null(strstr(seen, "): this is a fault of Echelon; please report it with the run"));
    assert_string_equal(ech_last_error(), "width is 4");
}

TEST(test_long_lines)
{
    /* Around the size up to which no memory is needed. */
    for (int n = 4070; n <= 4100; n++) {
        char text[4200];
        memset(text, 'x', (size_t)n);
        text[n] = '\0';
        start_capture();
        ech_log_info("%s", text);
        char seen[8192] = "", packet[4200];
        while (next_write(packet, sizeof packet)) strcat(seen, packet);
        end_capture();
        assert_int_equal(strlen(seen), strlen("echelon: ") + (size_t)n + 1);
        assert_int_equal(seen[strlen(seen) - 1], '\n');
    }
}

TEST(test_errors_go_up)
{
    int reached = 0;
    assert_int_equal(pass_up(&reached), ECH_EINPUT);
    assert_int_equal(reached, 0);
    assert_string_equal(ech_last_error(), "inner is 4");
    /* The last error may be part of the next. */
    assert_int_equal(fail_with(ECH_EIO, ech_last_error()), ECH_EIO);
    assert_string_equal(ech_last_error(), "inner is 4 is 4");
    ech_clear_error();
    assert_string_equal(ech_last_error(), "");
}

TEST(test_quiet)
{
    start_capture();
    bool before = ech_log_set_quiet(true);
    ech_log_info("nobody hears");
    fail_with(ECH_EIO, "this");
    bool quiet = ech_log_set_quiet(false);
    char seen[256];
    next_write(seen, sizeof seen);
    end_capture();
    assert_false(before);
    assert_true(quiet);
    assert_string_equal(seen, "");
    assert_string_equal(ech_last_error(), "this is 4");
}

static void *work_apart(void *out)
{
    int *ok = out;
    *ok = ech_log_rank() == -1 && *ech_last_error() == '\0';
    ech_log_set_rank(8);
    fail_with(ECH_EIO, "apart");
    return NULL;
}

TEST(test_threads_are_apart)
{
    fail_with(ECH_EIO, "main");
    ech_log_set_rank(2);
    pthread_t thread;
    int ok = 0;
    assert_int_equal(pthread_create(&thread, NULL, work_apart, &ok), 0);
    pthread_join(thread, NULL);
    assert_true(ok);
    assert_int_equal(ech_log_rank(), 2);
    assert_string_equal(ech_last_error(), "main is 4");
    ech_log_set_rank(-1);
}
