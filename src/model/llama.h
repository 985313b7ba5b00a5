/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/model: between llama.c, llama_experts.c and llama_json.c.
 */
#ifndef ECH_MODEL_LLAMA_H
#define ECH_MODEL_LLAMA_H

#include "layer/layers.h"
#include "model/family.h"

/* ---- feed-forward layers (llama.c) ---- */

/* What a family calls a feed-forward layer, and the weights of one: PREFIX.at.down.weight. Of
 * experts PREFIX.at.experts.N.down.weight, of those that are shared
 * PREFIX.at.shared_experts.down.weight, and PREFIX.at.gate.weight for the router. */
typedef struct ech_llama_names {
    const char *at, *gate_proj, *up, *down;
} ech_llama_names;

extern const ech_llama_names ech_llama_mlp_names, ech_llama_switch_names;

/* What is between the products of the family's feed-forward layers, dense ones and experts. */
ech_activation ech_llama_activation(const ech_config *config);

/* A feed-forward layer in two parts: silu(gate x) up x, or relu(up x) and so on, F wide, and down
 * of that. The weights are AT.down.weight and so on. x (B,T,C) -> (B,T,F) -> (B,T,C). std: of
 * down's initial weights. */
int ech_llama_widen(const ech_config *config, ech_model *model, ech_block *block, const char *at,
                    const ech_llama_names *names, int64_t F, int x);
int ech_llama_narrow(const ech_config *config, ech_model *model, ech_block *block, const char *at,
                     const ech_llama_names *names, int64_t F, int y, double std);

/* ---- experts (llama_experts.c) ---- */

#define ECH_LLAMA_GROUP_KEYS "model.n_group model.topk_group"
#define ECH_LLAMA_BIAS_KEYS  "model.router_bias_rate model.routed_scaling_factor"

/* Keys that a family with experts reads more than Llama; a blank in front. */
#define ECH_LLAMA_EXPERT_KEYS                                                                      \
    " model.num_local_experts model.num_experts_per_tok model.moe_gate model.moe_dropout "         \
    "model.moe_bound "                                                                             \
    "model.moe_capacity_factor model.moe_group_samples model.router_aux_loss_coef "                \
    "model.router_importance_coef model.router_load_coef model.router_jitter_noise "               \
    "model.moe_gshard_ports model.moe_shared_experts " ECH_LLAMA_GROUP_KEYS                        \
    " " ECH_LLAMA_BIAS_KEYS

/* Each an ech_decoder_part. */
int ech_llama_mixtral_experts(const ech_config *config, ech_model *model, ech_block *block,
                              const char *prefix, int x, double std);
int ech_llama_qwen3_experts(const ech_config *config, ech_model *model, ech_block *block,
                            const char *prefix, int x, double std);
int ech_llama_switch_experts(const ech_config *config, ech_model *model, ech_block *block,
                             const char *prefix, int x, double std);

/* Errors: numbers of the resolved section that do not go together in a layer of experts, and what
 * would. */
ech_status ech_llama_check_experts(const ech_config *config);

/* ---- config.json (llama_json.c) ---- */

/* Of Llama and its kin: the table, and what it cannot express. */
extern const ech_family_row ech_llama_rows[];
ech_status ech_llama_import(const ech_family_import *in);
void ech_llama_export(const ech_config *config, json_t *json);

#endif
