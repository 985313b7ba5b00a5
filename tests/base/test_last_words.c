/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process says before a signal ends it.
 */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/last_words.h"
#include "unit.h"

/* The child raises the signal. *status: as waitpid gives it; text: what it has said. */
static void end_by(int signal_, const char *first, const char *second, int *status, char *text,
                   size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(signal_, SIG_DFL); /* a sanitizer's is another one */
        const char *before = ech_last_words_set(first);
        if (second) {
            const char *outer = ech_last_words_set(second);
            ech_last_words_set(outer);
        }
        if (before) _exit(77);
        raise(signal_);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = 0, got;
    while ((got = read(ends[0], text + n, size - 1 - (size_t)n)) > 0) n += got;
    text[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, status, 0), child);
}

TEST(test_words)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    for (int i = 0; i < 4; i++) {
        char text[256];
        int status;
        end_by(signals[i], "the outer words", NULL, &status, text, sizeof text);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        assert_string_equal(text, "echelon: error: the outer words\n");
        end_by(signals[i], "the outer words", "the inner words", &status, text, sizeof text);
        assert_string_equal(text, "echelon: error: the outer words\n"); /* they are back */
        end_by(signals[i], NULL, "the inner words", &status, text, sizeof text);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        assert_string_equal(text, "");
    }
}
