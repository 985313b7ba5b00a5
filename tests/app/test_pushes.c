/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = asp and ssp: servers apply each worker's gradient by itself. One worker
 * trains as one rank does, and without staleness all train as with a synchronous server. Every push
 * is served once, with a version that it can have read. Under bounded staleness no worker gets
 * further ahead. Bytes are the plan's, and only servers have states. The lattice tests that runs on
 * any number of workers and servers equal the serial replay of the servers' log.
 */

#include "app/grid_run.h"
#include "app/runs.h"
#include "app/saved_run.h"
#include "schedule/states.h"
#include "schedule/traffic.h"
#include "unit.h"

#define ASP "parallel.strategy=asp "
#define SSP "parallel.strategy=ssp "

/* ---- runs ---- */

/* It reads what it has pushed: its gradient is of the newest weights, and the rate is the whole. */
TEST(one_worker_trains_as_one_rank)
{
    static const char *const more[] = {"optimizer.clip_norm=0.01 ", "precision.compute=bf16 "};
    for (int i = 0; i < 2; i++) {
        char words[400];
        snprintf(words, sizeof words, "%straining.steps=4 parallel.data=1", more[i]);
        runs_train("llama", "alone", 1, words);
        strcat(words, " parallel.servers=2 " ASP);
        runs_train("llama", "pushed", 3, words);
        assert_true(runs_same("alone", "pushed", 4));
        runs_remove("alone");
        runs_remove("pushed");
    }
}

TEST(no_staleness_is_synchronous)
{
#define RUN "training.steps=4 parallel.data=2 parallel.servers=2 parallel.strategy="
    runs_train("gpt2", "synchronous", 4, RUN "parameter_server");
    runs_train("gpt2", "bound", 4, RUN "ssp parallel.staleness=0");
    assert_true(runs_same("synchronous", "bound", 4));
    runs_remove("synchronous");
    runs_remove("bound");
#undef RUN
}

/* One worker's order is the only one, so a run that is resumed has its bits; with more it goes on
 * as well, also with other servers and without. */
TEST(checkpoints_know_no_pushes)
{
#define RUN "training.steps=8 checkpoint.every=4 parallel.flush_every=2 "
    runs_train("gpt2", "whole", 2, RUN ASP "parallel.data=1");
    runs_train("gpt2", "parts", 2, RUN ASP "parallel.data=1");
    runs_remove_checkpoint("parts", 8);
    runs_train("gpt2", "parts", 3, RUN ASP "parallel.data=1 parallel.servers=2");
    assert_true(runs_same("whole", "parts", 8));
    static const struct {
        int ranks;
        const char *words;
    } others[] = {{4, RUN ASP "parallel.data=2 parallel.servers=2"},
                  {3, RUN SSP "parallel.data=2"},
                  {2, "training.steps=8 checkpoint.every=4 parallel.data=2"}};
    for (int i = 0; i < 3; i++) {
        runs_remove_checkpoint("parts", 8);
        runs_train("gpt2", "parts", others[i].ranks, others[i].words);
        assert_true(runs_has_checkpoint("parts", 8) && !runs_same("whole", "parts", 8));
    }
    runs_remove("whole");
    runs_remove("parts");
#undef RUN
}

static int64_t unequal_clocks[] = {5, 3};

/* Goes on from a checkpoint with these. */
static ech_status resume_clocks(void *context, int rank, ech_compared_run *run)
{
    bool *same = context;
    char to[400], from[450];
    char yaml[] = "none", json[] = "{}";
    ech_exec *exec = run->session.exec;
    snprintf(to, sizeof to, "%s/clocks", fixture_folder);
    snprintf(from, sizeof from, "%s/step-%08d", to, 4);
    ech_checkpoint_info info = {.step = 4,
                                .ranks = run->design->world,
                                .run_yaml = yaml,
                                .clock = unequal_clocks,
                                .clocks = 2,
                                .text[ECH_FILE_CONFIG] = {json, strlen(json)}};
    ech_exec_set_save(exec, to, &info, 0, 0, -1);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_SAVE, 4));
    ECH_TRY(saved_run_restore(from, exec));
    same[rank] = memcmp(ech_exec_clocks(exec), unequal_clocks, sizeof unequal_clocks) == 0;
    return ECH_OK;
}

/* Each worker goes on with the samples after its own last push. */
TEST(clocks_are_resumed)
{
    bool same[3] = {false};
    grid_run("gpt2", ASP "parallel.data=2 checkpoint.background=false", resume_clocks, same);
    for (int rank = 0; rank < 3; rank++) assert_true(same[rank]);
    char path[512];
    ech_checkpoint *checkpoint;
    runs_train("gpt2", "clocked", 3, ASP "parallel.data=2 training.steps=4");
    runs_path(path, sizeof path, "clocked", 4, "");
    assert_int_equal(ech_checkpoint_open(path, true, &checkpoint), ECH_OK);
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    assert_int_equal(info->clocks, 2);
    assert_int_equal(info->clock[0] + info->clock[1], 2 * 4);
    ech_checkpoint_close(checkpoint);
    runs_remove("clocked");
}

/* ---- rates ---- */

/* Gradients are clipped to almost nothing: what pushes leave of a weight is what their rates and
 * decay do. */
static ech_status decay(void *context, int rank, ech_compared_run *run)
{
    double *worst = context;
    const ech_config *config = run->design->config;
    const int steps = run->design->schedule->turns,
              workers = ech_layout_workers(run->design->layout);
    if (rank > 0) return ech_exec_run(run->session.exec, ECH_LIST_TRAIN, 0);
    ech_tensor x = ech_exec_param(run->session.exec, 0); /* a table, which decays */
    int64_t n = ech_tensor_count(&x);
    ECH_FREED double *before = ech_calloc((size_t)n, sizeof *before);
    ech_exec_read(run->session.exec, &x, before);
    ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, 0));
    double left = 1;
    for (int step = 0; step < steps; step++) {
        double rate = ech_learning_rate(config, ech_curve_of(config), step + 1) / workers;
        for (int w = 0; w < workers; w++) left *= 1 - rate * config->optimizer.weight_decay;
    }
    ECH_ASSERT(left < 0.9);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs(((double *)x.data)[i] - left * before[i]);
        if (!(off <= *worst)) *worst = off;
    }
    return ECH_OK;
}

/* As many pushes as there are workers are a training step, and move weights as far as one of its
 * rate. */
TEST(pushes_share_the_rate)
{
    double worst = 0;
    grid_run("gpt2",
             ASP "parallel.data=3 parallel.servers=2 training.micro_batch_size=1 training.steps=4 "
                 "training.global_batch_size=6 optimizer.name=sgd optimizer.schedule=linear "
                 "optimizer.learning_rate=0.25 optimizer.weight_decay=0.5 "
                 "optimizer.clip_norm=1e-20",
             decay, &worst);
    assert_true(worst < 1e-15);
}

/* ---- what is served, kept and sent ---- */

enum { RANKS = 5, WORKERS = 3, SERVERS = 2, STEPS = 4, PUSHES = WORKERS * STEPS };
static struct {
    ech_serve serve[PUSHES];
    int serves;
    int64_t clock[WORKERS];             /* as the rank knows them */
    int64_t weights, states, gradients; /* bytes, of numbers without padding */
    int64_t sent, planned;              /* of gradients or weights, in a span */
    int64_t padded;                     /* all elements of buckets */
    int announced, served;              /* steps of the train list */
    double staleness;                   /* summed over pushes, as the rank reads it */
    bool odd;                           /* ranks wait for a strange share of the time */
} seen[RANKS];

static ech_status look(void *context, int rank, ech_compared_run *run)
{
    (void)context;
    ech_exec *exec = run->session.exec;
    const ech_plan *plan = run->session.plan;
    const ech_list *train = &plan->list[ECH_LIST_TRAIN];
    memset(&seen[rank], 0, sizeof seen[rank]);
    seen[rank].weights = ech_plan_number_bytes(plan, ECH_MEMORY_PARAMETERS);
    seen[rank].states = ech_plan_number_bytes(plan, ECH_MEMORY_OPTIMIZER);
    seen[rank].gradients = ech_plan_number_bytes(plan, ECH_MEMORY_GRADIENTS);
    for (size_t b = 0; b < plan->bucket.n; b++) seen[rank].padded += plan->bucket.at[b].elements;
    seen[rank].announced = grid_steps(train, ECH_STEP_ANNOUNCE);
    seen[rank].served = grid_steps(train, ECH_STEP_SERVE);
    int64_t before = ech_exec_reduce_count(exec).bytes;
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, 0));
    seen[rank].sent = ech_exec_reduce_count(exec).bytes - before;
    for (int step = 0; step < STEPS; step++) {
        const ech_readings *r = &ech_exec_readings(exec)[step];
        seen[rank].staleness += WORKERS * r->staleness;
        seen[rank].odd |= r->idle < 0 || r->idle > 1; /* or not known, of a first push */
    }
    memcpy(seen[rank].clock, ech_exec_clocks(exec), sizeof seen[rank].clock);
    const ech_serve *serves = ech_exec_serves(exec, &seen[rank].serves);
    for (int i = 0; i < seen[rank].serves && i < PUSHES; i++) {
        seen[rank].serve[i] = serves[i];
        seen[rank].serve[i].time = 0; /* each server has its own */
    }
    return ECH_OK;
}

/* A worker's clocks follow each other; a push has read what the one before has left; nobody is
 * further ahead than may be. */
static void check_serves(const ech_serve *serve, int n, int staleness)
{
    int clock[WORKERS] = {0}, read[WORKERS] = {0};
    assert_int_equal(n, PUSHES);
    for (int turn = 0; turn < n; turn++) {
        int w = serve[turn].worker, least = PUSHES, most = 0;
        assert_true(w >= 0 && w < WORKERS && !serve[turn].withheld);
        assert_int_equal(serve[turn].clock, clock[w]);
        assert_int_equal(serve[turn].read, read[w]);
        clock[w]++;
        read[w] = turn + 1;
        for (int i = 0; i < WORKERS; i++) {
            if (clock[i] < least) least = clock[i];
            if (clock[i] > most) most = clock[i];
        }
        assert_true(most - least <= staleness);
    }
    for (int w = 0; w < WORKERS; w++) {
        assert_true(clock[w] >= 1 && (staleness >= PUSHES || clock[w] == STEPS));
        for (int r = 0; r < RANKS; r++) assert_int_equal(seen[r].clock[w], clock[w]);
    }
}

static void check_staleness(const ech_serve *serve, int n)
{
    double sum = 0;
    for (int turn = 0; turn < n; turn++) sum += turn - serve[turn].read;
    for (int r = 0; r < RANKS; r++) assert_true(fabs(seen[r].staleness - sum) < 1e-9);
}

TEST(every_push_is_served_once)
{
    static const char *const strategies[] = {ASP, SSP "parallel.staleness=1"};
    static const int staleness[] = {PUSHES, 1};
    static const int most[] = {PUSHES - (WORKERS - 1), STEPS}; /* pushes that a worker may have */
    for (int i = 0; i < 2; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "%s parallel.data=3 parallel.servers=2 training.micro_batch_size=1 "
                 "training.global_batch_size=6 training.steps=4 parallel.delay=1:0.005",
                 strategies[i]);
        grid_run("llama", words, look, NULL);
        for (int r = 0; r < RANKS; r++) {
            bool serves = r >= WORKERS;
            assert_int_equal(seen[r].announced, serves ? 0 : most[i]);
            assert_int_equal(seen[r].served, serves ? PUSHES : 0);
            if (serves) check_serves(seen[r].serve, seen[r].serves, staleness[i]);
            assert_true((serves || seen[r].serves == 0) && !seen[r].odd);
        }
        assert_memory_equal(seen[WORKERS].serve, seen[WORKERS + 1].serve,
                            sizeof seen[WORKERS].serve); /* all servers have one order */
        check_staleness(seen[WORKERS].serve, seen[WORKERS].serves);
    }
}

/* A worker pushes S and pulls S each time, a server has S / n of each; at a span's end each worker
 * is sent the weights once more. */
TEST(roles_keep_and_send_what_is_theirs)
{
    grid_run("llama",
             ASP "parallel.data=3 parallel.servers=2 training.micro_batch_size=1 "
                 "training.global_batch_size=6 training.steps=4",
             look, NULL);
    int64_t all = seen[0].weights, item = (int64_t)sizeof(double), states = 0, weights = 0;
    int64_t S = seen[0].padded * item;
    for (int r = 0; r < RANKS; r++) {
        bool serves = r >= WORKERS;
        assert_int_equal(seen[r].padded, seen[0].padded);
        assert_int_equal(seen[r].sent,
                         serves ? (PUSHES + WORKERS) * S / SERVERS : seen[r].clock[r] * S);
        if (!serves) {
            assert_true(seen[r].weights == all && seen[r].gradients == all && !seen[r].states);
            continue;
        }
        weights += seen[r].weights;
        states += seen[r].states;
    }
    assert_true(all > 100000 && weights == all && states == 2 * all); /* two moments of AdamW */
}

/* ---- what is refused ---- */

TEST(impossible_pushes_are_errors)
{
    static const runs_refusal refused[] = {
        {ASP "parallel.pipeline=2", "each worker must have the whole model"},
        {ASP "parallel.tensor=2", "each worker must have the whole model"},
        {ASP "parallel.zero=1", "use parallel.zero = 0"},
        {ASP "precision.compute=fp16 precision.loss_scale=auto", "precision.loss_scale"},
        {ASP "optimizer.name=adafactor", "use optimizer.name = adamw"},
        {ASP "parallel.staleness=1", "set parallel.strategy = ssp"},
        {ASP "training.steps=4 parallel.flush_every=3", "at whose end a span of pushes can"},
        {"parallel.server_sync=false", "set parallel.strategy = asp"},
    };
    RUNS_REFUSE(4, "", refused);
}

ALL_TESTS(grid_setup, fixture_teardown)
