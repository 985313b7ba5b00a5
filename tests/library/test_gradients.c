/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are read after a step: the same under any layout as on one rank, in fp64; their
 * norm is the step's, before clipping; SGD moves the weights by them. Where there is no sum of all
 * gradients, the training is refused by name.
 */
#include <math.h>

#include "library/tiny_run.h"

static const echelon_train_options with_gradients = {.size = sizeof with_gradients,
                                                     .gradients = true};

static echelon_run *open_in(const char *words, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", fixture_folder, folder);
    return open_run(words, path);
}

static echelon_training *start(echelon_run *run)
{
    echelon_training *training = NULL;
    if (echelon_train_start(run, &with_gradients, &training)) fail_msg("%s", echelon_last_error());
    return training;
}

static echelon_tensor describe(echelon_training *training, int index)
{
    echelon_tensor is = {.size = sizeof is};
    assert_int_equal(echelon_tensor_at(training, index, &is), ECHELON_OK);
    return is;
}

/* The elements of a tensor of fp32 or fp64. */
static double *read_tensor(echelon_training *training, int index, int64_t *n)
{
    echelon_tensor is = describe(training, index);
    bool wide = strcmp(is.dtype, "fp64") == 0;
    assert_true(wide || strcmp(is.dtype, "fp32") == 0);
    *n = is.bytes / (wide ? 8 : 4);
    double *numbers = ech_calloc((size_t)*n, sizeof *numbers);
    ECH_FREED float *narrow = ech_calloc((size_t)*n, sizeof *narrow);
    void *to = wide ? (void *)numbers : narrow;
    assert_int_equal(echelon_tensor_read(training, index, to, (size_t)is.bytes), ECHELON_OK);
    for (int64_t i = 0; i < *n && !wide; i++) numbers[i] = (double)narrow[i];
    return numbers;
}

static int find_tensor(echelon_training *training, const char *name, const char *state)
{
    int count = echelon_tensor_count(training);
    for (int i = 0; i < count; i++) {
        echelon_tensor is = describe(training, i);
        if (strcmp(is.name, name) == 0 && strcmp(is.state, state) == 0) return i;
    }
    fail_msg("there is no %s of %s", state, name);
    return -1;
}

/* max|a - b| / max|b| of all gradients, and the norm of a's. */
static double compare(echelon_training *a, echelon_training *b, double *norm)
{
    double worst = 0;
    int found = 0;
    *norm = 0;
    for (int i = 0; i < echelon_tensor_count(a); i++) {
        echelon_tensor is = describe(a, i);
        if (strcmp(is.state, "gradient") != 0) continue;
        int64_t n, m;
        double error = 0, most = 0;
        ECH_FREED double *x = read_tensor(a, i, &n);
        ECH_FREED double *y = read_tensor(b, find_tensor(b, is.name, "gradient"), &m);
        assert_int_equal(n, m);
        for (int64_t k = 0; k < n; k++) {
            double d = fabs(x[k] - y[k]);
            error = isfinite(d) ? fmax(error, d) : INFINITY;
            most = fmax(most, fabs(y[k]));
            *norm += x[k] * x[k];
        }
        assert_true(most > 0);
        worst = fmax(worst, error / most);
        found++;
    }
    assert_true(found > 10);
    *norm = sqrt(*norm);
    return worst;
}

#define FP64    "precision.compute=fp64 "
#define EXPERTS "model.architecture=mixtral model.num_local_experts=4 model.num_key_value_heads=2 "

static const struct {
    const char *model, *grid;
} grids[] = {
    {FP64, "parallel.data=4 parallel.zero=3"},
    {FP64, "parallel.data=2 parallel.zero=2 parallel.tensor=2"},
    {FP64, "parallel.data=2 parallel.zero=1 parallel.pipeline=2 memory.recompute=full"},
    {FP64, "parallel.tensor=2 parallel.context=2 parallel.pipeline=2 parallel.schedule=1f1b"},
    {FP64 "model.architecture=gpt2 ", "parallel.pipeline=2 parallel.data=2"},
    {FP64 EXPERTS, "parallel.data=2 parallel.expert=2 parallel.tensor=2"},
    {FP64, "parallel.data=2 parallel.strategy=central_storage"},
    {FP64, "parallel.data=2 parallel.strategy=parameter_server parallel.servers=2"},
    {FP64, "parallel.data=2 parallel.zero=2 memory.offload_optimizer=host"},
};

TEST(test_grids)
{
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        char name[2][32], words[1024];
        echelon_metrics m = {.size = sizeof m};
        double norm;
        for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "grid%zu-%d", g, i);
        snprintf(words, sizeof words, "%soptimizer.clip_norm=1e-3 %s", grids[g].model,
                 grids[g].grid);
        echelon_run *run = open_in(words, name[0]);
        snprintf(words, sizeof words, "%soptimizer.clip_norm=1e-3", grids[g].model);
        echelon_run *one = open_in(words, name[1]);
        echelon_training *a = start(run), *b = start(one);
        for (int step = 0; step < 2; step++) {
            assert_int_equal(echelon_train_step(a, &m), ECHELON_OK);
            assert_int_equal(echelon_train_step(b, NULL), ECHELON_OK);
            double error = compare(a, b, &norm);
            if (!(error <= 1e-9))
                fail_msg("%s, step %d: gradients differ by %g", grids[g].grid, step + 1, error);
            if (!(fabs(norm - m.grad_norm) <= 1e-10 * m.grad_norm))
                fail_msg("%s: their norm is %.17g, not %.17g", grids[g].grid, norm, m.grad_norm);
        }
        assert_int_equal(echelon_train_finish(a), ECHELON_OK);
        assert_int_equal(echelon_train_finish(b), ECHELON_OK);
        echelon_run_close(run);
        echelon_run_close(one);
    }
}

/* SGD subtracts the gradient, times the learning rate; a loss scale does not show. */
TEST(test_meaning)
{
    static const char *const words[] = {
        "optimizer.clip_norm=0 optimizer.name=sgd optimizer.momentum=0 optimizer.weight_decay=0 "
        "optimizer.learning_rate=1 precision.compute=fp64 parallel.data=2 parallel.zero=2",
        "optimizer.clip_norm=0 optimizer.name=sgd optimizer.momentum=0 optimizer.weight_decay=0 "
        "optimizer.learning_rate=1 precision.loss_scale=1024 parallel.data=2"};
    for (int w = 0; w < 2; w++) {
        char name[32];
        int64_t n;
        snprintf(name, sizeof name, "meaning%d", w);
        echelon_run *run = open_in(words[w], name);
        echelon_training *training = start(run);
        const char *weight = describe(training, 1).name;
        int gradient = find_tensor(training, weight, "gradient");
        ECH_FREED char *none = ech_calloc(1, (size_t)describe(training, gradient).bytes);
        size_t bytes = (size_t)describe(training, gradient).bytes;
        fails(echelon_tensor_read(training, gradient, none, bytes), ECHELON_EUSAGE, "no step");
        assert_int_equal(echelon_train_set(training, "optimizer.learning_rate", 1), ECHELON_OK);
        ECH_FREED double *before = read_tensor(training, 1, &n);
        assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
        ECH_FREED double *after = read_tensor(training, 1, &n);
        ECH_FREED double *g = read_tensor(training, gradient, &n);
        double error = 0, most = 0;
        for (int64_t i = 0; i < n; i++) {
            double d = fabs(before[i] - after[i] - g[i]);
            error = isfinite(d) ? fmax(error, d) : INFINITY;
            most = fmax(most, fabs(g[i]));
        }
        assert_true(most > 0);
        if (error > (w ? 1e-3 : 1e-12) * most) fail_msg("%s: off by %g", words[w], error / most);
        fails(echelon_tensor_write(training, gradient, none, bytes), ECHELON_EUSAGE,
              "can only be read");
        assert_int_equal(echelon_train_finish(training), ECHELON_OK);
        echelon_run_close(run);
    }
}

/* Keeping and reading them changes no bit, and without the option they are not listed. */
TEST(test_same_bits)
{
    double sum[2], read = 0;
    for (int i = 0; i < 2; i++) {
        echelon_training *training;
        echelon_run *run = open_in("parallel.data=2 parallel.zero=2 precision.compute=bf16",
                                   i ? "bits1" : "bits0");
        assert_int_equal(echelon_train_start(run, i ? &with_gradients : NULL, &training),
                         ECHELON_OK);
        sum[i] = 0;
        for (int step = 0; step < 3; step++) {
            assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
            for (int k = 0; k < echelon_tensor_count(training); k++) {
                int64_t n;
                echelon_tensor is = describe(training, k);
                bool is_gradient = strcmp(is.state, "gradient") == 0;
                assert_true(i || !is_gradient);
                if (strcmp(is.dtype, "bf16") == 0) continue;
                ECH_FREED double *x = read_tensor(training, k, &n);
                for (int64_t e = 0; e < n; e++) *(is_gradient ? &read : &sum[i]) += x[e] * x[e];
            }
        }
        assert_int_equal(echelon_train_finish(training), ECHELON_OK);
        echelon_run_close(run);
    }
    assert_true(sum[0] > 0 && read > 0);
    assert_true(sum[0] == sum[1]);
}

TEST(test_refused)
{
    static const struct {
        const char *words, *said;
    } rows[] = {
        {"parallel.data=2 parallel.servers=1 parallel.strategy=asp", "parallel.strategy=asp"},
        {"parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2",
         "parallel.strategy=local_sgd"},
        {"parallel.data=2 parallel.strategy=hogwild optimizer.name=sgd optimizer.weight_decay=0",
         "parallel.strategy=hogwild"},
        {"parallel.pipeline=2 parallel.schedule=pipedream training.validate_every=0",
         "parallel.schedule=pipedream"},
        {"parallel.data=3 parallel.servers=1 parallel.strategy=parameter_server "
         "parallel.backup_workers=1 training.global_batch_size=6",
         "parallel.backup_workers=1"},
        {"parallel.data=2 parallel.compression=powersgd", "parallel.compression=powersgd"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        echelon_training *training;
        echelon_run *run = open_in(rows[i].words, "refused");
        echelon_status status = echelon_train_start(run, &with_gradients, &training);
        if (!strstr(echelon_last_error(), rows[i].said))
            fail_msg("%s: %s", rows[i].words, echelon_last_error());
        assert_int_equal(status, ECHELON_EUNSUPPORTED);
        echelon_run_close(run);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
