/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixed precision: what a run in bf16 or fp16 keeps in which type, that its weights are the
 * rounding of their masters after every step, and that what it learns is what it learns in fp32.
 * Resumes are probes/resumes.c and, in fp16, test_fp16.c.
 */

#include "app/runs.h"
#include "app/verify/verify.h"
#include "schedule/states.h"
#include "unit.h"

enum { RANKS = 4, TURNS = 3 };

/* ---- what each rank keeps ---- */

typedef struct kept {
    int64_t planned[ECH_MEMORY_KINDS];                         /* of one rank, with what has run */
    int64_t expected[ECH_MEMORY_KINDS];                        /* by the formula */
    int64_t numbers[ECH_MEMORY_KINDS][ECH_DTYPES];             /* by the formula */
    bool same_numbers;                                         /* the plan says so */
    int64_t masters, apart; /* elements of masters; weights that are not their rounding */
} kept;

typedef struct watched {
    kept of[RANKS];
} watched;

/* AdamW's: a matrix has weights in `compute`, in fp32 two states and its master; a vector is fp32
 * with two states. Of a matrix that is neither a table nor the head Muon keeps one state. */
static int states_of(const ech_plan *plan, const ech_shape *shape)
{
    bool matrix = shape->dims > 1;
    bool alone = matrix && plan->optimizer == ech_optimizer_find("muon") &&
                 !ech_shape_has(shape, ECH_AXIS_VOCAB) && !ech_shape_has(shape, ECH_AXIS_POSITION);
    return alone ? 2 : matrix ? 3 : 2;
}

/* In buckets parameters, and equal shards, begin at multiples of 64 bytes in any type. */
enum { UNIT = 64 / 2 };
static void expect(const ech_plan *plan, const ech_config *config, kept *k)
{
    bool narrow = config->precision.gradients == ECH_GRADIENTS_COMPUTE;
    ech_dtype compute = plan->kernels->dtype;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const int *params = &plan->bucket_param.at[plan->bucket.at[b].first_param];
        const ech_shape *shape = &plan->model->param.at[params[0]].shape;
        bool matrix = shape->dims > 1;
        ech_dtype weights = matrix ? compute : ECH_F32;
        ech_dtype gradients = matrix && narrow ? compute : ECH_F32;
        int64_t elements = 0, numbers = 0, states = states_of(plan, shape);
        int members =
            ech_layout_group_size(plan->layout, plan->model, plan->rank, plan->bucket.at[b].group);
        for (int i = 0; i < plan->bucket.at[b].params; i++) {
            numbers += plan->param[params[i]].elements;
            elements += ech_align(plan->param[params[i]].elements, UNIT);
        }
        int64_t shard = ech_align((elements + members - 1) / members, UNIT);
        int64_t all = members * shard;
        k->expected[ECH_MEMORY_PARAMETERS] +=
            plan->versions * all * (int64_t)ech_dtype_bytes(weights);
        k->expected[ECH_MEMORY_OPTIMIZER] += states * all * (int64_t)ech_dtype_bytes(ECH_F32);
        k->expected[ECH_MEMORY_GRADIENTS] += all * (int64_t)ech_dtype_bytes(gradients);
        k->numbers[ECH_MEMORY_PARAMETERS][weights] += plan->versions * numbers;
        k->numbers[ECH_MEMORY_OPTIMIZER][ECH_F32] += states * numbers;
        k->numbers[ECH_MEMORY_GRADIENTS][gradients] += numbers;
    }
    k->same_numbers = true;
    for (ech_memory_kind kind = ECH_MEMORY_PARAMETERS; kind <= ECH_MEMORY_GRADIENTS; kind++) {
        int64_t said[ECH_DTYPES];
        ech_plan_numbers(plan, kind, said);
        k->same_numbers &= memcmp(said, k->numbers[kind], sizeof said) == 0;
    }
}

static int master_of(const ech_plan *plan, int param)
{
    for (int s = 0; s < plan->param[param].states; s++)
        if (!strcmp(plan->state.at[plan->param[param].first_state + s].is.name, "master")) return s;
    return -1;
}

static void compare_masters(const ech_exec *exec, const ech_plan *plan, kept *k)
{
    for (int i = 0; i < (int)plan->model->param.n; i++) {
        int master = plan->param[i].bucket < 0 ? -1 : master_of(plan, i);
        if (master < 0) continue;
        ech_tensor weights = ech_exec_param(exec, i), wide = ech_exec_state(exec, i, master);
        int64_t n = ech_tensor_count(&wide);
        ECH_FREED uint16_t *rounded = ech_calloc((size_t)n, sizeof *rounded);
        ech_convert(wide.data, wide.dtype, rounded, weights.dtype, n);
        for (int64_t e = 0; e < n; e++) k->apart += rounded[e] != ((uint16_t *)weights.data)[e];
        k->masters += n;
    }
}

static ech_status watch(ech_comm *comm, const ech_design *design, void *context)
{
    kept *k = &((watched *)context)->of[ech_comm_rank(comm)];
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    const ech_plan *plan = run.session.plan;
    compare_masters(run.session.exec, plan, k);
    for (int turn = 0; turn < TURNS; turn++) {
        ECH_TRY(ech_exec_run(run.session.exec, ECH_LIST_TRAIN, turn * design->schedule->turns));
        compare_masters(run.session.exec, plan, k);
    }
    expect(plan, design->config, k);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        k->planned[kind] = plan->list[ECH_LIST_TRAIN].peak[kind];
    for (size_t i = 0; i < plan->persistent.n; i++)
        k->planned[plan->persistent.at[i].kind] += ech_align(plan->persistent.at[i].bytes, 64);
    ech_compared_run_close(&run);
    return ECH_OK;
}

static void check_kept(const char *architecture, int ranks, const char *more)
{
    watched w = {0};
    char words[600];
    snprintf(words, sizeof words,
             "model.tie_word_embeddings=false training.micro_batch_size=2 training.check_every=0 "
             "checkpoint.background=false training.steps=12 %s",
             more);
    ech_config *config = fixture_config(architecture, words);
    if (fixture_run(config, ranks, watch, &w) != ECH_OK) fail_msg("%s: %s", more, ech_last_error());
    for (int rank = 0; rank < ranks; rank++) {
        const kept *k = &w.of[rank];
        for (int kind = ECH_MEMORY_PARAMETERS; kind <= ECH_MEMORY_GRADIENTS; kind++)
            if (k->expected[kind] != k->planned[kind])
                fail_msg("%s, %s: %lld, by the formula %lld", more,
                         ech_memory_name((ech_memory_kind)kind), (long long)k->planned[kind],
                         (long long)k->expected[kind]);
        if (k->apart) fail_msg("%s: %lld weights are not rounded", more, (long long)k->apart);
        assert_true(k->masters > 1000 && k->same_numbers);
    }
    ech_config_destroy(config);
}

TEST(test_what_is_kept)
{
    check_kept("llama", 1, "precision.compute=bf16");
    check_kept("gpt2", 1, "precision.compute=fp16 precision.residual=fp32");
    check_kept("gpt2", 2, "precision.compute=bf16 precision.gradients=compute parallel.data=2");
    check_kept("llama", 4,
               "precision.compute=bf16 precision.residual=fp32 parallel.tensor=2 "
               "parallel.pipeline=2 parallel.sequence=true model.num_key_value_heads=2");
    check_kept("llama", 2, "precision.compute=fp16 memory.sequence_chunks=3 parallel.tensor=2");
    check_kept("gpt2", 2,
               "precision.compute=bf16 parallel.pipeline=2 parallel.schedule=pipedream "
               "parallel.flush_every=4");
    check_kept("llama", 2,
               "precision.compute=bf16 parallel.pipeline=2 parallel.schedule=pipedream-2bw "
               "parallel.flush_every=4");
#define MUON "optimizer.name=muon optimizer.momentum=0.95 optimizer.nesterov=true "
    check_kept("gpt2", 1, MUON "precision.compute=fp16");
    check_kept("llama", 4,
               MUON "precision.compute=bf16 precision.gradients=compute parallel.tensor=2 "
                    "parallel.pipeline=2 parallel.schedule=pipedream parallel.flush_every=4");
}

/* ---- why there are masters ---- */

/* 1 + 2^-12 is 1 in fp16, and so is 1 after any number of such steps: only the master knows how
 * many there were. */
TEST(test_small_updates_are_lost_without)
{
    enum { STEPS = 16 };
    const ech_kernels *kernels = ech_kernels_fast(ECH_F16);
    ech_kernel_context *context;
    float master = 1, alone = 1, gradient = -1;
    uint16_t rounded = 0, one = 0;
    ech_tensor m = ech_tensor_1d(&master, ECH_F32, 1), w = ech_tensor_1d(&rounded, ECH_F16, 1);
    ech_tensor a = ech_tensor_1d(&alone, ECH_F32, 1), g = ech_tensor_1d(&gradient, ECH_F32, 1);
    ech_update update = {.learning_rate = 0x1p-12, .count = 1, .grad_scale = 1};
    ech_convert(&master, ECH_F32, &one, ECH_F16, 1);
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int step = 0; step < STEPS; step++) {
        kernels->sgd(context, &m, &g, NULL, &update, &w);
        uint16_t narrow;
        kernels->sgd(context, &a, &g, NULL, &update, NULL);
        ech_convert(&alone, ECH_F32, &narrow, ECH_F16, 1);
        assert_int_equal(narrow, one);
        ech_convert(&narrow, ECH_F16, &alone, ECH_F32, 1); /* kept in fp16 alone */
    }
    ech_kernel_context_destroy(context);
    assert_true(alone == 1);
    assert_true(master == 1 + 0x1p-8F);
    assert_int_equal(rounded, one + 4); /* 2^-8 is four of fp16's smallest steps from 1 */
}

/* ---- what is learned ---- */

/* Weights that a run begins with become its masters as they are, not as they are rounded. */
TEST(test_begins_with_weights_in_full)
{
    const char *name = "model.layers.1.mlp.up_proj.weight";
    char words[400], master[100];
    ech_dtype type;
    int64_t n, same;
    snprintf(words, sizeof words,
             "training.steps=1 training.validate_samples=12 precision.compute=bf16 "
             "optimizer.learning_rate=0 optimizer.warmup_steps=0 model.init_from=%s/source",
             fixture_folder);
    snprintf(master, sizeof master, "%s.master", name);
    runs_train("llama", "source", 1, "training.steps=2");
    runs_train("llama", "started", 1, words);
    float *source = runs_tensor("source", 2, runs_model, name, &type, &n);
    assert_int_equal(type, ECH_F32);
    float *started = runs_tensor("started", 1, runs_state, master, &type, &same);
    assert_int_equal(type, ECH_F32);
    assert_true(n == same && n > 100);
    assert_memory_equal(source, started, (size_t)n * sizeof *source);
    free(source);
    free(started);
    runs_remove("source");
    runs_remove("started");
}

static double learned(const char *more)
{
    char words[300];
    snprintf(words, sizeof words,
             "training.steps=20 training.validate_samples=36 model.resid_pdrop=0 "
             "model.attn_pdrop=0 %s",
             more);
    runs_train("llama", "learns", 1, words);
    double loss = runs_validation_loss("learns");
    runs_remove("learns");
    return loss;
}

TEST(test_learns_as_much)
{
    static const char *const narrow[] = {
        "precision.compute=bf16", "precision.compute=fp16",
        "precision.compute=bf16 precision.gradients=compute precision.residual=fp32"};
    double fp32 = learned("precision.compute=fp32");
    assert_true(fp32 < 4.5); /* of 5.5 for 257 ids: it has learned something */
    for (int i = 0; i < 3; i++) {
        double loss = learned(narrow[i]);
        print_message("%s: %.4f, fp32 %.4f\n", narrow[i], loss, fp32);
        if (!(fabs(loss / fp32 - 1) < 0.01)) fail_msg("%s: %g, not %g", narrow[i], loss, fp32);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
