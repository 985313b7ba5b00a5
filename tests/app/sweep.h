/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of two ranks in a process of their own, disturbed at one of their calls on the files of a
 * folder, and started again: what sweeps over all these calls need. ECHELON_SWEEP=all: every call,
 * kind of fault and layout.
 */
#ifndef ECH_TESTS_APP_SWEEP_H
#define ECH_TESTS_APP_SWEEP_H

#include <signal.h>
#include <sys/wait.h>

#include "base/log.h"
#include "app/runs.h"
#include "checkpoint/faults.h"
#include "checkpoint/folder.h"
#include "share.h"
#include "unit.h"

enum { SWEEP_RANKS = 2, SWEEP_STEPS = 2, EXIT_SAVED = 0, EXIT_FAILED = 1 };

/* As small as it gets: a save has few calls. */
static const char sweep_tiny[] =
    "training.steps=2 checkpoint.every=1 checkpoint.keep=1 "
    "model.hidden_size=8 model.num_hidden_layers=1 "
    "model.num_attention_heads=2 training.global_batch_size=2 "
    "training.validate_samples=2 optimizer.name=sgd optimizer.momentum=0.9";

typedef struct sweep_trial {
    const char *words;  /* assignments */
    const char *folder; /* below the run's, whose files' calls are counted */
    faults_kind kind;
    int64_t at;
} sweep_trial;

/* A process under a sanitizer takes many times as long to start and to end. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SWEEP_STRIDE = 5 };
#else
enum { SWEEP_STRIDE = 1 };
#endif

static inline bool sweep_takes_all(void)
{
    const char *sweep = getenv("ECHELON_SWEEP");
    return sweep && strcmp(sweep, "all") == 0;
}

/* What the process says goes to the fixture's file `said`. It writes the number of its calls there,
 * too, if nothing keeps it from doing so. */
static inline void sweep_run_child(const char *name, const sweep_trial *t)
{
    char said[400], folder[400], more[900];
    snprintf(said, sizeof said, "%s/said", fixture_folder);
    snprintf(folder, sizeof folder, "%s/%s/%s", fixture_folder, name, t->folder);
    if (!freopen(said, "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(99);
    ech_log_set_quiet(false);
    faults_arm(folder, t->kind, t->at);
    snprintf(more, sizeof more, "%s %s memory.offload_directory=%s/%s/scratch", sweep_tiny,
             t->words, fixture_folder, name);
    ech_config *config = runs_config("llama", name, more);
    ech_training training = {0};
    ech_status status = fixture_run(config, SWEEP_RANKS, ech_train_rank, &training);
    fprintf(stderr, "calls %lld\n", (long long)faults_count());
    fflush(NULL);
    _exit(status == ECH_OK ? EXIT_SAVED : EXIT_FAILED);
}

/* A run from where it stands to its end, or to what happens to it: how the process ended. */
static inline int sweep_train(const char *name, const sweep_trial *t)
{
    pid_t child = fork();
    int ended;
    assert_true(child >= 0);
    if (child == 0) sweep_run_child(name, t);
    assert_int_equal(waitpid(child, &ended, 0), child);
    return ended;
}

static inline bool sweep_has_said(const char *text, int64_t *calls)
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
static inline int64_t sweep_newest_step(const char *name, const sweep_trial *t)
{
    char folder[400];
    ech_checkpoint *checkpoint;
    snprintf(folder, sizeof folder, "%s/%s/checkpoints", fixture_folder, name);
    if (ech_checkpoint_open_newest(folder, true, &checkpoint) != ECH_OK)
        fail_msg("%s: kind %d at call %lld: no checkpoint is whole", t->words, t->kind,
                 (long long)t->at);
    int64_t step = checkpoint ? ech_checkpoint_get_info(checkpoint)->step : 0;
    ech_checkpoint_close(checkpoint);
    return step;
}

static inline void sweep_assert_clean(const char *name, const sweep_trial *t)
{
    char path[400];
    ech_folders folders = {0};
    snprintf(path, sizeof path, "%s/%s/checkpoints", fixture_folder, name);
    assert_int_equal(ech_folder_list(path, &folders), ECH_OK);
    for (size_t i = 0; i < folders.n; i++)
        if (folders.at[i].kind != ECH_FOLDER_FINAL)
            fail_msg("kind %d at call %lld leaves %s", t->kind, (long long)t->at,
                     folders.at[i].path);
    ech_folders_free(&folders);
}

/* Goes on without a fault, to the end: the run that nobody disturbed. */
static inline void sweep_assert_goes_on(const sweep_trial *t)
{
    sweep_trial calm = {.words = t->words, .folder = t->folder};
    int64_t from = sweep_newest_step("disturbed", t);
    int ended = sweep_train("disturbed", &calm);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != EXIT_SAVED) {
        sweep_has_said("?", NULL);
        fail_msg("kind %d at call %lld: it does not go on", t->kind, (long long)t->at);
    }
    /* where all steps were done already nothing is saved, so nothing is cleared */
    if (from < SWEEP_STEPS) sweep_assert_clean("disturbed", t);
    if (!runs_same("whole", "disturbed", SWEEP_STEPS))
        fail_msg("%s, kind %d at call %lld: another run", t->words, t->kind, (long long)t->at);
}

static inline int64_t sweep_begin(const sweep_trial *t)
{
    int64_t calls;
    int ended = sweep_train("whole", t);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != EXIT_SAVED) {
        sweep_has_said("?", NULL);
        fail_msg("%s: it does not train", t->words);
    }
    assert_true(sweep_has_said("calls", &calls) && calls > 10 && calls < 1000);
    return calls;
}

/* Killed at every `stride`th call, it goes on. */
static inline void sweep_kill(const char *words, const char *folder, int64_t stride)
{
    sweep_trial t = {.words = words, .folder = folder};
    int64_t calls = sweep_begin(&t);
    for (t.at = 1, t.kind = FAULTS_KILL; t.at <= calls; t.at += stride) {
        if (!share_takes()) continue;
        int ended = sweep_train("disturbed", &t);
        if (!WIFSIGNALED(ended) || WTERMSIG(ended) != SIGKILL)
            fail_msg("call %lld: it was not killed", (long long)t.at);
        sweep_assert_goes_on(&t);
        runs_remove("disturbed");
    }
    runs_remove("whole");
    print_message("%lld calls\n", (long long)calls);
}

/* Of so few calls each may be one that nobody need see fail: where a share of a stride is tried. */
enum { MAY_ALL_PASS = 4 };

/* A call that fails ends the run with a word that names the folder and the reason, or nobody need
 * see it; it goes on. */
static inline void sweep_fail(const char *words, const char *folder, faults_kind kind,
                              int64_t stride)
{
    const char *says = kind == FAULTS_EIO ? "Input/output error" : "No space left";
    sweep_trial t = {.words = words, .folder = folder};
    int64_t calls = sweep_begin(&t), tried = 0, failures = 0;
    char path[300];
    snprintf(path, sizeof path, "/disturbed/%s", folder);
    for (t.at = 1, t.kind = kind; t.at <= calls; t.at += stride) {
        if (!share_takes()) continue;
        int ended = sweep_train("disturbed", &t);
        assert_true(WIFEXITED(ended)); /* neither a crash nor a hang */
        bool failed = WEXITSTATUS(ended) == EXIT_FAILED;
        tried++;
        failures += failed;
        if (failed && (!sweep_has_said(says, NULL) || !sweep_has_said(path, NULL)))
            fail_msg("kind %d at call %lld says something else", kind, (long long)t.at);
        /* the first call makes a folder that may be there */
        if (!failed && t.at > 1 && sweep_newest_step("disturbed", &t) != SWEEP_STEPS)
            fail_msg("kind %d at call %lld was not seen", kind, (long long)t.at);
        sweep_assert_goes_on(&t);
        runs_remove("disturbed");
    }
    assert_true(failures > 0 || tried < MAY_ALL_PASS);
    runs_remove("whole");
}

/* Calls that move a third of what they are asked to change nothing. */
static inline void sweep_shorten(const char *words, const char *folder)
{
    sweep_trial calm = {.words = words, .folder = folder}, t = calm;
    sweep_begin(&calm);
    t.kind = FAULTS_SHORT;
    t.at = 1;
    int ended = sweep_train("disturbed", &t);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != EXIT_SAVED) sweep_has_said("?", NULL);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == EXIT_SAVED);
    assert_true(runs_same("whole", "disturbed", SWEEP_STEPS));
    runs_remove("disturbed");
    runs_remove("whole");
}

#endif
