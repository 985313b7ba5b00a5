/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss scaling: a power of two changes no bit under any layout. An infinity on any rank withholds
 * the step on all ranks, and only the scale changes. Runs resume with their scale.
 */
#include <math.h>

#include <xxhash.h>

#include "app/grid_run.h"
#include "app/runs.h"
#include "base/json.h"
#include "share.h"
#include "unit.h"

enum { RANKS = 8, STEPS = 4 };

/* ---- the same bits ---- */

typedef struct outcome {
    XXH64_hash_t weights[RANKS]; /* and optimizer states */
    double loss[STEPS], norm[STEPS], clip[STEPS];
} outcome;

static XXH64_hash_t hash_of(ech_exec *exec, const ech_plan *plan)
{
    XXH64_hash_t hash = 0;
    for (int i = 0; i < (int)plan->model->param.n; i++) {
        if (plan->param[i].bucket < 0) continue;
        ech_tensor x = ech_exec_param(exec, i);
        hash = XXH3_64bits_withSeed(x.data, ech_tensor_bytes(&x), hash);
        for (int k = 0; k < plan->param[i].states; k++) {
            x = ech_exec_state(exec, i, k);
            hash = XXH3_64bits_withSeed(x.data, ech_tensor_bytes(&x), hash);
        }
    }
    return hash;
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    outcome *out = context;
    ech_exec *exec = run->session.exec;
    int turns = run->design->schedule->turns;
    for (int step = 0; step < STEPS; step += turns) {
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        for (int t = 0; t < turns && rank == 0; t++) {
            out->loss[step + t] = ech_exec_readings(exec)[t].loss;
            out->norm[step + t] = ech_exec_readings(exec)[t].grad_norm;
            out->clip[step + t] = ech_exec_readings(exec)[t].clip;
        }
    }
    out->weights[rank] = hash_of(exec, run->session.plan);
    return ECH_OK;
}

static const char *const grids[] = {
    "parallel.data=1",
    "parallel.data=2 parallel.reduction=ring",
    "parallel.data=2 parallel.pipeline=2 precision.reduce=bf16",
    "parallel.tensor=2 parallel.context=2 parallel.sequence=true",
    "parallel.pipeline=2 parallel.tensor=2 parallel.schedule=zero-bubble",
    "parallel.pipeline=2 parallel.schedule=pipedream model.tie_word_embeddings=false",
    "memory.sequence_chunks=2",
};

static outcome train_with(const char *grid, const char *scale)
{
    char words[500];
    outcome out = {0};
    snprintf(words, sizeof words,
             "training.steps=4 training.global_batch_size=8 training.micro_batch_size=1 "
             "precision.compute=fp32 parallel.flush_every=auto optimizer.clip_norm=0.02 "
             "precision.loss_scale=%s %s",
             scale, grid);
    grid_run("llama", words, train, &out);
    return out;
}

TEST(a_power_of_two_changes_no_bit)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (!share_takes()) continue;
        outcome one = train_with(grids[i], "1");
        outcome some = train_with(grids[i], "65536"), many = train_with(grids[i], "1099511627776");
        assert_true(one.clip[0] > 0 && one.clip[0] < 1);
        assert_memory_equal(&one, &some, sizeof one);
        assert_memory_equal(&one, &many, sizeof one);
        if (strstr(grids[i], "pipedream")) continue; /* its scale is fixed */
        outcome dynamic = train_with(grids[i], "auto");
        assert_memory_equal(&one, &dynamic, sizeof one);
    }
}

/* ---- an infinity on one rank ---- */

enum { BAD_STEPS = 3, INJECTED_STEPS = 1 + BAD_STEPS + 1 }; /* a good one before and after */

typedef struct injection {
    int rank, choice; /* of a block's parameters: the first or the last */
    float value;
    int injected; /* how often, on that rank */
    ech_readings readings[RANKS][INJECTED_STEPS];
    ech_scaler scaler[RANKS][INJECTED_STEPS];    /* after each */
    XXH64_hash_t weights[RANKS][INJECTED_STEPS]; /* after each */
} injection;

typedef struct injector {
    injection *in;
    const ech_plan *plan;
    bool armed;
} injector;

static int choose(const injector *j, const ech_block *block)
{
    int chosen = -1;
    for (int i = 0; i < (int)j->plan->model->param.n; i++) {
        if (!ech_block_uses(block, i) || j->plan->param[i].bucket < 0) continue;
        if (chosen < 0 || j->in->choice > 0) chosen = i;
    }
    return chosen;
}

/* During the second of three micro-batches: a block's gradients have the first one's share, and get
 * more. */
static void inject(void *context, ech_exec *exec, const ech_step *step)
{
    injector *j = context;
    if (!j->armed || ech_step_kind_phase(step->kind) <= ECH_FORWARD || step->micro != 1) return;
    int param = choose(j, j->plan->model->block.at[step->block]);
    if (param < 0) return;
    ech_tensor gradient = ech_exec_gradient(exec, param);
    *(float *)gradient.data = j->in->value;
    j->armed = false;
    j->in->injected++;
}

static ech_status run_injected(void *context, int rank, ech_compared_run *run)
{
    injection *in = context;
    ech_exec *exec = run->session.exec;
    injector j = {.in = in, .plan = run->session.plan};
    ech_exec_observe(exec, inject, &j);
    for (int step = 0; step < INJECTED_STEPS; step++) {
        j.armed = rank == in->rank && step >= 1 && step <= BAD_STEPS;
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        in->readings[rank][step] = *ech_exec_readings(exec);
        in->scaler[rank][step] = ech_exec_scaler(exec);
        in->weights[rank][step] = hash_of(exec, run->session.plan);
    }
    return ECH_OK;
}

static injection inject_with(const char *grid, const char *scale, int rank, int choice, float value)
{
    char words[500];
    injection in = {.rank = rank, .choice = choice, .value = value};
    snprintf(words, sizeof words,
             "training.steps=9 training.global_batch_size=3 training.micro_batch_size=1 "
             "precision.loss_scale=%s %s",
             scale, grid);
    grid_run("llama", words, run_injected, &in);
    assert_int_equal(in.injected, BAD_STEPS);
    return in;
}

/* The first overflow keeps the scale, the next two halve it. No count, weight or state changes in
 * these steps. */
static void check_withheld(const injection *in, int rank)
{
    for (int step = 0; step < INJECTED_STEPS; step++) {
        const ech_readings *r = &in->readings[rank][step];
        const ech_scaler *after = &in->scaler[rank][step];
        bool bad = step >= 1 && step <= BAD_STEPS;
        int overflows = bad ? step : step < 1 ? 0 : BAD_STEPS, halved = overflows - 1;
        assert_true(r->withheld == bad && r->overflow == bad);
        assert_true(bad ? !isfinite(r->grad_norm) && r->learning_rate == 0 : r->clip > 0);
        assert_int_equal(r->updates, step < 1 ? 1 : bad ? 1 : 2);
        assert_true(after->overflows == overflows);
        assert_true(after->scale == ldexp(0x1p16, halved > 0 ? -halved : 0));
        assert_true(after->good_steps == !bad);
        assert_memory_equal(after, &in->scaler[0][step], sizeof *after);
        bool same = step > 0 && in->weights[rank][step] == in->weights[rank][step - 1];
        assert_true(same == bad);
    }
}

static const char *const cubes[] = {
    "parallel.pipeline=2 parallel.tensor=2 parallel.context=2 precision.compute=fp32",
    "parallel.pipeline=2 parallel.tensor=2 parallel.context=2 precision.compute=fp16 "
    "parallel.sequence=true parallel.schedule=gpipe precision.reduce=bf16",
};

/* Each stage, tensor and context place in turn. */
TEST(one_rank_withholds_on_all)
{
    for (size_t i = 0; i < sizeof cubes / sizeof *cubes; i++)
        for (int rank = 0; rank < RANKS; rank++)
            for (int choice = (int)i; choice < 2; choice++) {
                if (!share_takes()) continue;
                float value = (rank + choice) % 2 ? -INFINITY : INFINITY;
                if (choice == 1 && rank % 3 == 0) value = NAN;
                injection in = inject_with(cubes[i], "auto", rank, choice, value);
                for (int r = 0; r < RANKS; r++) check_withheld(&in, r);
            }
}

/* A fixed scale cannot be lowered, and nor can 1: on_nonfinite is asked. */
TEST(what_no_scale_mends)
{
    injection in = inject_with("parallel.data=1 precision.compute=fp32", "1024", 0, 0, INFINITY);
    for (int step = 1; step <= BAD_STEPS; step++) {
        assert_true(in.readings[0][step].withheld && !in.readings[0][step].overflow);
        assert_true(in.scaler[0][step].scale == 1024 && in.scaler[0][step].overflows == 0);
    }
}

/* ---- whole runs ---- */

enum { LONG = 12, HALF = 5 };

typedef struct logged {
    bool is_there, overflow, skipped;
    double loss, scale, next;
    int64_t overflows;
} logged;

static void read_log(const char *name, logged out[LONG + 1])
{
    char *text = runs_metrics(name), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        int step = (int)json_integer_value(json_object_get(object, "step"));
        assert_in_range(step, 0, LONG);
        if (json_object_get(object, "loss_scale"))
            out[step] =
                (logged){.is_there = true,
                         .overflow = json_is_true(json_object_get(object, "overflow")),
                         .skipped = json_is_true(json_object_get(object, "skipped")),
                         .loss = json_number_value(json_object_get(object, "loss")),
                         .scale = json_number_value(json_object_get(object, "loss_scale")),
                         .next = json_number_value(json_object_get(object, "next_loss_scale")),
                         .overflows = json_integer_value(json_object_get(object, "overflows"))};
        json_decref(object);
    }
    free(text);
}

/* In fp16, as they travel, gradients of large weights overflow under a scale of 2^16, and soon do
 * not. */
static const char overflowing[] = "parallel.data=2 precision.reduce=fp16 checkpoint.every=1 "
                                  "model.initializer_range=5 precision.loss_scale=auto";

static void train_long(const char *name, int steps, const char *more)
{
    char words[500];
    snprintf(words, sizeof words, "%s training.steps=%d optimizer.schedule=constant %s",
             overflowing, steps, more);
    runs_train("llama", name, 2, words);
}

/* Every start is asked to stop before its first step, as by SIGTERM, and stops after it: also where
 * the scale has just been halved. */
static void train_step_by_step(const char *name)
{
    for (int step = 1; step <= LONG; step++) {
        assert_false(runs_has_checkpoint(name, step));
        train_long(name, LONG, "training.time_limit=0.000001");
        assert_true(runs_has_checkpoint(name, step));
    }
}

/* Overflows end without an action of the user, and a run that is resumed between them has the same
 * bits. */
TEST(it_is_resumed)
{
    logged whole[LONG + 1] = {{0}}, parts[LONG + 1] = {{0}}, stopped[LONG + 1] = {{0}};
    train_long("whole", LONG, "");
    train_long("parts", HALF, "");
    train_long("parts", LONG, "");
    read_log("whole", whole);
    train_step_by_step("stopped");
    read_log("parts", parts);
    read_log("stopped", stopped);
    int overflows = 0;
    for (int step = 1; step <= LONG; step++) {
        const logged *now = &whole[step];
        overflows += now->overflow;
        assert_true(now->is_there && now->skipped == now->overflow && isfinite(now->loss));
        assert_int_equal(now->overflows, overflows);
        assert_true(now->scale == (step == 1 ? 0x1p16 : whole[step - 1].next));
        assert_true(now->next == (now->overflow && overflows > 1 ? now->scale / 2 : now->scale));
        assert_memory_equal(now, &parts[step], sizeof *now);
        assert_memory_equal(now, &stopped[step], sizeof *now);
    }
    assert_true(overflows >= 3 && whole[HALF].overflows >= 1 && !whole[LONG].overflow);
    assert_true(runs_same("whole", "parts", LONG) && runs_same("whole", "stopped", LONG));
    ech_checkpoint_info info = runs_info("whole", LONG);
    assert_int_equal(info.optimizer_count, LONG - overflows);
    assert_int_equal(info.skipped_steps, 0);
    assert_true(info.has_scaler && info.scaler.scale == whole[LONG].next);
    assert_true(info.scaler.overflows == overflows);
    runs_remove("stopped");
    runs_remove("parts");
    runs_remove("whole");
}

/* The same gradients without a scale that may fall: on_nonfinite is asked. */
TEST(a_fixed_scale_asks)
{
    char words[500];
    snprintf(words, sizeof words, "%s training.steps=4 precision.loss_scale=65536", overflowing);
    assert_int_equal(runs_try("llama", "fixed", 2, words), ECH_ENUMERIC);
    runs_remove("fixed");
}

TEST(no_power_of_two)
{
    assert_int_equal(runs_try("llama", "odd", 1, "precision.loss_scale=1000"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "use 512 or 1024"));
}

ALL_TESTS(grid_setup, fixture_teardown)
