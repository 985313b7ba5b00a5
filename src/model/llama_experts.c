/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts in Llama's blocks, those of Mixtral, Qwen3-MoE and Switch: their parameters, and which
 * numbers of them go together.
 */
#include <math.h>

#include "model/llama.h"

/* PREFIX.experts.N.NAME.weight of all experts, (E,out,in); %d: N. */
static int stack(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
                 const char *name, ech_axis axis, int64_t out, ech_axis in_axis, int64_t in,
                 double std)
{
    char *weight = ech_pool_format(model->pool, "%s.experts.%%d.%s.weight", prefix, name);
    ech_shape shape = {.dims = 3,
                       .axis = {ECH_AXIS_EXPERTS, axis, in_axis},
                       .size = {config->model.num_local_experts, out, in}};
    return ech_model_matrix(model, block, weight, shape, std);
}

static ech_gate gate_of(const ech_config *config, bool normalized)
{
    ech_gate gate = {.kind = (ech_gate_kind)config->model.moe_gate,
                     .experts = config->model.num_local_experts,
                     .chosen = config->model.num_experts_per_tok,
                     .groups = config->model.n_group,
                     .groups_chosen = config->model.topk_group,
                     .normalized = normalized,
                     .scale = config->model.routed_scaling_factor,
                     .ports = config->model.moe_gshard_ports,
                     .capacity_factor = config->model.moe_capacity_factor,
                     .samples = config->model.moe_group_samples,
                     .auxiliary = config->model.router_aux_loss_coef,
                     .importance = config->model.router_importance_coef,
                     .load = config->model.router_load_coef};
    return gate;
}

/* One of the router's products, (logits,C). With noise both begin at 0, so that all experts get as
 * much at first (Shazeer et al. 2017, arXiv:1701.06538, appendix A). */
static int router(ech_model *model, ech_block *block, const char *prefix, const char *name,
                  const ech_gate *gate, int64_t C)
{
    ech_shape shape = ech_shape_2d(ECH_AXIS_CHOICES, ech_gate_logits(gate), ECH_AXIS_MODEL, C);
    char *weight = ech_pool_format(model->pool, "%s.%s.weight", prefix, name);
    int at = ech_model_matrix(model, block, weight, shape, model->std);
    model->param.at[at].type = ECH_TYPE_WIDE;
    if (ech_gate_has_noise(gate->kind)) model->param.at[at].initializer = ECH_INIT_ZERO;
    return at;
}

/* The bias that balances experts: no parameter, but committed once a step. Named as in DeepSeek's
 * models. */
static int bias(const ech_config *config, ech_model *model, ech_block *block, const char *at)
{
    char *name = ech_pool_format(model->pool, "%s.gate.e_score_correction_bias", at);
    ech_shape shape = ech_shape_1d(ECH_AXIS_CHOICES, config->model.num_local_experts);
    return ech_model_state(model, block, name, shape, ech_gate_balance,
                           config->model.router_bias_rate);
}

/* F: width of each. normalized: the gates of a token's experts sum to 1. Shared experts, which all
 * tokens go to, are one feed-forward layer as wide as they are together (Dai et al. 2024,
 * arXiv:2401.06066); they work while rows are on their way. */
static int experts(const ech_config *config, ech_model *model, ech_block *block, const char *prefix,
                   const ech_llama_names *names, int64_t F, bool normalized, int x, double std)
{
    int64_t C = config->model.hidden_size, E = config->model.num_local_experts;
    char *at = ech_pool_format(model->pool, "%s.%s", prefix, names->at);
    char *shared_at = ech_pool_format(model->pool, "%s.shared_experts", at);
    ech_experts is = {.gate = gate_of(config, normalized),
                      .width = F,
                      .activation = ech_llama_activation(config),
                      .jitter = config->model.router_jitter_noise,
                      .dropout = config->model.moe_dropout,
                      .bound = config->model.moe_bound};
    is.router = router(model, block, at, "gate", &is.gate, C);
    if (ech_gate_has_noise(is.gate.kind)) is.noise = router(model, block, at, "noise", &is.gate, C);
    if (is.gate.kind == ECH_GATE_bias) is.bias = bias(config, model, block, at);
    if (ech_activation_operands(is.activation) > 1)
        is.gate_proj = stack(config, model, block, at, names->gate_proj, ECH_AXIS_FFN, F,
                             ECH_AXIS_MODEL, C, model->std);
    is.down = stack(config, model, block, at, names->down, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, std);
    is.up =
        stack(config, model, block, at, names->up, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, model->std);
    model->experts_used = (double)is.gate.chosen / (double)E;
    int64_t shared = config->model.moe_shared_experts * F;
    ech_routed to = ech_layer_send_rows(block, x, &is);
    int beside = shared ? ech_llama_widen(config, model, block, shared_at, names, shared, x) : -1;
    int y = ech_layer_experts(block, &to, &is);
    if (shared)
        beside = ech_llama_narrow(config, model, block, shared_at, names, shared, beside, std);
    y = ech_layer_combine(block, y, &to);
    if (shared) y = ech_layer_residual(block, y, beside);
    return ech_layer_dropout(block, y, config->model.resid_pdrop);
}

int ech_llama_mixtral_experts(const ech_config *config, ech_model *model, ech_block *block,
                              const char *prefix, int x, double std)
{
    static const ech_llama_names names = {"block_sparse_moe", "w1", "w3", "w2"};
    return experts(config, model, block, prefix, &names, config->model.intermediate_size, true, x,
                   std);
}

int ech_llama_switch_experts(const ech_config *config, ech_model *model, ech_block *block,
                             const char *prefix, int x, double std)
{
    return experts(config, model, block, prefix, &ech_llama_switch_names,
                   config->model.intermediate_size, true, x, std);
}

int ech_llama_qwen3_experts(const ech_config *config, ech_model *model, ech_block *block,
                            const char *prefix, int x, double std)
{
    return experts(config, model, block, prefix, &ech_llama_mlp_names,
                   config->model.moe_intermediate_size, config->model.norm_topk_prob, x, std);
}

/* An expert takes a row at least. A folder alone, without a run, does not say of how many. */
static ech_status check_capacity(const ech_config *config)
{
    int64_t T = config->data.sequence_length;
    if (!(config->model.moe_capacity_factor > 0) || T == 0) return ECH_OK;
    ech_gate gate = gate_of(config, true);
    if (ech_gate_capacity(&gate, T) >= 1) return ECH_OK;
    double mean = (double)(gate.samples * T * gate.chosen) / (double)gate.experts;
    return ech_config_complain(config, "model.moe_capacity_factor",
                               "an expert would take no token: of a balance group it has %.3g in "
                               "the mean; use at least %.3g, or 0, by which it takes all",
                               mean, ceil(1e3 / mean) / 1e3);
}

/* Fewer rows than a rank's share would take several rounds of even the most balanced batch. */
static ech_status check_bound(const ech_config *config)
{
    if (!(config->model.moe_bound > 0) || config->model.moe_bound >= 1) return ECH_OK;
    return ech_config_complain(config, "model.moe_bound",
                               "experts would not keep what they get if all are chosen alike; use "
                               "at least 1, or 0, by which they keep all rows");
}

static ech_status check_layers(const ech_config *config)
{
    int64_t L = config->model.num_hidden_layers;
    for (int64_t i = 0; i < L; i++)
        if (ech_model_has_experts(config, i)) return ECH_OK;
    return ech_config_complain(
        config, config->model.moe_first_dense < L ? "model.moe_every" : "model.moe_first_dense",
        "no layer of %lld has experts then; use a smaller number, or a model without experts",
        (long long)L);
}

/* Of gates that do not read such keys. */
static ech_status check_gate_reads(const ech_config *config, const char *keys)
{
    ECH_FREED_TEXT gate = {0};
    ech_text_append(&gate, "model.moe_gate = %s", ech_config_name(config, "model.moe_gate"));
    return ech_config_check_read(config, keys, "", gate.at);
}

/* Groups of experts, of which a hierarchical gate chooses as many experts each, and the gate `bias`
 * the best ones. */
static ech_status check_groups(const ech_config *config)
{
    int64_t E = config->model.num_local_experts, k = config->model.num_experts_per_tok;
    int64_t n = config->model.n_group, chosen = config->model.topk_group;
    bool hierarchical = config->model.moe_gate == ECH_GATE_hierarchical;
    if (!hierarchical && config->model.moe_gate != ECH_GATE_bias)
        return check_gate_reads(config, ECH_LLAMA_GROUP_KEYS);
    if (hierarchical && n < 2)
        return ech_config_complain(config, "model.n_group",
                                   "model.moe_gate = hierarchical needs two groups or more, of as "
                                   "many experts each; use a divisor of %lld",
                                   (long long)E);
    if (E % n)
        return ech_config_complain(config, "model.n_group",
                                   "groups are of as many experts each; use a divisor of %lld",
                                   (long long)E);
    if (chosen > n)
        return ech_config_complain(config, "model.topk_group",
                                   "above model.n_group = %lld; use at most that", (long long)n);
    if (hierarchical && (k % chosen || k / chosen > E / n))
        return ech_config_complain(
            config, "model.num_experts_per_tok",
            "a token goes to as many experts of each of %s, of %lld at most; "
            "use a multiple of %lld up to %lld",
            ECH_COUNT(chosen, "group"), (long long)(E / n), (long long)chosen,
            (long long)(chosen * (E / n)));
    if (k > chosen * (E / n))
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "%s of %lld experts have fewer; use at most %lld, or a larger "
                                   "model.topk_group",
                                   ECH_COUNT(chosen, "group"), (long long)(E / n),
                                   (long long)(chosen * (E / n)));
    return ECH_OK;
}

/* Shared experts are a feed-forward layer, no wider than one may be. */
static ech_status check_shared(const ech_config *config)
{
    enum { WIDEST = 10000000 }; /* as model.intermediate_size */
    bool own = ech_family_reads(config, "model.moe_intermediate_size");
    int64_t F = own ? config->model.moe_intermediate_size : config->model.intermediate_size;
    if (config->model.moe_shared_experts <= WIDEST / F) return ECH_OK;
    return ech_config_complain(config, "model.moe_shared_experts",
                               "experts of a width of %lld are wider than %d together; use at most "
                               "%lld",
                               (long long)F, WIDEST, (long long)(WIDEST / F));
}

ech_status ech_llama_check_experts(const ech_config *config)
{
    int64_t E = config->model.num_local_experts, k = config->model.num_experts_per_tok;
    if (config->model.moe_gate == ECH_GATE_switch && k != 1)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "model.moe_gate = switch goes to one expert; use 1");
    if (config->model.moe_gate == ECH_GATE_gshard && k != 2)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "model.moe_gate = gshard goes to two experts; use 2");
    if (k > E)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "above model.num_local_experts = %lld; use at most that",
                                   (long long)E);
    if (config->model.moe_gate == ECH_GATE_dense && k != E)
        return ech_config_complain(config, "model.num_experts_per_tok",
                                   "model.moe_gate = dense goes to all experts; use %lld",
                                   (long long)E);
    if (config->model.moe_gate != ECH_GATE_bias)
        ECH_TRY(check_gate_reads(config, ECH_LLAMA_BIAS_KEYS));
    ECH_TRY(check_groups(config));
    ECH_TRY(check_capacity(config));
    ECH_TRY(check_shared(config));
    ECH_TRY(check_bound(config));
    return check_layers(config);
}
