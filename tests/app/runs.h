/* SPDX-License-Identifier: Apache-2.0
 *
 * Training runs below the fixture's folder, and their checkpoints compared. After fixture.h and
 * cmocka.h.
 */
#ifndef ECH_TESTS_APP_RUNS_H
#define ECH_TESTS_APP_RUNS_H

#include <math.h>

#include "app/fixture.h"
#include "app/train/train.h"
#include "checkpoint/whole.h"
#include "base/log.h"
#include "unit.h"

/* A run of its own folder `name`: its calendar is written in `more`. */
static inline ech_config *runs_config(const char *architecture, const char *name, const char *more)
{
    char words[1400];
    snprintf(words, sizeof words,
             "log.directory=%s/%s training.check_every=0 model.tie_word_embeddings=false "
             "model.resid_pdrop=0.1 model.attn_pdrop=0.1 %s",
             fixture_folder, name, more);
    return fixture_config(architecture, words);
}

static inline ech_status runs_try(const char *architecture, const char *name, int ranks,
                                  const char *more)
{
    ech_config *config = runs_config(architecture, name, more);
    ech_training training = {0};
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    ech_config_destroy(config);
    return status;
}

static inline void runs_train(const char *architecture, const char *name, int ranks,
                              const char *more)
{
    ech_status status = runs_try(architecture, name, ranks, more);
    if (status != ECH_OK)
        fail_msg("%s on %d ranks with %s: %s", architecture, ranks, more, ech_last_error());
}

/* Words that no run may have, and what the error says. */
typedef struct runs_refusal {
    const char *words, *said;
} runs_refusal;

/* Each of them with `base` on so many ranks. */
static inline void runs_refuse(int ranks, const char *base, const runs_refusal *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char words[700];
        snprintf(words, sizeof words, "%s %s", base, all[i].words);
        assert_int_equal(runs_try("gpt2", "refused", ranks, words), ECH_EUSAGE);
        if (!strstr(ech_last_error(), all[i].said)) fail_msg("%s: %s", words, ech_last_error());
    }
}
#define RUNS_REFUSE(ranks, base, all) runs_refuse(ranks, base, all, sizeof(all) / sizeof *(all))

static inline void runs_remove(const char *name)
{
    char *path = ech_file_join(fixture_folder, name);
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

static inline void runs_path(char *out, size_t n, const char *name, int step, const char *file)
{
    snprintf(out, n, "%s/%s/checkpoints/step-%08d%s%s", fixture_folder, name, step,
             file[0] ? "/" : "", file);
}

static inline void runs_remove_checkpoint(const char *name, int step)
{
    char path[512];
    runs_path(path, sizeof path, name, step, "");
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
}

static inline bool runs_has_checkpoint(const char *name, int step)
{
    char path[512];
    runs_path(path, sizeof path, name, step, "manifest.json");
    return access(path, F_OK) == 0;
}

static const char runs_model[] = "model/model.safetensors";
static const char runs_state[] = "state/state.safetensors";

/* Byte for byte. */
static inline bool runs_same_file(const char *a, const char *b, int step, const char *file)
{
    const char *const runs[] = {a, b};
    char path[512], *bytes[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        runs_path(path, sizeof path, runs[i], step, file);
        assert_int_equal(ech_file_read(path, 1 << 26, &bytes[i], &n[i]), ECH_OK);
    }
    assert_true(n[0] > 1000);
    bool same = n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

/* Parameters and optimizer states. */
static inline bool runs_same(const char *a, const char *b, int step)
{
    return runs_same_file(a, b, step, runs_model) && runs_same_file(a, b, step, runs_state);
}

static inline ech_safetensors *runs_open(const char *name, int step, const char *which)
{
    char path[512];
    ech_safetensors *file;
    runs_path(path, sizeof path, name, step, which);
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    return file;
}

/* The numbers of a checkpoint that verifies; what its info points to is gone. */
static inline ech_checkpoint_info runs_info(const char *name, int step)
{
    char path[512];
    ech_checkpoint *checkpoint;
    runs_path(path, sizeof path, name, step, "");
    assert_int_equal(ech_checkpoint_open(path, true, &checkpoint), ECH_OK);
    ech_checkpoint_info info = *ech_checkpoint_get_info(checkpoint);
    ech_checkpoint_close(checkpoint);
    return info;
}

/* A tensor in the type that it is stored in. */
static inline void *runs_stored(const ech_safetensors *file, const char *name, ech_dtype *dtype,
                                int64_t *n)
{
    int t = ech_safetensors_find(file, name);
    if (t < 0) fail_msg("no tensor %s", name);
    ech_saved_tensor x = ech_safetensors_get(file, t);
    *dtype = x.dtype;
    *n = 1;
    for (int d = 0; d < x.dims; d++) *n *= x.shape[d];
    void *values = ech_calloc((size_t)*n + 1, ech_dtype_bytes(x.dtype));
    saved_whole(&x, values);
    assert_int_equal(ech_safetensors_read(file, t, &x), ECH_OK);
    return values;
}

/* Of fp64. */
static inline double *runs_read(const ech_safetensors *file, const char *name, int64_t *n)
{
    ech_dtype dtype;
    double *values = runs_stored(file, name, &dtype, n);
    assert_int_equal(dtype, ECH_F64);
    return values;
}

/* Of a checkpoint's model/ or state/. */
static inline void *runs_tensor(const char *run, int step, const char *which, const char *name,
                                ech_dtype *dtype, int64_t *n)
{
    ech_safetensors *file = runs_open(run, step, which);
    void *values = runs_stored(file, name, dtype, n);
    ech_safetensors_close(file);
    return values;
}

/* The largest |x - y| over max |y| of its tensor, of all tensors of y's file. Runs in fp64. */
static inline double runs_apart(const char *x, const char *y, int step, const char *which)
{
    const char *const runs[] = {x, y};
    ech_safetensors *file[2];
    double worst = 0;
    for (int i = 0; i < 2; i++) file[i] = runs_open(runs[i], step, which);
    for (int t = 0; t < ech_safetensors_count(file[1]); t++) {
        int64_t n[2];
        const char *name = ech_safetensors_get(file[1], t).name;
        double *a = runs_read(file[0], name, &n[0]), *b = runs_read(file[1], name, &n[1]);
        double apart = 0, size = 0;
        assert_int_equal(n[0], n[1]);
        for (int64_t i = 0; i < n[0]; i++) {
            double d = fabs(a[i] - b[i]);
            if (isnan(d)) fail_msg("%s: NaN", name);
            apart = fmax(apart, d);
            if (fabs(b[i]) > size) size = fabs(b[i]);
        }
        if (apart > 0 && !(apart / size <= worst)) worst = apart / size;
        free(a);
        free(b);
    }
    for (int i = 0; i < 2; i++) ech_safetensors_close(file[i]);
    return worst;
}

/* Not inlined: gcc 12 would warn that what is found in the text points to this function's
 * variable. */
static __attribute__((noinline, unused)) char *runs_metrics(const char *name)
{
    char path[512], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture_folder, name);
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    return text;
}

/* The number of the key in the first line of the run's metrics that has it; NaN: none has. */
static inline double runs_first(const char *name, const char *key)
{
    char word[100], *text = runs_metrics(name);
    int n = snprintf(word, sizeof word, "\"%s\":", key);
    char *at = strstr(text, word);
    double value = at ? strtod(at + n, NULL) : (double)NAN;
    free(text);
    return value;
}

/* The last validation loss in the run's metrics. */
static inline double runs_validation_loss(const char *name)
{
    char *text = runs_metrics(name);
    double loss = NAN;
    for (const char *at = text; (at = strstr(at, "\"valid_loss\":")); at++)
        loss = strtod(at + strlen("\"valid_loss\":"), NULL);
    free(text);
    return loss;
}

/* Returns the validation loss of a run, and removes its folder. */
static inline double runs_loss(const char *architecture, const char *name, int ranks,
                               const char *words)
{
    runs_train(architecture, name, ranks, words);
    double loss = runs_validation_loss(name);
    runs_remove(name);
    return loss;
}

#endif
