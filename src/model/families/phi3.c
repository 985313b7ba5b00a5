/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi-3 and Phi-4. Abdin et al. 2024, arXiv:2404.14219 and 2412.08905: Llama, in whose files one
 * tensor has queries, keys and values, and another the gate and the first product of a feed-forward
 * layer.
 */
#include "model/family.h"

static const ech_family_row rows[] = {
    ECH_ROWS_SIZES,
    ECH_ROW_KV_HEADS_AS_HEADS,
    ECH_ROWS_LLAMA("4096", "1e-5"),
    ECH_ROW_WINDOW("0"),
    {"resid_pdrop", "model.resid_pdrop", .initial = "0", .use = ECH_ROW_MAY_DIFFER},
    {"embd_pdrop", "model.embd_pdrop", .initial = "0", .use = ECH_ROW_MAY_DIFFER},
    ECH_ROWS_TRAINING("0.02"),
    ECH_ROW_TIED("false"),
    {"partial_rotary_factor", "model.partial_rotary_factor", "1",
     .use = ECH_ROW_OURS | ECH_ROW_UNREAD},
    ECH_ROW_NO_PAD,
    ECH_ROWS_END};

static const ech_family_fused fused[] = {
    {.file = ".self_attn.qkv_proj",
     .parts = ".self_attn.q_proj .self_attn.k_proj .self_attn.v_proj",
     .order = ECH_FUSED_PARTS},
    {.file = ".mlp.gate_up_proj", .parts = ".mlp.gate_proj .mlp.up_proj", .order = ECH_FUSED_PARTS},
    {.file = NULL}};

/* transformers takes each kind of scaling for LongRoPE. */
static ech_status check(const ech_config *config)
{
    int scaling = config->model.rope_scaling;
    if (scaling != ECH_ROPE_SCALING_NONE && scaling != ECH_ROPE_SCALING_LONGROPE)
        return ech_config_complain(config, "model.rope_scaling",
                                   "not a property of phi3; use longrope, or none");
    return ECH_OK;
}

const ech_family ech_family_row_phi3 = {
    .name = "phi3",
    .help =
        "Phi-3 and Phi-4: Llama with windows, LongRoPE, partial rotary positions, fused tensors",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .architecture = "Phi3ForCausalLM",
    .windows = &ech_windows_of_all,
    .rows = rows,
    .check = check,
    .rope = &(const ech_rope_names){.original = "4096"},
    ECH_ROTARY_FILES(""),
    .fused = fused};
