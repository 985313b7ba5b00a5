/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of attention: queries, keys and values from products of their own, from one product, or
 * from latents (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1).
 */
#include "model/decoder.h"

#include <math.h>
#include <string.h>

/* Queries, keys and values as heads. */
typedef struct projections {
    int q, k, v;
} projections;

/* A product's columns as heads of that shape, normalized together or each by itself, and rotated
 * by their positions. */
static int prepare_heads(const ech_builder *b, const char *norm_role, int x, ech_shape shape,
                         int starts)
{
    if (b->config->model.head_norm == ECH_HEAD_NORM_FULL)
        x = ech_builder_norm(b, norm_role, x, shape.axis[2], shape.size[2] * shape.size[3]);
    x = ech_block_view(b->block, x, 0, shape);
    if (b->config->model.head_norm == ECH_HEAD_NORM_HEAD)
        x = ech_builder_norm(b, norm_role, x, ECH_AXIS_HEAD_DIM, b->config->model.head_dim);
    if (!ech_model_rotates(b->config, b->layer)) return x;
    const ech_rope rope = ech_builder_rope(b);
    return ech_layer_rotary(b->block, x, &rope, starts);
}

static projections project_apart(const ech_builder *b, int x, int starts)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t G = config->model.num_key_value_heads, D = config->model.head_dim;
    bool bias = config->model.qkv_bias;
    ech_shape query = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    ech_shape key = ech_shape_heads(ECH_AXIS_KV_HEADS, G, D);
    projections to;
    to.q = ech_builder_linear(b, b->names.q, x, ECH_AXIS_MODEL, C, ECH_AXIS_HEADS, H * D, bias,
                              b->model->std);
    to.k = ech_builder_linear(b, b->names.k, x, ECH_AXIS_MODEL, C, ECH_AXIS_KV_HEADS, G * D, bias,
                              b->model->std);
    to.v = ech_builder_linear(b, b->names.v, x, ECH_AXIS_MODEL, C, ECH_AXIS_KV_HEADS, G * D, bias,
                              b->model->std);
    to.q = prepare_heads(b, b->names.q_norm, to.q, query, starts);
    to.k = prepare_heads(b, b->names.k_norm, to.k, key, starts);
    to.v = ech_block_view(b->block, to.v, 0, key);
    return to;
}

/* ---- latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1) ---- */

/* A latent of x (B,T,C), R wide, normalized: RMSNorm with the eps of DeepSeek's own class. */
static int latent(const ech_builder *b, const char *role, const char *norm_role, int x, int64_t R)
{
    int64_t C = b->config->model.hidden_size;
    x = ech_builder_linear(b, role, x, ECH_AXIS_MODEL, C, ECH_AXIS_LATENT, R,
                           b->config->model.qkv_bias, b->model->std);
    int gain = ech_model_vector(b->model, b->block, ech_builder_name(b, norm_role, "weight"),
                                ECH_AXIS_LATENT, R, ECH_INIT_ONE);
    return ech_layer_rmsnorm(b->block, x, gain, 0, 1e-6);
}

/* Heads of `axis`, n of them D wide, from a latent or from x itself. */
static int heads_of(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                    ech_axis axis, int64_t n, int64_t D)
{
    x = ech_builder_linear(b, role, x, in_axis, in, axis, n * D, false, b->model->std);
    return ech_block_view(b->block, x, 0, ech_shape_heads(axis, n, D));
}

static projections project_latent(const ech_builder *b, int x, int starts)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t R = config->model.kv_lora_rank, Q = config->model.q_lora_rank;
    int64_t N = config->model.qk_nope_head_dim, P = config->model.qk_rope_head_dim;
    const ech_axis query = ECH_AXIS_HEADS, key = ECH_AXIS_KV_HEADS, low = ECH_AXIS_LATENT;
    const ech_names *names = &b->names;
    int kv = latent(b, names->kv_a, names->kv_a_norm, x, R);
    int k_rope = ech_builder_linear(b, names->k_rope, x, ECH_AXIS_MODEL, C, ECH_AXIS_HEAD_DIM, P,
                                    config->model.qkv_bias, b->model->std);
    int from = Q ? latent(b, names->q_a, names->q_a_norm, x, Q) : x;
    const ech_axis from_axis = Q ? low : ECH_AXIS_MODEL;
    int q_nope =
        heads_of(b, Q ? names->q_b_nope : names->q_nope, from, from_axis, Q ? Q : C, query, H, N);
    int q_rope =
        heads_of(b, Q ? names->q_b_rope : names->q_rope, from, from_axis, Q ? Q : C, query, H, P);
    int k_nope = heads_of(b, names->k_nope, kv, low, R, key, H, N);
    const ech_rope rope = ech_builder_rope(b);
    return (projections){.q = ech_layer_rotary_beside(b->block, q_rope, q_nope, &rope, starts),
                         .k = ech_layer_rotary_beside(b->block, k_rope, k_nope, &rope, starts),
                         .v = heads_of(b, names->v, kv, low, R, key, H, config->model.v_head_dim)};
}

/* The factor of scores; 0: 1 / sqrt(D). */
static double scale_of(const ech_builder *b)
{
    const ech_config *config = b->config;
    if (config->model.attention_scale > 0 || config->model.kv_lora_rank == 0)
        return config->model.attention_scale;
    const ech_rope rope = ech_builder_rope(b);
    return ech_rope_scores_factor(&rope) / sqrt((double)config->model.head_dim);
}

/* ---- queries, keys and values in one product ---- */

/* One product makes all three. */
static projections project_together(const ech_builder *b, int x)
{
    const ech_config *config = b->config;
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t all = H * config->model.head_dim;
    ech_shape heads = ech_shape_heads(ECH_AXIS_HEADS, H, config->model.head_dim);
    int qkv = ech_builder_linear(b, b->names.qkv, x, ECH_AXIS_MODEL, C, ECH_AXIS_QKV, 3 * all,
                                 config->model.qkv_bias, b->model->std);
    return (projections){.q = ech_block_view(b->block, qkv, 0, heads),
                         .k = ech_block_view(b->block, qkv, all, heads),
                         .v = ech_block_view(b->block, qkv, 2 * all, heads)};
}

/* The sinks beside the output product's matrix; -1: none. */
static int sinks(const ech_builder *b)
{
    const char *o = b->names.o, *end = strrchr(o, '.');
    if (!b->config->model.attention_sinks) return -1;
    char *part = ech_pool_format(b->model->pool, "%.*s", (int)(end ? end - o : 0), o);
    return ech_model_vector(b->model, b->block, ech_builder_name(b, part, "sinks"), ECH_AXIS_HEADS,
                            b->config->model.num_attention_heads, ECH_INIT_ZERO);
}

int ech_builder_attention(const ech_builder *b, int x)
{
    const ech_config *config = b->config;
    if (b->model->family->attention) return ech_builder_plugged(b, b->model->family->attention, x);
    int64_t C = config->model.hidden_size;
    int64_t all = config->model.num_attention_heads * ech_model_value_dim(config);
    int starts = ech_block_starts(b->block);
    projections of = config->model.kv_lora_rank > 0 ? project_latent(b, x, starts)
                     : b->names.qkv                 ? project_together(b, x)
                                                    : project_apart(b, x, starts);
    int y = ech_layer_attention(
        b->block, &(ech_layer_attention_args){.q = of.q,
                                              .k = of.k,
                                              .v = of.v,
                                              .starts = starts,
                                              .dropout = config->model.attn_pdrop,
                                              .scale = scale_of(b),
                                              .softcap = config->model.attn_logit_softcapping,
                                              .window = ech_model_window(config, b->layer),
                                              .sinks = sinks(b)});
    y = ech_block_view(b->block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, all));
    return ech_builder_linear(b, b->names.o, y, ECH_AXIS_HEADS, all, ECH_AXIS_MODEL, C,
                              config->model.o_bias, b->std);
}

ech_status ech_decoder_check_latent(const ech_config *config)
{
    int64_t N = config->model.qk_nope_head_dim, P = config->model.qk_rope_head_dim;
    if (P % 2)
        return ech_config_complain(config, "model.qk_rope_head_dim",
                                   "rotary positions need an even width");
    if (config->model.head_dim != N + P)
        return ech_config_complain(config, "model.head_dim",
                                   "in latent attention it is model.qk_nope_head_dim + "
                                   "model.qk_rope_head_dim = %lld",
                                   (long long)(N + P));
    if (config->model.num_key_value_heads != config->model.num_attention_heads)
        return ech_config_complain(config, "model.num_key_value_heads",
                                   "latent attention has as many as query heads; use "
                                   "model.num_attention_heads = %lld",
                                   (long long)config->model.num_attention_heads);
    if (config->model.position_encoding != ECH_POSITION_ROTARY ||
        strchr(config->model.rotary_layers, 'N'))
        return ech_config_complain(config, "model.rotary_layers",
                                   "latent attention has rotary positions in all layers; use R");
    if (config->model.head_norm == ECH_HEAD_NORM_NONE) return ECH_OK;
    return ech_config_complain(config, "model.head_norm",
                               "latent attention has norms of latents, and not of heads; use none");
}
