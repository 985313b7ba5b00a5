/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoder-only transformers, built from the properties of the model section: layers x +
 * attention(norm(x)), x + mlp(norm(x)), a final norm and the head. Radford et al. 2019 (GPT-2);
 * Touvron et al. 2023, arXiv:2302.13971 (RMSNorm, rotary positions and SwiGLU). Tensors have the
 * names of the family's files.
 */
#include "model/decoder.h"

#include <math.h>

char *ech_builder_name(const ech_builder *b, const char *role, const char *what)
{
    ECH_ASSERT(role);
    return b->at ? ech_pool_format(b->model->pool, "%s.%s.%s", b->at, role, what)
                 : ech_pool_format(b->model->pool, "%s.%s", role, what);
}

int ech_builder_linear(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                       ech_axis axis, int64_t out, bool bias, double std)
{
    bool in_first = b->names.in_first;
    ech_shape shape =
        in_first ? ech_shape_2d(in_axis, in, axis, out) : ech_shape_2d(axis, out, in_axis, in);
    int w = ech_model_matrix(b->model, b->block, ech_builder_name(b, role, "weight"), shape, std);
    int shift = -1;
    if (bias)
        shift = ech_model_vector(b->model, b->block, ech_builder_name(b, role, "bias"), axis, out,
                                 ECH_INIT_ZERO);
    int y = ech_layer_linear(b->block, x, w, shift, in_first, axis, out);
    return ech_adapters_add(b, role, x, in_axis, in, axis, out, y);
}

int ech_builder_norm(const ech_builder *b, const char *role, int x, ech_axis axis, int64_t size)
{
    bool offset = b->config->model.norm_unit_offset;
    int gain = ech_model_vector(b->model, b->block, ech_builder_name(b, role, "weight"), axis, size,
                                offset ? ECH_INIT_ZERO : ECH_INIT_ONE);
    if (b->config->model.norm == ECH_NORM_RMS)
        return ech_layer_rmsnorm(b->block, x, gain, offset, b->config->model.rms_norm_eps);
    int shift = ech_model_vector(b->model, b->block, ech_builder_name(b, role, "bias"), axis, size,
                                 ECH_INIT_ZERO);
    return ech_layer_layernorm(b->block, x, gain, shift, b->config->model.layer_norm_epsilon);
}

static int norm(const ech_builder *b, const char *role, int x)
{
    return ech_builder_norm(b, role, x, ECH_AXIS_MODEL, b->config->model.hidden_size);
}

/* ---- feed-forward layers ---- */

ech_activation ech_builder_activation(const ech_config *config)
{
#define ROW(NAME, ...) [ECH_HIDDEN_ACT_##NAME] = ECH_ACTIVATION_##NAME,
    static const ech_activation activations[] = {ECH_ACTIVATIONS(ROW)};
    return activations[config->model.hidden_act];
}

int ech_builder_widen(const ech_builder *b, const char *gate_role, const char *up_role, int64_t F,
                      int x)
{
    int64_t C = b->config->model.hidden_size;
    bool bias = b->config->model.mlp_bias;
    int gate = -1;
    ech_activation activation = ech_builder_activation(b->config);
    if (ech_activation_operands(activation) > 1)
        gate = ech_builder_linear(b, gate_role, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, bias,
                                  b->model->std);
    int up =
        ech_builder_linear(b, up_role, x, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, bias, b->model->std);
    if (gate < 0) return ech_layer_activation(b->block, activation, up, -1);
    return ech_layer_activation(b->block, activation, gate, up);
}

int ech_builder_narrow(const ech_builder *b, const char *down, int64_t F, int y)
{
    return ech_builder_linear(b, down, y, ECH_AXIS_FFN, F, ECH_AXIS_MODEL,
                              b->config->model.hidden_size, b->config->model.mlp_bias, b->std);
}

bool ech_model_has_experts(const ech_config *config, int64_t i)
{
    return config->model.num_local_experts > 0 && i >= config->model.moe_first_dense &&
           (i + 1) % config->model.moe_every == 0;
}

static int feed_forward(const ech_builder *b, int x)
{
    int64_t F = b->config->model.intermediate_size;
    if (ech_model_has_experts(b->config, b->layer)) return ech_builder_experts(b, x);
    if (b->model->family->feed_forward)
        return ech_builder_plugged(b, b->model->family->feed_forward, x);
    int y = ech_builder_widen(b, b->names.gate, b->names.up, F, x);
    return ech_builder_narrow(b, b->names.down, F, y);
}

/* ---- layers ---- */

typedef int (*part)(const ech_builder *b, int x);

/* What a part adds to the residual stream x. */
static int branch(const ech_builder *b, part of, const char *before, const char *after, int x)
{
    int placement = b->config->model.norm_placement;
    if (placement != ECH_NORM_AFTER) x = norm(b, before, x);
    x = of(b, x);
    if (placement != ECH_NORM_BEFORE) x = norm(b, after, x);
    x = ech_layer_dropout(b->block, x, b->config->model.resid_pdrop);
    return ech_layer_scale(b->block, x, b->config->model.residual_multiplier);
}

static int attention_branch(const ech_builder *b, int x)
{
    return branch(b, ech_builder_attention, b->names.attention_norm, b->names.after_attention_norm,
                  x);
}

static int feed_forward_branch(const ech_builder *b, int x)
{
    return branch(b, feed_forward, b->names.mlp_norm, b->names.after_mlp_norm, x);
}

static void build_layer(ech_builder *b)
{
    b->at = ech_pool_format(b->model->pool, "%s.%lld", b->names.layers, (long long)b->layer);
    /* Radford et al. 2019, section 2.3: residual layers are scaled at initialisation. */
    b->std = b->model->std / sqrt(2 * (double)b->model->layers);
    b->block = ech_model_block(b->model, b->at);
    bool two = b->model->options.reversible;
    ech_shape stream = ech_block_stream(b->block, b->config->model.hidden_size);
    int x1 = ech_block_input(b->block, "hidden", stream);
    int x2 = two ? ech_block_input(b->block, "hidden 2", stream) : x1;
    int read = x1;
    x1 = ech_layer_residual(b->block, x1, attention_branch(b, x2));
    if (!b->config->model.parallel_residual) read = x1;
    int y = feed_forward_branch(b, read);
    if (two) ech_block_output(b->block, x1);
    ech_block_output(b->block, ech_layer_residual(b->block, two ? x2 : x1, y));
}

/* Returns the token table's parameter, which a tied head uses. */
static int build_embedding(ech_builder *b)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    int64_t P = config->model.max_position_embeddings;
    b->block = ech_model_block(
        b->model, ech_pool_format(b->model->pool, "%sembeddings", b->model->family->prefix));
    b->at = NULL;
    int tokens =
        ech_model_matrix(b->model, b->block, ech_builder_name(b, b->names.tokens, "weight"),
                         ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), b->model->std);
    int positions = -1;
    if (config->model.position_encoding != ECH_POSITION_ROTARY)
        positions =
            ech_model_matrix(b->model, b->block, ech_builder_name(b, b->names.positions, "weight"),
                             ech_shape_2d(ECH_AXIS_POSITION, P, ECH_AXIS_MODEL, C), b->model->std);
    int x = ech_layer_embedding(b->block, ech_block_batch(b->block, ECH_TOKENS), tokens, C);
    double by = config->model.embedding_multiplier;
    x = ech_layer_scale(b->block, x, by > 0 ? by : sqrt((double)C));
    if (positions >= 0) x = ech_layer_position(b->block, x, positions, ech_block_starts(b->block));
    ech_block_output(b->block, ech_layer_dropout(b->block, x, config->model.embd_pdrop));
    return tokens;
}

static void build_head(ech_builder *b, int table)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    b->block = ech_model_block(b->model, "lm_head");
    b->at = NULL;
    ech_shape stream = ech_block_stream(b->block, C);
    int x = ech_block_input(b->block, "hidden", stream);
    if (b->model->options.reversible)
        x = ech_layer_residual(b->block, x, ech_block_input(b->block, "hidden 2", stream));
    x = norm(b, b->names.last_norm, x);
    if (!config->model.tie_word_embeddings)
        table = ech_model_matrix(b->model, b->block, ech_builder_name(b, b->names.head, "weight"),
                                 ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), b->model->std);
    int targets = ech_block_batch(b->block, ECH_TARGETS);
    int weights = ech_block_batch(b->block, ECH_WEIGHTS);
    const ech_logits logits = {.factor = 1 / config->model.logits_scaling,
                               .cap = config->model.final_logit_softcapping};
    b->model->logits = ech_layer_head_loss(b->block, x, targets, weights, table, V, logits,
                                           ech_loss_plugged(config->training.loss));
}

/* Truncated normals of sqrt(s / inputs), whatever a matrix' place: its last axis is its inputs
 * (Fedus et al. 2021, arXiv:2101.03961, section 2.4, "reduced initialization", by which training is
 * stable). */
static void initialize_by_inputs(const ech_config *config, ech_model *model)
{
    for (size_t p = 0; p < model->param.n; p++) {
        ech_param *param = &model->param.at[p];
        if (param->initializer != ECH_INIT_NORMAL) continue;
        param->initializer = ECH_INIT_TRUNCATED;
        param->std = sqrt(config->model.initializer_scale /
                          (double)param->shape.size[param->shape.dims - 1]);
    }
}

void ech_decoder_build(const ech_config *config, ech_model *model)
{
    ech_builder b = {.config = config, .model = model, .names = ech_names_of(model->family)};
    int table = build_embedding(&b);
    ech_block *first = model->block.at[0];
    if (model->options.reversible) ech_block_output(first, first->output.at[0]);
    for (b.layer = 0; b.layer < model->layers; b.layer++) build_layer(&b);
    build_head(&b, table);
    if (config->model.initialization == ECH_INITIALIZATION_INPUTS)
        initialize_by_inputs(config, model);
}

/* ---- checks ---- */

ech_status ech_decoder_check(const ech_config *config)
{
    ECH_TRY(ech_decoder_check_plugged(config, ech_family_of(config)->attention));
    ECH_TRY(ech_decoder_check_plugged(config, ech_family_of(config)->feed_forward));
    if (config->model.num_local_experts > 0) ECH_TRY(ech_experts_check(config));
    if (config->model.kv_lora_rank > 0) ECH_TRY(ech_decoder_check_latent(config));
    if (config->model.initialization == ECH_INITIALIZATION_INPUTS)
        ECH_TRY(ech_config_check_read(config, "model.initializer_range", "",
                                      ech_family_of(config)->name));
    if (config->model.head_norm == ECH_HEAD_NORM_FULL && config->model.norm != ECH_NORM_RMS)
        return ech_config_complain(config, "model.head_norm",
                                   "full is built for RMSNorm alone; set model.norm to rmsnorm, or "
                                   "use head or none");
    if (config->model.position_encoding != ECH_POSITION_ROTARY) return ECH_OK;
    return ech_decoder_check_rope(config);
}
