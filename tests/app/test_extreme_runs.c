/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files whose keys are within their bounds, often at them: each makes a design or is refused as
 * wrong usage. ECHELON_RUN_FILES=10000 tries so many.
 */
#include <stdio.h>
#include <stdlib.h>

#include "app/setup/setup.h"
#include "base/log.h"
#include "base/random.h"
#include "unit.h"

enum { SMALL_RUNS = 256 }; /* whose plans are made as well */

static const char smallest[] =
    "model: {architecture: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,"
    " vocab_size: 300}\n"
    "data: {train: x, sequence_length: 8}\n"
    "training: {steps: 6, global_batch_size: 8}\n"
    "optimizer: {learning_rate: 3e-3}\n"
    "parallel: {comm: local, threads: 1}\n"
    "log: {directory: runs/x}\n";

static const struct {
    const char *key, *values[8];
} keys[] = {
    {"model.architecture", {"llama", "gpt2", "qwen3"}},
    {"model.hidden_size", {"1", "64", "4096", "1000000"}},
    {"model.num_hidden_layers", {"1", "3", "96"}},
    {"model.num_attention_heads", {"1", "8", "100000"}},
    {"model.head_dim", {"auto", "1", "2", "1000000"}},
    {"model.intermediate_size", {"1", "10000000"}},
    {"model.vocab_size", {"300", "65536", "2000000000"}},
    {"data.sequence_length", {"1", "7", "1024", "100000000"}},
    {"training.steps", {"0", "1000000000000"}},
    {"training.global_batch_size", {"1", "6", "97", "1048576", "4194304", "1000000000"}},
    {"training.micro_batch_size", {"1", "2", "4194304", "1000000000"}},
    {"training.validate_samples", {"1", "1000000000000"}},
    {"parallel.pipeline", {"1", "2", "3", "1000000"}},
    {"parallel.data", {"1", "2", "1000000"}},
    {"parallel.tensor", {"1", "2", "100000"}},
    {"parallel.context", {"1", "2", "100000"}},
    {"parallel.virtual_stages", {"1", "2", "10000"}},
    {"parallel.schedule",
     {"gpipe", "interleaved", "zero-bubble", "zero-bubble-v", "pipedream", "pipedream-2bw"}},
    {"parallel.flush_every", {"1", "2", "1000000"}},
    {"memory.recompute", {"none", "selective", "full", "auto"}},
    {"memory.recompute_blocks", {"auto", "1", "1000000"}},
    {"memory.sequence_chunks", {"1", "2", "1000000"}},
    {"model.reversible", {"false", "true"}},
    {"precision.compute", {"fp32", "fp64", "bf16", "fp16"}},
    {"precision.gradients", {"fp32", "compute"}},
    {"precision.residual", {"compute", "fp32"}},
};

/* A number below n, the next of a fixed series. */
static int below(int n)
{
    static uint64_t at;
    return (int)(ech_random_word((ech_random_key){.seed = 7}, at++) % (uint32_t)n);
}

static ech_config *draw(void)
{
    ech_config *config;
    assert_int_equal(ech_setup_config_text(smallest, "run.yaml", NULL, 0, &config), ECH_OK);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        char word[128];
        int n = 0;
        while (n < 8 && keys[k].values[n]) n++;
        if (below(3)) continue;
        int chosen = below(n);
        snprintf(word, sizeof word, "%s=%s", keys[k].key, keys[k].values[chosen]);
        assert_int_equal(ech_config_set(config, word), ECH_OK);
    }
    return config;
}

TEST(test_designed_or_refused)
{
    const char *wanted = getenv("ECHELON_RUN_FILES");
    int tries = wanted ? atoi(wanted) : 300, designed = 0, planned = 0;
    const int worlds[] = {1, 2, 8, 64};
    for (int i = 0; i < tries; i++) {
        ech_config *config = draw();
        int world = worlds[below(4)];
        ech_design design = {0};
        ech_status status = ech_design_create(config, NULL, world, world, &design);
        if (status != ECH_OK && status != ECH_EUSAGE)
            fail_msg("case %d: %d: %s", i, status, ech_last_error());
        designed += status == ECH_OK;
        if (status == ECH_OK && ech_layout_block_runs(design.layout, config) <= SMALL_RUNS &&
            design.schedule->turns == 1) {
            ech_plan *plan = NULL;
            ech_status made = ech_design_plan(&design, world - 1, false, &plan);
            if (made != ECH_OK && made != ECH_EUSAGE)
                fail_msg("case %d: plan: %d: %s", i, made, ech_last_error());
            planned += made == ECH_OK;
            if (made == ECH_OK) ech_plan_destroy(plan);
        }
        ech_design_destroy(&design);
        ech_config_destroy(config);
    }
    print_message("%d of %d were designed, %d planned\n", designed, tries, planned);
    assert_true(planned > 0 && designed > 0 && designed < tries);
}
