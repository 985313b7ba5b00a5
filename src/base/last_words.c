/* SPDX-License-Identifier: Apache-2.0
 *
 * A handler of the signals by which libraries end a process. It calls only what POSIX allows in
 * one.
 */
#include "base/last_words.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
enum { SIGNALS = sizeof signals / sizeof *signals };

static const char *_Atomic words;
static struct sigaction before[SIGNALS];
static bool is_set;

static void say(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* there is no other place to say it */
}

static void speak(int signal)
{
    (void)signal;
    say("echelon: error: ");
    say(atomic_load(&words));
    say("\n");
    _exit(1);
}

const char *ech_last_words_set(const char *text)
{
    struct sigaction action = {.sa_handler = speak};
    const char *earlier = atomic_exchange(&words, text ? text : "");
    bool was_set = is_set;
    is_set = text != NULL;
    for (int i = 0; i < SIGNALS && is_set != was_set; i++)
        sigaction(signals[i], is_set ? &action : &before[i], is_set ? &before[i] : NULL);
    return was_set ? earlier : NULL;
}
