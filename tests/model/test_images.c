/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of images: counts, names and shapes of torchvision's models, and errors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "model/import_names.h"
#include "unit.h"

#include "model/family.h"

/* Images of `side` x `side` pixels, and `words` besides. */
static ech_config *config(const char *architecture, int side, int classes, const char *words)
{
    ech_config *c = import_config();
    char sizes[200];
    snprintf(sizes, sizeof sizes,
             "model.architecture=%s model.image_height=%d model.image_width=%d "
             "model.num_classes=%d",
             architecture, side, side, classes);
    import_set(c, sizes);
    if (*words) import_set(c, words);
    return c;
}

static ech_model *create(ech_config *c)
{
    ech_model *model = NULL;
    if (ech_model_resolve(c, 1) != ECH_OK || ech_model_create_whole(c, &model) != ECH_OK)
        fail_msg("%s", ech_last_error());
    return model;
}

/* Images of 224 x 224 pixels, 1000 classes: parameters, and multiplications in units of 1e9 of the
 * forward of an image, as torchvision states them for its weights. */
static const struct {
    const char *architecture;
    int depth;
    int64_t params;
    double multiplies;
} known[] = {
    {"vgg", 11, 132863336, 7.609},     {"vgg", 13, 133047848, 11.308},
    {"vgg", 16, 138357544, 15.47},     {"vgg", 19, 143667240, 19.632},
    {"resnet", 18, 11689512, 1.814},   {"resnet", 34, 21797672, 3.664},
    {"resnet", 50, 25557032, 4.089},   {"resnet", 101, 44549160, 7.801},
    {"resnet", 152, 60192808, 11.514},
};

/* The first convolution, which passes no gradient to the pixels. */
static double first_multiplies(const char *architecture)
{
    bool vgg = strcmp(architecture, "vgg") == 0;
    return vgg ? 224.0 * 224 * 64 * 3 * 3 * 3 : 112.0 * 112 * 64 * 3 * 7 * 7;
}

TEST(counts_are_torchvisions)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char depth[40];
        snprintf(depth, sizeof depth, "model.weight_layers=%d", known[i].depth);
        ech_config *c = config(known[i].architecture, 224, 1000, depth);
        ech_model *model = create(c);
        assert_int_equal(ech_model_params(model), known[i].params);
        assert_int_equal(ech_model_active(model), known[i].params);
        assert_int_equal(ech_model_trained(model), known[i].params);
        /* A step multiplies three times: forward, by weights and by outputs. */
        double step = ech_model_flops(model, 1) / 2;
        double forward = (step + first_multiplies(known[i].architecture)) / 3;
        if (fabs(forward * 1e-9 - known[i].multiplies) > 0.0006)
            fail_msg("%s %d: %.4f", known[i].architecture, known[i].depth, forward * 1e-9);
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
}

/* CIFAR's networks of both papers (He et al. 2016), with 16 channels, and ImageNet's deepest:
 * parameters as PyTorch counts them in the modules of tests/app/check_images.py. The papers have
 * 0.27, 1.7, 1.7, 10.2 and 64.7 million; their shortcuts of ResNet-20 and -110 have no weights. */
TEST(sizes_are_the_papers)
{
    static const struct {
        int side, classes;
        const char *words;
        int64_t params;
    } cases[] = {
        {32, 10, "model.weight_layers=20 model.base_channels=16", 272474},
        {32, 10, "model.weight_layers=110 model.base_channels=16 model.pre_activation=true",
         1730522},
        {32, 10, "model.weight_layers=164 model.base_channels=16 model.pre_activation=true",
         1703258},
        {32, 10, "model.weight_layers=1001 model.base_channels=16 model.pre_activation=true",
         10327706},
        {224, 1000, "model.weight_layers=200 model.pre_activation=true", 64666152},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *c = config("resnet", cases[i].side, cases[i].classes, cases[i].words);
        ech_model *model = create(c);
        assert_int_equal(ech_model_params(model), cases[i].params);
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
}

/* Lines "NAME SIZE ...", one a tensor. */
static void append_tensors(const ech_model *model, ech_text *out)
{
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_param *param = &model->param.at[p];
        ech_text_append(out, "%s", param->name);
        for (int d = 0; d < param->shape.dims; d++)
            ech_text_append(out, " %lld", (long long)param->shape.size[d]);
        ech_text_append(out, "\n");
    }
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the lines in place, and prints them again to `out`. */
static void sort_lines(char *text, ech_text *out)
{
    enum { MOST = 2000 };
    char *lines[MOST], *rest = text;
    size_t n = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (!*line) continue;
        assert_true(n < MOST);
        lines[n++] = line;
    }
    qsort(lines, n, sizeof *lines, compare_lines);
    for (size_t i = 0; i < n; i++) ech_text_append(out, "%s\n", lines[i]);
}

/* tests/app/check_images.py wrote the lists from torchvision's state_dict(). */
TEST(tensors_are_torchvisions)
{
    static const struct {
        const char *architecture, *depth, *list;
    } cases[] = {
        {"vgg", "model.weight_layers=11", "vgg11"},
        {"vgg", "model.weight_layers=16", "vgg16"},
        {"resnet", "model.weight_layers=18", "resnet18"},
        {"resnet", "model.weight_layers=50", "resnet50"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[1000], *text;
        size_t n;
        ech_config *c = config(cases[i].architecture, 224, 1000, cases[i].depth);
        ech_model *model = create(c);
        ECH_FREED_TEXT ours = {0}, sorted = {0}, theirs = {0};
        snprintf(path, sizeof path, ECH_FIXTURES "/torchvision/%s.txt", cases[i].list);
        assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
        append_tensors(model, &ours);
        sort_lines(ours.at, &sorted);
        sort_lines(text, &theirs);
        assert_string_equal(sorted.at, theirs.at);
        free(text);
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
}

/* Of the tensor with that name: whether its state or decay is as in the families' comments. */
static const ech_param *find(const ech_model *model, const char *name)
{
    for (size_t p = 0; p < model->param.n; p++)
        if (strcmp(model->param.at[p].name, name) == 0) return &model->param.at[p];
    fail_msg("no tensor %s", name);
    return NULL;
}

TEST(running_statistics_are_states)
{
    ech_config *c = config("resnet", 32, 10, "model.weight_layers=18");
    ech_model *model = create(c);
    const ech_param *mean = find(model, "layer2.0.downsample.1.running_mean");
    const ech_param *variance = find(model, "bn1.running_var");
    assert_true(mean->commit && variance->commit && mean->commit_rate == 0.1);
    assert_int_equal(mean->initializer, ECH_INIT_ZERO);
    assert_int_equal(variance->initializer, ECH_INIT_ONE);
    /* Weights decay; gains and biases do not. */
    assert_true(find(model, "conv1.weight")->decay && find(model, "fc.weight")->decay);
    assert_false(find(model, "bn1.weight")->decay || find(model, "bn1.bias")->decay ||
                 find(model, "fc.bias")->decay);
    ech_model_destroy(model);
    ech_config_destroy(c);
}

/* Sides below 64 pixels have the small stem, unless the key says otherwise. */
TEST(stem_follows_the_image)
{
    static const struct {
        int side;
        const char *words;
        int64_t kernel;
    } cases[] = {{32, "model.weight_layers=18", 3},
                 {63, "model.weight_layers=18", 3},
                 {64, "model.weight_layers=18 model.image_width=63", 3},
                 {64, "model.weight_layers=18", 7},
                 {32, "model.weight_layers=18 model.small_stem=false", 7},
                 {64, "model.weight_layers=50 model.small_stem=true", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *c = config("resnet", cases[i].side, 10, cases[i].words);
        ech_model *model = create(c);
        assert_int_equal(find(model, "conv1.weight")->shape.size[2], cases[i].kernel);
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
}

TEST(multilayer_perceptron)
{
    ech_config *c = config("mlp", 28, 10,
                           "model.image_channels=1 model.hidden_size=100 "
                           "model.num_hidden_layers=2");
    ech_model *model = create(c);
    assert_int_equal(ech_model_params(model), 784 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10);
    assert_int_equal(model->param.n, 6);
    assert_int_equal(find(model, "layers.0.weight")->shape.size[1], 784);
    assert_int_equal(find(model, "head.bias")->shape.size[0], 10);
    ech_model_destroy(model);
    ech_config_destroy(c);
}

TEST(errors)
{
    static const struct {
        const char *architecture;
        int side;
        const char *words, *why;
    } cases[] = {
        {"vgg", 32, "model.weight_layers=12",
         "model.weight_layers = 12: no depth of vgg; use 11, 13, 16 or 19"},
        {"resnet", 32, "model.weight_layers=21",
         "no depth of resnet; use 18, 34, 50, 101, 152 or 200, or another 2 + 6 n or 2 + 9 n, such "
         "as "
         "20"},
        {"vgg", 31, "model.weight_layers=11", "model.image_height = 31: five pools leave no pixel"},
        {"vgg", 32, "model.weight_layers=11 model.image_width=16", "model.image_width = 16"},
        {"resnet", 32, "model.weight_layers=18 model.norm_samples=3 training.micro_batch_size=8",
         "model.norm_samples = 3: does not divide training.micro_batch_size = 8, and a norm's "
         "samples lie within a micro-batch; 2 would"},
        {"vgg", 32, "model.weight_layers=11 model.norm_samples=1",
         "model.norm_samples = 1: not read by vgg"},
        {"vgg", 32, "model.weight_layers=11 model.num_hidden_layers=3", "not read by vgg"},
        {"resnet", 32, "model.weight_layers=18 model.hidden_size=3", "not read by resnet"},
        {"mlp", 32, "model.hidden_size=3 model.num_hidden_layers=1 model.weight_layers=18",
         "model.weight_layers = 18: not read by mlp"},
        {"mlp", 32, "model.hidden_size=3 model.num_hidden_layers=1 data.sequence_length=18",
         "data.sequence_length = 18: not read by mlp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *c = config(cases[i].architecture, cases[i].side, 10, cases[i].words);
        ech_model *model = NULL;
        ech_clear_error();
        ech_status status = ech_model_resolve(c, 1);
        if (status == ECH_OK) status = ech_model_create_whole(c, &model);
        assert_int_equal(status, ECH_EUSAGE);
        assert_null(model);
        if (!strstr(ech_last_error(), cases[i].why))
            fail_msg("'%s' is not in: %s", cases[i].why, ech_last_error());
        ech_config_destroy(c);
    }
}

/* Rows of config.json, there and back. */
TEST(config_json)
{
    static const char *const words[][2] = {
        {"vgg", "model.weight_layers=13 model.base_channels=4 model.hidden_size=24 "
                "model.classifier_dropout=0.25"},
        {"resnet", "model.weight_layers=50 model.base_channels=12 model.small_stem=true"},
        {"resnet", "model.weight_layers=29 model.base_channels=12 model.pre_activation=true"},
        {"mlp", "model.hidden_size=12 model.num_hidden_layers=2 model.image_channels=1"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ech_config *c = config(words[i][0], 64, 7, words[i][1]), *read = import_config();
        ECH_FREED_TEXT json = {0};
        ECH_FREED char *keys = ech_strdup(words[i][1]);
        assert_int_equal(ech_model_resolve(c, 1), ECH_OK);
        const ech_model_export_options options = {.dtype = ECH_F32, .path = "config.json"};
        assert_int_equal(ech_model_export(c, &options, &json), ECH_OK);
        if (ech_model_import_text(read, "config.json", json.at, json.n, NULL) != ECH_OK)
            fail_msg("%s", ech_last_error());
        assert_int_equal(read->model.image_height, 64);
        assert_int_equal(read->model.num_classes, 7);
        char *rest = keys;
        for (char *key; (key = strsep(&rest, " "));) {
            ECH_FREED_TEXT value = {0};
            char *wanted = strchr(key, '=');
            *wanted++ = 0;
            ech_config_format(read, key, &value);
            assert_string_equal(value.at, wanted);
        }
        ech_config_destroy(read);
        ech_config_destroy(c);
    }
}
