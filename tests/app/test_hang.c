/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that hangs: work of rank 1 that never ends. No rank waits for a message then, since all
 * has been put; the deadline ends the run all the same, and the blame is on rank 1, whichever rank
 * comes to it first. And a device that fails: its rank says in which list and at which step, and
 * the others, whose queues wait for it, end before the deadline, which is as long here as no test
 * may be.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "app/fixture.h"
#include "comm/nccl_opened.h"
#include "unit.h"

enum { MOST_RANKS = 2, HUNG = 1, STEPS_BEFORE = 6 };

/* Work that does not end before the test lets it. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int failed; /* ranks whose run has ended */
    int ranks;
} hang = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const ech_device *queued;
static ech_device hanging; /* whose queues outlive a rank that leaves them */
static _Thread_local int
    steps_left; /* of the compute lane, until the device hangs; 0: it does not */

static void await_all(void)
{
    pthread_mutex_lock(&hang.lock);
    while (hang.failed < hang.ranks) pthread_cond_wait(&hang.changed, &hang.lock);
    pthread_mutex_unlock(&hang.lock);
}

static void never_end(void *argument)
{
    (void)argument;
    await_all();
}

/* Or it fails: from then on nothing is known of its events. */
static bool fails;
static _Atomic bool is_broken;
static _Thread_local bool breaks; /* the rank's */

static void be_broken(void *argument)
{
    (void)argument;
    is_broken = true;
    await_all();
}

static ech_status query(ech_event *event, bool *reached)
{
    if (breaks && is_broken) ECH_FAIL(ECH_EIO, "it is broken");
    return queued->query(event, reached);
}

static void hanging_record(ech_event *event, ech_queue *queue)
{
    if (steps_left > 0 && --steps_left == 0)
        queued->call(queue, fails ? be_broken : never_end, &(char){0}, 1);
    queued->record(event, queue);
}

typedef struct outcome {
    ech_status status[MOST_RANKS];
    char why[MOST_RANKS][400];
} outcome;

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    outcome *out = context;
    int rank = ech_comm_rank(comm);
    ech_session s = {0};
    ech_corpus *corpus;
    ech_loader *loader;
    ECH_TRY(ech_design_plan(design, rank, false, &s.plan));
    ech_exec_setup setup = {
        .config = design->config, .plan = s.plan, .device = &hanging, .comm = comm};
    ECH_TRY(ech_exec_create(&setup, &s.exec));
    ECH_TRY(ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus));
    ECH_TRY(ech_session_read(&s, design, corpus, ECH_TRAIN, 0, INT64_MAX, &loader));
    ECH_TRY(ech_exec_run(s.exec, ECH_LIST_INIT, 0));
    steps_left = rank == HUNG % hang.ranks ? STEPS_BEFORE : 0;
    breaks = steps_left > 0;
    out->status[rank] = ech_exec_run(s.exec, ECH_LIST_TRAIN, 0);
    if (out->status[rank] != ECH_OK)
        snprintf(out->why[rank], sizeof out->why[rank], "%s", ech_last_error());
    /* as a rank's end does */
    if (fails && out->status[rank] == ECH_EIO) ech_comm_abort(comm, ECH_EIO);
    pthread_mutex_lock(&hang.lock);
    hang.failed++;
    pthread_cond_broadcast(&hang.changed);
    pthread_mutex_unlock(&hang.lock);
    await_all();
    breaks = false;
    /* It ends, so that nothing is kept. */
    ech_status again = ech_exec_run(s.exec, ECH_LIST_TRAIN, 0);
    ech_exec_destroy(s.exec);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    ech_plan_destroy(s.plan);
    return again;
}

static outcome run(const char *words, int ranks)
{
    char all[400];
    outcome out;
    memset(&out, 0, sizeof out);
    hang.failed = 0;
    hang.ranks = ranks;
    is_broken = false;
    snprintf(all, sizeof all, "%s parallel.device=queued parallel.deadline=%s", words,
             fails ? "600" : "0.5");
    ech_config *config = fixture_config("gpt2", all);
    assert_int_not_equal(fixture_run(config, ranks, run_rank, &out), ECH_OK);
    ech_config_destroy(config);
    return out;
}

static void check_fault(const char *words, int ranks)
{
    fails = true;
    outcome out = run(words, ranks);
    fails = false;
    const char *why = out.why[HUNG % ranks];
    for (int r = 0; r < ranks; r++)
        assert_int_equal(out.status[r], r == HUNG % ranks ? ECH_EIO : ECH_EABORTED);
    assert_non_null(strstr(why, "the device queued fails in the list \"train\" of step 0; the last "
                                "step known to have begun is "));
    assert_true(strlen(strstr(why, "begun is ")) > strlen("begun is "));
}

static void check(const char *words, int ranks)
{
    char blame[40];
    snprintf(blame, sizeof blame, "held up by rank %d: ", HUNG % ranks);
    outcome out = run(words, ranks);
    int reports = 0;
    for (int r = 0; r < ranks; r++) {
        assert_true(out.status[r] == ECH_ECOMM || out.status[r] == ECH_EABORTED);
        if (out.status[r] != ECH_ECOMM) continue;
        reports++;
        assert_non_null(strstr(out.why[r], "has ended no work for 0.5 s"));
        assert_non_null(strstr(out.why[r], blame));
        assert_non_null(strstr(out.why[r], "parallel.deadline"));
    }
    assert_true(reports > 0);
}

/* The runs have one micro-batch, which is loaded before the device hangs: after the run has failed
 * the host loads no other. */
TEST(test_a_device_that_hangs_is_ended)
{
    check("", 1);
    check("parallel.pipeline=2", 2);
    check("parallel.data=2", 2);
    check("parallel.tensor=2 model.vocab_size=264", 2);
}

TEST(test_a_device_that_fails_says_where)
{
    check_fault("", 1);
    check_fault("parallel.pipeline=2", 2);
    check_fault("parallel.data=2", 2);
}

/* What the other rank's device waits for ends by aborting NCCL's communicators. */
TEST(test_nccl_is_aborted)
{
    nccl_opened_open();
    static const char *const words[] = {"parallel.pipeline=2", "parallel.data=2",
                                        "parallel.tensor=2 model.vocab_size=264"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char all[200];
        nccl_opened.use(NULL, NULL);
        snprintf(all, sizeof all, "%s parallel.comm=nccl", words[i]);
        check(all, 2);
        nccl_standin_counts counts = nccl_opened.count();
        assert_true(counts.aborted > 0 && counts.aborted == counts.made);
        assert_int_equal(counts.violations, 0);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)

int main(void)
{
    queued = ech_device_find("queued");
    hanging = *queued;
    hanging.record = hanging_record;
    hanging.query = query;
    return unit_run(NULL);
}
