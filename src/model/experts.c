/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of experts: their parameters, and which numbers of them go together.
 */
#include <math.h>

#include "model/decoder.h"

/* The weights of all experts, (E,out,in); the role's name has a %d for an expert's number. */
static int stack(const ech_builder *b, const char *role, ech_axis axis, int64_t out,
                 ech_axis in_axis, int64_t in, double std)
{
    ech_shape shape = {.dims = 3,
                       .axis = {ECH_AXIS_EXPERTS, axis, in_axis},
                       .size = {b->config->model.num_local_experts, out, in}};
    return ech_model_matrix(b->model, b->block, ech_builder_name(b, role, "weight"), shape, std);
}

/* The biases of all experts, (E,out). */
static int stack_bias(const ech_builder *b, const char *role, ech_axis axis, int64_t out)
{
    ech_shape shape = ech_shape_2d(ECH_AXIS_EXPERTS, b->config->model.num_local_experts, axis, out);
    int at = ech_model_matrix(b->model, b->block, ech_builder_name(b, role, "bias"), shape, 0);
    b->model->param.at[at].initializer = ECH_INIT_ZERO;
    b->model->param.at[at].decay = false;
    return at;
}

static void add_biases(const ech_builder *b, ech_experts *is)
{
    is->biased = b->config->model.moe_bias;
    if (!is->biased) return;
    is->router_bias =
        ech_model_vector(b->model, b->block, ech_builder_name(b, b->names.router, "bias"),
                         ECH_AXIS_CHOICES, ech_gate_logits(&is->gate), ECH_INIT_ZERO);
    if (ech_activation_operands(is->activation) > 1)
        is->gate_bias = stack_bias(b, b->names.expert_gate, ECH_AXIS_FFN, is->width);
    is->up_bias = stack_bias(b, b->names.expert_up, ECH_AXIS_FFN, is->width);
    is->down_bias =
        stack_bias(b, b->names.expert_down, ECH_AXIS_MODEL, b->config->model.hidden_size);
}

static ech_gate gate_of(const ech_config *config)
{
    ech_gate gate = {.kind = (ech_gate_kind)config->model.moe_gate,
                     .experts = config->model.num_local_experts,
                     .chosen = config->model.num_experts_per_tok,
                     .groups = config->model.n_group,
                     .groups_chosen = config->model.topk_group,
                     .normalized = config->model.norm_topk_prob,
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
static int router(const ech_builder *b, const char *role, const ech_gate *gate)
{
    ech_shape shape = ech_shape_2d(ECH_AXIS_CHOICES, ech_gate_logits(gate), ECH_AXIS_MODEL,
                                   b->config->model.hidden_size);
    int at = ech_model_matrix(b->model, b->block, ech_builder_name(b, role, "weight"), shape,
                              b->model->std);
    b->model->param.at[at].type = ECH_TYPE_WIDE;
    if (ech_gate_has_noise(gate->kind)) b->model->param.at[at].initializer = ECH_INIT_ZERO;
    return at;
}

/* The bias that balances experts: no parameter, but committed once a step. Named as in DeepSeek's
 * models. With adapters the model that they belong to stays as it is. */
static int bias(const ech_builder *b)
{
    double rate = b->config->lora.rank > 0 ? 0 : b->config->model.router_bias_rate;
    char *name = ech_builder_name(b, b->names.router, "e_score_correction_bias");
    ech_shape shape = ech_shape_1d(ECH_AXIS_CHOICES, b->config->model.num_local_experts);
    return ech_model_state(b->model, b->block, name, shape, ech_gate_balance, rate);
}

/* y, by the sigmoid of a product of x, the router of shared experts. */
static int shared_gate(const ech_builder *b, int x, int y)
{
    int64_t C = b->config->model.hidden_size;
    char *name = ech_builder_name(b, b->names.shared_router, "weight");
    int weight =
        ech_model_matrix(b->model, b->block, name,
                         ech_shape_2d(ECH_AXIS_CHOICES, 1, ECH_AXIS_MODEL, C), b->model->std);
    b->model->param.at[weight].type = ECH_TYPE_WIDE;
    return ech_layer_shared_gate(b->block, x, weight, y);
}

/* Shared experts, which all tokens go to, are one feed-forward layer as wide as they are together
 * (Dai et al. 2024, arXiv:2401.06066); they work while rows are on their way. */
int ech_builder_experts(const ech_builder *b, int x)
{
    const ech_config *config = b->config;
    const ech_names *names = &b->names;
    int64_t C = config->model.hidden_size, E = config->model.num_local_experts;
    int64_t F = config->model.moe_intermediate_size;
    ech_experts is = {.gate = gate_of(config),
                      .width = F,
                      .activation = ech_builder_activation(config),
                      .jitter = config->model.router_jitter_noise,
                      .dropout = config->model.moe_dropout,
                      .bound = config->model.moe_bound};
    is.router = router(b, names->router, &is.gate);
    if (ech_gate_has_noise(is.gate.kind)) is.noise = router(b, names->noise, &is.gate);
    if (is.gate.kind == ECH_GATE_bias) is.bias = bias(b);
    if (ech_activation_operands(is.activation) > 1)
        is.gate_proj =
            stack(b, names->expert_gate, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, b->model->std);
    is.down = stack(b, names->expert_down, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F, b->std);
    is.up = stack(b, names->expert_up, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C, b->model->std);
    add_biases(b, &is);
    b->model->experts_used = (double)is.gate.chosen / (double)E;
    int64_t shared = config->model.moe_shared_experts * F;
    ech_routed to = ech_layer_send_rows(b->block, x, &is);
    int beside = -1;
    if (shared) beside = ech_builder_widen(b, names->shared_gate, names->shared_up, shared, x);
    int y = ech_layer_experts(b->block, &to, &is);
    if (shared) beside = ech_builder_narrow(b, names->shared_down, shared, beside);
    if (shared && config->model.moe_shared_gate) beside = shared_gate(b, x, beside);
    y = ech_layer_combine(b->block, y, &to);
    return shared ? ech_layer_residual(b->block, y, beside) : y;
}

/* An expert takes a row at least. A folder alone, without a run, does not say of how many. */
static ech_status check_capacity(const ech_config *config)
{
    int64_t T = config->data.sequence_length;
    if (!(config->model.moe_capacity_factor > 0) || T == 0) return ECH_OK;
    ech_gate gate = gate_of(config);
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

/* A hierarchical gate chooses equally many experts from some groups; the gate `bias` chooses the
 * best experts of the best groups. */
static ech_status check_groups(const ech_config *config)
{
    int64_t E = config->model.num_local_experts, k = config->model.num_experts_per_tok;
    int64_t n = config->model.n_group, chosen = config->model.topk_group;
    bool hierarchical = config->model.moe_gate == ECH_GATE_hierarchical;
    if (!hierarchical && config->model.moe_gate != ECH_GATE_bias)
        return check_gate_reads(config, ECH_GROUP_KEYS);
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
    int64_t F = config->model.moe_intermediate_size;
    if (config->model.moe_shared_experts <= WIDEST / F) return ECH_OK;
    return ech_config_complain(config, "model.moe_shared_experts",
                               "experts of a width of %lld are wider than %d together; use at most "
                               "%lld",
                               (long long)F, WIDEST, (long long)(WIDEST / F));
}

ech_status ech_experts_check(const ech_config *config)
{
    int64_t E = config->model.num_local_experts, k = config->model.num_experts_per_tok;
    if (config->model.moe_shared_gate && config->model.moe_shared_experts == 0)
        return ech_config_complain(config, "model.moe_shared_gate",
                                   "there are no shared experts; set model.moe_shared_experts");
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
    if (config->model.moe_gate != ECH_GATE_bias) ECH_TRY(check_gate_reads(config, ECH_BIAS_KEYS));
    ECH_TRY(check_groups(config));
    ECH_TRY(check_capacity(config));
    ECH_TRY(check_shared(config));
    ECH_TRY(check_bound(config));
    return check_layers(config);
}
