/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-NeoX and Pythia. Black et al. 2022, arXiv:2204.06745; Biderman et al. 2023, arXiv:2304.01373:
 * GPT-2's LayerNorm, GELU and biases with rotary positions in a part of each head. Attention and
 * feed-forward layer read the same residual stream. One tensor of a file has the queries, keys and
 * values of head after head.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    {"num_attention_heads", "model.num_key_value_heads", .use = ECH_ROW_UNWRITTEN},
    ECH_ROW_POSITIONS("2048"),
    {"hidden_act", "model.hidden_act", "gelu", .values = ECH_PLAIN_ACTS},
    {"rotary_emb_base", "model.rope_theta", .use = ECH_ROW_UNREAD},
    {"rotary_pct", "model.partial_rotary_factor", .use = ECH_ROW_UNREAD},
    {"rope_scaling", .initial = "null", .use = ECH_ROW_UNREAD},
    {"layer_norm_eps", "model.layer_norm_epsilon", .initial = "1e-5"},
    ECH_ROWS_ATTENTION_BIAS("true"),
    {"use_parallel_residual", "model.parallel_residual", .initial = "true"},
    {"hidden_dropout", "model.resid_pdrop", "0", .use = ECH_ROW_MAY_DIFFER},
    {"hidden_dropout", "model.embd_pdrop", "0", .use = ECH_ROW_MAY_DIFFER | ECH_ROW_UNWRITTEN},
    ECH_ROWS_TRAINING("0.02"),
    ECH_ROW_TIED("false"),
    ECH_ROWS_END};

static const ech_names names = {.tokens = "gpt_neox.embed_in",
                                .layers = "gpt_neox.layers",
                                .last_norm = "gpt_neox.final_layer_norm",
                                .head = "embed_out",
                                .q = "attention.q_proj",
                                .k = "attention.k_proj",
                                .v = "attention.v_proj",
                                .o = "attention.dense",
                                .up = "mlp.dense_h_to_4h",
                                .down = "mlp.dense_4h_to_h"};

static const ech_family_fused fused[] = {
    {.file = ".attention.query_key_value",
     .parts = ".attention.q_proj .attention.k_proj .attention.v_proj",
     .order = ECH_FUSED_HEADS},
    {.file = NULL}};

const ech_family ech_family_row_gpt_neox = {
    .name = "gpt_neox",
    .help = "GPT-NeoX and Pythia: GPT-2 with partial rotary positions and parallel branches",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .constants = "model.norm=layernorm model.mlp_bias=true",
    .defaults = "model.hidden_act=gelu model.qkv_bias=true model.o_bias=true "
                "model.parallel_residual=true model.partial_rotary_factor=0.25",
    .inner = ech_inner_quadruple,
    .architecture = "GPTNeoXForCausalLM",
    .rows = rows,
    .rope = &(const ech_rope_names){.theta = "rotary_emb_base",
                                    .part = "rotary_pct",
                                    .part_initial = "0.25"},
    .replaces = "dtype rope_parameters",
    .names = &names,
    .prefix = "gpt_neox.",
    .buffers = ".attention.bias .attention.masked_bias .rotary_emb.inv_freq",
    .fused = fused};
