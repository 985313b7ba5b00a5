/* SPDX-License-Identifier: Apache-2.0
 *
 * Table 1 of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054): GB of model states on each of N
 * devices, with weights and gradients of 16 bits and in 32 bits a master, momentum and variance.
 * Here as `echelon plan` says it of models of as many parameters.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/fixture.h"
#include "app/setup/setup.h"
#include "schedule/states.h"
#include "share.h"
#include "unit.h"

enum { STAGES = 3, DEGREES = 6, MODELS = 3 };

static const int degrees[DEGREES] = {1, 4, 16, 64, 256, 1024};

/* GPT-2's shape: 12 L C^2 + (V + T) C, V = 50,304 and T = 1,024. The paper's figures as it prints
 * them. */
static const struct {
    double parameters;
    int layers, width, heads;
    const char *figure[DEGREES][STAGES];
} models[MODELS] = {
    {7.5e9,
     23,
     5120,
     40,
     {{"120", "120", "120"},
      {"52.5", "41.3", "30"},
      {"35.6", "21.6", "7.5"},
      {"31.4", "16.6", "1.88"},
      {"30.4", "15.4", "0.47"},
      {"30.1", "15.1", "0.12"}}},
    {128e9,
     125,
     9216,
     72,
     {{"2048", "2048", "2048"},
      {"896", "704", "512"},
      {"608", "368", "128"},
      {"536", "284", "32"},
      {"518", "263", "8"},
      {"513", "257", "2"}}},
    {1000e9,
     127,
     25600,
     200,
     {{"16000", "16000", "16000"},
      {"7000", "5500", "4000"},
      {"4750", "2875", "1000"},
      {"4187", "2218", "250"},
      {"4046", "2054", "62.5"},
      {"4011", "2013", "15.6"}}},
};

/* One in the figure's last place: the paper rounds some up and some down. */
static double last_place(const char *figure)
{
    const char *point = strchr(figure, '.');
    return point ? pow(10, -(double)strlen(point + 1)) : 1;
}

/* Of rank 0. */
static int64_t state_bytes(int model, int degree, int stage, double *parameters)
{
    char more[700];
    snprintf(more, sizeof more,
             "model.num_hidden_layers=%d model.hidden_size=%d model.num_attention_heads=%d "
             "model.vocab_size=50304 model.tie_word_embeddings=true data.sequence_length=1024 "
             "training.micro_batch_size=1 training.global_batch_size=%d parallel.data=%d "
             "parallel.zero=%d precision.compute=bf16 precision.gradients=compute "
             "optimizer.name=adamw memory.device_limit=100000TiB",
             models[model].layers, models[model].width, models[model].heads, degree, degree, stage);
    ech_config *config = fixture_config("gpt2", more);
    ech_design design;
    ech_plan *plan;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, degree, degree, &design), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    int64_t bytes = 0;
    for (int k = 0; k < ECH_MODEL_STATES; k++)
        bytes += ech_plan_number_bytes(plan, ech_model_states[k]);
    *parameters = (double)ech_model_params(design.model);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return bytes;
}

TEST(test_table)
{
    for (int m = 0; m < MODELS; m++)
        for (int d = 0; d < DEGREES; d++)
            for (int stage = 1; stage <= STAGES; stage++) {
                const char *figure = models[m].figure[d][stage - 1];
                double parameters, wanted = strtod(figure, NULL);
                if (!share_takes()) continue;
                double bytes = (double)state_bytes(m, degrees[d], stage, &parameters);
                double of = bytes * models[m].parameters / parameters / 1e9;
                assert_true(fabs(parameters / models[m].parameters - 1) < 2e-3);
                if (fabs(of - wanted) > last_place(figure) + 1e-3 * wanted)
                    fail_msg("%g parameters, %d devices, stage %d: %.6g GB, in the paper %s",
                             models[m].parameters, degrees[d], stage, of, figure);
            }
}

ALL_TESTS(fixture_setup, fixture_teardown)
