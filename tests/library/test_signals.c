/* SPDX-License-Identifier: Apache-2.0
 *
 * No signal handler runs on a thread that computes (base/thread.h): the threads of ranks block all
 * signals from outside, and handlers of a training run on a thread of their own.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library/tiny_run.h"

static const int caught[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};
enum { CAUGHT = sizeof caught / sizeof *caught };

/* This process's threads by name: those of ranks and what they start, and the handlers'. */
typedef struct census {
    int ranks, handlers;
    int open; /* threads of ranks that take SIGALRM or a signal of `caught` */
} census;

/* The thread's name and the signals that it blocks; false: it has ended. */
static bool read_thread(const char *id, char name[32], unsigned long long *blocked)
{
    char path[320], line[128];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", id);
    FILE *file = fopen(path, "r");
    bool named = false, masked = false;
    while (file && fgets(line, sizeof line, file)) {
        named |= sscanf(line, "Name: %31s", name) == 1;
        masked |= sscanf(line, "SigBlk: %llx", blocked) == 1;
    }
    if (file) fclose(file);
    return named && masked;
}

static bool blocks(unsigned long long mask, int signal)
{
    return mask >> (signal - 1) & 1;
}

static census count_threads(void)
{
    census n = {0};
    char name[32];
    unsigned long long mask;
    DIR *threads = opendir("/proc/self/task");
    assert_non_null(threads);
    for (const struct dirent *at = readdir(threads); at; at = readdir(threads)) {
        if (at->d_name[0] == '.' || !read_thread(at->d_name, name, &mask)) continue;
        n.handlers += strcmp(name, "echelon-signals") == 0;
        if (strcmp(name, "echelon-ranks") != 0) continue;
        bool all = blocks(mask, SIGALRM);
        for (int i = 0; i < CAUGHT; i++) all &= blocks(mask, caught[i]);
        assert_false(blocks(mask, SIGSEGV) || blocks(mask, SIGABRT)); /* their reports */
        n.ranks++;
        n.open += !all;
    }
    closedir(threads);
    return n;
}

static echelon_training *start(bool catches, const char *folder)
{
    const echelon_train_options options = {.size = sizeof options, .catch_signals = catches};
    echelon_metrics m = {.size = sizeof m};
    echelon_training *training;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", fixture_folder, folder);
    echelon_run *run = open_run("parallel.data=2 parallel.threads=2", path);
    assert_int_equal(echelon_train_start(run, &options, &training), ECHELON_OK);
    assert_int_equal(echelon_train_step(training, &m), ECHELON_OK); /* teams of threads exist */
    echelon_run_close(run);
    return training;
}

TEST(threads_that_compute_take_no_signals)
{
    for (int catches = 0; catches < 2; catches++) {
        echelon_training *training = start(catches, catches ? "caught" : "plain");
        census n = count_threads();
        assert_true(n.ranks >= 3); /* the host and two ranks, besides lanes and teams */
        assert_int_equal(n.open, 0);
        assert_int_equal(n.handlers, catches);
        assert_int_equal(echelon_train_finish(training), ECHELON_OK);
        assert_int_equal(count_threads().handlers, 0);
    }
}

/* A signal that all other threads block. Both trainings use the same handlers' thread. */
TEST(the_handlers_thread_takes_a_signal)
{
    sigset_t held, before;
    echelon_training *training = start(true, "first"), *other = start(true, "second");
    assert_int_equal(count_threads().handlers, 1);
    assert_int_equal(echelon_train_finish(other), ECHELON_OK);
    assert_int_equal(count_threads().handlers, 1);
    sigemptyset(&held);
    sigaddset(&held, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    assert_int_equal(kill(getpid(), SIGUSR2), 0);
    for (bool pending = true; pending;) {
        sigset_t now;
        sigpending(&now);
        pending = sigismember(&now, SIGUSR2);
    }
    assert_int_equal(echelon_train_run(training, 0, NULL), ECHELON_OK);
    assert_true(echelon_train_is_stopped(training));
    assert_true(echelon_train_steps(training) < STEPS);
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    training = start(false, "third"); /* of it nothing was asked */
    assert_int_equal(echelon_train_run(training, 0, NULL), ECHELON_OK);
    assert_false(echelon_train_is_stopped(training));
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void own(int signal)
{
    (void)signal;
}

static void (*handler_of(int signal))(int)
{
    struct sigaction now;
    assert_int_equal(sigaction(signal, NULL, &now), 0);
    return now.sa_handler;
}

TEST(the_process_gets_its_handlers_back)
{
    signal(SIGINT, own);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    echelon_training *training = start(true, "handlers");
    assert_true(handler_of(SIGINT) != own && handler_of(SIGTERM) != SIG_DFL);
    assert_true(handler_of(SIGHUP) == SIG_IGN && handler_of(SIGPIPE) == SIG_IGN);
    signal(SIGUSR2, own); /* it stays, since the process has set it */
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    assert_true(handler_of(SIGINT) == own && handler_of(SIGTERM) == SIG_DFL);
    assert_true(handler_of(SIGHUP) == SIG_IGN && handler_of(SIGPIPE) == SIG_DFL);
    assert_true(handler_of(SIGUSR2) == own);
    for (int i = 0; i < CAUGHT; i++) signal(caught[i], SIG_DFL);
}

ALL_TESTS(fixture_setup, fixture_teardown)
