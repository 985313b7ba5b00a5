/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks on images: all layouts as one rank, and resumed as if they had not stopped; norms whose
 * groups are smaller than a micro-batch; accuracy against the loss; and what such
 * networks do not have.
 */
#include "app/bars.h"
#include "app/runs.h"
#include "app/verdict.h"
#include "share.h"
#include "unit.h"

enum { IMAGES = 48, SIDE = 32, CLASSES = 6, BATCH = 12 };

static int make_data(void **state)
{
    fixture_setup(state);
    bars_write("bars", IMAGES, SIDE, CLASSES);
    return 0;
}

static const char *const networks[] = {
    "model.architecture=mlp model.hidden_size=24 model.num_hidden_layers=5",
    "model.architecture=vgg model.weight_layers=11 model.base_channels=2 model.hidden_size=10 "
    "model.classifier_dropout=0.2",
    "model.architecture=resnet model.weight_layers=18 model.base_channels=2",
    "model.architecture=resnet model.weight_layers=50 model.base_channels=2 model.small_stem=true "
    "model.norm_samples=2",
    "model.architecture=resnet model.weight_layers=11 model.base_channels=2 "
    "model.pre_activation=true training.label_smoothing=0.1",
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* NULL: it is refused. */
static ech_config *config_of(const char *name, const char *network, const char *more)
{
    ech_text yaml = {0}, words = {0};
    ech_text_append(&yaml,
                    "data: {train: %s/bars.images, valid: %s/bars.images, crop_padding: 2, "
                    "flip: true}\n"
                    "optimizer: {learning_rate: 0.01, weight_decay: 0.01, schedule: constant}\n"
                    "parallel: {comm: local, threads: 1}\n"
                    "log: {directory: %s/%s}\n",
                    fixture_folder, fixture_folder, fixture_folder, name);
    ech_text_append(&words,
                    "%s model.image_height=%d model.image_width=%d model.image_channels=1 "
                    "model.num_classes=%d training.steps=4 training.global_batch_size=%d "
                    "training.micro_batch_size=2 precision.compute=fp64 training.check_every=0 "
                    "training.validate_every=0 checkpoint.every=2 %s",
                    network, SIDE, SIDE, CLASSES, BATCH, more);
    ech_config *config = fixture_config_of(yaml.at, words.at);
    ech_text_free(&yaml);
    ech_text_free(&words);
    return config;
}

/* ---- layouts ---- */

static const struct {
    int ranks;
    const char *words;
    bool resumes; /* the run has states to compare; sgd without momentum has none */
} layouts[] = {
    {2, "parallel.data=2 optimizer.name=sgd optimizer.momentum=0.9", true},
    {3, "parallel.data=3 parallel.zero=1", true},
    {2, "parallel.data=2 parallel.zero=2 memory.recompute=selective", true},
    {6, "parallel.data=6 parallel.zero=3", true},
    {3, "parallel.pipeline=3 parallel.schedule=gpipe", true},
    {4, "parallel.pipeline=2 parallel.data=2 parallel.schedule=zero-bubble", true},
    {2, "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2", true},
    {2, "parallel.pipeline=2 parallel.schedule=zero-bubble-v", true},
    {2, "parallel.pipeline=2 parallel.schedule=pipedream", true},
    {2, "parallel.pipeline=2 parallel.schedule=pipedream parallel.weight_stashing=false", true},
    {4, "parallel.pipeline=2 parallel.data=2 parallel.schedule=pipedream-2bw", true},
    {3, "parallel.stage_replicas=[2,1]", true},
    {2, "parallel.data=2 memory.recompute=full parallel.device=queued", true},
    {2, "parallel.pipeline=2 memory.offload_activations=host parallel.device=walled", true},
    {2, "parallel.data=2 memory.offload_optimizer=host parallel.zero=1", true},
    {2, "parallel.data=2 memory.encode=fp10 memory.encode_norms=true", true},
    {2, "parallel.data=2 memory.encode=lossless", true},
    {3,
     "parallel.data=3 parallel.compression=powersgd "
     "parallel.reduction=ring",
     true},
    {2, "parallel.data=2 parallel.compression=topk parallel.compression_density=0.1", true},
    {2, "parallel.data=2 data.shards=static optimizer.name=muon optimizer.momentum=0.9", true},
    {2, "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2", true},
    {4, "parallel.pipeline=2 parallel.data=2 parallel.strategy=diloco parallel.sync_every=2", true},
    {3, "parallel.data=3 parallel.strategy=gossip parallel.sync_every=2", true},
    {2, "parallel.data=2 parallel.strategy=easgd parallel.sync_every=2", true},
    {3, "parallel.strategy=parameter_server", true},
    {5, "parallel.strategy=parameter_server parallel.servers=2 parallel.reduction=direct", true},
    {3, "parallel.data=3 parallel.strategy=central_storage", true},
    {4, "parallel.strategy=parameter_server parallel.backup_workers=1", true},
    {3, "parallel.strategy=asp parallel.flush_every=2", true},
    {5, "parallel.strategy=ssp parallel.servers=2 parallel.staleness=1 parallel.flush_every=2",
     true},
    {3,
     "parallel.data=3 parallel.strategy=hogwild optimizer.name=sgd optimizer.weight_decay=0 "
     "parallel.flush_every=2",
     false},
    {4,
     "parallel.data=4 parallel.strategy=hogwild_ring parallel.cluster_ranks=2 "
     "optimizer.name=sgd optimizer.weight_decay=0 training.global_batch_size=16 "
     "parallel.flush_every=2",
     false},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* All inputs of its convolutions are made from what norms read, and it has no max pool. */
static bool has_nothing_to_encode(const char *network, const char *words)
{
    return strstr(network, "pre_activation=true") && strstr(words, "=lossless");
}

/* Each layout meets a third of the networks; the lattice has more pairs. */
TEST(layouts_agree)
{
    enum { THIRD = 3 };
    int bad = 0;
    for (size_t i = 0; i < (size_t)LAYOUTS * NETWORKS; i++) {
        if (!share_takes_of(i, (size_t)LAYOUTS * NETWORKS)) continue;
        const char *network = networks[i / LAYOUTS], *words = layouts[i % LAYOUTS].words;
        if ((i / LAYOUTS + i % LAYOUTS) % THIRD > 0) continue;
        if (has_nothing_to_encode(network, words)) continue;
        ech_config *config = config_of("layout", network, words);
        if (!config) fail_msg("%s %s: %s", network, words, ech_last_error());
        verdict_request request = {.config = config,
                                   .ranks = layouts[i % LAYOUTS].ranks,
                                   .steps = 2,
                                   .resumes = layouts[i % LAYOUTS].resumes};
        verdict found = verdict_of(&request);
        if (!found.passed) fprintf(stderr, "%s %s: %s\n", network, words, found.why);
        bad += !found.passed;
        ech_config_destroy(config);
    }
    assert_int_equal(bad, 0);
}

/* ---- runs ---- */

static void train(const char *name, int ranks, const char *network, const char *more)
{
    ech_config *config = config_of(name, network, more);
    ech_training training = {0};
    assert_non_null(config);
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    if (status != ECH_OK) fail_msg("%s on %d ranks: %s", more, ranks, ech_last_error());
    ech_config_destroy(config);
}

/* A norm of two samples does not see which others are in its micro-batch. */
TEST(groups_of_norms_do_not_depend_on_micro_batches)
{
    ech_safetensors *file;
    double *mean[2];
    int64_t n[2];
    static const char *const sizes[] = {"training.micro_batch_size=2",
                                        "training.micro_batch_size=6 parallel.data=2"};
    for (int i = 0; i < 2; i++) {
        char words[200];
        snprintf(words, sizeof words, "%s training.steps=1 checkpoint.every=1", sizes[i]);
        train("norms", i + 1, networks[3], words);
        file = runs_open("norms", 1, runs_model);
        mean[i] = runs_read(file, "layer3.1.bn2.running_mean", &n[i]);
        ech_safetensors_close(file);
        runs_remove("norms");
    }
    assert_int_equal(n[0], n[1]);
    for (int64_t c = 0; c < n[0]; c++)
        assert_true(fabs(mean[0][c] - mean[1][c]) <= 1e-13 * fabs(mean[0][c]));
    free(mean[0]);
    free(mean[1]);
}

/* One rank saves each count, whichever has the statistics. */
TEST(norms_count_updates)
{
    static const struct {
        int ranks;
        const char *words;
    } cases[] = {{1, ""},
                 {2, "parallel.data=2 parallel.zero=3"},
                 {2, "parallel.pipeline=2"},
                 {3, "parallel.stage_replicas=[2,1]"},
                 {4, "parallel.strategy=parameter_server parallel.servers=2"},
                 {2, "parallel.data=2 parallel.strategy=central_storage"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        train("counts", cases[i].ranks, networks[2], cases[i].words);
        ech_safetensors *file = runs_open("counts", 4, runs_model);
        for (int norm = 1; norm <= 2; norm++) {
            char name[80];
            int64_t count = 0;
            snprintf(name, sizeof name, "layer%d.1.bn%d.num_batches_tracked", 2 * norm, norm);
            ech_saved_tensor want = {.name = name, .dtype = ECH_I64};
            ech_tensor number = ech_tensor_view(&count, ECH_I64, 0, NULL);
            int at = ech_safetensors_find(file, name);
            assert_true(at >= 0);
            assert_int_equal(ech_safetensors_get(file, at).dtype, ECH_I64);
            ech_saved_add(&want, (const int64_t[1]){0}, &number);
            assert_int_equal(ech_safetensors_read(file, at, &want), ECH_OK);
            assert_int_equal(count, 4);
        }
        ech_safetensors_close(file);
        runs_remove("counts");
    }
}

/* With constant weights, a running statistic is linear in the statistics of batches. So when
 * replicas that each follow their own samples meet, the mean is what one rank has. The same holds
 * at the end of a span of workers with equally many pushes. Synchronous servers and the window have
 * the sums of all samples. */
TEST(all_strategies_have_the_statistics_of_one_rank)
{
    static const struct {
        int ranks;
        const char *words;
    } runs[] = {{1, ""},
                {2, "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2"},
                {3, "parallel.data=3 parallel.strategy=gossip parallel.sync_every=4"},
                {2, "parallel.data=2 parallel.strategy=easgd parallel.sync_every=2"},
                {4, "parallel.strategy=parameter_server parallel.servers=2"},
                {3, "parallel.data=3 parallel.strategy=central_storage"},
                {3, "parallel.strategy=asp parallel.flush_every=1"},
                {5, "parallel.strategy=ssp parallel.servers=2 parallel.flush_every=2"},
                {3, "parallel.data=3 parallel.strategy=hogwild optimizer.name=sgd "
                    "optimizer.weight_decay=0 parallel.flush_every=2"},
                {3, "parallel.data=3 parallel.strategy=hogwild_ring parallel.cluster_ranks=1 "
                    "optimizer.name=sgd optimizer.weight_decay=0 parallel.flush_every=4"}};
    static const char *const statistics[] = {"bn1.running_mean", "layer4.1.bn2.running_var"};
    double *one[2];
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[300];
        snprintf(words, sizeof words, "optimizer.learning_rate=0 checkpoint.every=4 %s",
                 runs[i].words);
        train("averaged", runs[i].ranks, networks[2], words);
        ech_safetensors *file = runs_open("averaged", 4, runs_model);
        for (int k = 0; k < 2; k++) {
            int64_t n;
            double *all = runs_read(file, statistics[k], &n);
            for (int64_t c = 0; c < n && i > 0; c++)
                assert_true(fabs(all[c] - one[k][c]) <= 1e-13 * fabs(one[k][c]));
            if (i > 0) free(all);
            if (i == 0) one[k] = all;
        }
        ech_safetensors_close(file);
        runs_remove("averaged");
    }
    free(one[0]);
    free(one[1]);
}

/* ---- accuracy ---- */

/* The last value of the key in a run's metrics. */
static double last_metric(const char *name, const char *key)
{
    char path[300], *text, *at = NULL, *next;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture_folder, name);
    assert_int_equal(ech_file_read(path, 1 << 24, &text, &n), ECH_OK);
    for (next = strstr(text, key); next; next = strstr(next + 1, key)) at = next;
    assert_non_null(at);
    double value = strtod(at + strlen(key) + 1, NULL);
    free(text);
    return value;
}

/* A mean loss below ln 2 / IMAGES leaves each sample more than half of the probability of its own
 * class, so all are found. Layouts find the same before. */
TEST(accuracy_follows_from_the_loss)
{
    static const char *const begins[] = {"", "parallel.data=2 training.micro_batch_size=3"};
    double accuracy[2], of_5[2];
    for (int i = 0; i < 2; i++) {
        char words[200];
        snprintf(words, sizeof words, "%s training.steps=1 training.validate_every=1", begins[i]);
        train("begin", i + 1, networks[0], words);
        accuracy[i] = last_metric("begin", "\"valid_accuracy\"");
        of_5[i] = last_metric("begin", "\"valid_accuracy_of_5\"");
        assert_true(last_metric("begin", "\"valid_samples\"") == IMAGES);
        assert_true(last_metric("begin", "\"samples\"") == BATCH);
        runs_remove("begin");
    }
    assert_true(accuracy[0] == accuracy[1] && of_5[0] == of_5[1]);
    assert_true(accuracy[0] < of_5[0] && of_5[0] <= 1);
    assert_true(fabs(accuracy[0] * IMAGES - round(accuracy[0] * IMAGES)) < 1e-9);
    train("end", 1, networks[0],
          "training.steps=160 training.validate_every=160 checkpoint.every=160 data.flip=false "
          "data.crop_padding=0");
    assert_true(last_metric("end", "\"valid_loss\"") < log(2) / IMAGES);
    assert_true(last_metric("end", "\"valid_accuracy\"") == 1);
    assert_true(last_metric("end", "\"valid_accuracy_of_5\"") == 1);
    runs_remove("end");
}

/* ---- what they have not ---- */

static void assert_refused(const char *network, const char *words, const char *says)
{
    ech_config *config = config_of("refused", network, words);
    ech_design design = {0};
    if (config) {
        ech_status status = ech_design_create(config, NULL, 2, 2, &design);
        ech_design_destroy(&design);
        ech_config_destroy(config);
        assert_int_equal(status, ECH_EUSAGE);
    }
    if (!strstr(ech_last_error(), says))
        fail_msg("%s: \"%s\" is not in \"%s\"", words, says, ech_last_error());
}

TEST(what_they_do_not_have)
{
    assert_refused(networks[1], "parallel.tensor=2", "tensor ranks share only layers of texts");
    assert_refused(networks[2], "parallel.context=2", "a sample has no sequence");
    assert_refused(networks[2], "model.weight_layers=21", "another 2 + 6 n or 2 + 9 n, such as 20");
    assert_refused(networks[1], "model.image_height=16", "use images of at least 32 x 32");
    assert_refused(networks[3], "model.norm_samples=4 training.micro_batch_size=6",
                   "does not divide training.micro_batch_size = 6");
    assert_refused(networks[2], "training.micro_batch_size=auto parallel.data=2",
                   "its size would depend on the layout");
    assert_refused(networks[0], "model.num_attention_heads=2", "model.num_attention_heads");
    assert_refused(networks[2],
                   "parallel.data=2 parallel.strategy=parameter_server parallel.backup_workers=1 "
                   "model.norm_sync=true",
                   "have no statistics in common");
    assert_refused(networks[2],
                   "parallel.data=2 parallel.strategy=hogwild model.norm_sync=true "
                   "optimizer.name=sgd optimizer.weight_decay=0",
                   "have no statistics in common");
    assert_refused(networks[0], "data.sequence_length=2", "data.sequence_length");
}

ALL_TESTS(make_data, fixture_teardown)
