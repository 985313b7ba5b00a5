/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute lane does not wait for loading data and for sums of gradients. The tests show this by
 * order, never by time: one side is held up until the other one has done all that it can do alone.
 * If one waited for the other, a test would not end. test_background_save.c tests saving.
 */

#include <pthread.h>

#include "app/grid_run.h"
#include "app/runs.h"
#include "checkpoint/faults.h"
#include "unit.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- data ---- */

enum { PREFETCH = 3, ROWS = 4, HELD = 2, LISTS = 9 };

/* A run of LISTS steps; under the lock. Step HELD is held up until the loader has come as far as it
 * may. The loader is then held up before its next batch until all batches that it has read are
 * used. */
static struct {
    bool holds;
    int reads;          /* of samples, begun */
    int steps;          /* trained */
    double loss[LISTS]; /* of each */
} load;

static void at_read(const char *path)
{
    if (!ends_with(path, "one-train.bin")) return;
    pthread_mutex_lock(&lock);
    load.reads++;
    pthread_cond_broadcast(&changed);
    bool beyond = load.reads == (HELD + PREFETCH + 1) * ROWS + 1;
    while (load.holds && beyond && load.steps < HELD + PREFETCH + 1)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Runs on the compute lane. While the lane is in step `steps`, the loader reads PREFETCH batches
 * ahead, and no more. */
static void at_step(void *context, ech_exec *exec, const ech_step *step)
{
    (void)context, (void)exec;
    if (step->kind != ECH_STEP_FORWARD) return;
    pthread_mutex_lock(&lock);
    int most = (load.steps + PREFETCH + 1) * ROWS;
    ECH_ASSERT(load.reads <= most);
    while (load.holds && load.steps == HELD && load.reads < most)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static ech_status train_lists(void *context, int rank, ech_compared_run *c)
{
    (void)context, (void)rank;
    ech_exec_observe(c->session.exec, at_step, NULL);
    for (int64_t step = 0; step < LISTS; step++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, step));
        pthread_mutex_lock(&lock);
        load.loss[load.steps++] = ech_exec_readings(c->session.exec)->loss;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return ECH_OK;
}

/* Tokens of one document, so that a sample is one read. */
static int setup(void **state)
{
    grid_setup(state);
    char prefix[300];
    ech_token_writer *writer;
    snprintf(prefix, sizeof prefix, "%s/one-train", fixture_folder);
    assert_int_equal(ech_token_writer_create(prefix, GRID_VOCABULARY, &writer), ECH_OK);
    for (int32_t i = 0; i < GRID_TOKENS; i++) {
        int32_t id = i * i % 251;
        assert_int_equal(ech_token_writer_add(writer, &id, 1), ECH_OK);
    }
    assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    return 0;
}

static void run_reading(grid_main main, bool holds)
{
    char words[600];
    memset(&load, 0, sizeof load);
    load.holds = holds;
    snprintf(words, sizeof words,
             "data.train=%s/one-train data.prefetch=%d training.steps=60 "
             "training.global_batch_size=%d training.micro_batch_size=1",
             fixture_folder, PREFETCH, ROWS);
    faults_arm(fixture_folder, FAULTS_NONE, 0);
    faults_watch_reads(at_read);
    grid_run("gpt2", words, main, NULL);
    faults_watch_reads(NULL);
}

static void run_lists(bool holds)
{
    run_reading(train_lists, holds);
    assert_int_equal(load.steps, LISTS);
    assert_true(load.reads >= LISTS * ROWS);
}

TEST(test_reading_and_training)
{
    double loss[LISTS];
    run_lists(false);
    memcpy(loss, load.loss, sizeof loss);
    run_lists(true);
    assert_memory_equal(loss, load.loss, sizeof loss);
}

static void wait_for_reads(int reads)
{
    pthread_mutex_lock(&lock);
    while (load.reads < reads) pthread_cond_wait(&changed, &lock);
    ECH_ASSERT(load.reads == reads);
    pthread_mutex_unlock(&lock);
}

/* As validation does: the first batches of the next time are read while nobody asks for them. */
static ech_status rewind_loader(void *context, int rank, ech_compared_run *c)
{
    (void)context, (void)rank;
    enum { TIMES = 3, MOST_TOKENS = ROWS * 24 };
    static int32_t tokens[LISTS][MOST_TOKENS];
    int reads = 0;
    for (int time = 0; time < TIMES; time++) {
        wait_for_reads(reads += (PREFETCH + 1) * ROWS);
        for (int64_t step = 0; step < LISTS; step++) {
            const ech_batch *batch;
            ECH_TRY(ech_loader_next(c->loader, step, &batch));
            if (time == 0) memcpy(tokens[step], batch->tokens, sizeof tokens[step]);
            ECH_ASSERT(memcmp(batch->tokens, tokens[step], sizeof tokens[step]) == 0);
        }
        wait_for_reads(reads += (LISTS - 1) * ROWS);
        ech_loader_rewind(c->loader, 0);
    }
    return ECH_OK;
}

TEST(test_reading_for_the_next_time)
{
    run_reading(rewind_loader, false);
}

/* ---- sums of gradients ---- */

/* early: each rank's sums before its last backward; ahead: its sums that began before the one
 * before had ended; made: rank 0's compute lane has computed all gradients. */
static struct {
    int64_t early[2], ahead[2];
    bool made;
} sums;

/* Holds rank 1 at its forwards until rank 0 has all gradients (on queues: until its device has). */
static void at_gradients(void *context, ech_exec *exec, const ech_step *step)
{
    const ech_compared_run *c = context;
    const ech_plan *plan = c->session.plan;
    int rank = plan->rank, micro_batches = plan->list[ECH_LIST_TRAIN].micro_batches;
    pthread_mutex_lock(&lock);
    if (rank == 1 && step->kind == ECH_STEP_FORWARD)
        while (!sums.made) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (rank == 1 || step->kind != ECH_STEP_BACKWARD_WEIGHT || step->block > 0) return;
    if (step->micro + 1 < micro_batches) return;
    double first; /* to read it is to wait for the queue */
    ech_tensor gradient = ech_exec_gradient(exec, plan->bucket_param.at[0]);
    gradient = ech_tensor_1d(gradient.data, gradient.dtype, 1);
    ech_exec_read(exec, &gradient, &first);
    pthread_mutex_lock(&lock);
    sums.made = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static ech_status train_one_list(void *context, int rank, ech_compared_run *c)
{
    (void)context;
    const ech_list *list = &c->session.plan->list[ECH_LIST_TRAIN];
    ech_exec_observe(c->session.exec, at_gradients, c);
    ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, 0));
    int64_t before = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        if (list->step.at[s].kind == ECH_STEP_BACKWARD_WEIGHT) sums.early[rank] = before;
        before += list->step.at[s].kind == ECH_STEP_REDUCE_GRADS;
    }
    sums.ahead[rank] = 0;
    for (int lane = 0; lane < ECH_LANES; lane++)
        sums.ahead[rank] += ech_exec_counted(c->session.exec)->sums_ahead[lane];
    return ECH_OK;
}

/* A rank that has all gradients begins each sum before the one before has ended, on every
 * device. */
TEST(test_sums_begin_ahead)
{
    static const char *const devices[] = {"cpu", "queued", "walled"};
    for (int d = 0; d < 3; d++) {
        char words[200];
        memset(&sums, 0, sizeof sums);
        snprintf(words, sizeof words, "parallel.data=2 parallel.bucket_bytes=1 parallel.device=%s",
                 devices[d]);
        grid_run("gpt2", words, train_one_list, NULL);
        assert_true(sums.early[0] > 2);
        assert_true(sums.ahead[0] >= sums.early[0] - 1);
    }
}

/* ---- metrics ---- */

enum { STEPS = 5, SAVE_EVERY = 3, SAVES = 2, RANKS = 2 };

/* Metrics stand still from the first step on until all ranks have recorded their last one. */
static struct {
    int metrics;      /* writes of metrics.jsonl, begun: the first says that the run starts */
    int lists[RANKS]; /* lists that a rank has recorded; its file's first write is none */
    bool let_go;
    int saves; /* calls for a checkpoint while they stood still */
} told;

static bool have_trained(void)
{
    for (int r = 0; r < RANKS; r++)
        if (told.lists[r] < 1 + STEPS) return false;
    return true;
}

static void at_write(int64_t number, const char *call, const char *path)
{
    (void)number;
    bool writes = strcmp(call, "pwrite") == 0 || strcmp(call, "pwrite64") == 0;
    pthread_mutex_lock(&lock);
    for (int r = 0; r < RANKS; r++) {
        char name[32];
        snprintf(name, sizeof name, "trace/rank-%05d.json", r);
        told.lists[r] += writes && ends_with(path, name);
    }
    told.saves += strstr(path, "/step-") && !told.let_go;
    if (writes && ends_with(path, "metrics.jsonl") && ++told.metrics == 2) {
        while (!have_trained()) pthread_cond_wait(&changed, &lock);
        told.let_go = true;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int count_lines(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

/* Training does all its steps while no line of them can be written. No checkpoint comes before the
 * metrics that lead to it; and in the end all is there. */
TEST(test_metrics_stand_still)
{
    char words[400], *text;
    snprintf(words, sizeof words,
             "training.steps=%d checkpoint.every=%d log.trace=true log.trace_steps=%d "
             "parallel.data=%d",
             STEPS, SAVE_EVERY, STEPS, RANKS);
    ech_config *config = grid_config_of("gpt2", "still", words);
    assert_non_null(config);
    ech_training training = {0};
    faults_arm(fixture_folder, FAULTS_NONE, 0);
    faults_watch(at_write);
    assert_int_equal(fixture_run(config, RANKS, ech_train_rank, &training), ECH_OK);
    faults_watch(NULL);
    ech_config_destroy(config);
    assert_true(told.let_go);
    assert_int_equal(told.saves, 0);
    text = runs_metrics("still");
    assert_int_equal(count_lines(text, "\"loss\":"), STEPS);
    assert_int_equal(count_lines(text, "\"checkpoint\":"), SAVES);
    free(text);
    assert_true(runs_has_checkpoint("still", STEPS));
}

ALL_TESTS(setup, fixture_teardown)

int main(void)
{
    faults_skip_fsync();
    return unit_run(NULL);
}
