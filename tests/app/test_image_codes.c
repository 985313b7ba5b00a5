/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.encode of convolutional networks: codes have the sizes of Gist's formulas, working memory
 * shrinks by the paper's factors, and a run has its plan's peaks. Lossless codes change no bit.
 * Narrow codes change gradients alone. Layouts and other ways to save memory pass verification.
 */
#include "app/codes.h"
#include "app/runs.h"
#include "app/verdict.h"
#include "kernel/codes.h"
#include "layer/layers.h"
#include "schedule/peaks.h"
#include "share.h"
#include "unit.h"

enum { IMAGES = 16, SIDE = 32, PIXELS = SIDE * SIDE, CLASSES = 4, STEPS = 3, CHANNELS = 4 };

#define VGG                                                                                        \
    "model.architecture=vgg model.weight_layers=11 model.base_channels=4 model.hidden_size=16 "    \
    "model.classifier_dropout=0 "
#define RESNET "model.architecture=resnet model.weight_layers=18 model.base_channels=4 "
#define REVNET "model.architecture=revnet model.weight_layers=14 model.base_channels=4 "

/* ---- data: IDX files, whose numbers have the highest byte first ---- */

static void append_number(ech_text *out, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        char byte = (char)(number >> shift);
        ech_text_append_bytes(out, &byte, 1);
    }
}

static void write_file(const char *name, ech_text *bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", fixture_folder, name);
    ECH_ASSERT(ech_file_write(path, bytes->at, bytes->n) == ECH_OK);
    ech_text_free(bytes);
}

/* Noise, and a bright row whose height is the class. */
static void write_images(void)
{
    ech_text pixels = {0}, labels = {0};
    append_number(&pixels, 0x803);
    append_number(&pixels, IMAGES);
    append_number(&pixels, SIDE);
    append_number(&pixels, SIDE);
    append_number(&labels, 0x801);
    append_number(&labels, IMAGES);
    for (int i = 0; i < IMAGES * PIXELS; i++) {
        int label = i / PIXELS * 7 / 3 % CLASSES; /* not balanced: gradients do not cancel */
        uint32_t noise = ech_random_word((ech_random_key){.seed = 5}, (uint64_t)i);
        char pixel = (char)(noise % 100 + (i % PIXELS / SIDE / 8 == label ? 150 : 0));
        ech_text_append_bytes(&pixels, &pixel, 1);
        char byte = (char)label;
        if (i % PIXELS == 0) ech_text_append_bytes(&labels, &byte, 1);
    }
    write_file("rows-images-idx3-ubyte", &pixels);
    write_file("rows-labels-idx1-ubyte", &labels);
}

static int make_data(void **state)
{
    char in[300], out[300];
    ech_images_count count;
    fixture_setup(state);
    ech_tokenizer_close(fixture_tokenizer);
    fixture_tokenizer = NULL; /* there is none */
    write_images();
    snprintf(in, sizeof in, "%s/rows-images-idx3-ubyte", fixture_folder);
    snprintf(out, sizeof out, "%s/rows", fixture_folder);
    const ech_images_options options = {.in = in, .out = out, .workers = 1};
    ECH_ASSERT(ech_data_import_images(&options, &count) == ECH_OK);
    ECH_ASSERT(count.images == IMAGES && count.classes == CLASSES);
    return 0;
}

/* NULL: it is refused. */
static ech_config *config_of(const char *words)
{
    ech_text yaml = {0};
    ech_text_append(&yaml,
                    "model: {image_height: %d, image_width: %d, image_channels: 1, "
                    "num_classes: %d}\n"
                    "data: {train: %s/rows.images}\n"
                    "training: {steps: %d, global_batch_size: 8, micro_batch_size: 4, "
                    "check_every: 0, validate_every: 0}\n"
                    "optimizer: {name: sgd, momentum: 0.9, learning_rate: 0.05, "
                    "schedule: constant}\n"
                    "parallel: {comm: local, threads: 1}\n"
                    "log: {directory: %s/run}\n",
                    SIDE, SIDE, CLASSES, fixture_folder, STEPS, fixture_folder);
    ech_config *config = fixture_config_of(yaml.at, words);
    ech_text_free(&yaml);
    return config;
}

/* ---- plans ---- */

typedef struct planned {
    int64_t kept[ECH_KEPTS]; /* bytes of the codes of one micro-batch */
    int bits, sparse;        /* encoded values */
    int64_t working, arena;
} planned;

static int count_nodes(const ech_model *model, const ech_layer *layer)
{
    int found = 0;
    for (size_t b = 0; b < model->block.n; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n; n++)
            found += model->block.at[b]->node.at[n].layer == layer;
    return found;
}

static planned plan_of(const char *words)
{
    planned out = {0};
    ech_design design = {0};
    ech_plan *plan;
    ech_config *config = config_of(words);
    if (!config || ech_design_create(config, NULL, 1, 1, &design) != ECH_OK)
        fail_msg("%s: %s", words, ech_last_error());
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    for (size_t b = 0; b < design.model->block.n; b++) {
        const ech_block *block = design.model->block.at[b];
        for (size_t v = 0; v < block->value.n; v++)
            out.kept[block->value.at[v].kept] += (int64_t)ech_block_value_bytes(
                block, (int)v, plan->list[ECH_LIST_TRAIN].extent, plan->types);
    }
    out.bits = count_nodes(design.model, &ech_layer_row_encode_bits);
    out.sparse = count_nodes(design.model, &ech_layer_row_encode_sparse);
    out.working = ech_plan_working(plan).bytes;
    out.arena = plan->arena_bytes[ECH_SPACE_DEVICE];
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return out;
}

/* Numbers of a sample in VGG-11's rows of codes. */
enum { CONVS = 8, POOLS = 5, HIDDEN = 16 };
static const int sides[CONVS] = {32, 16, 8, 8, 4, 4, 2, 2}; /* of the convolutions' outputs */
static const int factors[CONVS] = {1, 2, 4, 4, 8, 8, 8, 8}; /* their channels, by CHANNELS */
static const bool pooled[CONVS] = {true, true, false, true, false, true, false, true};

static int64_t sparse_bytes(int64_t n, double density, int64_t item)
{
    return (int64_t)ceil(density * (double)n) * (item + 1) + 4 * ((n + 255) / 256);
}

static void check_sizes(double density)
{
    enum { SAMPLES = 4, ITEM = 4 };
    int64_t bits = 2 * HIDDEN / 8, places = 0, sparse = 2 * sparse_bytes(HIDDEN, density, ITEM);
    char words[300];
    for (int c = 0; c < CONVS; c++) {
        int64_t made = sides[c] * sides[c] * factors[c] * CHANNELS;
        int64_t left = pooled[c] ? made / 4 : made;
        bits += made / 8;
        places += pooled[c] ? (left + 1) / 2 : 0;
        sparse += sparse_bytes(left, density, ITEM);
    }
    snprintf(words, sizeof words, VGG "memory.encode=lossless memory.encode_density=%g", density);
    planned lossless = plan_of(words);
    assert_int_equal(lossless.kept[ECH_KEPT_BITS], SAMPLES * bits);
    assert_int_equal(lossless.kept[ECH_KEPT_PLACES], SAMPLES * places);
    assert_int_equal(lossless.kept[ECH_KEPT_SPARSE], SAMPLES * sparse);
}

TEST(sizes_follow_the_formulas)
{
    check_sizes(0.5);
    check_sizes(0.25);
}

/* The factors, for VGG-16 of full width with batches of 64 images. */
TEST(working_memory_shrinks_by_gists_factors)
{
    static const char vgg[] = "model.architecture=vgg model.weight_layers=16 "
                              "model.image_height=%d model.image_width=%d "
                              "training.micro_batch_size=64 training.global_batch_size=64 "
                              "model.hidden_size=4096 optimizer.name=sgd memory.encode=%s";
    static const struct {
        const char *encode;
        double factor;
    } all[] = {{"lossless", 1.4}, {"fp16", 1.8}, {"fp10", 1.8}, {"fp8", 1.8}};
    char words[400];
    snprintf(words, sizeof words, vgg, SIDE, SIDE, "none");
    planned none = plan_of(words);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(words, sizeof words, vgg, SIDE, SIDE, all[i].encode);
        planned coded = plan_of(words);
        double factor = (double)none.working / (double)coded.working;
        if (factor < all[i].factor) fail_msg("%s: 1 / %.3f", all[i].encode, factor);
        assert_true(coded.arena < none.arena);
    }
}

/* A ReLU after a norm is recomputed from the norm's input, so its output has no code. Each of the
 * eight units has a code of its input, and one of the sum that its last ReLU reads. */
TEST(recomputed_rectifiers_have_no_codes)
{
    planned none = plan_of(RESNET), lossless = plan_of(RESNET "memory.encode=lossless");
    planned norms = plan_of(RESNET "memory.encode=fp10 memory.encode_norms=true");
    assert_true(lossless.working <= none.working && norms.working < lossless.working);
    assert_int_equal(lossless.bits, 8);
    assert_int_equal(lossless.sparse, 8);
}

/* ---- runs ---- */

typedef struct trained {
    double loss[STEPS], norm[STEPS];
    ech_code_metrics codes; /* of the last step */
    int64_t working;        /* most bytes at once */
} trained;

static ech_status train_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trained *out = context;
    ech_compared_run run = {.design = design};
    ech_status status = ech_compared_run_open(&run, comm);
    for (int step = 0; step < STEPS && status == ECH_OK; step++) {
        status = ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step);
        const ech_readings *r = ech_exec_readings(run.session.exec);
        if (status != ECH_OK || ech_comm_rank(comm) != 0) continue;
        out->loss[step] = r->loss;
        out->norm[step] = r->grad_norm;
        out->codes = ech_code_metrics_of(design->model, r->reports);
        out->working = ech_exec_working(run.session.exec);
    }
    ech_compared_run_close(&run);
    return status;
}

static trained train(const char *network, const char *words)
{
    char all[400];
    trained out = {0};
    snprintf(all, sizeof all, "%s %s", network, words);
    ech_config *config = config_of(all);
    if (!config || fixture_run(config, 1, train_rank, &out) != ECH_OK)
        fail_msg("%s: %s", all, ech_last_error());
    ech_config_destroy(config);
    return out;
}

static const char *const networks[] = {VGG, RESNET "model.small_stem=true", RESNET,
                                       RESNET "model.weight_layers=50"};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* Windows of zeros are ties in a pool. Weights of the next step follow from gradients. */
TEST(lossless_codes_change_no_bit)
{
    static const char *const others[] = {"", "precision.compute=fp64", "memory.recompute=full",
                                         "memory.offload_activations=host"};
    enum { OTHERS = sizeof others / sizeof *others };
    for (size_t i = 0; i < (size_t)NETWORKS * OTHERS; i++) {
        if (!share_takes_of(i, (size_t)NETWORKS * OTHERS)) continue;
        const char *network = networks[i / OTHERS], *other = others[i % OTHERS];
        trained plain = train(network, other);
        for (int dense = 0; dense < 2; dense++) {
            char words[200];
            snprintf(words, sizeof words, "%s memory.encode=lossless memory.encode_density=%s",
                     other, dense ? "0.01" : "0.75");
            trained coded = train(network, words);
            if (memcmp(plain.loss, coded.loss, sizeof plain.loss) != 0 ||
                memcmp(plain.norm, coded.norm, sizeof plain.norm) != 0)
                fail_msg("%s %s changes bits", network, words);
            assert_true(coded.codes.sparse && coded.codes.density > 0.01 &&
                        coded.codes.density < 1);
            assert_true(!dense || coded.codes.spilled > 0);
        }
    }
}

/* Also: the run has its plan's peak, which is below the one without codes. Narrower codes may leave
 * it as it is, where a convolution's scratch makes it. */
TEST(narrow_codes_change_gradients_alone)
{
    static const char *const codes[] = {"fp16", "fp10", "fp8"};
    trained plain = train(VGG, "");
    int64_t without = plan_of(VGG).working, most = without;
    double before = 0;
    assert_int_equal(plain.working, without);
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        char words[300];
        snprintf(words, sizeof words, VGG "memory.encode=%s", codes[c]);
        trained coded = train(words, "");
        double off = fabs(coded.norm[0] / plain.norm[0] - 1);
        assert_true(coded.loss[0] == plain.loss[0] && off > before && off < 0.05);
        assert_int_equal(coded.working, plan_of(words).working);
        assert_true(coded.working < without && coded.working <= most);
        before = off;
        most = coded.working;
    }
}

/* ---- layouts ---- */

static const struct {
    int ranks;
    const char *words;
} layouts[] = {
    {1, VGG "memory.encode=lossless memory.recompute=full memory.recompute_blocks=2"},
    {2, VGG "memory.encode=lossless parallel.data=2 parallel.zero=3 "
            "memory.offload_activations=disk"},
    {2, VGG "memory.encode=lossless parallel.pipeline=2 parallel.schedule=zero-bubble"},
    {2, VGG "memory.encode=fp8 parallel.pipeline=2 parallel.schedule=gpipe "
            "memory.recompute=selective"},
    {2, VGG "memory.encode=fp8 parallel.pipeline=2 parallel.schedule=pipedream "
            "parallel.weight_stashing=false"},
    {2, VGG "memory.encode=fp10 parallel.data=2 memory.offload_activations=host "
            "parallel.device=walled"},
    {2, RESNET "memory.encode=lossless parallel.pipeline=2 parallel.virtual_stages=2 "
               "parallel.schedule=interleaved"},
    {1, RESNET "memory.encode=fp10 memory.encode_norms=true memory.recompute=full"},
    {2, RESNET "memory.encode=fp16 memory.encode_norms=true parallel.data=2 parallel.zero=2"},
    {1, REVNET "memory.encode=fp10 memory.encode_norms=true"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

TEST(every_layout_verifies)
{
    int bad = 0;
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (!share_takes_of(i, LAYOUTS)) continue;
        char words[400];
        snprintf(words, sizeof words, "%s precision.compute=fp64", layouts[i].words);
        ech_config *config = config_of(words);
        if (!config) fail_msg("%s: %s", words, ech_last_error());
        verdict_request request = {.config = config, .ranks = layouts[i].ranks, .steps = 2};
        verdict found = verdict_of(&request);
        if (!found.passed) fprintf(stderr, "%s: %s\n", words, found.why);
        bad += !found.passed;
        ech_config_destroy(config);
    }
    assert_int_equal(bad, 0);
}

/* All ReLUs of a RevNet follow norms, and it has no max pool. */
TEST(nothing_to_encode_is_an_error)
{
    ech_design design = {0};
    ech_config *config = config_of(REVNET "memory.encode=lossless");
    assert_non_null(config);
    assert_int_equal(ech_design_create(config, NULL, 1, 1, &design), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "there is no max pool; remove this key"));
    ech_config_destroy(config);
}

ALL_TESTS(make_data, fixture_teardown)
