/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of two ranks that are killed at every single call that changes a checkpoint's files, in the
 * foreground and in the background, and started again: the weights at the end are those of the run that
 * nobody disturbed, bit for bit. A disk that fails at any of these calls ends the run with a word about
 * it, and costs no checkpoint.
 *
 *     ECHELON_SWEEP=all test_app_save_sweep     every call, kind of fault and layout: some minutes
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>

#include "app/runs.h"
#include "checkpoint/faults.h"
#include "checkpoint/folder.h"
#include "share.h"

enum { RANKS = 2, STEPS = 2, EXIT_SAVED = 0, EXIT_FAILED = 1 };

/* As small as it gets: a save has few calls. */
static const char tiny[] = "training.steps=2 checkpoint.every=1 checkpoint.keep=1 "
                           "model.hidden_size=8 model.num_hidden_layers=1 "
                           "model.num_attention_heads=2 training.global_batch_size=2 "
                           "training.validate_samples=2 optimizer.name=sgd optimizer.momentum=0.9";

typedef struct trial {
    const char *layout;
    bool background;
    faults_kind kind;
    int64_t at;
} trial;

/* A process under a sanitizer takes many times as long to start and to end. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 5 };
#else
enum { STRIDE = 1 };
#endif

static bool sweeps_all(void)
{
    const char *sweep = getenv("ECHELON_SWEEP");
    return sweep && strcmp(sweep, "all") == 0;
}

static void folder_of(const char *name, char *out, size_t n)
{
    snprintf(out, n, "%s/%s/checkpoints", fixture_folder, name);
}

/* What the process says goes to the fixture's file `said`. It writes the number of its calls there,
 * too, if nothing keeps it from doing so. */
static void run_child(const char *name, const trial *t)
{
    char said[400], folder[400], more[900];
    snprintf(said, sizeof said, "%s/said", fixture_folder);
    folder_of(name, folder, sizeof folder);
    if (!freopen(said, "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(99);
    faults_arm(folder, t->kind, t->at);
    snprintf(more, sizeof more, "%s %s checkpoint.background=%s", tiny, t->layout,
             t->background ? "true" : "false");
    ech_config *config = runs_config("llama", name, more);
    ech_training training = {0};
    ech_status status = fixture_run(config, RANKS, ech_train_rank, &training);
    fprintf(stderr, "calls %lld\n", (long long)faults_count());
    fflush(NULL);
    _exit(status == ECH_OK ? EXIT_SAVED : EXIT_FAILED);
}

/* A run from where it stands to its end, or to what happens to it: how the process ended. */
static int train(const char *name, const trial *t)
{
    pid_t child = fork();
    int ended;
    assert_true(child >= 0);
    if (child == 0) run_child(name, t);
    assert_int_equal(waitpid(child, &ended, 0), child);
    return ended;
}

static bool has_said(const char *text, int64_t *calls)
{
    char path[400], *said;
    size_t n;
    snprintf(path, sizeof path, "%s/said", fixture_folder);
    assert_int_equal(ech_file_read(path, 1 << 20, &said, &n), ECH_OK);
    bool has = strstr(said, text) != NULL;
    const char *count = strstr(said, "calls ");
    if (calls) *calls = count ? strtoll(count + 6, NULL, 10) : -1;
    if (!has) print_message("it said: %s\n", said);
    free(said);
    return has;
}

/* The step of the newest checkpoint that verifies; 0: there is none at all. */
static int64_t newest_step(const char *name, const trial *t)
{
    char folder[400];
    ech_checkpoint *checkpoint;
    folder_of(name, folder, sizeof folder);
    if (ech_checkpoint_open_newest(folder, true, &checkpoint) != ECH_OK)
        fail_msg("%s: kind %d at call %lld: no checkpoint is whole", t->layout, t->kind,
                 (long long)t->at);
    int64_t step = checkpoint ? ech_checkpoint_get_info(checkpoint)->step : 0;
    ech_checkpoint_close(checkpoint);
    return step;
}

static void assert_clean(const char *name, const trial *t)
{
    char path[400];
    ech_folders folders = {0};
    folder_of(name, path, sizeof path);
    assert_int_equal(ech_folder_list(path, &folders), ECH_OK);
    for (size_t i = 0; i < folders.n; i++)
        if (folders.at[i].kind != ECH_FOLDER_FINAL)
            fail_msg("kind %d at call %lld leaves %s", t->kind, (long long)t->at,
                     folders.at[i].path);
    ech_folders_free(&folders);
}

/* Goes on without a fault, to the end: the run that nobody disturbed. */
static void assert_goes_on(const trial *t)
{
    trial calm = {.layout = t->layout, .background = t->background};
    int64_t from = newest_step("disturbed", t);
    int ended = train("disturbed", &calm);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != EXIT_SAVED) {
        has_said("?", NULL);
        fail_msg("kind %d at call %lld: it does not go on", t->kind, (long long)t->at);
    }
    /* where all steps were done already nothing is saved, so nothing is cleared */
    if (from < STEPS) assert_clean("disturbed", t);
    if (!runs_same("whole", "disturbed", STEPS))
        fail_msg("%s, kind %d at call %lld: another run", t->layout, t->kind, (long long)t->at);
}

static int64_t begin(const trial *t)
{
    int64_t calls;
    int ended = train("whole", t);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != EXIT_SAVED) {
        has_said("?", NULL);
        fail_msg("%s: it does not train", t->layout);
    }
    assert_true(has_said("calls", &calls) && calls > 60 && calls < 1000);
    return calls;
}

static void kill_at_every_call(const char *layout, bool background)
{
    trial t = {.layout = layout, .background = background};
    int64_t calls = begin(&t);
    for (t.at = 1, t.kind = FAULTS_KILL; t.at <= calls; t.at += sweeps_all() ? 1 : STRIDE) {
        if (!share_takes()) continue;
        int ended = train("disturbed", &t);
        if (!WIFSIGNALED(ended) || WTERMSIG(ended) != SIGKILL)
            fail_msg("call %lld: it was not killed", (long long)t.at);
        assert_goes_on(&t);
        runs_remove("disturbed");
    }
    runs_remove("whole");
    print_message("%lld calls\n", (long long)calls);
}

static void test_killed(void **state)
{
    (void)state;
    kill_at_every_call("", false);
    kill_at_every_call("", true);
    if (!sweeps_all()) return;
    kill_at_every_call("parallel.pipeline=2 model.num_hidden_layers=2", true);
    kill_at_every_call("parallel.tensor=2 checkpoint.dtype=bf16", true);
    kill_at_every_call("parallel.pipeline=2 parallel.schedule=pipedream-2bw "
                       "training.micro_batch_size=1 parallel.flush_every=1",
                       true);
}

/* A fault that nobody need see: making a folder that is there. */
static bool is_harmless(const trial *t)
{
    (void)t;
    return t->at <= 1;
}

static void fail_at_calls(faults_kind kind, const char *says, bool background, int64_t stride)
{
    trial t = {.layout = "", .background = background};
    int64_t calls = begin(&t), step;
    for (t.at = 1, t.kind = kind; t.at <= calls; t.at += stride) {
        if (!share_takes()) continue;
        int ended = train("disturbed", &t);
        assert_true(WIFEXITED(ended)); /* neither a crash nor a hang */
        bool failed = WEXITSTATUS(ended) == EXIT_FAILED;
        if (failed && (!has_said(says, NULL) || !has_said("/disturbed/checkpoints", NULL)))
            fail_msg("kind %d at call %lld says something else", kind, (long long)t.at);
        step = newest_step("disturbed", &t);
        if (!failed && step != STEPS && !is_harmless(&t))
            fail_msg("kind %d at call %lld was not seen", kind, (long long)t.at);
        assert_goes_on(&t);
        runs_remove("disturbed");
    }
    runs_remove("whole");
}

static void test_broken_and_full(void **state)
{
    (void)state;
    int64_t stride = sweeps_all() ? 1 : 7 * STRIDE; /* every call: test_checkpoint_sweep */
    fail_at_calls(FAULTS_EIO, "Input/output error", true, stride);
    fail_at_calls(FAULTS_FULL, "No space left", true, stride);
    if (!sweeps_all()) return;
    fail_at_calls(FAULTS_EIO, "Input/output error", false, stride);
    fail_at_calls(FAULTS_FULL, "No space left", false, stride);
    fail_at_calls(FAULTS_ENOSPC, "No space left", true, stride);
}

static void test_short_writes(void **state)
{
    (void)state;
    for (int background = 0; background < 2; background++) {
        trial calm = {.layout = "", .background = background}, t = calm;
        begin(&calm);
        t.kind = FAULTS_SHORT;
        t.at = 1;
        int ended = train("disturbed", &t);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == EXIT_SAVED);
        assert_true(runs_same("whole", "disturbed", STEPS));
        runs_remove("disturbed");
        runs_remove("whole");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_broken_and_full),
        cmocka_unit_test(test_short_writes),
    };
    faults_skip_fsync();
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
