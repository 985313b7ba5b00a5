/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norms whose statistics cover the micro-batches of all replicas (model.norm_sync): grids
 * train as one rank with micro-batches of all replicas' samples; statistics of single replicas
 * would differ; what replicas send; and what is refused.
 */
#include <math.h>

#include "app/bars.h"
#include "app/runs.h"
#include "app/verdict.h"
#include "schedule/traffic.h"
#include "share.h"
#include "unit.h"

enum { SIDE = 8, IMAGES = 32, CLASSES = 3, BATCH = 16, MICRO = 2 };

static int make_data(void **state)
{
    fixture_setup(state);
    bars_write("bars", IMAGES, SIDE, CLASSES);
    return 0;
}

static const char *const networks[] = {
    "model.architecture=resnet model.weight_layers=18 model.base_channels=2",
    "model.architecture=resnet model.weight_layers=14 model.base_channels=4 "
    "model.pre_activation=true",
    "model.architecture=revnet model.weight_layers=14 model.base_channels=8",
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* NULL: it is refused. */
static ech_config *config_of(const char *name, const char *network, const char *more)
{
    ech_text yaml = {0}, words = {0};
    ech_text_append(&yaml,
                    "data: {train: %s/bars.images, valid: %s/bars.images, crop_padding: 2, "
                    "flip: true}\n"
                    "optimizer: {name: sgd, momentum: 0.9, learning_rate: 0.05, weight_decay: "
                    "0.01, schedule: constant}\n"
                    "parallel: {comm: local, threads: 1}\n"
                    "log: {directory: %s/%s}\n",
                    fixture_folder, fixture_folder, fixture_folder, name);
    ech_text_append(&words,
                    "%s model.image_height=%d model.image_width=%d model.image_channels=1 "
                    "model.num_classes=%d training.steps=4 training.global_batch_size=%d "
                    "training.micro_batch_size=%d precision.compute=fp64 training.check_every=0 "
                    "training.validate_every=2 checkpoint.every=2 model.norm_sync=true %s",
                    network, SIDE, SIDE, CLASSES, BATCH, MICRO, more);
    ech_config *config = fixture_config_of(yaml.at, words.at);
    ech_text_free(&yaml);
    ech_text_free(&words);
    return config;
}

/* ---- layouts ---- */

static const struct {
    int ranks;
    const char *words;
} grids[] = {
    {1, "parallel.data=1"},
    {2, "parallel.data=2"},
    {3, "parallel.data=3 training.global_batch_size=12"},
    {4, "parallel.data=4 parallel.zero=1"},
    {4, "parallel.data=4 parallel.zero=3 parallel.reduction=ring"},
    {4, "parallel.data=2 parallel.pipeline=2"},
    {4, "parallel.stage_replicas=[2,2] parallel.schedule=gpipe"},
    {4, "parallel.data=2 parallel.pipeline=2 parallel.schedule=zero-bubble"},
    {4, "parallel.data=2 parallel.pipeline=2 parallel.schedule=zero-bubble-v"},
    {4, "parallel.data=2 parallel.pipeline=2 parallel.schedule=interleaved "
        "parallel.virtual_stages=2"},
    {2, "parallel.data=2 parallel.zero=2 memory.recompute=full parallel.device=queued"},
    {4, "parallel.data=2 parallel.pipeline=2 memory.recompute=full parallel.device=walled"},
    {2, "parallel.data=2 memory.recompute=selective memory.offload_activations=host"},
    {2, "parallel.data=2 memory.encode=fp10 memory.encode_norms=true"},
    {3, "parallel.data=2 parallel.strategy=parameter_server"},
    {2, "parallel.data=2 parallel.strategy=central_storage"},
};
enum { GRIDS = sizeof grids / sizeof *grids };

/* RevNet, whose activations R computes, has no codes and no recomputation by choice. */
static bool is_pair(int network, const char *words)
{
    return !strstr(networks[network], "revnet") ||
           !(strstr(words, "memory.recompute") || strstr(words, "memory.encode"));
}

TEST(grids_train_as_one_rank)
{
    for (size_t i = 0; i < (size_t)GRIDS * NETWORKS; i++) {
        const char *words = grids[i / NETWORKS].words;
        if (!share_takes_of(i, (size_t)GRIDS * NETWORKS)) continue;
        if (!is_pair((int)(i % NETWORKS), words)) continue;
        ech_config *config = config_of("grid", networks[i % NETWORKS], words);
        if (!config) fail_msg("%s: %s", words, ech_last_error());
        assert_true(verdict_agrees(config, grids[i / NETWORKS].ranks, 2, words));
        ech_config_destroy(config);
    }
}

/* ---- statistics ---- */

static double *trained_statistic(int ranks, const char *words, const char *name, int64_t *n)
{
    ech_config *config = config_of("norms", networks[0], words);
    ech_training training = {0};
    assert_non_null(config);
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    if (status != ECH_OK) fail_msg("%s on %d ranks: %s", words, ranks, ech_last_error());
    ech_config_destroy(config);
    ech_safetensors *file = runs_open("norms", 2, runs_model);
    double *numbers = runs_read(file, name, n);
    ech_safetensors_close(file);
    runs_remove("norms");
    return numbers;
}

static double difference(const double *a, const double *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(a[i] - b[i]) / (fabs(b[i]) + 1e-3));
    return most;
}

/* Two steps, so that the second one's statistics follow from the first one's gradients. */
TEST(statistics_are_those_of_all_replicas)
{
    static const char *const names[] = {"bn1.running_mean", "layer3.1.bn2.running_var"};
    static const char *const runs[] = {
        "training.steps=2 training.micro_batch_size=8 parallel.data=1",
        "training.steps=2 training.micro_batch_size=2 parallel.data=4",
        "training.steps=2 training.micro_batch_size=2 parallel.data=4 model.norm_sync=false"};
    static const int ranks[] = {1, 4, 4};
    for (int k = 0; k < 2; k++) {
        double *found[3];
        int64_t n[3];
        for (int i = 0; i < 3; i++)
            found[i] = trained_statistic(ranks[i], runs[i], names[k], &n[i]);
        double together = difference(found[1], found[0], n[0]);
        double apart = difference(found[2], found[0], n[0]);
        if (together > 1e-12) fail_msg("%s: %g", names[k], together);
        /* the mean of means is the same in the first norm; later ones and variances differ */
        if (k == 1 && apart < 1e-2) fail_msg("%s: %g without norm_sync", names[k], apart);
        for (int i = 0; i < 3; i++) free(found[i]);
    }
}

/* ---- traffic ---- */

static int64_t channels_of_norms(const ech_model *model)
{
    int64_t channels = 0;
    for (size_t p = 0; p < model->param.n; p++)
        if (strstr(model->param.at[p].name, "running_mean"))
            channels += model->param.at[p].shape.size[0];
    return channels;
}

/* Each norm gathers two fp64 numbers per channel from each replica in F, and reduces two in B. */
static void check_traffic(const char *words, int replicas)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    ech_design design = {0};
    ech_plan *plan;
    ech_config *config = config_of("traffic", networks[0], words);
    assert_non_null(config);
    assert_int_equal(ech_design_create(config, NULL, replicas, replicas, &design), ECH_OK);
    int64_t numbers = 2 * channels_of_norms(design.model), norms = 0;
    for (size_t p = 0; p < design.model->param.n; p++)
        norms += strstr(design.model->param.at[p].name, "running_mean") != NULL;
    int64_t micro_batches = BATCH / (MICRO * replicas);
    assert_int_equal(ech_design_plan(&design, 1, false, &plan), ECH_OK);
    ech_plan_traffic(plan, traffic);
    ech_flow gathers =
        ech_traffic_of(&traffic[ECH_TRAFFIC_NORM], ECH_COLLECTIVE_ALL_GATHER, ECH_FLOW_ANY);
    ech_flow sums =
        ech_traffic_of(&traffic[ECH_TRAFFIC_NORM], ECH_COLLECTIVE_ALL_REDUCE, ECH_FLOW_ANY);
    assert_int_equal(gathers.calls, micro_batches * norms);
    assert_int_equal(sums.calls, micro_batches * norms);
    assert_int_equal(gathers.bytes, micro_batches * numbers * (replicas - 1) * 8);
    assert_int_equal(sums.bytes, micro_batches * numbers * 2 * (replicas - 1) * 8 / replicas);
    assert_int_equal(ech_traffic_all(&traffic[ECH_TRAFFIC_NORM]).bytes, gathers.bytes + sums.bytes);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* Recomputation sends nothing again, since the statistics are kept. */
TEST(replicas_send_two_numbers_per_channel)
{
    check_traffic("parallel.data=2", 2);
    check_traffic("parallel.data=4", 4);
    check_traffic("parallel.data=4 memory.recompute=full", 4);
    check_traffic("parallel.data=2 memory.recompute=selective", 2);
}

/* ---- what is refused ---- */

TEST(what_is_refused)
{
    static const char *const cases[][2] = {
        {"parallel.data=2 model.norm_samples=2", "lie within a micro-batch"},
        {"parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2", "train separately"},
        {"parallel.data=2 parallel.pipeline=2 parallel.schedule=pipedream",
         "use a synchronous schedule"},
        {"parallel.stage_replicas=[2,1]", "equally many micro-batches"},
        {"parallel.data=2 parallel.strategy=asp", "have no statistics in common"},
        {"parallel.data=auto", "would depend on the number of ranks"},
        {"parallel.data=2 training.micro_batch_size=auto", "its size would depend on the layout"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_design design = {0};
        ech_config *config = config_of("refused", networks[0], cases[i][0]);
        if (config) {
            ech_status status = ech_design_create(config, NULL, 4, 4, &design);
            ech_design_destroy(&design);
            ech_config_destroy(config);
            assert_int_equal(status, ECH_EUSAGE);
        }
        if (!strstr(ech_last_error(), cases[i][1]))
            fail_msg("%s: \"%s\" is not in \"%s\"", cases[i][0], cases[i][1], ech_last_error());
    }
}

ALL_TESTS(make_data, fixture_teardown)
