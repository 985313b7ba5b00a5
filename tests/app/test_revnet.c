/* SPDX-License-Identifier: Apache-2.0
 *
 * RevNet on small images: grids train as one rank that keeps all activations, whether R computes
 * inputs from outputs or not; what is kept does not depend on the depth; R commits no running
 * statistics; and what the family refuses.
 */

#include "app/bars.h"
#include "app/runs.h"
#include "app/verdict.h"
#include "layer/layers.h"
#include "schedule/peaks.h"
#include "share.h"
#include "unit.h"

enum { SIDE = 8, IMAGES = 24, CLASSES = 3 };

static int make_data(void **state)
{
    fixture_setup(state);
    bars_write("bars", IMAGES, SIDE, CLASSES);
    return 0;
}

/* Two units in each group. NULL: it is refused. */
static ech_config *config_of(const char *architecture, const char *more)
{
    ech_text yaml = {0};
    ech_text_append(
        &yaml,
        "model: {architecture: %s, weight_layers: 26, base_channels: 8, image_height: %d, "
        "image_width: %d, image_channels: 1, num_classes: %d}\n"
        "data: {train: %s/bars.images, valid: %s/bars.images}\n"
        "training: {steps: 4, global_batch_size: 8, micro_batch_size: 2, "
        "check_every: 0}\n"
        "optimizer: {name: sgd, momentum: 0.9, learning_rate: 0.05, "
        "schedule: constant}\n"
        "checkpoint: {every: 2}\n"
        "parallel: {comm: local, threads: 1, bucket_bytes: 8KiB}\n"
        "log: {directory: %s/run}\n",
        architecture, SIDE, SIDE, CLASSES, fixture_folder, fixture_folder, fixture_folder);
    ech_config *config = fixture_config_of(yaml.at, more);
    ech_text_free(&yaml);
    return config;
}

/* ---- grids ---- */

static const struct {
    int ranks;
    const char *words;
} grids[] = {
    {1, ""},
    {1, "memory.recompute_blocks=1 memory.offload_activations=host"},
    {1, "model.weight_layers=14 memory.offload_activations=host"},
    {2, "parallel.data=2 parallel.zero=2"},
    {2, "parallel.pipeline=2 parallel.schedule=zero-bubble"},
    {2, "parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=interleaved"},
    {4, "parallel.pipeline=4 parallel.schedule=gpipe"},
    {4, "parallel.pipeline=4 memory.offload_activations=peer"},
    {4, "parallel.pipeline=2 parallel.data=2"},
    {8, "parallel.pipeline=4 parallel.data=2 model.weight_layers=38"},
    {2, "parallel.pipeline=2 model.weight_layers=56"}, /* three bottlenecks in each group */
};
enum { GRIDS = sizeof grids / sizeof *grids };

/* The one rank keeps all activations. */
TEST(grids_train_as_one_rank)
{
    static const char *const keeps[] = {"memory.invert=true", "memory.invert=false",
                                        "memory.invert=false memory.recompute=full"};
    enum { KEEPS = sizeof keeps / sizeof *keeps };
    for (size_t i = 0; i < GRIDS * KEEPS; i++) {
        char words[300];
        if (!share_takes_of(i, GRIDS * KEEPS)) continue;
        if (strstr(grids[i / KEEPS].words, "recompute_blocks") && i % KEEPS == 1) continue;
        snprintf(words, sizeof words, "%s %s", grids[i / KEEPS].words, keeps[i % KEEPS]);
        ech_config *config = config_of("revnet", words);
        if (!config) fail_msg("%s: %s", words, ech_last_error());
        assert_true(verdict_agrees(config, grids[i / KEEPS].ranks, 2, words));
        ech_config_destroy(config);
    }
}

/* ---- plans ---- */

/* The most that a rank needs. */
static int64_t planned_activations(const char *grid, int ranks, int depth)
{
    int64_t peak[ECH_MEMORY_KINDS], most = 0;
    char words[200];
    ech_design design = {0};
    snprintf(words, sizeof words, "model.weight_layers=%d %s", depth, grid);
    ech_config *config = config_of("revnet", words);
    assert_non_null(config);
    assert_int_equal(ech_design_create(config, NULL, ranks, ranks, &design), ECH_OK);
    for (int rank = 0; rank < ranks; rank++) {
        ech_plan *plan;
        assert_int_equal(ech_design_plan(&design, rank, false, &plan), ECH_OK);
        ech_plan_peaks(plan, peak);
        if (peak[ECH_MEMORY_ACTIVATIONS] > most) most = peak[ECH_MEMORY_ACTIVATIONS];
        ech_plan_destroy(plan);
    }
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return most;
}

/* From 6 to 66 units, and from 9 to 27 bottlenecks. */
TEST(depth_needs_no_activations)
{
    enum { FEW = 26, MANY = 266, FEW_BOTTLENECKS = 56, MANY_BOTTLENECKS = 164 };
    int64_t few = planned_activations("", 1, FEW);
    assert_int_equal(few, planned_activations("", 1, MANY));
    assert_true(few < planned_activations("memory.invert=false", 1, FEW));
    assert_true(planned_activations("memory.invert=false", 1, MANY) > 6 * few);
    assert_int_equal(planned_activations("", 1, FEW_BOTTLENECKS),
                     planned_activations("", 1, MANY_BOTTLENECKS));
}

/* Statistics are F's: no call of R adds to them. */
TEST(recomputed_units_commit_nothing)
{
    ech_design design = {0};
    ech_config *config = config_of("revnet", "");
    int inverted = 0, from_inputs = 0;
    assert_int_equal(ech_design_create(config, NULL, 1, 1, &design), ECH_OK);
    for (size_t b = 0; b < design.model->block.n; b++) {
        const ech_block *block = design.model->block.at[b];
        const ech_program *again = &block->program[ECH_RECOMPUTE];
        int statistics = 0;
        for (size_t c = 0; c < again->n; c++) {
            const ech_layer *layer = block->node.at[again->at[c].node].layer;
            assert_false(layer->writes_partials);
            statistics += layer == &ech_layer_row_batch_statistics;
        }
        assert_int_equal(statistics, again->n ? 4 : 0);
        inverted += again->n && block->options.invert;
        from_inputs += again->n && !block->options.invert;
    }
    assert_int_equal(inverted, 4);
    assert_int_equal(from_inputs, 2); /* the units that halve the images */
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* ---- the paper's networks; what is refused ---- */

static int64_t count_params(const char *words)
{
    ech_design design = {0};
    ech_config *config = config_of("revnet", words);
    assert_non_null(config);
    assert_int_equal(ech_design_create(config, NULL, 1, 1, &design), ECH_OK);
    int64_t params = ech_model_params(design.model);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return params;
}

/* Gomez et al. 2017, table 2: 0.46, 1.73 and, of bottlenecks, 1.75 million; our shortcuts of 1 x 1
 * are besides. */
TEST(sizes_are_the_papers)
{
    static const char cifar[] =
        "model.image_channels=3 model.base_channels=32 model.weight_layers=";
    char words[200];
    snprintf(words, sizeof words, "%s38", cifar);
    int64_t small = count_params(words);
    snprintf(words, sizeof words, "%s110", cifar);
    int64_t large = count_params(words);
    assert_in_range(small, 460000, 475000);
    assert_in_range(large, 1730000, 1750000);
    snprintf(words, sizeof words, "%s164", cifar);
    assert_in_range(count_params(words), 1700000, 1800000);
}

TEST(refusals)
{
    static const struct {
        const char *architecture, *words, *said;
    } all[] = {
        {"revnet", "model.weight_layers=39", "38 would do"},
        {"revnet", "model.weight_layers=5", "14 would do"},
        {"revnet", "model.weight_layers=163", "158 would do"},
        {"revnet", "model.base_channels=7", "use 8"},
        {"revnet", "model.norm_samples=3", "norm_samples"},
        {"revnet", "precision.compute=bf16", "use precision.compute = fp32"},
        {"revnet", "model.reversible=false", "not read by revnet"},
        {"resnet", "model.weight_layers=18 model.reversible=true", "not read by resnet"},
        {"vgg", "model.weight_layers=11 model.hidden_size=8 model.reversible=true",
         "not read by vgg"},
        {"resnet", "model.weight_layers=18 memory.invert=true", "only in a reversible model"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ech_design design = {0};
        ech_config *config = config_of(all[i].architecture, all[i].words);
        ech_status status =
            config ? ech_design_create(config, NULL, 1, 1, &design) : ECH_EUSAGE;
        assert_int_equal(status, ECH_EUSAGE);
        if (!strstr(ech_last_error(), all[i].said))
            fail_msg("%s: %s", all[i].words, ech_last_error());
        ech_design_destroy(&design);
        ech_config_destroy(config);
    }
}

ALL_TESTS(make_data, fixture_teardown)
