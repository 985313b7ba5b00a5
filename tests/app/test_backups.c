/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.backup_workers: servers update with the first gradients of a training step that come,
 * and drop the last ones. On any number of workers and servers the result is that of one rank with
 * the mean of the gradients that were not dropped. All gradients of a step but backup_workers are
 * in its update and of its weights; the others are logged as dropped. A worker that knows that its
 * gradient will be dropped does not compute it. Bytes are the plan's.
 */

#include "app/grid_run.h"
#include "app/runs.h"
#include "app/simulated.h"
#include "schedule/traffic.h"
#include "unit.h"

#define BACKUPS "parallel.strategy=parameter_server parallel.backup_workers="

/* ---- verify ---- */

static const struct {
    const char *family, *words;
} grids[] = {
    {"gpt2", BACKUPS "1 parallel.data=2 optimizer.name=sgd"},
    {"llama", BACKUPS "1 parallel.data=3 parallel.servers=2 training.micro_batch_size=1 "
                      "training.global_batch_size=6 parallel.bucket_bytes=1000 "
                      "optimizer.clip_norm=0.01 parallel.delay=0:0.01"},
    {"qwen3", BACKUPS "2 parallel.data=4 parallel.servers=3 memory.recompute=full "
                      "data.shards=static model.head_dim=4 optimizer.rates=*.1.*=0.5 "
                      "training.micro_batch_size=1 parallel.delay=3:0.02"},
    {"gpt2", BACKUPS "1 parallel.data=3 parallel.servers=2 model.tie_word_embeddings=true "
                     "parallel.device=walled training.micro_batch_size=1 "
                     "training.global_batch_size=6 parallel.flush_every=2 data.document_mask=true"},
    {"llama", BACKUPS "3 parallel.data=4 memory.sequence_chunks=2 optimizer.name=sgd "
                      "optimizer.momentum=0.9 parallel.schedule=gpipe parallel.device=queued "
                      "training.micro_batch_size=1"},
};

TEST(updates_are_means_of_what_came)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char words[700];
        snprintf(words, sizeof words, "%s training.steps=8", grids[i].words);
        assert_false(grid_verify(grids[i].family, words, 8).exact);
    }
}

/* ---- what is served, and sent ---- */

enum { RANKS = 6, WORKERS = 4, SERVERS = 2, BACKUP = 1, STEPS = 4, PUSHES = WORKERS * STEPS };
#define GRID                                                                                       \
    BACKUPS "1 parallel.data=4 parallel.servers=2 training.micro_batch_size=1 training.steps=4 "

static struct {
    ech_serve serve[PUSHES];
    int serves;
    int64_t sent, planned; /* of gradients or weights, in a span */
    int64_t padded;        /* all elements of buckets */
    int announced;
    uint64_t gradient[STEPS]; /* a hash of it, when it is announced */
    double tokens[STEPS], norm[STEPS], loss[STEPS];
} seen[RANKS];

/* Worker 0 is always the last. */
static int first_last(void *context, int64_t step, int turn)
{
    (void)context;
    (void)step;
    int others = WORKERS - 1;
    return turn < STEPS * others ? 1 + turn % others : 0;
}

static void watch(void *context, ech_exec *exec, const ech_step *step)
{
    int rank = *(const int *)context;
    if (step->kind != ECH_STEP_ANNOUNCE) return;
    ech_tensor gradient = ech_exec_gradient(exec, 1);
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < ech_tensor_bytes(&gradient); i++)
        hash = (hash ^ ((const unsigned char *)gradient.data)[i]) * 1099511628211u;
    seen[rank].gradient[step->turn] = hash;
}

static ech_status look(void *context, int rank, ech_compared_run *run)
{
    ech_exec *exec = run->session.exec;
    const ech_plan *plan = run->session.plan;
    memset(&seen[rank], 0, sizeof seen[rank]);
    for (size_t b = 0; b < plan->bucket.n; b++) seen[rank].padded += plan->bucket.at[b].elements;
    seen[rank].planned = ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
    seen[rank].announced = grid_steps(&plan->list[ECH_LIST_TRAIN], ECH_STEP_ANNOUNCE);
    if (context) ech_exec_order_serves(exec, first_last, NULL);
    ech_exec_observe(exec, watch, &rank);
    int64_t before = ech_exec_reduce_count(exec).bytes;
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, 0));
    seen[rank].sent = ech_exec_reduce_count(exec).bytes - before;
    for (int t = 0; t < STEPS; t++) {
        const ech_readings *r = &ech_exec_readings(exec)[t];
        seen[rank].tokens[t] = r->tokens;
        seen[rank].norm[t] = r->grad_norm;
        seen[rank].loss[t] = r->loss;
    }
    const ech_serve *serves = ech_exec_serves(exec, &seen[rank].serves);
    for (int i = 0; i < seen[rank].serves && i < PUSHES; i++) {
        seen[rank].serve[i] = serves[i];
        seen[rank].serve[i].time = 0; /* each server has its own */
    }
    return ECH_OK;
}

/* A worker's clocks follow each other. All gradients of a clock but BACKUP are in its update, and
 * these have read the update before. */
static void check_serves(const ech_serve *serve, int n)
{
    int clock[WORKERS] = {0}, used[STEPS] = {0}, dropped[STEPS] = {0}, now = 0, updated = 0;
    assert_int_equal(n, PUSHES);
    for (int turn = 0; turn < n; turn++) {
        const ech_serve *s = &serve[turn];
        assert_true(s->worker >= 0 && s->worker < WORKERS && !s->withheld);
        assert_int_equal(s->clock, clock[s->worker]++);
        assert_int_equal(s->dropped, s->clock < now);
        assert_true(s->dropped || (s->clock == now && s->read >= updated));
        *(s->dropped ? &dropped[s->clock] : &used[s->clock]) += 1;
        if (s->dropped || used[now] < WORKERS - BACKUP) continue;
        now++;
        updated = turn + 1;
    }
    for (int t = 0; t < STEPS; t++)
        assert_true(used[t] == WORKERS - BACKUP && dropped[t] == BACKUP);
}

TEST(each_push_is_in_its_update_or_dropped)
{
    static const char *const delays[] = {"", "parallel.delay=1:0.02"};
    for (int i = 0; i < 2; i++) {
        char words[400];
        snprintf(words, sizeof words, GRID "%s", delays[i]);
        grid_run("llama", words, look, NULL);
        for (int r = 0; r < RANKS; r++) {
            bool serves = r >= WORKERS;
            assert_int_equal(seen[r].announced, serves ? 0 : STEPS);
            if (serves) check_serves(seen[r].serve, seen[r].serves);
            assert_true(serves || seen[r].serves == 0);
            for (int t = 0; t < STEPS; t++) /* all are told the same, of what was not dropped */
                assert_true(seen[r].tokens[t] > 0 && seen[r].loss[t] > 0 &&
                            seen[r].tokens[t] == seen[0].tokens[t] &&
                            seen[r].loss[t] == seen[0].loss[t] && seen[r].norm[t] > 0 &&
                            seen[r].norm[t] == seen[0].norm[t]);
        }
        assert_memory_equal(seen[WORKERS].serve, seen[WORKERS + 1].serve,
                            sizeof seen[WORKERS].serve); /* all servers have one order */
    }
}

/* Worker 0 hears of its first push that all of its others will be dropped. */
TEST(what_will_be_dropped_is_not_computed)
{
    bool ordered = true;
    grid_run("llama", GRID, look, &ordered);
    check_serves(seen[WORKERS].serve, seen[WORKERS].serves);
    for (int turn = 0; turn < PUSHES; turn++)
        assert_int_equal(seen[WORKERS].serve[turn].dropped, seen[WORKERS].serve[turn].worker == 0);
    for (int w = 0; w < WORKERS; w++)
        for (int t = 1; t < STEPS; t++)
            assert_int_equal(seen[w].gradient[t] == seen[w].gradient[t - 1], w == 0);
}

/* A worker pushes S and pulls S a step, whatever comes of it; a server has W S / n of each; at a
 * span's end each worker is sent the weights once more. */
TEST(bytes_are_the_plans)
{
    grid_run("llama", GRID "parallel.delay=2:0.01", look, NULL);
    int64_t S = seen[0].padded * (int64_t)sizeof(double);
    for (int r = 0; r < RANKS; r++) {
        int64_t met = r >= WORKERS ? WORKERS * S / SERVERS : 0;
        assert_int_equal(seen[r].padded, seen[0].padded);
        assert_int_equal(seen[r].sent,
                         (r >= WORKERS ? STEPS * WORKERS * S / SERVERS : STEPS * S) + met);
        assert_int_equal(seen[r].sent, seen[r].planned);
    }
}

/* ---- runs ---- */

/* A run goes on with other workers and servers, and without. */
TEST(checkpoints_know_no_backups)
{
#define RUN "training.steps=8 checkpoint.every=4 "
    static const struct {
        int ranks;
        const char *words;
    } others[] = {{4, RUN BACKUPS "1 parallel.data=2 parallel.servers=2"},
                  {3, RUN "parallel.strategy=parameter_server parallel.data=2"},
                  {2, RUN "parallel.data=2"}};
    runs_train("gpt2", "backups", 3, RUN BACKUPS "1 parallel.data=2");
    for (int i = 0; i < 3; i++) {
        runs_remove_checkpoint("backups", 8);
        runs_train("gpt2", "backups", others[i].ranks, others[i].words);
        assert_true(runs_has_checkpoint("backups", 8));
    }
    runs_remove("backups");
#undef RUN
}

/* ---- simulated ---- */

/* All wait for a worker that takes 1 s longer in each step, in each step; with a backup worker,
 * once or twice a span: what it lacks then it does not compute. */
TEST(simulations_do_not_wait_for_the_last)
{
#define FOUR "parallel.data=4 training.micro_batch_size=1 training.steps=8 "
    double even = simulated(FOUR BACKUPS "1", NULL);
    double slow = simulated(FOUR BACKUPS "1 parallel.delay=1:1", NULL);
    double step = simulated(FOUR "parallel.strategy=parameter_server parallel.delay=1:1", NULL);
    assert_true(even < 1 && slow >= 1 && slow < 2 + 2 * even && step >= 1);
#undef FOUR
}

/* ---- what is refused ---- */

TEST(impossible_backups_are_errors)
{
    static const runs_refusal refused[] = {
        {BACKUPS "3", "3 of 3 workers leave no gradient to update by; use fewer, or start more"},
        {BACKUPS "1 parallel.zero=1", "use parallel.zero = 0"},
        {BACKUPS "1 parallel.server_sync=false", "set parallel.server_sync = true"},
        {"parallel.strategy=asp parallel.backup_workers=1", "parallel.strategy = parameter_server"},
        {"parallel.backup_workers=1", "parallel.strategy = parameter_server"},
    };
    RUNS_REFUSE(4, "training.global_batch_size=12", refused);
}

ALL_TESTS(grid_setup, fixture_teardown)
