/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = hogwild: each gradient is that of the weights which its rank had read, and
 * the final weights are the sum of all updates. One rank has the bits of serial SGD, and several
 * reach its loss. Ranks send nothing, and begin and end a span together. Shared memory exists once,
 * as planned. A turn reads and writes only the rows of its batch in a table that is not tied.
 */

#include "app/grid_run.h"
#include "app/runs.h"
#include "optim/optim.h"
#include "schedule/traffic.h"
#include "share.h"
#include "unit.h"

#define SGD     "optimizer.name=sgd optimizer.weight_decay=0 "
#define HOGWILD SGD "parallel.strategy=hogwild "
#define UNTIED  "model.tie_word_embeddings=false "

/* ---- verify ---- */

static const struct {
    const char *family, *words;
} grids[] = {
    {"gpt2", HOGWILD "parallel.data=3 training.micro_batch_size=1 training.global_batch_size=6 "
                     "parallel.flush_every=2 optimizer.clip_norm=0.01"},
    {"llama", HOGWILD "parallel.data=2 training.steps=4 parallel.flush_every=4 "
                      "model.tie_word_embeddings=true parallel.bucket_bytes=1000 "
                      "memory.recompute=full parallel.device=walled"},
    {"qwen3",
     HOGWILD "parallel.data=4 training.micro_batch_size=1 model.head_dim=4 "
             "parallel.flush_every=1 data.shards=static optimizer.rates=*.1.*=0.5 " UNTIED},
    {"gpt2", HOGWILD "parallel.data=1 memory.sequence_chunks=2 parallel.schedule=gpipe"},
    {"llama", HOGWILD UNTIED
     "parallel.data=2 training.steps=6 parallel.flush_every=3 training.micro_batch_size=1 "
     "training.global_batch_size=6 parallel.device=walled optimizer.clip_norm=0.01"},
    {"gpt2", HOGWILD UNTIED
     "parallel.data=3 training.steps=4 parallel.flush_every=2 "
     "training.global_batch_size=12 training.micro_batch_size=2 memory.sequence_chunks=2 "
     "parallel.schedule=gpipe optimizer.rates=*wte*=0.5"},
};

/* How many tables of a plan have lists of rows. */
static int listed_of(const char *family, const char *words)
{
    grid_plans g = grid_plan(family, words);
    int n = 0;
    for (size_t b = 0; b < g.plan[0]->bucket.n; b++)
        n += ech_bucket_is_listed(&g.plan[0]->bucket.at[b]);
    grid_plans_free(&g);
    return n;
}

TEST(nothing_that_ranks_add_is_lost)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (!share_takes_of(i, sizeof grids / sizeof *grids)) continue;
        ech_verification v = grid_verify(grids[i].family, grids[i].words, 4);
        assert_int_equal(v.open, !strstr(grids[i].words, "parallel.data=1"));
        assert_int_equal(listed_of(grids[i].family, grids[i].words),
                         strstr(grids[i].words, UNTIED) != NULL);
    }
}

/* ---- runs ---- */

TEST(one_rank_is_serial)
{
#define RUN                                                                                        \
    "training.steps=8 checkpoint.every=4 optimizer.clip_norm=0.1 training.micro_batch_size=1 "
    static const char *const more[] = {RUN "model.tie_word_embeddings=true ", RUN UNTIED,
                                       RUN UNTIED "precision.compute=fp32 "};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char serial[400], hogwild[400];
        snprintf(serial, sizeof serial, "%s%s", more[i], SGD);
        snprintf(hogwild, sizeof hogwild, "%s%sparallel.flush_every=4", more[i], HOGWILD);
        runs_train("llama", "serial", 1, serial);
        runs_train("llama", "hogwild", 1, hogwild);
        assert_true(runs_same_file("serial", "hogwild", 8, runs_model));
        runs_remove_checkpoint("hogwild", 8);
        runs_train("llama", "hogwild", 1, hogwild); /* resumed */
        assert_true(runs_same_file("serial", "hogwild", 8, runs_model));
        runs_remove("serial");
        runs_remove("hogwild");
    }
}

/* Whatever the order. */
TEST(several_reach_the_loss_of_one)
{
#define LONG                                                                                       \
    "training.steps=40 training.validate_every=40 training.global_batch_size=12 "                  \
    "training.micro_batch_size=1 optimizer.learning_rate=0.3 optimizer.warmup_steps=0 "            \
    "model.resid_pdrop=0 model.attn_pdrop=0 "
    double first =
        runs_loss("gpt2", "first", 1, LONG SGD "training.steps=1 training.validate_every=1");
    double serial = runs_loss("gpt2", "serial", 1, LONG SGD);
    double hogwild = runs_loss("gpt2", "hogwild", 3, LONG HOGWILD "parallel.flush_every=10");
    assert_true(serial < 0.97 * first);
    if (!(fabs(hogwild - serial) <= 0.02 * serial)) fail_msg("%g, serial %g", hogwild, serial);
}

/* On as many ranks as there are: a checkpoint knows none. */
TEST(runs_go_on_on_other_ranks)
{
#define SPANS "parallel.flush_every=2 checkpoint.every=4 training.global_batch_size=12 " HOGWILD
    runs_train("gpt2", "run", 3, "training.steps=4 " SPANS);
    runs_train("gpt2", "run", 2, "training.steps=8 " SPANS);
    runs_train("gpt2", "run", 1, "training.steps=12 " SPANS);
    assert_true(runs_has_checkpoint("run", 8) && runs_has_checkpoint("run", 12));
    runs_remove("run");
}

/* ---- what there is, and what is sent ---- */

enum { RANKS = 4, TURNS = 3 };
static struct {
    int64_t common, weights, states; /* bytes of the plan */
    int64_t shared;
    int adds, pulls, meets;
} seen[RANKS];

static ech_status look(void *context, int rank, ech_compared_run *run)
{
    (void)context;
    ech_exec *exec = run->session.exec;
    const ech_plan *plan = run->session.plan;
    const ech_list *train = &plan->list[ECH_LIST_TRAIN];
    int64_t peak[ECH_MEMORY_KINDS];
    memset(&seen[rank], 0, sizeof seen[rank]);
    ech_comm_count before = ech_exec_reduce_count(exec);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, 0));
    const ech_config *config = run->design->config;
    for (int turn = 0; turn < TURNS; turn++) /* the step's, not the rank's share */
        assert_true(ech_exec_readings(exec)[turn].learning_rate ==
                    ech_learning_rate(config, ech_curve_of(config), turn + 1));
    assert_int_equal(ech_exec_reduce_count(exec).bytes - before.bytes, 0);
    assert_int_equal(ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes, 0);
    assert_true(fixture_peaks_are_planned(&run->session, FIXTURE_TRAINED));
    ech_exec_peaks(exec, peak);
    seen[rank].common = peak[ECH_MEMORY_COMMON];
    seen[rank].weights = peak[ECH_MEMORY_PARAMETERS];
    seen[rank].states = peak[ECH_MEMORY_OPTIMIZER];
    seen[rank].shared = plan->arena_bytes[ECH_SPACE_SHARED];
    seen[rank].adds = grid_steps(train, ECH_STEP_ADD);
    seen[rank].pulls = grid_steps(train, ECH_STEP_PULL);
    seen[rank].meets = grid_steps(train, ECH_STEP_MEET);
    assert_int_equal(seen[rank].adds, TURNS * (int)plan->bucket.n);
    assert_int_equal(seen[rank].pulls, (TURNS + 1) * (int)plan->bucket.n);
    return ECH_OK;
}

TEST(ranks_share_memory_and_send_nothing)
{
    grid_run("llama",
             HOGWILD "parallel.data=4 training.micro_batch_size=1 training.steps=3 "
                     "parallel.flush_every=3",
             look, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_true(seen[r].common == seen[0].shared && seen[r].shared == seen[0].shared);
        assert_true(seen[r].weights == seen[r].common && seen[r].common > 100000);
        assert_true(seen[r].states == 0 && seen[r].meets == 2);
    }
}

/* ---- what the checker finds ---- */

TEST(faults_are_found)
{
    grid_plans g = grid_plan("gpt2", HOGWILD "parallel.data=2 parallel.flush_every=2");
    ech_plan *plan; /* without accesses, which are checked first */
    assert_int_equal(ech_design_outline(&g.design, 1, false, &plan), ECH_OK);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int buckets = (int)plan->bucket.n;

    ech_step *add = grid_step(list, ECH_STEP_ADD, 0);
    int afters = add->afters;
    add->afters = 0;
    grid_refuse(plan, "does not wait until all ranks have offered");
    add->afters = afters;

    ech_step *meet = grid_step(list, ECH_STEP_MEET, 1);
    int *after = &list->after.at[meet->first_after], was = *after;
    *after = (int)(grid_step(list, ECH_STEP_ADD, 0) - list->step.at);
    grid_refuse(plan, "does not wait for step");
    *after = was;

    ech_step *pull = grid_step(list, ECH_STEP_PULL, 2 * buckets);
    pull->afters = 0;
    grid_refuse(plan, "does not wait until all ranks have added");
    pull->afters = 1;

    ech_step *offer = grid_step(list, ECH_STEP_OFFER, buckets - 1);
    offer->kind = ECH_STEP_READ;
    grid_refuse(plan, "comes before all ranks have pulled all weights");
    offer->kind = ECH_STEP_OFFER;

    add = grid_step(list, ECH_STEP_ADD, buckets);
    int index = add->index;
    add->index = index ? 0 : 1;
    grid_refuse(plan, "comes where its bucket's update is next");
    add->index = index;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_plan_destroy(plan);
    grid_plans_free(&g);
}

static ech_access *access_of(ech_list *list, const ech_step *step, int value)
{
    ech_access *access = &list->access.at[step->first_access];
    while (access->value != value) access++;
    return access;
}

static bool has_access(const ech_list *list, const ech_step *step, int value)
{
    for (int a = 0; a < step->accesses; a++)
        if (list->access.at[step->first_access + a].value == value) return true;
    return false;
}

/* Of the table's steps: a turn's list comes before it is used, and not before the last one in its
 * place was; the accesses are those of the turn. */
TEST(faults_of_lists_are_found)
{
    grid_plans g = grid_plan("llama", HOGWILD UNTIED
                             "training.steps=4 parallel.data=2 parallel.flush_every=4");
    ech_plan *plan = g.plan[1];
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    const ech_bucket *table = plan->bucket.at;
    assert_true(table->rows.most > 0);

    ech_step *made = grid_step(list, ECH_STEP_LIST_ROWS, 1);
    made->kind = ECH_STEP_COUNT;
    grid_refuse(plan, "does not know the rows of turn 1");
    made->kind = ECH_STEP_LIST_ROWS;
    made->turn = 2;
    grid_refuse(plan, "comes before the rows of turn 0 are added");
    made->turn = 1;
    ech_access *access = access_of(list, made, table->rows.value + 1);
    access->value = table->rows.value;
    grid_refuse(plan, "does not access the turn's list of bucket 0");
    access->value = table->rows.value + 1;

    static const ech_step_kind users[] = {ECH_STEP_NORM, ECH_STEP_ADD, ECH_STEP_PULL};
    for (int k = 0; k < 3; k++) {
        int s = 0; /* of turn 1, and the pull for it */
        bool pulls = users[k] == ECH_STEP_PULL;
        while (list->step.at[s].kind != users[k] || list->step.at[s].index ||
               list->step.at[s].turn != !pulls)
            s++;
        access = access_of(list, &list->step.at[s], table->rows.value + 1);
        access->value = table->rows.value;
        grid_refuse(plan, "does not access the turn's list of bucket 0");
        access->value = table->rows.value + 1;
    }
    int looks = 0; /* F and W of turn 1 */
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool is_block = step->block == 0 && step->turn == 1;
        if (!is_block || !has_access(list, step, table->rows.value + 1)) continue;
        access = access_of(list, step, table->rows.value + 1);
        access->value = table->rows.value;
        grid_refuse(plan, "does not access the turn's list of bucket 0");
        access->value = table->rows.value + 1;
        looks++;
    }
    assert_int_equal(looks, 2);
    static const ech_step_kind zeroing[] = {ECH_STEP_OFFER, ECH_STEP_ADD};
    for (int k = 0; k < 2; k++) {
        int s = 0;
        while (list->step.at[s].kind != zeroing[k] || list->step.at[s].index) s++;
        access = access_of(list, &list->step.at[s], list->summed[0]);
        access->write = false;
        grid_refuse(plan, "does not access the gradients of bucket 0");
        access->write = true;
    }
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    grid_plans_free(&g);
}

ALL_TESTS(grid_setup, fixture_teardown)
