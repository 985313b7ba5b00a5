/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention in config.json and in files, as DeepSeek's models have it.
 */
#include "model/family.h"

/* One tensor of a file has the two parts of all heads, head after head, or of a token's latents. */
const ech_family_fused ech_latent_fused[] = {
    {.file = ".self_attn.q_proj",
     .parts = ".self_attn.q_nope_proj .self_attn.q_rope_proj",
     .order = ECH_FUSED_HEADS},
    {.file = ".self_attn.q_b_proj",
     .parts = ".self_attn.q_b_nope_proj .self_attn.q_b_rope_proj",
     .order = ECH_FUSED_HEADS},
    {.file = ".self_attn.kv_a_proj_with_mqa",
     .parts = ".self_attn.kv_a_proj .self_attn.k_rope_proj",
     .order = ECH_FUSED_PARTS},
    {.file = ".self_attn.kv_b_proj",
     .parts = ".self_attn.k_nope_proj .self_attn.v_proj",
     .order = ECH_FUSED_HEADS},
    {.file = NULL}};

/* A width that other keys decide. */
static ech_status import_width(const ech_family_import *in, const char *name, int64_t is)
{
    int64_t width;
    const json_t *value = ech_family_import_get(in, name);
    if (!value || (ech_json_to_int(value, 1, INT64_MAX, &width) && width == is)) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s: %s: must be %lld, by qk_nope_head_dim and qk_rope_head_dim", in->path,
             name, (long long)is);
}

ech_status ech_latent_import(const ech_family_import *in)
{
    int64_t N = in->config->model.qk_nope_head_dim, P = in->config->model.qk_rope_head_dim;
    ECH_TRY(import_width(in, "head_dim", P));
    return import_width(in, "qk_head_dim", N + P);
}

ech_status ech_latent_check(const ech_config *config)
{
    int scaling = config->model.rope_scaling;
    if (config->model.kv_lora_rank == 0)
        return ech_config_complain(config, "model.kv_lora_rank",
                                   "%s has a latent of keys and values; use at least 1",
                                   ech_family_of(config)->name);
    if (scaling == ECH_ROPE_SCALING_NONE || scaling == ECH_ROPE_SCALING_YARN) return ECH_OK;
    return ech_config_complain(config, "model.rope_scaling",
                               "not a property of %s; use yarn, or none",
                               ech_family_of(config)->name);
}
