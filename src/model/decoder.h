/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of which decoders are built (ech_decoder_build). A function ech_builder_* adds calls of
 * layers to the builder's block, and returns the value that they compute. Private to this room.
 */
#ifndef ECH_MODEL_DECODER_H
#define ECH_MODEL_DECODER_H

#include "model/family.h"

/* What layers are built from. */
typedef struct ech_builder {
    const ech_config *config;
    ech_model *model;
    ech_block *block;
    ech_names names;
    const char *at; /* the block's name, in front of its tensors' */
    int64_t layer;
    double std; /* of products that are added to the residual stream */
} ech_builder;

/* The whole name of a tensor of the block. */
char *ech_builder_name(const ech_builder *b, const char *role, const char *what);
/* x (B,T,in) -> (B,T,out) with the block's matrix of that role. */
int ech_builder_linear(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                       ech_axis axis, int64_t out, bool bias, double std);
/* x normalized over its last axis, which has `size` numbers, by the model's kind of norm. */
int ech_builder_norm(const ech_builder *b, const char *role, int x, ech_axis axis, int64_t size);

/* ---- decoder_attention.c ---- */

/* A layer of attention. x (B,T,C) -> (B,T,C). */
int ech_builder_attention(const ech_builder *b, int x);
/* Errors: properties of heads that latent attention cannot have. */
ech_status ech_decoder_check_latent(const ech_config *config);

/* ---- decoder_rope.c ---- */

/* The rotary positions of the builder's layer. */
ech_rope ech_builder_rope(const ech_builder *b);
/* Errors: heads of an odd width; keys of another scaling; numbers that the scaling cannot have. */
ech_status ech_decoder_check_rope(const ech_config *config);

/* ---- decoder_plugged.c ---- */

/* A plugin's layer in place of attention or of a feed-forward layer. x (B,T,C) -> (B,T,C). */
int ech_builder_plugged(const ech_builder *b, const echelon_layer *row, int x);
/* Errors: the plugin's layer does not fit the model's sizes. row NULL: there is none. */
ech_status ech_decoder_check_plugged(const ech_config *config, const echelon_layer *row);

/* ---- decoder.c and experts.c: feed-forward layers ---- */

/* The activation of feed-forward layers, dense ones and experts. */
ech_activation ech_builder_activation(const ech_config *config);
/* A feed-forward layer in two parts: silu(gate x) up x, or relu(up x) and so on, F wide, and down
 * of that. x (B,T,C) -> (B,T,F) -> (B,T,C). */
int ech_builder_widen(const ech_builder *b, const char *gate, const char *up, int64_t F, int x);
int ech_builder_narrow(const ech_builder *b, const char *down, int64_t F, int y);
/* A layer of experts. x (B,T,C) -> (B,T,C). */
int ech_builder_experts(const ech_builder *b, int x);
/* Errors: numbers of the resolved section that do not go together in a layer of experts, and what
 * would. */
ech_status ech_experts_check(const ech_config *config);

/* ---- adapters.c ---- */

/* y, the product of x with the matrix of that role, plus what its adapter makes of x; y itself if
 * lora.targets does not name it. */
int ech_adapters_add(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                     ech_axis axis, int64_t out, int y);
/* Errors: keys of a run without adapters; a target that no product matches, or that also matches
 * what has no adapters; a rank above the smaller side of a product. */
ech_status ech_adapters_check(const ech_config *config, const ech_model *model);

#endif
