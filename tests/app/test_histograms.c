/* SPDX-License-Identifier: Apache-2.0
 *
 * log.histograms: the exponents of gradients of each layer. Each element counts once under every
 * layout, so layouts have the same histograms as one rank; the norms of layers add up to the
 * gradient norm; and the run leaves the same bits as without them.
 */

#include <jansson.h>

#include "app/runs.h"
#include "unit.h"

#define RUN                                                                                        \
    "precision.compute=fp64 training.steps=4 log.histograms=2 optimizer.clip_norm=0.1 "            \
    "training.micro_batch_size=2 "

enum { LAYERS = 8, EXPONENTS = 400, OFFSET = 200 };

typedef struct layer {
    char name[80];
    int64_t elements, zeros, nonfinite, count[EXPONENTS];
    double norm, scale;
} layer;

static layer read_layer(const json_t *line)
{
    layer l = {.elements = json_integer_value(json_object_get(line, "elements")),
               .zeros = json_integer_value(json_object_get(line, "zeros")),
               .nonfinite = json_integer_value(json_object_get(line, "nonfinite")),
               .norm = json_number_value(json_object_get(line, "layer_norm")),
               .scale = json_number_value(json_object_get(line, "scale"))};
    int64_t first = json_integer_value(json_object_get(line, "first_exponent"));
    const json_t *counts = json_object_get(line, "counts");
    snprintf(l.name, sizeof l.name, "%s", json_string_value(json_object_get(line, "histogram")));
    for (size_t i = 0; i < json_array_size(counts); i++)
        l.count[OFFSET + first + (int64_t)i] = json_integer_value(json_array_get(counts, i));
    return l;
}

/* The layers of a step, and its gradient norm. Returns their number. */
static int read_layers(const char *run, int step, layer *out, double *norm)
{
    char *text = runs_metrics(run), *rest = NULL;
    int n = 0;
    for (char *word = strtok_r(text, "\n", &rest); word; word = strtok_r(NULL, "\n", &rest)) {
        json_t *line = json_loads(word, 0, NULL);
        if (json_integer_value(json_object_get(line, "step")) == step) {
            if (json_object_get(line, "grad_norm"))
                *norm = json_number_value(json_object_get(line, "grad_norm"));
            if (json_object_get(line, "histogram") && n < LAYERS) out[n++] = read_layer(line);
        }
        json_decref(line);
    }
    free(text);
    return n;
}

/* All elements are there once, and their squares are the norm's. */
static void check_sums(const layer *layers, int n, double norm)
{
    double squares = 0;
    for (int i = 0; i < n; i++) {
        int64_t sum = layers[i].zeros + layers[i].nonfinite;
        for (int e = 0; e < EXPONENTS; e++) sum += layers[i].count[e];
        assert_int_equal(sum, layers[i].elements);
        assert_true(layers[i].zeros >= 0 && layers[i].elements > 0);
        squares += layers[i].norm * layers[i].norm;
    }
    if (!(fabs(sqrt(squares) / norm - 1) < 1e-9)) fail_msg("%.17g, not %.17g", sqrt(squares), norm);
}

/* Rounding moves few numbers across a power of two. Gradients of keys' biases are zero but for
 * rounding, so what is below the rounding of the others is compared in one number with zeros. */
static void compare(const layer *a, const layer *b, const char *words)
{
    enum { NOISE = OFFSET - 50 };
    int64_t moved = 0, small = a->zeros - b->zeros;
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->elements, b->elements);
    for (int e = 0; e < NOISE; e++) small += a->count[e] - b->count[e];
    for (int e = NOISE; e < EXPONENTS; e++) moved += llabs(a->count[e] - b->count[e]);
    if (small != 0 || moved > 2 || !(fabs(a->norm / b->norm - 1) < 1e-9))
        fail_msg("%s: %s: %lld numbers elsewhere, %lld of them small, norms %.17g and %.17g", words,
                 a->name, (long long)moved, (long long)small, a->norm, b->norm);
}

TEST(layouts_have_the_histograms_of_one_rank)
{
    static const struct {
        const char *words;
        int ranks;
    } layouts[] = {{"parallel.data=2 parallel.zero=1", 2},
                   {"parallel.data=3 parallel.reduction=ring", 3},
                   {"parallel.data=2 parallel.zero=3 memory.offload_optimizer=host", 2},
                   {"parallel.data=2 parallel.zero=2 parallel.pipeline=2", 4},
                   {"parallel.tensor=2 parallel.sequence=true data.sequence_length=8", 2},
                   {"parallel.context=2 data.sequence_length=8", 2},
                   {"parallel.strategy=central_storage parallel.data=2", 2}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        layer one[LAYERS], many[LAYERS];
        double norm[2] = {0};
        char words[400];
        const char *length = strstr(layouts[i].words, "data.sequence_length=8");
        snprintf(words, sizeof words, RUN "%s", length ? length : "");
        runs_train("gpt2", "one", 1, words);
        snprintf(words, sizeof words, RUN "%s", layouts[i].words);
        runs_train("gpt2", "many", layouts[i].ranks, words);
        int n = read_layers("one", 2, one, &norm[0]);
        assert_int_equal(read_layers("many", 2, many, &norm[1]), n);
        assert_true(n >= 3); /* the embedding and two layers */
        assert_int_equal(read_layers("one", 1, one, &norm[0]), 0);
        assert_int_equal(read_layers("one", 2, one, &norm[0]), n);
        check_sums(one, n, norm[0]);
        check_sums(many, n, norm[1]);
        for (int k = 0; k < n; k++) compare(&many[k], &one[k], words);
        runs_remove("one");
        runs_remove("many");
    }
}

/* Counts exclude the loss scale: a scale of 2^10 moves nothing. */
TEST(loss_scale_is_excluded)
{
    layer plain[LAYERS], scaled[LAYERS];
    double norm;
    runs_train("llama", "plain", 1, RUN);
    runs_train("llama", "scaled", 1, RUN "precision.loss_scale=1024");
    int n = read_layers("plain", 4, plain, &norm);
    assert_int_equal(read_layers("scaled", 4, scaled, &norm), n);
    for (int k = 0; k < n; k++) {
        compare(&scaled[k], &plain[k], "loss scale");
        assert_true(plain[k].scale == 1 && scaled[k].scale == 1024);
    }
    runs_remove("plain");
    runs_remove("scaled");
}

TEST(histograms_change_no_bit)
{
    runs_train("gpt2", "with", 2, RUN "parallel.data=2 parallel.zero=2");
    runs_train("gpt2", "without", 2, RUN "parallel.data=2 parallel.zero=2 log.histograms=0");
    assert_true(runs_same("with", "without", 4));
    runs_remove("with");
    runs_remove("without");
}

ALL_TESTS(fixture_setup, fixture_teardown)
