/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = local_sgd, diloco, gossip and easgd: replicas that take steps of their own
 * and meet. With plain SGD and a meeting after each step they are synchronous training; nothing
 * is sent between replicas from meeting to meeting, and where they meet the planned bytes. The
 * lattice checks that on any grid they are their serial replay, probes/resumes.c that a resume goes
 * on as if nothing had been.
 */

#include "app/grid_run.h"
#include "app/runs.h"
#include "app/train/trained.h"
#include "schedule/traffic.h"
#include "unit.h"

/* ---- runs ---- */

#define RUN                                                                                        \
    "precision.compute=fp64 optimizer.name=sgd optimizer.clip_norm=0 optimizer.learning_rate=0.1 " \
    "training.steps=4 "

/* One step from common weights, all of as many tokens: the mean of what replicas make of their own
 * is what they make of the mean gradient. */
TEST(meeting_in_each_step_is_synchronous)
{
    static const char *const more[] = {"parallel.data=2", "parallel.data=3",
                                       "parallel.data=2 parallel.tensor=2"};
    static const int ranks[] = {2, 3, 4};
    for (int i = 0; i < 3; i++) {
        char words[400];
        snprintf(words, sizeof words, RUN "%s", more[i]);
        runs_train("gpt2", "together", ranks[i], words);
        snprintf(words, sizeof words, RUN "%s parallel.strategy=local_sgd", more[i]);
        runs_train("gpt2", "apart", ranks[i], words);
        assert_true(runs_apart("apart", "together", 4, runs_model) < 1e-11);
        snprintf(words, sizeof words, RUN "%s parallel.strategy=local_sgd parallel.sync_every=4",
                 more[i]);
        runs_train("gpt2", "seldom", ranks[i], words);
        assert_true(runs_apart("seldom", "together", 4, runs_model) > 1e-9); /* it is another */
        runs_remove("together");
        runs_remove("apart");
        runs_remove("seldom");
    }
}

/* Replicas have met where weights come from. */
TEST(begins_from_weights_of_others)
{
    char words[600];
    runs_train("gpt2", "first", 1, RUN);
    for (int apart = 0; apart < 2; apart++) {
        snprintf(words, sizeof words,
                 RUN "parallel.data=2 training.seed=5 model.init_from=%s/first%s", fixture_folder,
                 apart ? " parallel.strategy=local_sgd" : "");
        runs_train("gpt2", apart ? "apart" : "together", 2, words);
    }
    assert_true(runs_apart("apart", "together", 4, runs_model) < 1e-11);
    runs_remove("first");
    runs_remove("apart");
    runs_remove("together");
}

/* The first outer step goes from there, too, and not from what the run would draw. */
TEST(outer_steps_begin_there)
{
    char words[600];
    const char *run = RUN "parallel.data=2 parallel.strategy=diloco parallel.sync_every=2";
    runs_train("gpt2", "first", 1, RUN "training.steps=0");
    runs_train("gpt2", "own", 2, run);
    snprintf(words, sizeof words, "%s model.initializer_range=0.5 model.init_from=%s/first", run,
             fixture_folder);
    runs_train("gpt2", "taken", 2, words);
    assert_true(runs_apart("taken", "own", 4, runs_model) < 1e-11);
    runs_remove("first");
    runs_remove("own");
    runs_remove("taken");
}

TEST(averaging_is_an_outer_step_of_one)
{
    runs_train("gpt2", "local", 2,
               RUN "parallel.data=2 parallel.sync_every=2 parallel.strategy=local_sgd");
    runs_train("gpt2", "outer", 2,
               RUN "parallel.data=2 parallel.sync_every=2 parallel.strategy=diloco "
                   "parallel.outer_learning_rate=1 parallel.outer_momentum=0");
    assert_true(runs_same("local", "outer", 4));
    runs_remove("local");
    runs_remove("outer");
}

/* 999 targets in samples of 9: 111 of them, 12 a step, so the tenth step ends the epoch and begins
 * the next one. */
TEST(an_epoch_is_a_number_of_steps)
{
    static const char words[] = RUN "parallel.data=3 data.shards=static checkpoint.every=10 "
                                    "parallel.strategy=local_sgd training.steps=20";
    static const char *const every[] = {"epoch", "10", "20"}, *const name[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        char more[500];
        snprintf(more, sizeof more, "%s parallel.sync_every=%s%s", words, every[i],
                 i == 2 ? " checkpoint.every=20" : "");
        runs_train("gpt2", name[i], 3, more);
        if (i > 0) continue;
        runs_remove_checkpoint("a", 20);
        runs_train("gpt2", "a", 3, more);
    }
    assert_true(runs_same("a", "b", 10) && runs_same("a", "b", 20) && !runs_same("a", "c", 20));
    for (int i = 0; i < 3; i++) runs_remove(name[i]);
}

TEST(epochs_that_cannot_be_are_errors)
{
    static const runs_refusal all[] = {
        {"parallel.strategy=diloco training.steps=15",
         "not a multiple of parallel.sync_every = 10, after which all replicas have the same "
         "weights; use 20"},
        {"parallel.strategy=gossip training.global_batch_size=111 parallel.data=3",
         "all replicas are averaged after each step"},
        {"", "this strategy reduces gradients in every step"},
    };
    RUNS_REFUSE(3, "parallel.data=3 parallel.sync_every=epoch", all);
    assert_int_not_equal(runs_try("gpt2", "refused", 3,
                                  "parallel.data=3 parallel.sync_every=epoch "
                                  "parallel.strategy=diloco data.train=nowhere"),
                         ECH_OK);
    assert_non_null(strstr(ech_last_error(), "nowhere"));
}

/* Checkpoints have what each replica's optimizer keeps; other numbers of replicas begin with the
 * mean. A learning rate of 0 and no gradient's part of the next step leave that: beta1 is as good
 * as 1. */
TEST(others_go_on_with_the_mean)
{
    static const char tensor[] = "model.layers.0.mlp.up_proj.weight.exp_avg";
    char words[400];
    snprintf(words, sizeof words,
             "precision.compute=fp64 training.steps=2 checkpoint.every=2 parallel.data=2 "
             "parallel.strategy=diloco parallel.sync_every=2");
    runs_train("llama", "two", 2, words);
    int64_t n, m;
    ech_dtype dtype;
    double *two = runs_tensor("two", 2, runs_state, tensor, &dtype, &n);
    snprintf(words, sizeof words,
             "precision.compute=fp64 training.steps=4 checkpoint.every=4 parallel.data=3 "
             "training.global_batch_size=12 optimizer.beta1=0.999999 parallel.strategy=diloco "
             "parallel.sync_every=2");
    runs_train("llama", "two", 3, words);
    double *three = runs_tensor("two", 4, runs_state, tensor, &dtype, &m);
    assert_int_equal(dtype, ECH_F64);
    assert_true(n > 100 && 2 * m == 3 * n);
    double apart = 0, between = 0, size = 0;
    for (int64_t i = 0; i < n / 2; i++) {
        double mean = (two[i] + two[n / 2 + i]) / 2;
        size = fmax(size, fabs(mean));
        between = fmax(between, fabs(two[i] - two[n / 2 + i]));
        for (int r = 0; r < 3; r++) apart = fmax(apart, fabs(three[r * (m / 3) + i] - mean));
    }
    assert_true(between > 1e-2 * size && apart < 1e-3 * size && apart > 0);
    free(two);
    free(three);
    runs_remove("two");
}

/* Who is asked to stop does so where replicas have weights in common. */
TEST(stops_where_replicas_meet)
{
    runs_train("gpt2", "late", 2,
               RUN "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2 "
                   "training.time_limit=0.000001");
    assert_true(runs_has_checkpoint("late", 2) && !runs_has_checkpoint("late", 4));
    runs_remove("late");
}

static ech_status count_params(ech_trained *trained, void *context)
{
    *(size_t *)context = trained->design.model->param.n;
    return ECH_OK;
}

/* `sample` and `eval` have one rank, which keys of replicas are not for. */
TEST(one_rank_reads_what_replicas_trained)
{
    static const char *const more[] = {
        "parallel.strategy=local_sgd", "parallel.strategy=gossip parallel.sync_every=4",
        "parallel.strategy=diloco parallel.sync_every=2 "
        "parallel.outer_learning_rate=0.5 parallel.outer_momentum=0"};
    char path[300];
    snprintf(path, sizeof path, "%s/read", fixture_folder);
    for (int i = 0; i < 3; i++) {
        char words[400];
        size_t params = 0;
        snprintf(words, sizeof words, RUN "parallel.data=2 %s", more[i]);
        runs_train("gpt2", "read", 2, words);
        assert_int_equal(ech_trained_run(&(ech_trained_options){.path = path, .samples = 1},
                                         count_params, &params),
                         ECH_OK);
        assert_true(params > 10);
        runs_remove("read");
    }
}

/* ---- weights of their own ---- */

/* With b = 1 two replicas move half of the way to the center, which becomes their mean. So after a
 * meeting the sum of their weights is the sum of the old and the new center. A resume continues
 * from their own weights. */
TEST(replicas_keep_weights_of_their_own)
{
    static const char tensor[] = "transformer.h.0.mlp.c_fc.weight";
    const char *run = RUN "parallel.data=2 parallel.strategy=easgd parallel.sync_every=2 "
                          "parallel.outer_learning_rate=1 checkpoint.every=2";
    char anchor[100];
    snprintf(anchor, sizeof anchor, "%s.anchor", tensor);
    runs_train("gpt2", "elastic", 2, run);
    int64_t n, all;
    ech_dtype dtype;
    double *center[2], *own[2], apart = 0, wrong = 0;
    for (int i = 0; i < 2; i++) {
        center[i] = runs_tensor("elastic", 2 + 2 * i, runs_model, tensor, &dtype, &n);
        own[i] = runs_tensor("elastic", 2 + 2 * i, runs_state, anchor, &dtype, &all);
        assert_true(n > 100 && all == 2 * n);
    }
    for (int64_t i = 0; i < n; i++) {
        apart = fmax(apart, fabs(own[1][i] - own[1][n + i]));
        wrong = fmax(wrong, fabs(own[1][i] + own[1][n + i] - center[0][i] - center[1][i]));
    }
    assert_true(apart > 1e-6 && wrong < 1e-14);
    for (int i = 0; i < 2; i++) {
        free(center[i]);
        free(own[i]);
    }
    runs_train("gpt2", "whole", 2, run);
    runs_remove_checkpoint("elastic", 4);
    runs_train("gpt2", "elastic", 2, run);
    assert_true(runs_same("elastic", "whole", 4));
    runs_remove("elastic");
    runs_remove("whole");
}

/* ---- what is sent ---- */

TEST(bytes_are_sent_where_replicas_meet)
{
    static const struct {
        const char *words;
        bool sums; /* ranks of a replica add to gradients: others are as they were */
    } all[] = {{"parallel.data=4", false},
               {"parallel.data=2 parallel.pipeline=2 parallel.reduction=ring", false},
               {"parallel.data=2 parallel.context=2", true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char words[300];
        snprintf(words, sizeof words, "parallel.strategy=diloco %s", all[i].words);
        grid_plans g = grid_plan("llama", words);
        for (int r = 0; r < g.ranks; r++) {
            ech_traffic traffic[ECH_TRAFFIC_AXES];
            ech_plan_list_traffic(g.plan[r], ECH_LIST_SYNC, traffic);
            int64_t amid = ech_plan_traffic_along(g.plan[r], ECH_TRAFFIC_DATA).bytes;
            assert_true(ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes > 0);
            assert_int_equal(amid > 0, all[i].sums);
        }
        grid_plans_free(&g);
    }
}

/* ---- gossip ---- */

enum { RANKS = 8 };

enum { MOST = 40000, GOSSIPS = 6 };

/* What a rank has seen of its replica: all parameters side by side. */
typedef struct seen {
    double weights[GOSSIPS + 1][MOST], gradient[GOSSIPS][MOST];
    double rate[GOSSIPS];
    int64_t n, sent, planned;
} seen;

typedef struct gossip {
    seen *of;   /* [RANKS] */
    bool still; /* the last steps have no training: weights are mixed alone */
} gossip;

typedef struct watch {
    seen *out;
    int step;
} watch;

static void take_gradients(void *context, ech_exec *exec, const ech_step *step)
{
    watch *w = context;
    double *at = w->out->gradient[w->step];
    if (step->kind != ECH_STEP_CLIP) return;
    for (int64_t n = 0, p = 0; n < w->out->n; p++) {
        ech_tensor g = ech_exec_gradient(exec, (int)p);
        ech_exec_read(exec, &g, at + n);
        n += ech_tensor_count(&g);
    }
}

static void take_weights(const ech_compared_run *run, seen *out, int step)
{
    int64_t n = 0;
    for (int p = 0; p < (int)run->design->model->param.n; p++) {
        ech_tensor x = ech_exec_param(run->session.exec, p);
        ECH_ASSERT(n + ech_tensor_count(&x) <= MOST);
        ech_exec_read(run->session.exec, &x, &out->weights[step][n]);
        n += ech_tensor_count(&x);
    }
    out->n = n;
}

static ech_status train_and_mix(void *context, int rank, ech_compared_run *run)
{
    const gossip *g = context;
    ech_exec *exec = run->session.exec;
    seen *out = &g->of[rank];
    watch w = {.out = out};
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    ech_plan_list_traffic(run->session.plan, ECH_LIST_GOSSIP, traffic);
    out->planned = ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes;
    take_weights(run, out, 0);
    for (w.step = 0; w.step < GOSSIPS; w.step++) {
        bool trains = !g->still || w.step < 2;
        ech_exec_observe(exec, take_gradients, &w);
        if (trains) ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, w.step));
        if (trains) out->rate[w.step] = ech_exec_readings(exec)->learning_rate;
        ech_exec_observe(exec, NULL, NULL);
        if (!g->still || w.step >= 2) ECH_TRY(ech_exec_run(exec, ECH_LIST_GOSSIP, w.step));
        take_weights(run, out, w.step + 1);
    }
    out->sent =
        ech_exec_channel_count(exec, ECH_GROUP_REPLICAS, ECH_LANE_REDUCE, ECH_COMM_COLLECTIVES)
            .bytes;
    return ECH_OK;
}

static seen replicas[RANKS];

static void gossip_run(int data, bool still)
{
    char words[300];
    gossip g = {.of = replicas, .still = still};
    snprintf(words, sizeof words,
             "optimizer.name=sgd optimizer.clip_norm=0 optimizer.weight_decay=0 training.steps=6 "
             "optimizer.learning_rate=0.5 parallel.data=%d training.micro_batch_size=1 "
             "training.global_batch_size=%d parallel.strategy=gossip parallel.sync_every=6",
             data, data);
    grid_run("gpt2", words, train_and_mix, &g);
}

/* The mean over replicas of an element, of what each has at a step. */
static double mean_of(int data, int64_t i, int step, bool gradient)
{
    double sum = 0;
    for (int r = 0; r < data; r++)
        sum += gradient ? replicas[r].gradient[step][i] : replicas[r].weights[step][i];
    return sum / data;
}

/* Of the weights from their mean, squared and summed. */
static double spread(int data, int step)
{
    double sum = 0;
    for (int64_t i = 0; i < replicas[0].n; i++)
        for (int r = 0; r < data; r++) {
            double d = replicas[r].weights[step][i] - mean_of(data, i, step, false);
            sum += d * d;
        }
    return sqrt(sum);
}

/* Mixing leaves the mean: it moves as averaged SGD does, by the mean of what replicas find where
 * they are. */
TEST(the_mean_moves_as_averaged_sgd)
{
    for (int data = 2; data <= 5; data++) {
        double apart = 0, moved = 0;
        gossip_run(data, false);
        for (int step = 0; step < GOSSIPS; step++)
            for (int64_t i = 0; i < replicas[0].n; i++) {
                double before = mean_of(data, i, step, false);
                double wanted = before - replicas[0].rate[step] * mean_of(data, i, step, true);
                apart = fmax(apart, fabs(mean_of(data, i, step + 1, false) - wanted));
                moved = fmax(moved, fabs(wanted - before));
            }
        if (apart > 1e-12 || moved < 1e-4) fail_msg("%d: %g of %g", data, apart, moved);
        assert_true(data == 3 ? spread(data, GOSSIPS) < 1e-12 : spread(data, GOSSIPS) > 1e-6);
        for (int r = 0; r < data; r++) { /* all weights, to each of two neighbours, of fp64 */
            assert_true(replicas[r].sent >= GOSSIPS * 2 * replicas[r].n * (int64_t)sizeof(double));
            assert_int_equal(replicas[r].sent, GOSSIPS * replicas[r].planned);
        }
    }
}

/* Of thirds around a ring of N the second eigenvalue is (1 + 2 cos(2 pi / N)) / 3. */
TEST(mixing_brings_replicas_together)
{
    for (int data = 2; data <= 6; data++) {
        double bound = fabs(1 + 2 * cos(2 * acos(-1) / data)) / 3;
        gossip_run(data, true);
        assert_true(spread(data, 2) > 1e-4);
        for (int step = 2; step < GOSSIPS; step++)
            assert_true(spread(data, step + 1) <= (bound + 1e-9) * spread(data, step) + 1e-12);
        for (int64_t i = 0; i < replicas[0].n; i++)
            assert_true(fabs(mean_of(data, i, 2, false) - mean_of(data, i, GOSSIPS, false)) <
                        1e-12);
    }
}

/* ---- what is refused ---- */

TEST(other_calendars_are_errors)
{
    static const char *const keys[] = {"training.steps=9", "training.validate_every=2",
                                       "training.check_every=4", "checkpoint.every=1"};
    for (int i = 0; i < 4; i++) {
        char words[300];
        snprintf(words, sizeof words,
                 "training.steps=12 optimizer.name=sgd parallel.data=2 parallel.strategy=diloco "
                 "parallel.sync_every=3 %s",
                 keys[i]);
        assert_int_equal(runs_try("gpt2", "refused", 2, words), i == 0 ? ECH_OK : ECH_EUSAGE);
        if (i > 0)
            assert_non_null(strstr(ech_last_error(), "not a multiple of parallel.sync_every = 3"));
    }
    runs_remove("refused");
}

/* A resume says which strategy's checkpoint it is. */
TEST(strategies_cannot_change)
{
    static const struct {
        const char *saved, *now, *said;
    } all[] = {{"", "parallel.strategy=diloco", "this one was saved with synchronous;"},
               {"parallel.strategy=local_sgd", "", "this one was saved with local_sgd;"},
               {"parallel.strategy=diloco", "parallel.strategy=local_sgd", "saved with diloco;"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char words[200];
        snprintf(words, sizeof words, "optimizer.name=sgd parallel.data=2 %s", all[i].saved);
        ech_config *saved = grid_config("gpt2", words);
        snprintf(words, sizeof words, "optimizer.name=sgd parallel.data=2 %s", all[i].now);
        grid_plans g = grid_plan("gpt2", words);
        const ech_param *param = &g.design.model->param.at[0];
        assert_int_equal(ech_optimizer_check_resume(saved, saved, param), ECH_OK);
        assert_int_equal(ech_optimizer_check_resume(saved, g.config, param), ECH_EUSAGE);
        if (!strstr(ech_last_error(), all[i].said)) fail_msg("%s", ech_last_error());
        grid_plans_free(&g);
        ech_config_destroy(saved);
    }
}

/* ---- what is read ---- */

typedef struct norms {
    int params;
    double own[2], read[2]; /* squares */
} norms;

static void add_squares(void *context, ech_exec *exec, const ech_step *step)
{
    norms *n = context;
    if (step->kind != ECH_STEP_CLIP) return;
    for (int p = 0; p < n->params; p++) {
        ech_tensor g = ech_exec_gradient(exec, p);
        for (int64_t i = 0; i < ech_tensor_count(&g); i++)
            n->own[0] += ((double *)g.data)[i] * ((double *)g.data)[i];
    }
}

static ech_status read_norm(void *context, int rank, ech_compared_run *run)
{
    norms *n = context, own = {.params = (int)run->design->model->param.n};
    ech_exec_observe(run->session.exec, add_squares, &own);
    ech_status status = ech_exec_run(run->session.exec, ECH_LIST_TRAIN, 0);
    n->own[rank] = own.own[0];
    double norm = ech_exec_readings(run->session.exec)->grad_norm;
    n->read[rank] = norm * norm;
    return status;
}

/* Of the norms of replicas the root mean square. */
TEST(norms_are_a_mean)
{
    norms n = {0};
    grid_run("gpt2", "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2", read_norm,
             &n);
    double mean = (n.own[0] + n.own[1]) / 2;
    assert_true(n.own[0] > 0 && fabs(n.own[0] / n.own[1] - 1) > 1e-6);
    for (int rank = 0; rank < 2; rank++) assert_true(fabs(n.read[rank] / mean - 1) < 1e-12);
}

ALL_TESTS(grid_setup, fixture_teardown)
