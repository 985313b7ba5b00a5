/* SPDX-License-Identifier: Apache-2.0
 *
 * Training with hooks. Hooks that do nothing, or read every tensor, change no bit. Requests are
 * fulfilled in their order. A hook that fails ends all ranks, and what was saved stays. Hooks run
 * on the caller's thread, and some calls are refused to them.
 */
#include <math.h>
#include <pthread.h>

#include "library/tiny_run.h"

/* What happens, a letter each: b(egin), . (step), v(alidated), s(aved), e(nd). */
typedef struct record {
    char events[64];
    double loss[STEPS], tensors;
    bool reads;         /* all tensors, after each step */
    int at, requests;   /* what step_end requests after this step */
    int result;         /* of the hook `saved` */
    bool refused;       /* the calls that are refused are tried after step 1 */
    bool validate_once; /* requested by begin */
    bool stopped;
    int requested; /* as `end` gets it */
    pthread_t thread;
} record;

static void note(record *r, char event)
{
    size_t n = strlen(r->events);
    assert_true(n + 1 < sizeof r->events && pthread_equal(pthread_self(), r->thread));
    r->events[n] = event;
}

static int begin(echelon_training *training, const echelon_metrics *m, void *context)
{
    record *r = context;
    note(r, 'b');
    assert_int_equal(m->step, echelon_train_steps(training));
    assert_true(isnan(m->loss));
    assert_string_equal(m->unit, "token");
    return r->validate_once ? ECHELON_VALIDATE : 0;
}

static void try_refused(echelon_training *training)
{
    fails(echelon_train_step(training, NULL), ECHELON_EUSAGE, "echelon_train_step: a hook");
    fails(echelon_train_run(training, 0, NULL), ECHELON_EUSAGE, "echelon_train_run: a hook");
    fails(echelon_train_finish(training), ECHELON_EUSAGE, "echelon_train_finish: a hook");
    echelon_train_abort(training);
    assert_non_null(strstr(echelon_last_error(), "echelon_train_abort: a hook"));
}

static int step_end(echelon_training *training, const echelon_metrics *m, void *context)
{
    record *r = context;
    note(r, '.');
    assert_int_equal(m->step, echelon_train_steps(training));
    r->loss[m->step - 1] = m->loss;
    if (r->reads) read_all(training);
    if (r->refused && m->step == 1) try_refused(training);
    return m->step == r->at ? r->requests : 0;
}

static int validated(echelon_training *training, const echelon_metrics *m, void *context)
{
    (void)training;
    note(context, 'v');
    assert_true(m->valid_loss > 3 && m->valid_loss < 6);
    return 0;
}

static int saved(echelon_training *training, const echelon_metrics *m, void *context)
{
    record *r = context;
    (void)training;
    note(r, 's');
    assert_int_equal(m->saved, 1);
    return r->result;
}

static int end(echelon_training *training, const echelon_metrics *m, void *context)
{
    record *r = context;
    note(r, 'e');
    r->requested = m->requests;
    r->tensors = read_all(training);
    r->stopped = echelon_train_is_stopped(training);
    return 0;
}

static echelon_status train(const char *words, const char *folder, record *r)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", fixture_folder, folder);
    echelon_run *run = open_run(words, path);
    r->thread = pthread_self();
    const echelon_train_hooks hooks = {.size = sizeof hooks,
                                       .context = r,
                                       .begin = begin,
                                       .step_end = step_end,
                                       .validated = validated,
                                       .saved = saved,
                                       .end = end};
    echelon_status status = echelon_train(run, NULL, &hooks);
    echelon_run_close(run);
    return status;
}

/* One request for all steps, without hooks: the sum of all tensors. */
static double train_at_once(const char *words, const char *folder, double *loss)
{
    char path[4096];
    echelon_training *training;
    echelon_metrics m = {.size = sizeof m};
    snprintf(path, sizeof path, "%s/%s", fixture_folder, folder);
    echelon_run *run = open_run(words, path);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    assert_int_equal(echelon_train_run(training, 0, &m), ECHELON_OK);
    assert_int_equal(m.step, STEPS);
    assert_true(echelon_train_is_done(training) && !echelon_train_is_stopped(training));
    *loss = m.loss;
    m.loss = 0;
    assert_int_equal(echelon_train_run(training, 0, &m), ECHELON_OK); /* none is left */
    assert_true(m.loss == 0);
    double sum = read_all(training);
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
    return sum;
}

TEST(test_same_bits)
{
    static const char *const grids[] = {
        "parallel.data=1", "parallel.data=2 parallel.tensor=2 precision.compute=bf16",
        "parallel.data=2 parallel.pipeline=2 parallel.zero=1",
        "parallel.pipeline=2 parallel.schedule=pipedream training.validate_every=0"};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        char folder[3][16];
        double loss;
        record quiet = {0}, reads = {.reads = true};
        for (int i = 0; i < 3; i++) snprintf(folder[i], sizeof folder[i], "bits%zu%d", g, i);
        double sum = train_at_once(grids[g], folder[0], &loss);
        assert_int_equal(train(grids[g], folder[1], &quiet), ECHELON_OK);
        assert_int_equal(train(grids[g], folder[2], &reads), ECHELON_OK);
        if (quiet.tensors != sum || reads.tensors != sum || quiet.loss[STEPS - 1] != loss)
            fail_msg("%s: other bits", grids[g]);
        assert_memory_equal(quiet.loss, reads.loss, sizeof quiet.loss);
    }
}

/* Up to n steps in one request. */
TEST(test_run_some)
{
    char path[4096];
    echelon_training *training;
    echelon_metrics m = {.size = sizeof m};
    snprintf(path, sizeof path, "%s/some", fixture_folder);
    echelon_run *run = open_run("parallel.data=2", path);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    fails(echelon_train_run(training, -1, &m), ECHELON_EUSAGE, "0 or more");
    assert_int_equal(echelon_train_run(training, 3, &m), ECHELON_OK);
    assert_int_equal(m.step, 3);
    assert_false(echelon_train_is_done(training));
    assert_int_equal(echelon_train_run(training, 3, &m), ECHELON_OK);
    assert_int_equal(m.step, STEPS);
    fails(echelon_train_step(training, &m), ECHELON_EUSAGE, "step 4 was the last");
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
}

TEST(test_order)
{
    record plain = {0}, asks = {.at = 1, .requests = ECHELON_SAVE | ECHELON_VALIDATE},
           once = {.validate_once = true};
    assert_int_equal(train("parallel.data=2", "plain", &plain), ECHELON_OK);
    assert_string_equal(plain.events, "b..v..vse");
    assert_false(plain.stopped);
    assert_int_equal(train("parallel.data=2", "asks", &asks), ECHELON_OK);
    assert_string_equal(asks.events, "b.vs.v..vse");
    assert_int_equal(train("parallel.data=2", "once", &once), ECHELON_OK);
    assert_string_equal(once.events, "bv..v..vse");
    assert_true(plain.tensors == asks.tensors && plain.tensors == once.tensors);
}

/* A stop saves, and the run goes on from there to the same weights. */
TEST(test_stop)
{
    record whole = {0}, first = {.at = 2, .requests = ECHELON_STOP}, second = {0};
    assert_int_equal(train("parallel.data=2", "whole", &whole), ECHELON_OK);
    assert_int_equal(train("parallel.data=2", "halves", &first), ECHELON_OK);
    assert_string_equal(first.events, "b..vse");
    assert_true(first.stopped && first.requested == ECHELON_STOP);
    assert_int_equal(train("parallel.data=2", "halves", &second), ECHELON_OK);
    assert_string_equal(second.events, "b..vse");
    assert_true(second.tensors == whole.tensors && !second.stopped && !second.requested);
    record last = {.at = STEPS, .requests = ECHELON_STOP};
    assert_int_equal(train("parallel.data=2", "last", &last), ECHELON_OK);
    assert_false(last.stopped);
}

/* Local replicas differ until their average after step 2. */
TEST(test_waits_for_an_average)
{
    record r = {.at = 1, .requests = ECHELON_STOP};
    assert_int_equal(
        train("parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2", "average", &r),
        ECHELON_OK);
    assert_string_equal(r.events, "b..vse");
    assert_true(r.stopped);
}

TEST(test_failing_hook)
{
    char path[4096];
    record r = {.at = 2, .requests = ECHELON_SAVE, .result = ECHELON_EIO};
    fails(train("parallel.data=2 parallel.pipeline=2", "failing", &r), ECHELON_EIO,
          "step 2: the hook saved failed: it returned -3");
    assert_string_equal(r.events, "b..vs"); /* no end */
    record again = {.at = 3, .requests = -77};
    fails(train("parallel.data=2 parallel.pipeline=2", "failing", &again), ECHELON_EABORTED,
          "step 3: the hook step_end failed: it returned -77");
    assert_string_equal(again.events, "b.");
    echelon_checkpoints *list;
    echelon_checkpoint is = {.size = sizeof is};
    snprintf(path, sizeof path, "%s/failing", fixture_folder);
    assert_int_equal(echelon_checkpoints_list(path, &list), ECHELON_OK);
    assert_int_equal(echelon_checkpoints_count(list), 1);
    assert_int_equal(echelon_checkpoints_at(list, 0, &is), ECHELON_OK);
    assert_int_equal(is.step, 2);
    assert_int_equal(is.complete, 1);
    echelon_checkpoints_free(list);
}

TEST(test_refused_calls)
{
    record r = {.refused = true};
    assert_int_equal(train("parallel.data=2", "refused", &r), ECHELON_OK);
    assert_string_equal(r.events, "b..v..vse");
}

/* A failure of the ranks ends it without the hook `end`, and says why. */
TEST(test_failure_of_the_run)
{
    record r = {.at = 1, .requests = ECHELON_VALIDATE};
    fails(train("parallel.data=2 data.valid= training.validate_every=0", "unvalidated", &r),
          ECHELON_EUSAGE, "no validation data");
    assert_string_equal(r.events, "b.");
    fails(train("parallel.data=3", "uneven", &r), ECHELON_EUSAGE, "training.global_batch_size");
}

ALL_TESTS(fixture_setup, fixture_teardown)
