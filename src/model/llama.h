/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to model: Llama's code that derived families (Qwen3) reuse.
 */
#ifndef ECH_MODEL_LLAMA_H
#define ECH_MODEL_LLAMA_H

#include "model/decoder.h"
#include "model/import.h"

#define ECH_LLAMA_READS                                                                            \
    "model.rope_theta model.rope_scaling model.rope_scaling_factor "                               \
    "model.rope_scaling_low_freq_factor model.rope_scaling_high_freq_factor "                      \
    "model.rope_scaling_original_max_position_embeddings model.rms_norm_eps model.embd_pdrop "     \
    "model.resid_pdrop model.attn_pdrop model.num_key_value_heads model.head_dim"

/* In what the families' config.json differ. */
typedef struct ech_llama {
    const char *name;      /* "Llama": architectures is LlamaForCausalLM */
    const char *off;       /* a key that must be false, besides attention_bias */
    const char *positions; /* default of max_position_embeddings */
    const char *head_dim;  /* default of head_dim; NULL: hidden_size / num_attention_heads */
} ech_llama;

void ech_llama_resolve(ech_config *config);
/* The attention of a layer, as an ech_decoder_part. norms_heads: with RMSNorm of each head's queries and keys before
 * RoPE (q_norm, k_norm). */
int ech_llama_attention(const ech_config *config, ech_model *model, ech_block *block,
                        const char *name, int x, double std, bool norms_heads);
/* Builds all blocks, with that attention. */
ech_status ech_llama_build(const ech_config *config, ech_model *model, ech_decoder_part attention);
/* As ech_family's export_json and import_json. */
void ech_llama_export(const ech_llama *kind, const ech_config *config, int32_t begin_of_text,
                      int32_t end_of_text, ech_dtype dtype, ech_text *out);
ech_status ech_llama_import(const ech_llama *kind, const ech_family_import *in);

#endif
