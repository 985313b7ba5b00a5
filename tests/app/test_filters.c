/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutional networks on layouts: every optimizer and every compression of gradients, with the
 * filters' states sharded, offloaded, per replica and on servers, against one rank.
 */
#include "app/fixture.h"
#include "app/verify/verify.h"
#include "data/data.h"
#include "unit.h"

enum { SIDE = 32, CLASSES = 10, IMAGES = 60, RECORD = 1 + 3 * SIDE * SIDE };

/* Packs a file of CIFAR-10's records of noise as shapes-train and shapes-valid. */
static void write_images(void)
{
    char from[300], to[300];
    ech_images_count count;
    snprintf(from, sizeof from, "%s/noise.bin", fixture_folder);
    snprintf(to, sizeof to, "%s/shapes", fixture_folder);
    FILE *file = fopen(from, "wb");
    ECH_ASSERT(file != NULL);
    for (uint64_t i = 0; i < (uint64_t)IMAGES * RECORD; i++) {
        uint64_t byte = ech_random_word((ech_random_key){.seed = 7}, i);
        ECH_ASSERT(fputc((int)(i % RECORD ? byte % 256 : i / RECORD % CLASSES), file) != EOF);
    }
    ECH_ASSERT(fclose(file) == 0);
    const ech_images_options options = {.in = from, .out = to, .valid = 0.2, .workers = 1};
    ECH_ASSERT(ech_data_import_images(&options, &count) == ECH_OK);
}

static int setup(void **state)
{
    fixture_setup(state);
    ech_tokenizer_close(fixture_tokenizer);
    fixture_tokenizer = NULL; /* images have none */
    write_images();
    return 0;
}

static ech_config *config_of(const char *network, const char *more)
{
    ech_text yaml = {0};
    ech_text_append(
        &yaml,
        "model: {architecture: %s, weight_layers: %d, base_channels: 2, image_height: %d, "
        "image_width: %d, num_classes: %d%s}\n"
        "data: {train: %s/shapes-train.images, valid: %s/shapes-valid.images}\n"
        "training: {steps: 4, global_batch_size: 8, micro_batch_size: 2, check_every: 0}\n"
        "optimizer: {learning_rate: 1e-2, schedule: constant}\n"
        "parallel: {comm: local, threads: 1, bucket_bytes: 8KiB}\n"
        "log: {directory: %s/run}\n",
        network, strcmp(network, "vgg") == 0 ? 11 : 18, SIDE, SIDE, CLASSES,
        strcmp(network, "vgg") == 0 ? ", hidden_size: 8" : "", fixture_folder, fixture_folder,
        fixture_folder);
    ech_config *config = fixture_config_of(yaml.at, more);
    if (!config) fail_msg("%s with %s: %s", network, more, ech_last_error());
    ech_text_free(&yaml);
    return config;
}

static void verify(const char *network, int ranks, const char *more)
{
    ech_config *config = config_of(network, more);
    ech_verification v = {.steps = 2, .tolerance = ECH_TOLERANCE};
    ech_status status = fixture_run(config, ranks, ech_verify_rank, &v);
    if (status != ECH_OK) fail_msg("%s with %s: %s", network, more, ech_last_error());
    if (!v.passed) fail_msg("%s with %s: %g at %s", network, more, v.worst, v.worst_at);
    assert_true(v.compared > 10000);
    ech_config_destroy(config);
}

/* ZeRO cuts rows of filters, and pieces on the host have whole rows. */
TEST(test_optimizers)
{
    static const char *const optimizers[] = {
        "adafactor optimizer.momentum=0.9", "sm3 optimizer.momentum=0.9",
        "adamw8 optimizer.block=9", "muon optimizer.momentum=0.95"};
    static const char *const layouts[] = {"zero=1", "zero=3 memory.offload_optimizer=host"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            char words[200];
            snprintf(words, sizeof words, "parallel.data=2 parallel.%s optimizer.name=%s",
                     layouts[k], optimizers[i]);
            verify(k ? "resnet" : "vgg", 2, words);
        }
    verify("vgg", 4,
           "parallel.data=2 parallel.pipeline=2 parallel.zero=1 "
           "optimizer.name=adafactor");
}

/* A rank of 1, since the directions of small singular values depend on rounding. */
/* A rank of 1, since the directions of small singular values depend on rounding. */
TEST(test_compression)
{
#define LOW_RANK "parallel.compression=powersgd parallel.compression_rank=1 "
    verify("resnet", 2, LOW_RANK "parallel.data=2 parallel.zero=1");
    verify("vgg", 2, LOW_RANK "parallel.data=2");
    verify("resnet", 2, "parallel.data=2 parallel.compression=topk optimizer.name=adafactor");
    verify("vgg", 2, "parallel.data=2 parallel.compression=topk parallel.zero=2");
}

/* Residuals and momenta of each replica have an axis more. */
TEST(test_replicas)
{
    verify("vgg", 2,
           "parallel.data=2 parallel.strategy=diloco parallel.sync_every=2 "
           "optimizer.name=sm3 optimizer.momentum=0.9");
    verify("vgg", 2, "parallel.data=2 parallel.strategy=easgd parallel.sync_every=2");
    verify("vgg", 3, "parallel.data=2 parallel.strategy=parameter_server optimizer.name=adamw8");
}

ALL_TESTS(setup, fixture_teardown)
