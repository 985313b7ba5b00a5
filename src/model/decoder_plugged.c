/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of plugins in decoders.
 */
#include "model/decoder.h"

static echelon_sizes sizes_of(const ech_config *config, int64_t layer)
{
    return (echelon_sizes){.hidden_size = config->model.hidden_size,
                           .intermediate_size = config->model.intermediate_size,
                           .num_attention_heads = config->model.num_attention_heads,
                           .num_key_value_heads = config->model.num_key_value_heads,
                           .head_dim = config->model.head_dim,
                           .num_hidden_layers = config->model.num_hidden_layers,
                           .layer = layer};
}

int ech_builder_plugged(const ech_builder *b, const echelon_layer *row, int x)
{
    static const ech_initializer initializers[] = {[ECHELON_INIT_NORMAL] = ECH_INIT_NORMAL,
                                                   [ECHELON_INIT_ZERO] = ECH_INIT_ZERO,
                                                   [ECHELON_INIT_ONE] = ECH_INIT_ONE};
    echelon_sizes sizes = sizes_of(b->config, b->layer);
    echelon_layer_needs needs = ech_layer_plugged_needs(row, &sizes);
    int weight[ECHELON_MOST_WEIGHTS];
    for (int i = 0; i < needs.weights; i++) {
        const echelon_weight *w = &needs.weight[i];
        ech_shape shape = ech_layer_plugged_shape(&needs, i);
        const char *name = ech_pool_format(b->model->pool, "%s.%s", b->at, w->name);
        double std = w->std > 0 ? w->std : b->model->std;
        weight[i] = shape.dims == 2 ? ech_model_matrix(b->model, b->block, name, shape, std)
                                    : ech_model_vector(b->model, b->block, name, shape.axis[0],
                                                       shape.size[0], ECH_INIT_NORMAL);
        b->model->param.at[weight[i]].initializer = initializers[w->initializer];
        b->model->param.at[weight[i]].std = std;
    }
    return ech_layer_plugged(b->block, x, row, &sizes, weight);
}

/* Under sequence parallelism, each tensor rank has whole weights and a part of their gradients. */
static bool compresses_parts(const ech_config *config, const echelon_layer *row,
                             const echelon_sizes *sizes)
{
    echelon_layer_needs needs = ech_layer_plugged_needs(row, sizes);
    bool parts = config->parallel.compression != ECH_COMPRESSION_NONE && !needs.sharded &&
                 config->parallel.tensor > 1 && config->parallel.sequence != ECH_SEQUENCE_FALSE;
    for (int i = 0; i < needs.weights && parts; i++)
        if (ech_layer_plugged_shape(&needs, i).dims == 2) return true;
    return false;
}

ech_status ech_decoder_check_plugged(const ech_config *config, const echelon_layer *row)
{
    ECH_FREED_TEXT why = {0};
    for (int64_t layer = 0; row && layer < config->model.num_hidden_layers; layer++) {
        echelon_sizes sizes = sizes_of(config, layer);
        if (!ech_layer_plugged_fits(row, &sizes, (int)config->parallel.tensor, &why))
            return ech_config_complain(config, "model.mapping", "the plugin's layer %s %s",
                                       row->name, why.at);
        if (compresses_parts(config, row, &sizes))
            return ech_config_complain(config, "parallel.compression",
                                       "tensor ranks sum the gradients of the matrices of the "
                                       "plugin's layer %s, and each rank would need a compression "
                                       "error of its own; use parallel.sequence = false, or remove "
                                       "this key",
                                       row->name);
    }
    return ECH_OK;
}
