/* SPDX-License-Identifier: Apache-2.0
 *
 * Concurrent lanes. Two lanes that sum gradients over one group at the same time leave the bits of
 * one lane, on every device of the processor. A rank has a thread for each lane that its lists use,
 * and no more.
 */

#include <dirent.h>

#include "app/fixture.h"
#include "unit.h"

enum { MOST_RANKS = 3, STEPS = 3 };

typedef struct trial {
    const char *device;
    ech_lane sums, copies; /* of every other REDUCE_GRADS; of SNAPSHOT */
    int moved;             /* steps of rank 0 on `sums` */
    uint64_t digest[MOST_RANKS];
    int threads, lanes; /* more than before; other lanes than compute that rank 0's lists use */
} trial;

/* ---- steps on other lanes ---- */

static void move_steps(const ech_plan *plan, trial *t)
{
    bool other = false;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++) {
            ech_step *step = &plan->list[l].step.at[s];
            if (step->kind == ECH_STEP_SNAPSHOT) step->lane = t->copies;
            if (step->kind != ECH_STEP_REDUCE_GRADS) continue;
            if (other) step->lane = t->sums;
            t->moved += other && plan->rank == 0;
            other = !other;
        }
}

static int count_lanes(const ech_plan *plan)
{
    bool used[ECH_LANES] = {false};
    int n = 0;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++)
            used[plan->list[l].step.at[s].lane] = true;
    if (used[ECH_LANE_RECEIVE]) used[ECH_LANE_SEND] = false; /* one thread for both */
    for (int lane = ECH_LANE_COMPUTE + 1; lane < ECH_LANES; lane++) n += used[lane];
    return n;
}

static int count_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks)) n++;
    if (tasks) closedir(tasks);
    return n;
}

/* ---- a run ---- */

static void digest(const ech_session *s, const ech_device *device, uint64_t *out)
{
    for (int p = 0; p < (int)s->plan->model->param.n; p++) {
        if (s->plan->param[p].bucket < 0) continue;
        ech_tensor x = ech_exec_param(s->exec, p);
        const unsigned char *at = ech_device_reach(device, x.data);
        for (size_t i = 0; i < ech_tensor_bytes(&x); i++)
            *out = (*out ^ at[i]) * UINT64_C(0x100000001b3);
    }
}

static ech_status run_lists(const ech_session *s)
{
    ECH_TRY(ech_exec_run(s->exec, ECH_LIST_INIT, 0));
    for (int64_t step = 0; step < STEPS; step++)
        ECH_TRY(ech_exec_run(s->exec, ECH_LIST_TRAIN, step));
    return ECH_OK;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_session s = {0};
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    ECH_TRY(ech_design_plan(design, rank, false, &s.plan));
    move_steps(s.plan, t);
    ech_exec_setup setup = {.config = design->config,
                            .plan = s.plan,
                            .device = ech_device_find(t->device),
                            .comm = comm};
    int threads = count_threads();
    ech_status status = ech_exec_create(&setup, &s.exec);
    if (rank == 0) t->threads = count_threads() - threads; /* means something with one rank */
    if (rank == 0) t->lanes = count_lanes(s.plan);
    if (status == ECH_OK) status = ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus);
    if (status == ECH_OK)
        status = ech_session_read(&s, design, corpus, ECH_TRAIN, 0, INT64_MAX, &loader);
    if (status == ECH_OK) status = run_lists(&s);
    if (status == ECH_OK) digest(&s, setup.device, &t->digest[rank]);
    ech_exec_destroy(s.exec);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    ech_plan_destroy(s.plan);
    return status;
}

static void run(const char *words, int ranks, trial *t)
{
    char all[300];
    snprintf(all, sizeof all, "%s parallel.device=%s", words, t->device);
    assert_true(fixture_runs("gpt2", all, ranks, run_rank, t));
}

TEST(two_lanes_sum_over_one_group)
{
    static const char *const words[] = {
        "parallel.data=3 parallel.bucket_bytes=1 training.micro_batch_size=1",
        "parallel.data=3 parallel.bucket_bytes=2KiB parallel.reduction=ring"};
    static const char *const devices[] = {"cpu", "queued"};
    for (int i = 0; i < 4; i++) {
        trial one = {
            .device = devices[i % 2], .sums = ECH_LANE_REDUCE, .copies = ECH_LANE_COPY_OUT};
        trial two = one;
        two.sums = ECH_LANE_GATHER;
        run(words[i / 2], MOST_RANKS, &one);
        run(words[i / 2], MOST_RANKS, &two);
        assert_true(two.moved > 1);
        assert_int_equal(two.lanes, one.lanes + 1);
        assert_memory_equal(one.digest, two.digest, sizeof one.digest);
        assert_true(one.digest[0] == one.digest[1] && one.digest[0] != 0);
    }
}

TEST(a_lane_that_is_used_has_a_thread)
{
    static const ech_lane lanes[] = {ECH_LANE_COPY_OUT, ECH_LANE_COPY_IN, ECH_LANE_HOST,
                                     ECH_LANE_GATHER, ECH_LANE_DISK};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        trial t = {.device = "cpu", .sums = ECH_LANE_REDUCE, .copies = lanes[i]};
        run("checkpoint.every=2", 1, &t);
        assert_int_equal(t.threads, t.lanes);
        /* reduce: nobody to do it with; disk, and that of the copies */
        assert_int_equal(t.lanes, lanes[i] == ECH_LANE_DISK ? 1 : 2);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
