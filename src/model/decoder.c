/* SPDX-License-Identifier: Apache-2.0
 *
 * Building decoder-only transformers.
 */
#include <math.h>

#include "layer/layers.h"
#include "model/family.h"

static void build_layer(const ech_config *config, ech_model *model, const ech_decoder *decoder,
                        int64_t i)
{
    char *name = ech_pool_format(model->pool, "%s.%lld", decoder->layers, (long long)i);
    char *first = ech_pool_format(model->pool, "%s.%s", name, decoder->first_norm);
    char *second = ech_pool_format(model->pool, "%s.%s", name, decoder->second_norm);
    /* Radford et al. 2019, section 2.3: residual layers are scaled at initialisation. */
    double std = model->std / sqrt(2 * (double)model->layers);
    ech_block *block = ech_model_block(model, name);
    int x = ech_block_input(block, "hidden", ech_block_stream(block, config->model.hidden_size));
    int y = decoder->norm(model, block, config, first, x);
    x = ech_layer_residual(block, x, decoder->attention(config, model, block, name, y, std));
    y = decoder->norm(model, block, config, second, x);
    x = ech_layer_residual(block, x, decoder->mlp(config, model, block, name, y, std));
    ech_block_output(block, x);
}

static void build_head(const ech_config *config, ech_model *model, const ech_decoder *decoder,
                       int table)
{
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    ech_block *block = ech_model_block(model, "lm_head");
    int x = ech_block_input(block, "hidden", ech_block_stream(block, C));
    x = decoder->norm(model, block, config, decoder->last_norm, x);
    if (!config->model.tie_word_embeddings)
        table = ech_model_matrix(model, block, ECH_MODEL_HEAD,
                                 ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), model->std);
    int targets = ech_block_batch(block, ECH_TARGETS),
        weights = ech_block_batch(block, ECH_WEIGHTS);
    model->logits = ech_layer_head_loss(block, x, targets, weights, table, V);
}

void ech_decoder_build(const ech_config *config, ech_model *model)
{
    const ech_decoder *decoder = model->family->decoder;
    int table = decoder->embedding(config, model);
    for (int64_t i = 0; i < model->layers; i++) build_layer(config, model, decoder, i);
    build_head(config, model, decoder, table);
}
