/* SPDX-License-Identifier: Apache-2.0
 *
 * Switch is ours, after the Switch Transformer (Fedus et al. 2021, arXiv:2101.03961): Llama's
 * layers with ReLU. Every second layer has experts, and each token goes to one expert. Names of
 * feed-forward layers are T5's (wi_0: the gate of SwiGLU). Weights begin as the paper
 * has them (section 2.4). Its files may have other properties, too.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_AS_HEADS,
    ECH_ROW_HEAD_DIM,
    ECH_ROW_POSITIONS("2048"),
    {"hidden_act", "model.hidden_act", "relu", .use = ECH_ROW_NAME},
    {"moe_gate", "model.moe_gate", "switch", .use = ECH_ROW_NAME},
    ECH_ROWS_ROPE,
    ECH_ROW_RMS_EPS("1e-6"),
    {"num_local_experts", "model.num_local_experts", .initial = "8"},
    {"num_experts_per_tok", "model.num_experts_per_tok", .initial = "1"},
    {"moe_every", "model.moe_every", .initial = "2"},
    {"moe_first_dense", "model.moe_first_dense", .initial = "0"},
    ECH_ROWS_CAPACITY,
    {"attention_dropout", "model.attn_pdrop", "0", .use = ECH_ROW_MAY_DIFFER},
    {"initializer_scale", "model.initializer_scale", "0.1", .use = ECH_ROW_MAY_DIFFER},
    ECH_ROW_TIED("false"),
    {"mlp_bias", "model.mlp_bias", "false", .use = ECH_ROW_OURS},
    {"partial_rotary_factor", "model.partial_rotary_factor", "1",
     .use = ECH_ROW_OURS | ECH_ROW_UNREAD},
    {"rope_local_base_freq", "model.rope_local_base_freq", "0", .use = ECH_ROW_OURS},
    {"rope_interleaved", "model.rope_interleaved", "false", .use = ECH_ROW_OURS},
    {"rotary_layers", "model.rotary_layers", "R", .use = ECH_ROW_OURS | ECH_ROW_TEXT},
    {"embedding_multiplier", "model.embedding_multiplier", "1", .use = ECH_ROW_OURS},
    {"residual_multiplier", "model.residual_multiplier", "1", .use = ECH_ROW_OURS},
    {"logits_scaling", "model.logits_scaling", "1", .use = ECH_ROW_OURS},
    {"final_logit_softcapping", "model.final_logit_softcapping", "0", .use = ECH_ROW_OURS},
    {"norm_unit_offset", "model.norm_unit_offset", "false", .use = ECH_ROW_OURS},
    {"moe_shared_gate", "model.moe_shared_gate", "false", .use = ECH_ROW_OURS},
    ECH_ROWS_END};

static const ech_names names = {.gate = "mlp.wi_0",
                                .up = "mlp.wi",
                                .down = "mlp.wo",
                                .expert_gate = "mlp.experts.%d.wi_0",
                                .expert_up = "mlp.experts.%d.wi",
                                .expert_down = "mlp.experts.%d.wo",
                                .shared_gate = "mlp.shared_experts.wi_0",
                                .shared_up = "mlp.shared_experts.wi",
                                .shared_down = "mlp.shared_experts.wo"};

const ech_family ech_family_row_switch = {
    .name = "switch",
    .help =
        "Switch, after the Switch Transformer: Llama with ReLU and experts in every second layer",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS ECH_EXPERT_KEYS,
    .constants = "model.initialization=inputs",
    .defaults = "model.hidden_act=relu model.moe_gate=switch model.num_local_experts=8 "
                "model.num_experts_per_tok=1 model.moe_every=2",
    .inner = ech_inner_quadruple,
    .ours = true,
    .architecture = "SwitchForCausalLM",
    .rows = rows,
    .names = &names,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES(ECH_CAPACITY_NAMES)};
