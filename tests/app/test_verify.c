/* SPDX-License-Identifier: Apache-2.0
 *
 * The comparison of layouts with one rank: what once failed falsely, and that it can fail.
 */
#include <stdatomic.h>

#include <math.h>

#include <pthread.h>

#include "app/fixture.h"
#include "app/verify/verifier.h"
#include "app/verify/verify.h"
#include "unit.h"

static ech_verification verify(const char *architecture, int ranks, const char *more)
{
    ech_config *config = fixture_config(architecture, more);
    ech_verification v = {.steps = 3, .tolerance = ECH_TOLERANCE};
    assert_int_equal(fixture_run(config, ranks, ech_verify_rank, &v), ECH_OK);
    ech_config_destroy(config);
    return v;
}

/* With a tolerance of zero the different order of sums must show. */
TEST(test_fails_when_it_should)
{
    ech_config *config = fixture_config("gpt2", "");
    ech_verification v = {.steps = 3, .tolerance = 0};
    assert_int_equal(fixture_run(config, 3, ech_verify_rank, &v), ECH_OK);
    assert_false(v.passed);
    assert_true(v.first_bad[0] && v.worst > 0 && v.worst < ECH_TOLERANCE);
    ech_config_destroy(config);
}

/* The largest difference, of the largest number; a NaN is as far from a number as can be. */
TEST(test_errors)
{
    const double a[] = {1, -8, 3, 0}, b[] = {1, -10, 3.5, 0}, bad[][2] = {{0, NAN}, {INFINITY, 1}};
    assert_true(ech_verifier_error(a, b, 4, 0) == 0.2);
    assert_true(ech_verifier_error(a, b, 4, 100) == 0.02);
    assert_true(ech_verifier_error(a, a, 4, 0) == 0);
    assert_true(ech_verifier_error(&a[3], &b[3], 1, 0) == 0);
    for (int i = 0; i < 2; i++) {
        assert_true(ech_verifier_error(bad[i], b, 2, 0) == INFINITY);
        assert_true(ech_verifier_error(b, bad[i], 2, 0) == INFINITY);
    }
}

/* Three steps are asked for; the next synchronization and the end of the span are at four. */
TEST(test_counts_the_steps_of_whole_spans)
{
    static const char *const words[] = {
        "", "parallel.strategy=local_sgd parallel.sync_every=2 parallel.data=2",
        "parallel.pipeline=2 parallel.schedule=pipedream parallel.flush_every=4 "
        "model.tie_word_embeddings=false"};
    for (int i = 0; i < 3; i++) {
        ech_verifications both = {.main = verify("llama", 2, words[i])};
        ECH_FREED_TEXT text = {0};
        ech_verify_print(&both, &text);
        assert_non_null(strstr(text.at, i ? "\nsteps      4\n" : "\nsteps      3\n"));
    }
}

/* Gradient, weight and the two states of AdamW of each number, after each step. */
TEST(test_all_is_compared)
{
    static const char *const more[] = {"", "parallel.tensor=2", "parallel.zero=1"};
    for (int i = 0; i < 3; i++) {
        ech_config *config = fixture_config("llama", more[i]);
        ech_design design;
        assert_int_equal(ech_design_create(config, fixture_tokenizer, 2, 2, &design), ECH_OK);
        int64_t all = ech_model_params(design.model);
        ech_design_destroy(&design);
        ech_config_destroy(config);
        assert_int_equal(verify("llama", 2, more[i]).compared, 3 * 4 * all);
    }
}

/* ---- what once failed falsely: noise that AdamW makes large, and rounding that many steps add up
 * ---- */

static void assert_steps(const char *architecture, int ranks, int64_t steps, const char *more)
{
    ech_config *config = fixture_config(architecture, more);
    ech_verification v = {.steps = steps, .tolerance = ECH_TOLERANCE};
    assert_int_equal(fixture_run(config, ranks, ech_verify_rank, &v), ECH_OK);
    if (!v.passed) fail_msg("%s with %s: %g at %s", architecture, more, v.worst, v.first_bad);
    assert_true(v.validated);
    ech_config_destroy(config);
}

TEST(test_noise)
{
    assert_steps("gpt2", 6, 2,
                 "model.tie_word_embeddings=false parallel.context=2 model.initializer_range=0.2 "
                 "parallel.schedule=pipedream-2bw training.micro_batch_size=3 training.steps=2 "
                 "training.global_batch_size=9 parallel.reduction=ring data.sequence_length=12");
    for (int seed = 1; seed <= 3; seed++) {
        char more[200];
        snprintf(more, sizeof more,
                 "model.attn_pdrop=0.9 data.sequence_length=2 parallel.tensor=2 training.seed=%d",
                 seed);
        assert_steps("llama", 4, 10, more);
    }
}

/* Norms after layers alone, and of all heads together: the last of a block's backward is a sum that
 * writes no gradient of a parameter. */
TEST(test_heads_normed_together)
{
    const char *sizes = "model.num_key_value_heads=2 model.hidden_size=24 model.head_dim=6 "
                        "model.intermediate_size=20 data.sequence_length=8 "
                        "parallel.deadline=20 parallel.tensor=";
    static const struct {
        const char *architecture;
        int ranks;
        const char *more;
    } cases[] = {
        {"olmo2", 4, "2 parallel.pipeline=2"},
        {"olmo2", 8, "4 parallel.pipeline=2 parallel.sequence=true memory.recompute=full"},
        {"olmo2", 4, "4 memory.recompute=selective parallel.sequence=keep"},
        {"olmo2", 8, "2 parallel.context=2 parallel.zero=3 memory.recompute=selective"},
        {"olmo2", 4, "2 parallel.pipeline=2 parallel.schedule=zero-bubble"},
        {"olmo2", 4, "2 model.reversible=true memory.invert=true parallel.pipeline=2"},
        {"olmo2", 2, "2 memory.sequence_chunks=2"},
        {"olmo3", 4,
         "2 parallel.context=2 parallel.context_method=ulysses "
         "model.num_key_value_heads=4 model.sliding_window=3 model.window_layers=LG"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_text more = {0};
        ech_text_append(&more, "%s%s", sizes, cases[i].more);
        assert_steps(cases[i].architecture, cases[i].ranks, 2, more.at);
        ech_text_free(&more);
    }
    assert_steps("olmoe", 4, 2,
                 "parallel.tensor=2 parallel.data=2 parallel.expert=2 model.num_local_experts=4 "
                 "model.num_experts_per_tok=2 parallel.deadline=20");
}

TEST(test_many_steps)
{
    const char *more = "parallel.tensor=2 optimizer.learning_rate=3e-3 training.steps=40";
    assert_steps("gpt2", 2, 40, more);
    assert_steps("llama", 2, 40, more);
}

/* ---- in the run's own precision ---- */

static ech_verifications verify_twice(int ranks, bool asked, const char *more)
{
    ech_config *config = fixture_config("llama", more);
    ech_verifications v = {.main = {.steps = 3, .tolerance = ECH_TOLERANCE},
                           .own = {.tolerance = ECH_TOLERANCE_FP32},
                           .own_precision = asked};
    assert_int_equal(fixture_run(config, ranks, ech_verify_twice_rank, &v), ECH_OK);
    assert_true(v.main.passed);
    assert_string_equal(v.main.precision, "fp64");
    ech_config_destroy(config);
    return v;
}

TEST(test_own_precision)
{
    ech_verifications v = verify_twice(2, false, "");
    assert_false(v.own_compared);
    v = verify_twice(2, true, "");
    assert_true(v.own_compared && v.own.passed);
    assert_string_equal(v.own.precision, "fp32");
    assert_true(v.own.worst > 1e-9 && v.own.worst < ECH_TOLERANCE_FP32);
    v = verify_twice(2, true, "precision.compute=fp64");
    assert_false(v.own_compared);
    /* What must not change a bit is always compared. */
    v = verify_twice(2, false, "parallel.pipeline=2");
    assert_true(v.own_compared && v.own.passed && v.own.worst == 0 && v.own.tolerance == 0);
}

/* ---- faults that must be found: kernels of the layout that compute something else ---- */

static const ech_kernels *right;
static ech_kernels wrong;
static atomic_int calls;

static void scaled_gradient(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                            const ech_tensor *gain, double offset, const ech_tensor *rstd,
                            const ech_tensor *add, const ech_tensor *dx, const ech_tensor *dsquares,
                            bool accumulate, const ech_tensor *dgain)
{
    right->rmsnorm_backward(context, dy, x, gain, offset, rstd, add, dx, dsquares, accumulate,
                            dgain);
    double *out = dx->data;
    for (int64_t i = 0; i < ech_tensor_count(dx); i++) out[i] *= 1 + 1e-6;
}

static void dropped_micro_batch(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *ids, int64_t first_id, bool accumulate,
                                const ech_tensor *dtable)
{
    if (!accumulate) right->embedding_backward(context, dy, ids, first_id, accumulate, dtable);
}

enum { MOST_GAINS = 64, MOST_WIDTH = 64 };

/* Each gain is as in its first call. */
static void stale_gain(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *squares,
                       const ech_tensor *gain, double offset, double eps, const ech_tensor *y,
                       const ech_tensor *rstd)
{
    static double old[MOST_GAINS][MOST_WIDTH];
    static const void *of[MOST_GAINS];
    static int n;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    ech_tensor stale = *gain;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < n && of[at] != gain->data) at++;
    if (at == n) {
        ECH_ASSERT(n < MOST_GAINS && ech_tensor_count(gain) <= MOST_WIDTH);
        memcpy(old[n], gain->data, (size_t)ech_tensor_count(gain) * sizeof **old);
        of[n++] = gain->data;
    }
    stale.data = old[at];
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&calls, 1);
    right->rmsnorm_forward(context, x, squares, &stale, offset, eps, y, rstd);
}

/* The single rank's kernels are those of its own design. */
static ech_status verify_wrong(ech_comm *comm, const ech_design *design, void *request)
{
    ech_design with = *design;
    with.kernels = &wrong;
    return ech_verify_rank(comm, &with, request);
}

static ech_verification verify_fault(void)
{
    ech_config *config = fixture_config(
        "llama", "precision.compute=fp64 training.micro_batch_size=1 training.global_batch_size=4");
    ech_verification v = {.steps = 3, .tolerance = ECH_TOLERANCE, .own_precision = true};
    assert_int_equal(fixture_run(config, 2, verify_wrong, &v), ECH_OK);
    ech_config_destroy(config);
    return v;
}

TEST(test_faults)
{
    right = ech_kernels_on("cpu", ECH_F64);
    wrong = *right;
    ech_verification v = verify_fault();
    assert_true(v.passed && v.unit > 0 && v.unit < ECH_MOST_UNIT);
    for (int fault = 0; fault < 3; fault++) {
        wrong = *right;
        if (fault == 0) wrong.rmsnorm_backward = scaled_gradient;
        if (fault == 1) wrong.embedding_backward = dropped_micro_batch;
        if (fault == 2) wrong.rmsnorm_forward = stale_gain;
        v = verify_fault();
        if (v.passed || v.ill || !v.first_bad[0]) fail_msg("fault %d is not found", fault);
    }
    assert_true(calls > 0);
}

/* ---- runs that amplify rounding ---- */

/* Each was once a draw that failed falsely, or was left out. The unit says how much they amplify.
 * */
TEST(test_units)
{
    static const struct {
        const char *family, *words;
        int ranks, steps;
    } runs[] = {
        {"gpt2", "optimizer.learning_rate=1 parallel.tensor=2", 2, 10},
        {"llama", "model.attn_pdrop=0.9 model.resid_pdrop=0.9 model.embd_pdrop=0.9", 2, 10},
        {"llama", "parallel.compression=powersgd training.steps=40", 3, 40},
        {"gpt2", "data.sequence_length=2 training.global_batch_size=2", 2, 4},
        {"llama", "optimizer.name=sm3 optimizer.learning_rate=0.3", 2, 10},
        {"gpt2", "parallel.strategy=local_sgd parallel.sync_every=2 parallel.data=2", 2, 4},
        {"gpt2",
         "parallel.strategy=diloco parallel.sync_every=4 parallel.data=2 parallel.tensor=2 "
         "optimizer.learning_rate=1",
         4, 8},
        {"gpt2",
         "parallel.strategy=gossip parallel.sync_every=4 parallel.data=3 training.steps=8 "
         "optimizer.learning_rate=1 training.micro_batch_size=1 training.global_batch_size=6",
         3, 8},
        {"gpt2",
         "parallel.strategy=hogwild parallel.data=2 optimizer.name=sgd optimizer.weight_decay=0 "
         "optimizer.learning_rate=3 training.steps=8 parallel.flush_every=4",
         2, 8},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ech_config *config = fixture_config(runs[i].family, runs[i].words);
        ech_verifications v = {.main = {.steps = runs[i].steps,
                                        .tolerance = ECH_TOLERANCE,
                                        .widened = true},
                               .own = {.tolerance = ECH_TOLERANCE_FP32},
                               .own_precision = true};
        assert_int_equal(fixture_run(config, runs[i].ranks, ech_verify_twice_rank, &v), ECH_OK);
        print_message("%s: error %.1e, unit %.1e%s\n", runs[i].words, v.main.worst, v.main.unit,
                      v.main.ill ? ", ill-conditioned" : "");
        if (!(v.main.unit > 1e-17)) fail_msg("%s: no unit is measured", runs[i].words);
        if (!v.main.passed && !v.main.ill) fail_msg("%s: %s", runs[i].words, v.main.first_bad);
        if (v.own_compared && !v.own.passed) fail_msg("%s: %s", runs[i].words, v.own.first_bad);
        ech_config_destroy(config);
    }
}

/* What once failed falsely in a run's own precision: fp16 gradients that were too small without the
 * loss scale, and 8-bit codes that rounding moves to a neighbour, from which the next training step
 * of an asynchronous span went on. */
TEST(test_own_precision_of_lean_runs)
{
    static const char *const words[] = {
        "precision.compute=fp16 precision.gradients=compute model.initializer_range=2e-3 "
        "parallel.tensor=2",
        "optimizer.name=adamw8 optimizer.block=4 parallel.pipeline=2 parallel.schedule=pipedream "
        "model.tie_word_embeddings=false optimizer.clip_norm=0.033 parallel.flush_every=24 "
        "training.steps=24",
    };
    static const double least[] = {1e-8, 0}, most[] = {5e-3, ECH_TOLERANCE_FP32};
    for (int i = 0; i < 2; i++) {
        ech_verifications v = verify_twice(2, true, words[i]);
        if (!v.own.passed) fail_msg("%s: %g at %s", words[i], v.own.worst, v.own.first_bad);
        print_message("%s: %g\n", words[i], v.own.worst);
        assert_true(v.own_compared && v.own.worst >= least[i] && v.own.worst < most[i]);
    }
}

/* ---- updates that are withheld ---- */

enum { WITHHELD_STEPS = 8 };

static ech_config *half_config(const char *words)
{
    char all[500];
    snprintf(all, sizeof all, "precision.compute=fp16 training.steps=%d %s", WITHHELD_STEPS, words);
    return fixture_config("llama", all);
}

static ech_verifications verify_half(int ranks, const char *words)
{
    ech_config *config = half_config(words);
    ech_verifications v = {.main = {.steps = WITHHELD_STEPS, .tolerance = ECH_TOLERANCE},
                           .own = {.tolerance = ECH_TOLERANCE_FP32},
                           .own_precision = true};
    if (fixture_run(config, ranks, ech_verify_twice_rank, &v) != ECH_OK)
        fail_msg("%s: %s", words, ech_last_error());
    assert_true(v.main.passed && v.main.updates > 0 && v.main.withheld == 0);
    ech_config_destroy(config);
    return v;
}

static void assert_printed(const ech_verifications *v, const char *part)
{
    ECH_FREED_TEXT text = {0};
    ech_verify_print(v, &text);
    if (!strstr(text.at, part)) fail_msg("no \"%s\" in\n%s", part, text.at);
}

/* Some of the updates are withheld, by gradients that overflow in fp16, or, in the last two runs,
 * after a loss that is not finite. They once failed: gradients that are not finite were compared;
 * the single rank withheld the updates of all asynchronous stages; and it counted the withheld
 * updates. */
TEST(test_withheld)
{
    static const struct {
        const char *words;
        int ranks, log2_scale;
    } runs[] = {
        {"parallel.pipeline=2", 2, 19},
        {"parallel.tensor=2", 2, 20},
        {"parallel.pipeline=2 parallel.schedule=pipedream", 2, 19},
        {"parallel.pipeline=2 parallel.schedule=pipedream-2bw training.micro_batch_size=3 "
         "training.check_every=0 parallel.flush_every=4",
         2, 20},
        {"parallel.data=2 parallel.compression=topk optimizer.learning_rate=0.1", 2, 20},
        {"parallel.data=2 parallel.compression=powersgd", 2, 20},
        {"parallel.data=2 memory.offload_optimizer=host memory.offload_delayed_from=4 "
         "training.check_every=0",
         2, 20},
        {"parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=4", 2, 19},
        {"parallel.strategy=parameter_server parallel.backup_workers=1", 4, 20},
        {"parallel.strategy=asp", 3, 20},
        {"parallel.pipeline=2 optimizer.learning_rate=1e4", 2, 12},
        {"parallel.data=2 optimizer.learning_rate=1e4", 2, 12},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[300];
        snprintf(words, sizeof words, "precision.loss_scale=%d %s", 1 << runs[i].log2_scale,
                 runs[i].words);
        ech_verifications v = verify_half(runs[i].ranks, words);
        print_message("%s: %lld of %lld updates withheld\n", words, (long long)v.own.withheld,
                      (long long)v.own.updates);
        if (!v.own.passed) fail_msg("%s: %g at %s", words, v.own.worst, v.own.first_bad);
        assert_true(v.own.withheld > 0 && v.own.withheld < v.own.updates);
        assert_true(isfinite(v.own.unit) && isfinite(v.own.worst));
        assert_true((v.own.not_finite > 0) == (runs[i].log2_scale == 12));
        assert_printed(&v, "updates in fp16: both sides withheld these");
    }
}

/* Then no gradient is compared, which proves nothing, also where the bits must be the same. */
TEST(test_all_withheld)
{
    static const char *const words[] = {"parallel.pipeline=2", "parallel.tensor=2"};
    for (int i = 0; i < 2; i++) {
        char all[200];
        snprintf(all, sizeof all, "precision.loss_scale=%d %s", 1 << 22, words[i]);
        ech_verifications v = verify_half(2, all);
        assert_true(v.own.ill && !v.own.passed && !v.own.first_bad[0]);
        assert_true(v.own.updates == WITHHELD_STEPS && v.own.withheld == v.own.updates);
        assert_printed(&v, "ILL-CONDITIONED  every update in fp16 was withheld");
    }
}

/* A gradient that overflows on the layout's side alone. */
static void infinite_gradient(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *ids, int64_t first_id, bool accumulate,
                              const ech_tensor *dtable)
{
    right->embedding_backward(context, dy, ids, first_id, accumulate, dtable);
    assert_int_equal(dtable->dtype, ECH_F32);
    ((float *)dtable->data)[0] = INFINITY;
}

/* Withholds nothing. */
static void eager_clip(ech_kernel_context *context, const ech_tensor *squares,
                       const ech_tensor *loss, const ech_tensor *scale, double limit,
                       const ech_tensor *norm, const ech_tensor *withheld, const ech_tensor *factor)
{
    right->clip(context, squares, loss, scale, limit, norm, withheld, factor);
    *(double *)withheld->data = 0;
    *(double *)factor->data = 1 / *(double *)scale->data;
}

static ech_verification verify_half_fault(const char *words)
{
    ech_config *config = half_config(words);
    ech_verification v = {.steps = WITHHELD_STEPS, .own_precision = true};
    assert_int_equal(fixture_run(config, 2, verify_wrong, &v), ECH_OK);
    ech_config_destroy(config);
    return v;
}

TEST(test_withheld_on_one_side)
{
    right = ech_kernels_on("cpu", ECH_F16);
    wrong = *right;
    const char *words = "parallel.pipeline=2 precision.loss_scale=1048576"; /* of some steps */
    ech_verification v = verify_half_fault(words);
    assert_true(v.passed && v.withheld > 0);
    wrong.clip = eager_clip;
    v = verify_half_fault(words);
    assert_true(!v.passed && !v.ill && v.worst_weight == INFINITY);
    wrong = *right;
    wrong.embedding_backward = infinite_gradient;
    v = verify_half_fault("parallel.pipeline=2");
    assert_true(!v.passed && !v.ill && v.worst_gradient == INFINITY);
    assert_string_equal(v.first_bad, "step 1, gradients that are finite on one side only");
}

/* Where R computes inputs from outputs, few elements are rounded; but a norm makes the last bit
 * large in a row that dropout has emptied. With a unit from another such run by chance, the error
 * of the second seed was 28 units, and of the others 4. The largest of these is 0.3 units with AVX2
 * and 0.02 with AVX-512. */
TEST(test_units_of_inversion)
{
    static const int seeds[] = {24, 28, 47, 57};
    double most = 0; /* units */
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char words[500];
        snprintf(words, sizeof words,
                 "model.reversible=true model.hidden_size=10 model.num_attention_heads=1 "
                 "model.num_key_value_heads=1 model.head_dim=6 model.initializer_range=0.1 "
                 "data.sequence_length=24 model.attn_pdrop=0.9 model.resid_pdrop=0.9 "
                 "model.embd_pdrop=0.9 model.rms_norm_eps=1e-6 training.global_batch_size=4 "
                 "training.seed=%d",
                 seeds[i]);
        ech_config *config = fixture_config("llama", words);
        ech_verification v = {.steps = 4, .tolerance = ECH_TOLERANCE_FP32, .own_precision = true};
        assert_int_equal(fixture_run(config, 1, ech_verify_rank, &v), ECH_OK);
        ech_config_destroy(config);
        print_message("seed %d: error %.1e, unit %.1e\n", seeds[i], v.worst, v.unit);
        most = fmax(most, v.worst / v.unit);
    }
    assert_true(most > 0.01 && most < 1);
}

static char limit_error[500];

static ech_status verify_within(ech_comm *comm, const ech_design *design, void *context)
{
    assert_true(ech_design_fits(design, NULL));
    ech_status status = ech_verify_rank(comm, design, context);
    if (ech_comm_rank(comm) == 0)
        snprintf(limit_error, sizeof limit_error, "%s", status == ECH_OK ? "" : ech_last_error());
    return status;
}

/* The largest arena. */
static void take_most(const ech_plan *plan, void *context)
{
    long long *most = context;
    if (plan->arena_bytes[ECH_SPACE_DEVICE] > *most) *most = plan->arena_bytes[ECH_SPACE_DEVICE];
}

static ech_status verify_with(const char *words, ech_verification *request)
{
    ech_config *config = fixture_config("gpt2", words);
    ech_status status = fixture_run(config, 2, verify_within, request);
    ech_config_destroy(config);
    return status;
}

/* What memory.recompute = auto makes fit in the run's own type need not fit in fp64: with the keys
 * that are named it does. */
TEST(test_limit)
{
    static const char run[] = "precision.compute=bf16 model.num_hidden_layers=8 "
                              "parallel.pipeline=2 parallel.schedule=gpipe memory.recompute";
    static const char *const choices[] = {"none", "full"};
    for (int i = 0; i < 2; i++) {
        char words[500];
        ech_verification request = {.steps = 1, .tolerance = ECH_TOLERANCE};
        snprintf(words, sizeof words, "%s=%s", run, choices[i]);
        long long limit = 0;
        fixture_each_plan("gpt2", 2, words, take_most, &limit);
        snprintf(words, sizeof words, "%s=auto memory.device_limit=%lld", run, limit);
        assert_int_equal(verify_with(words, &request), ECH_EUSAGE);
        const char *named = strstr(limit_error, "verify with ");
        if (!named) fail_msg("%s", limit_error);
        assert_int_equal(strstr(named, "memory.recompute=full") != NULL, i);
        snprintf(words, sizeof words, "%s=auto %s", run, named + strlen("verify with "));
        assert_int_equal(verify_with(words, &request), ECH_OK);
        assert_true(request.passed);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
