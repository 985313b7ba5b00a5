/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama. Touvron et al. 2023, arXiv:2302.13971 and 2307.09288. The properties of this family are
 * the defaults of keys.def, and its names the defaults of roles.def. Rotary pairs are (i, i + D/2).
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      ECH_ROW_KV_HEADS_AS_HEADS,
                                      ECH_ROWS_LLAMA("2048", "1e-6"),
                                      ECH_ROWS_ATTENTION_BIAS("false"),
                                      ECH_ROW_MLP_BIAS("false"),
                                      ECH_ROWS_LLAMA_REST("false"),
                                      ECH_ROW_NO_WINDOW,
                                      ECH_ROWS_END};

/* transformers loads no Llama whose heads do not divide its width, also where heads have another
 * width. */
static ech_status check(const ech_config *config)
{
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    if (C % H == 0) return ECH_OK;
    return ech_config_complain(
        config, "model.num_attention_heads",
        "must divide model.hidden_size = %lld in family llama, as in transformers; "
        "use %lld heads, or model.architecture=qwen3 with model.head_dim set",
        (long long)C, (long long)ech_nearest_divisor(C, H));
}

const ech_family ech_family_row_llama = {
    .name = "llama",
    .help = "Llama: rotary positions, RMSNorm, SwiGLU, grouped-query attention",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS,
    .check = check,
    .architecture = "LlamaForCausalLM",
    .rows = rows,
    .rope = &ech_rope_usual,
    ECH_ROTARY_FILES("")};
