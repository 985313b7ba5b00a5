/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints written while training goes on. A save is held up at one of its calls to the system,
 * all ranks train on and change every parameter, and then it is let go: its files are those of a
 * save that training waits for. A save that fails stops all ranks at the same step.
 */

#include <pthread.h>

#include "app/grid_run.h"
#include "checkpoint/faults.h"
#include "unit.h"

enum { BEFORE = 2, MEANWHILE = 3, RANKS = 4, MOST_LISTS = 1 << 20 };

/* ---- a save that is held up ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int64_t hold_at;
static bool arrived, released;

static void hold(int64_t number, const char *call, const char *path)
{
    (void)call, (void)path;
    if (number != hold_at) return;
    pthread_mutex_lock(&lock);
    arrived = true;
    pthread_cond_broadcast(&changed);
    while (!released) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void wait_until_held(void)
{
    pthread_mutex_lock(&lock);
    while (!arrived) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* ---- one run ---- */

typedef struct job {
    char folder[300];
    bool background, held;
    faults_kind fault;
    int64_t fault_at;
    int failed_after[RANKS]; /* lists after the save */
    ech_status result[RANKS];
    ech_exec_saved saved[RANKS];
    int64_t snapshot[RANKS]; /* bytes that the plan has for it */
} job;

static ech_status train_lists(ech_compared_run *c, int from, int lists)
{
    int turns = c->design->schedule->turns;
    for (int i = from; i < from + lists; i++)
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, (int64_t)i * turns));
    return ECH_OK;
}

static ech_status begin_save(const job *j, ech_compared_run *c, int64_t step)
{
    char yaml[] = "none", json[] = "{}";
    ech_checkpoint_info info = {.step = step,
                                .optimizer_count = ech_exec_updates(c->session.exec),
                                .run_yaml = yaml,
                                .text[ECH_FILE_CONFIG] = {json, strlen(json)}};
    ech_exec_set_save(c->session.exec, j->folder, &info, 0, 0, -1);
    ECH_ASSERT((c->session.plan->snapshots > 0) == j->background);
    return ech_exec_run(c->session.exec, ECH_LIST_SAVE, step);
}

/* Trains on while the save stands still. */
static ech_status train_meanwhile(ech_compared_run *c, int rank)
{
    ech_exec_saved saved;
    wait_until_held();
    ECH_TRY(train_lists(c, BEFORE, MEANWHILE));
    ECH_ASSERT(!ech_exec_take_saved(c->session.exec, &saved));
    ECH_TRY(ech_group_barrier(ech_exec_world(c->session.exec)));
    if (rank == 0) let_go();
    return ECH_OK;
}

static int64_t planned_snapshot(const ech_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->persistent.n; i++)
        if (plan->persistent.at[i].kind == ECH_MEMORY_SNAPSHOT)
            bytes += plan->persistent.at[i].bytes;
    return bytes;
}

static ech_status save_and_train(void *context, int rank, ech_compared_run *c)
{
    job *j = context;
    j->snapshot[rank] = planned_snapshot(c->session.plan);
    ECH_TRY(train_lists(c, 0, BEFORE));
    ECH_TRY(begin_save(j, c, BEFORE));
    if (j->held) ECH_TRY(train_meanwhile(c, rank));
    ECH_TRY(ech_exec_finish_save(c->session.exec));
    ECH_ASSERT(ech_exec_take_saved(c->session.exec, &j->saved[rank]));
    ECH_ASSERT(!ech_exec_take_saved(c->session.exec, &j->saved[rank]));
    return ECH_OK;
}

static void run(const char *family, const char *layout, grid_main main, job *j)
{
    char words[600];
    snprintf(words, sizeof words,
             "%s training.steps=60 training.global_batch_size=8 training.micro_batch_size=1 "
             "checkpoint.every=6 parallel.flush_every=%d checkpoint.background=%s "
             "model.vocab_size=258", /* shared out without padding */
             layout, strstr(layout, "2bw") ? 3 : 1, j->background ? "true" : "false");
    grid_run(family, words, main, j);
}

/* ---- the same files ---- */

static void assert_same_files(const job *a, const job *b, const char *what)
{
    static const char *const files[] = {"model/model.safetensors", "state/state.safetensors"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        const job *const jobs[] = {a, b};
        char *bytes[2];
        size_t n[2];
        for (int i = 0; i < 2; i++) {
            char path[500];
            snprintf(path, sizeof path, "%s/step-%08d/%s", jobs[i]->folder, BEFORE, files[f]);
            assert_int_equal(ech_file_read(path, 1 << 26, &bytes[i], &n[i]), ECH_OK);
        }
        if (n[0] != n[1] || memcmp(bytes[0], bytes[1], n[0]) != 0)
            fail_msg("%s differs with %s", files[f], what);
        free(bytes[0]);
        free(bytes[1]);
    }
}

/* Whatever the layout, the ranks' snapshots together are what the files hold: no rank copies what
 * another one writes. */
static void assert_snapshot(const job *j, const char *layout)
{
    static const char *const files[] = {"model/model.safetensors", "state/state.safetensors"};
    int64_t planned = 0, saved = 0;
    for (int rank = 0; rank < RANKS; rank++) planned += j->snapshot[rank];
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char path[500];
        ech_safetensors *file;
        snprintf(path, sizeof path, "%s/step-%08d/%s", j->folder, BEFORE, files[f]);
        assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
        for (int i = 0; i < ech_safetensors_count(file); i++) {
            ech_saved_tensor tensor = ech_safetensors_get(file, i);
            int64_t bytes = (int64_t)ech_dtype_bytes(tensor.dtype);
            if (tensor.dtype == ECH_BF16) continue; /* rounded from what is in state/ in full */
            for (int d = 0; d < tensor.dims; d++) bytes *= tensor.shape[d];
            saved += bytes;
        }
        ech_safetensors_close(file);
    }
    if (planned != saved)
        fail_msg("%s: snapshots of %lld bytes for %lld in the files", layout, (long long)planned,
                 (long long)saved);
}

static job make_job(const char *name, bool background)
{
    job j = {.background = background};
    snprintf(j.folder, sizeof j.folder, "%s/%s", fixture_folder, name);
    assert_int_equal(ech_file_remove_all(j.folder), ECH_OK);
    return j;
}

static int64_t count_calls(const char *family, const char *layout)
{
    job j = make_job("counted", true);
    faults_arm(j.folder, FAULTS_NONE, 0);
    run(family, layout, save_and_train, &j);
    return faults_count();
}

static void check_held(const char *family, const char *layout, int64_t at, const job *waited)
{
    job j = make_job("background", true);
    hold_at = at;
    arrived = released = false;
    j.held = true;
    faults_arm(j.folder, FAULTS_NONE, 0);
    faults_watch(hold);
    run(family, layout, save_and_train, &j);
    faults_watch(NULL);
    assert_same_files(waited, &j, layout);
    assert_snapshot(&j, layout);
    assert_true(j.saved[0].step == BEFORE && j.saved[0].bytes == waited->saved[0].bytes);
}

TEST(test_same_files)
{
    static const char *const layouts[] = {
        "parallel.data=2",
        "parallel.pipeline=2 parallel.tensor=2",
        ("parallel.pipeline=2 parallel.data=2 parallel.schedule=pipedream-2bw "
         "model.tie_word_embeddings=false"),
        "checkpoint.dtype=bf16",
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *family = i % 2 ? "llama" : "gpt2";
        job waited = make_job("waited", false);
        run(family, layouts[i], save_and_train, &waited);
        int64_t calls = count_calls(family, layouts[i]);
        /* before the first file, between tensors, and before the last rename */
        const int64_t at[] = {1, calls / 2, calls - 1};
        for (int k = 0; k < 3; k++) check_held(family, layouts[i], at[k], &waited);
    }
}

/* ---- one after the other ---- */

/* Waits until the checkpoint exists, and its save most likely has ended. The save before is still
 * reported then. */
static void wait_until_saved(const job *j, int step)
{
    char path[400];
    snprintf(path, sizeof path, "%s/step-%08d", j->folder, step);
    while (!ech_file_exists(path)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* Each save is reported once, in order. A save begins when the one before has ended, and may have
 * ended by now, too. */
static ech_status save_often(void *context, int rank, ech_compared_run *c)
{
    job *j = context;
    ech_exec_saved *saved = &j->saved[rank];
    int told = 0;
    for (int step = 1; step <= 4; step++) {
        ECH_TRY(train_lists(c, step - 1, 1));
        ECH_TRY(begin_save(j, c, step));
        if (step % 2 == 0) wait_until_saved(j, step);
        while (ech_exec_take_saved(c->session.exec, saved)) ECH_ASSERT(saved->step == ++told);
        ECH_ASSERT(told >= step - 1);
    }
    ECH_TRY(ech_exec_finish_save(c->session.exec));
    while (ech_exec_take_saved(c->session.exec, saved)) ECH_ASSERT(saved->step == ++told);
    ECH_ASSERT(told == 4);
    return ECH_OK;
}

TEST(test_one_at_a_time)
{
    job j = make_job("often", true);
    run("llama", "parallel.data=2", save_often, &j);
    for (int step = 1; step <= 4; step++) {
        char path[500];
        ech_checkpoint *checkpoint;
        snprintf(path, sizeof path, "%s/step-%08d", j.folder, step);
        assert_int_equal(ech_checkpoint_open(path, true, &checkpoint), ECH_OK);
        assert_int_equal(ech_checkpoint_get_info(checkpoint)->optimizer_count, step);
        ech_checkpoint_close(checkpoint);
    }
}

/* ---- failures ---- */

/* Trains until it is known that the save failed. All ranks learn of it after the same list. */
static ech_status fail_meanwhile(void *context, int rank, ech_compared_run *c)
{
    job *j = context;
    ECH_TRY(train_lists(c, 0, BEFORE));
    ECH_TRY(begin_save(j, c, BEFORE));
    for (int i = 0; i < MOST_LISTS && j->failed_after[rank] == 0; i++) {
        ECH_TRY(train_lists(c, BEFORE + i, 1));
        if (ech_exec_readings(c->session.exec)->save_failed) j->failed_after[rank] = i + 1;
    }
    j->result[rank] = ech_exec_finish_save(c->session.exec);
    return ECH_OK;
}

static void check_failure(const char *layout, int ranks, faults_kind kind, int64_t at)
{
    job j = make_job("failed", true);
    faults_arm(j.folder, kind, at);
    run("llama", layout, fail_meanwhile, &j);
    faults_arm("", FAULTS_NONE, 0);
    int causes = 0;
    for (int r = 0; r < ranks; r++) {
        assert_true(j.failed_after[r] > 0);
        assert_int_equal(j.failed_after[r], j.failed_after[0]);
        assert_true(j.result[r] == ECH_EIO || j.result[r] == ECH_EABORTED);
        causes += j.result[r] == ECH_EIO;
    }
    assert_int_equal(causes, 1);
    char path[500];
    snprintf(path, sizeof path, "%s/step-%08d.tmp", j.folder, BEFORE);
    assert_false(ech_file_exists(path));
}

TEST(test_a_failure_stops_all_at_the_same_step)
{
    check_failure("parallel.data=2", 2, FAULTS_EIO, 4);
    check_failure("parallel.data=2", 2, FAULTS_ENOSPC, 30);
    check_failure("parallel.pipeline=2 parallel.tensor=2", 4, FAULTS_EIO, 50);
}

ALL_TESTS(grid_setup, fixture_teardown)

int main(void)
{
    faults_skip_fsync();
    return unit_run(NULL);
}
