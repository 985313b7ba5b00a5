/* SPDX-License-Identifier: Apache-2.0
 *
 * Sparse logistic regression: of a sample with features j of values x_j, logit = bias + sum x_j
 * weight[j], and the loss is log(1 + exp(-y logit)), y 1 or -1. The weights are a table of one
 * column whose rows are looked up like a token's, so what a sample changes are the rows of its
 * features. Weights begin as zeros.
 */
#include "model/family.h"

static ech_status check(const ech_config *config)
{
    if (config->model.vocab_size >= 2) return ECH_OK;
    return ech_config_complain(config, "model.vocab_size",
                               "a table of features has at least 2; the second may be unused");
}

static void build(const ech_config *config, ech_model *model)
{
    ech_block *block = ech_model_block(model, "features");
    int64_t V = config->model.vocab_size;
    int table = ech_model_matrix(model, block, "features.weight",
                                 ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, 1), 0);
    int x = ech_layer_embedding(block, ech_block_batch(block, ECH_TOKENS), table, 1);
    ech_block_output(block, x);

    block = ech_model_block(model, "logistic");
    x = ech_block_input(block, "hidden", ech_block_stream(block, 1));
    int bias = ech_model_vector(model, block, "logistic.bias", ECH_AXIS_NONE, 1, ECH_INIT_ZERO);
    ech_layer_logistic_loss(block, x, bias);
    model->logits = -1;
    for (size_t i = 0; i < model->param.n; i++) model->param.at[i].initializer = ECH_INIT_ZERO;
}

static const ech_family_row rows[] = {
    {"vocab_size", "model.vocab_size", .initial = NULL},
    {"max_position_embeddings", "model.max_position_embeddings", .initial = NULL},
    ECH_ROWS_END};

static const ech_names names = {.tokens = "features"};

const ech_family ech_family_row_logistic = {
    .name = "logistic",
    .help = "sparse logistic regression: one weight per feature, and a bias",
    .reads = ECH_TOKEN_KEYS,
    .check = check,
    .build = build,
    .samples = ECH_SAMPLES_OF_features,
    .ours = true,
    .architecture = "Logistic",
    .rows = rows,
    .replaces = "",
    .names = &names,
    .prefix = "",
    .buffers = ""};
