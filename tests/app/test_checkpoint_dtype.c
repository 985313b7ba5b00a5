/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.dtype: a run whose checkpoints are rounded for others is the same run, bit for bit,
 * and either kind of checkpoint resumes under either.
 */

#include "app/runs.h"
#include "app/train/trained.h"
#include "tensor/tensor.h"
#include "unit.h"

enum { HALF = 3, WHOLE = 6 };

static const char *family = "llama";

static void train(const char *name, const char *layout, int ranks, const char *more)
{
    char words[700];
    snprintf(words, sizeof words,
             "training.steps=6 checkpoint.every=3 training.micro_batch_size=2 "
             "parallel.flush_every=3 %s %s",
             layout, more);
    runs_train(family, name, ranks, words);
}

/* The run in two parts, of which each saves in a type of its own. */
static void train_in_halves(const char *name, const char *layout, int ranks, const char *first,
                            const char *second)
{
    char words[64];
    snprintf(words, sizeof words, "checkpoint.dtype=%s", first);
    train(name, layout, ranks, words);
    runs_remove_checkpoint(name, WHOLE);
    snprintf(words, sizeof words, "checkpoint.dtype=%s", second);
    train(name, layout, ranks, words);
}

/* A router is kept in fp32 while the run trains: so model/ has it in fp32, too, and state/ needs no
 * master of it. */
static bool assert_router_is_whole(const char *a, const char *b, const char *name)
{
    ech_dtype kept;
    int64_t n;
    if (!strstr(name, ".gate.weight")) return false;
    void *x = runs_tensor(a, WHOLE, runs_model, name, &kept, &n);
    void *y = runs_tensor(b, WHOLE, runs_model, name, &kept, &n);
    assert_int_equal(kept, ECH_F32);
    assert_memory_equal(x, y, (size_t)n * sizeof(float));
    free(x);
    free(y);
    return true;
}

/* The weights of run b, saved in `narrow`, are those of a: rounded in model/, in full in state/. */
static void assert_rounded(const char *a, const char *b, ech_dtype narrow)
{
    ech_safetensors *file = runs_open(a, WHOLE, runs_model);
    for (int i = 0; i < ech_safetensors_count(file); i++) {
        const char *name = ech_safetensors_get(file, i).name;
        char master[300];
        ech_dtype whole, rounded, full;
        int64_t n;
        if (assert_router_is_whole(a, b, name)) continue;
        snprintf(master, sizeof master, "%s.master", name);
        void *x = runs_tensor(a, WHOLE, runs_model, name, &whole, &n);
        void *y = runs_tensor(b, WHOLE, runs_model, name, &rounded, &n);
        void *z = runs_tensor(b, WHOLE, runs_state, master, &full, &n);
        void *expected = ech_calloc((size_t)n, sizeof(double));
        ech_convert(x, whole, expected, narrow, n);
        assert_int_equal(rounded, narrow);
        assert_int_equal(full, whole);
        assert_memory_equal(y, expected, (size_t)n * ech_dtype_bytes(narrow));
        assert_memory_equal(z, x, (size_t)n * ech_dtype_bytes(whole));
        free(x);
        free(y);
        free(z);
        free(expected);
    }
    ech_safetensors_close(file);
}

static bool config_has(const char *run, const char *what)
{
    char path[512], *text;
    size_t n;
    runs_path(path, sizeof path, run, WHOLE, "model/config.json");
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    bool has = strstr(text, what) != NULL;
    free(text);
    return has;
}

static void check_layout(const char *layout, int ranks)
{
    train("whole", layout, ranks, "");
    train_in_halves("to-bf16", layout, ranks, "auto", "bf16");
    assert_rounded("whole", "to-bf16", ECH_BF16);
    train_in_halves("bf16", layout, ranks, "bf16", "bf16");
    assert_rounded("whole", "bf16", ECH_BF16);
    train_in_halves("from-bf16", layout, ranks, "bf16", "fp32");
    if (!runs_same("whole", "from-bf16", WHOLE)) fail_msg("not the same run with %s", layout);
    assert_true(config_has("whole", "\"float32\""));
    assert_true(config_has("bf16", "\"bfloat16\""));
    runs_remove("whole");
    runs_remove("to-bf16");
    runs_remove("from-bf16");
    runs_remove("bf16");
}

TEST(test_resumes_bit_for_bit)
{
    check_layout("", 1);
    check_layout("parallel.pipeline=2 parallel.tensor=2", 4);
    check_layout("parallel.data=2 checkpoint.background=false", 2);
    check_layout("parallel.pipeline=2 parallel.schedule=pipedream-2bw", 2);
    family = "mixtral";
    check_layout("model.num_local_experts=4 parallel.data=2 parallel.expert=2", 2);
    family = "llama";
}

TEST(test_fp64_runs)
{
    const char *wide = "precision.compute=fp64 parallel.data=2";
    train("whole", wide, 2, "");
    train_in_halves("narrow", wide, 2, "bf16", "fp32");
    assert_rounded("whole", "narrow", ECH_F32);
    assert_true(config_has("whole", "\"float64\""));
    assert_true(config_has("narrow", "\"float32\""));
    train_in_halves("back", wide, 2, "fp32", "auto");
    assert_true(runs_same("whole", "back", WHOLE));
    runs_remove("whole");
    runs_remove("narrow");
    runs_remove("back");
}

/* ---- evaluation and sampling: of model/, as others see it ---- */

static ech_status take_first_weight(ech_trained *trained, void *context)
{
    *(float *)context = ((const float *)ech_exec_param(trained->session.exec, 0).data)[5];
    return ECH_OK;
}

static float first_weight(const char *run)
{
    char path[512];
    float weight = 0;
    snprintf(path, sizeof path, "%s/%s", fixture_folder, run);
    assert_int_equal(ech_trained_run(&(ech_trained_options){.path = path, .samples = 1},
                                     take_first_weight, &weight),
                     ECH_OK);
    return weight;
}

TEST(test_what_is_sampled_is_what_is_given_away)
{
    train("whole", "", 1, "");
    train("rounded", "", 1, "checkpoint.dtype=bf16");
    float full = first_weight("whole"), rounded = first_weight("rounded"), expected;
    uint16_t half;
    ech_convert(&full, ECH_F32, &half, ECH_BF16, 1);
    ech_convert(&half, ECH_BF16, &expected, ECH_F32, 1);
    assert_true(rounded == expected && rounded != full);
    runs_remove("whole");
    runs_remove("rounded");
}

ALL_TESTS(fixture_setup, fixture_teardown)
