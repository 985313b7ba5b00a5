/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/model. What a family is made of: the table between the run file's model section
 * and a Hugging Face config.json, constant properties, and the names of its tensors.
 */
#ifndef ECH_MODEL_FAMILY_H
#define ECH_MODEL_FAMILY_H

#include "base/json.h"
#include "layer/layers.h"
#include "model/model.h"

/* The built-in families, n of them, and their names, each followed by a blank. The build lists the
 * files of families/ (cmake/families.cmake). */
extern const ech_family *const ech_families[];
extern const size_t ech_families_count;
extern const char ech_families_names[];

/* ---- keys ---- */

/* Errors: keys that the family does not read. */
ech_status ech_family_check_keys(const ech_config *config);
/* Appends the keys that some families read and others do not, and properties that are constants of
 * families. */
void ech_family_append_owned(ech_text *out);
/* The same of built-in decoders alone. */
void ech_family_append_of_decoders(ech_text *out);
/* "key=value key=value": each key that the run file leaves open gets its value. */
void ech_family_choose(ech_config *config, const char *words);
/* The value after "key=" in such words, up to a blank; NULL: it is not there. */
const char *ech_family_find_value(const char *words, const char *key);
/* Adds a mapping's family. Takes over the mapping: also after an error, and if the same family was
 * there already. */
ech_status ech_family_add(ech_mapping *mapping, const ech_family **out);
/* Errors: values that the family's config.json cannot say. */
ech_status ech_family_check_rows(const ech_config *config);

/* ---- fused tensors of files ---- */

/* Where the family's files have several parameters in one tensor. A part's parameter has a name
 * with one of `parts` in it, as whole components, and the tensor's name has `file` there instead.
 * A family's parameters are named as if its files had them separately. */
typedef enum ech_fused_order {
    ECH_FUSED_PARTS, /* one part after the other, by rows (outputs of a product) */
    ECH_FUSED_HEADS, /* for each key/value head the rows of all parts that belong to it */
    ECH_FUSED_ROWS   /* row i of each part, then row i + 1 of each */
} ech_fused_order;

struct ech_family_fused {
    const char *file; /* ".self_attn.qkv_proj"; NULL ends the table */
    const char
        *parts; /* blank-separated: ".self_attn.q_proj .self_attn.k_proj .self_attn.v_proj" */
    ech_fused_order order;
    bool transposed; /* the file has rows and columns swapped */
};
/* Sets file_name and place of the model's parameters. ECH_EINTERNAL: a part lacks others, or their
 * shapes do not fit. */
ech_status ech_family_place_params(const ech_config *config, ech_model *model);

/* ---- config.json ---- */

typedef enum ech_family_row_use {
    ECH_ROW_MAY_DIFFER = 1, /* the run file may set another value */
    ECH_ROW_UNREAD = 2,     /* only written */
    ECH_ROW_UNWRITTEN = 4,  /* only read */
    ECH_ROW_LIST = 8,       /* the file has a list of such values */
    /* no other program knows it: written where it is not `initial`, and not missed */
    ECH_ROW_OURS = 16,
    ECH_ROW_NAME = 32,   /* the value is one of the key's names */
    ECH_ROW_NEEDED = 64, /* a constant that the file must say: its absence has another meaning */
    ECH_ROW_REAL = 128,  /* written with a decimal point: other programs accept no integer */
    ECH_ROW_TEXT = 256   /* the value is any text */
} ech_family_row_use;

/* A value of config.json, in the order in which they are written and read. */
struct ech_family_row {
    const char *name; /* "n_embd"; NULL ends the table */
    const char *key;  /* of the run file: "model.hidden_size"; NULL: a constant */
    /* The value if the file does not have it; NULL: an error then, unless `derived` gives it. A
     * constant lists the values that we support: one of true, false, 0, 1 and null, or
     * blank-separated words. The first one is written. */
    const char *initial;
    /* from rows before: the value for null, or without `initial` */
    int64_t (*derived)(const ech_config *config);
    unsigned use; /* bits of ech_family_row_use */
    /* the key's value for the file's null, which the file may not have itself; NULL: null is as if
     * the file had none */
    const char *null;
    /* of a key with names: "silu=swiglu swish=swiglu", the file's name and ours */
    const char *values;
    const char *property; /* what a model with another constant would need: "attention sinks" */
};

struct ech_family_import {
    ech_config *config;
    const char *path;   /* of the file, for errors */
    const json_t *json; /* the object; NULL: an empty one */
    json_t *seen;       /* gets the names that ech_family_import_get is called with; NULL: none */
    const char *folder; /* in which a mapping file may be; NULL: in none */
};

/* The value of a key of the file; NULL if it is absent or null. */
const json_t *ech_family_import_get(const ech_family_import *in, const char *name);
/* Sets a key of the run file to `text`. Errors: out of bounds; the run file has another value. */
ech_status ech_family_import_set(const ech_family_import *in, const char *key, const char *text);
/* The error for a row with another value than `expected`: blank-separated words, or one literal. */
ech_status ech_family_import_refuse(const ech_family_import *in, const ech_family_row *row,
                                    const char *expected);
/* Reads a row, or all rows of a table. ECH_EUNSUPPORTED: another constant. */
ech_status ech_family_import_row(const ech_family_import *in, const ech_family_row *row);
ech_status ech_family_import_rows(const ech_family_import *in, const ech_family_row *rows);
/* The row for a key of the run file; NULL: none. */
const ech_family_row *ech_family_find_row(const ech_family *family, const char *key);
/* The first built-in family's row for the key; NULL: none. */
const ech_family_row *ech_family_find_any_row(const char *key);
/* The object that a table writes. Release with json_decref. */
json_t *ech_family_export_rows(const ech_config *config, const ech_family_row *rows);

/* Whether a row with `values` has a word for the key's value. */
bool ech_family_row_writes(const ech_config *config, const ech_family_row *row);

/* Rotary positions, of transformers 4 and 5: names outside of rope_parameters, and values of a file
 * without. */
struct ech_rope_names {
    const char *theta, *theta_initial; /* NULL: "rope_theta", "10000" */
    const char *part, *part_initial;   /* NULL: "partial_rotary_factor", "1" */
    /* the base of layers with a window, which are not scaled; NULL: all layers are alike */
    const char *local, *local_initial;
    bool by_type; /* written as transformers 5 has it, with layers of each type by themselves */
    /* original_max_position_embeddings, which is also written outside; NULL: none */
    const char *original;
    const char *scaling; /* rope_scaling as JSON; NULL: none */
};
extern const ech_rope_names ech_rope_usual;
/* Read and write them as the family has them. */
ech_status ech_rope_import(const ech_family_import *in);
void ech_rope_export(const ech_config *config, json_t *json);
/* Errors: scaling that files of a family with parameters of each type of layers cannot say. */
ech_status ech_rope_check_by_type(const ech_config *config);

/* Sets a key that has a letter for each layer. Errors: the run file says otherwise. */
ech_status ech_layers_import(const ech_family_import *in, const char *key, ech_text *letters);

/* Which layers of a file without layer_types have the window. */
struct ech_windows {
    /* Whether layer i has it; NULL: all have. */
    bool (*has)(const ech_config *config, int64_t n, int64_t i);
    const char *number; /* the file's key for n; NULL: it has none */
    int64_t otherwise;  /* n of a file without this key */
    int least;          /* n is at least this */
    /* sliding_window of a file without, if layers have a window only where use_sliding_window is
     * true. NULL: there is no such key, and sliding_window is one of the family's rows. */
    const char *switched;
    bool alike; /* other programs do not read layer_types, so it must say the same of all layers */
};
extern const ech_windows ech_windows_of_all;
/* The layers from max_window_layers on, with use_sliding_window. */
extern const ech_windows ech_windows_of_last;
/* All layers but every n-th. */
bool ech_windows_but_every(const ech_config *config, int64_t n, int64_t i);
/* True for a key that the family's files have besides its rows. */
bool ech_windows_own(const ech_family *family, const char *key);
/* Reads and writes layer_types and use_sliding_window. Errors: layers have a window, but there is
 * none. */
ech_status ech_windows_import(const ech_family_import *in);
void ech_windows_export(const ech_config *config, json_t *json);
/* Errors: windows that the family's config.json cannot say. */
ech_status ech_windows_check(const ech_config *config);

typedef enum ech_scale_form { ECH_SCALE_FACTOR, ECH_SCALE_ROOT } ech_scale_form;
/* Sets attention_scale from a number of the file, which is the factor, or the square root of which
 * divides the scores. otherwise: the number of a file without one. */
ech_status ech_scale_import(const ech_family_import *in, const char *name, double otherwise,
                            ech_scale_form form);
void ech_scale_export(const ech_config *config, const char *name, ech_scale_form form,
                      json_t *json);
/* Errors: a scale that ECH_SCALE_ROOT cannot write, since the number must be whole. */
ech_status ech_scale_check_root(const ech_config *config);

/* ---- what many families have in common ---- */

/* Keys that the kinds of samples have besides, which their families read. */
#define ECH_TOKEN_KEYS "model.vocab_size model.max_position_embeddings data.sequence_length "
#define ECH_IMAGE_KEYS                                                                             \
    "model.image_height model.image_width model.image_channels model.num_classes "                 \
    "data.crop_padding data.flip training.label_smoothing "
/* These, of convolutional networks. */
#define ECH_CONVOLUTION_KEYS                                                                       \
    "model.weight_layers model.base_channels model.small_stem model.pre_activation "               \
    "model.norm_samples model.classifier_dropout "

/* Keys of all decoders. */
#define ECH_DECODER_KEYS                                                                           \
    ECH_TOKEN_KEYS                                                                                 \
    "model.hidden_size model.num_hidden_layers model.num_attention_heads "                         \
    "model.num_key_value_heads model.intermediate_size model.tie_word_embeddings "                 \
    "model.initializer_range model.embd_pdrop model.resid_pdrop model.attn_pdrop "                 \
    "model.sliding_window model.window_layers model.attn_logit_softcapping "                       \
    "model.attention_scale model.attention_sinks model.reversible "                                \
    "data.tokenizer data.packing data.long_documents data.document_mask training.loss"

#define ECH_ROPE_SCALING_KEYS                                                                      \
    "model.rope_scaling_factor model.rope_scaling_low_freq_factor "                                \
    "model.rope_scaling_high_freq_factor model.rope_scaling_original_max_position_embeddings "     \
    "model.rope_scaling_beta_fast model.rope_scaling_beta_slow model.rope_scaling_truncate "       \
    "model.rope_scaling_mscale model.rope_scaling_mscale_all_dim "                                 \
    "model.rope_scaling_attention_factor model.rope_scaling_short_factor "                         \
    "model.rope_scaling_long_factor"

#define ECH_ROTARY_KEYS                                                                            \
    " model.rope_theta model.rotary_layers model.rope_scaling " ECH_ROPE_SCALING_KEYS

/* Latent attention. */
#define ECH_LATENT_KEYS                                                                            \
    " model.q_lora_rank model.kv_lora_rank model.qk_nope_head_dim model.qk_rope_head_dim "         \
    "model.v_head_dim"

#define ECH_GROUP_KEYS "model.n_group model.topk_group"
#define ECH_BIAS_KEYS  "model.router_bias_rate model.routed_scaling_factor"

/* Keys that every family with experts reads. */
#define ECH_EXPERT_KEYS " model.moe_gate" ECH_ROUTED_KEYS
/* The same of a family whose gate is a constant. */
#define ECH_ROUTED_KEYS                                                                            \
    " model.num_local_experts model.num_experts_per_tok model.moe_dropout "                        \
    "model.moe_bound model.moe_capacity_factor model.moe_group_samples "                           \
    "model.router_aux_loss_coef model.router_importance_coef model.router_load_coef "              \
    "model.router_jitter_noise model.moe_gshard_ports model.moe_shared_experts "                   \
    "model.moe_bias " ECH_GROUP_KEYS " " ECH_BIAS_KEYS

/* A row in a macro. */
#define ECH_ROW(...)                                                                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Latent attention of DeepSeek's models: rows, tensors, rotary positions. Errors of check: scaling
 * that other programs compute otherwise; no latent. */
#define ECH_ROWS_LATENT                                                                            \
    ECH_ROW("q_lora_rank", "model.q_lora_rank", .initial = "1536", .null = "0"),                   \
        ECH_ROW("kv_lora_rank", "model.kv_lora_rank", .initial = "512"),                           \
        ECH_ROW("qk_nope_head_dim", "model.qk_nope_head_dim", .initial = "128"),                   \
        ECH_ROW("qk_rope_head_dim", "model.qk_rope_head_dim", .initial = "64"),                    \
        ECH_ROW("v_head_dim", "model.v_head_dim", .initial = "128")
extern const ech_family_fused ech_latent_fused[];
ech_status ech_latent_import(const ech_family_import *in);
ech_status ech_latent_check(const ech_config *config);

/* GLM-4 of 2024 and of 2025 (families/glm.c): rows, tensors, rotary positions. */
extern const ech_family_row ech_glm_rows[];
extern const ech_family_fused ech_glm_fused[];
extern const ech_rope_names ech_glm_rope;

/* Rows of Hugging Face's decoders since Llama. */
#define ECH_ROWS_SIZES                                                                             \
    ECH_ROW("vocab_size", "model.vocab_size", .initial = NULL),                                    \
        ECH_ROW("hidden_size", "model.hidden_size", .initial = NULL),                              \
        ECH_ROW("intermediate_size", "model.intermediate_size", .initial = NULL),                  \
        ECH_ROW("num_hidden_layers", "model.num_hidden_layers", .initial = NULL),                  \
        ECH_ROW("num_attention_heads", "model.num_attention_heads", .initial = NULL)
#define ECH_ROW_KV_HEADS(otherwise)                                                                \
    ECH_ROW("num_key_value_heads", "model.num_key_value_heads", .initial = otherwise)
/* The same; null means as many as query heads. */
#define ECH_ROW_KV_HEADS_OR_NULL(otherwise)                                                        \
    ECH_ROW("num_key_value_heads", "model.num_key_value_heads", .initial = otherwise,              \
            .derived = ech_rows_heads)
#define ECH_ROW_KV_HEADS_AS_HEADS                                                                  \
    ECH_ROW("num_key_value_heads", "model.num_key_value_heads", .derived = ech_rows_heads)
#define ECH_ROW_HEAD_DIM ECH_ROW("head_dim", "model.head_dim", .derived = ech_rows_head_dim)
#define ECH_ROW_POSITIONS(otherwise)                                                               \
    ECH_ROW("max_position_embeddings", "model.max_position_embeddings", .initial = otherwise)
/* hidden_act of a gated feed-forward layer, act(gate x) up x, and of one without gate. */
#define ECH_ROW_GATED_ACT                                                                          \
    ECH_ROW("hidden_act", "model.hidden_act", "silu", .values = ECH_GATED_ACTS)
#define ECH_GATED_ACTS                                                                             \
    "silu=swiglu swish=swiglu gelu_pytorch_tanh=geglu gelu_new=geglu gelu=geglu_exact"
#define ECH_PLAIN_ACTS                                                                             \
    "gelu_new=gelu_new gelu_pytorch_tanh=gelu_new relu=relu gelu=gelu relu2=relu2"
#define ECH_ROWS_ROPE                                                                              \
    ECH_ROW("rope_theta", "model.rope_theta", .use = ECH_ROW_UNREAD),                              \
        ECH_ROW("rope_scaling", .initial = "null", .use = ECH_ROW_UNREAD)
#define ECH_ROW_RMS_EPS(otherwise)                                                                 \
    ECH_ROW("rms_norm_eps", "model.rms_norm_eps", .initial = otherwise)
/* head_dim to rms_norm_eps, as most families have them. */
#define ECH_ROWS_LLAMA(positions, eps)                                                             \
    ECH_ROW_HEAD_DIM, ECH_ROW_POSITIONS(positions), ECH_ROW_GATED_ACT, ECH_ROWS_ROPE,              \
        ECH_ROW_RMS_EPS(eps)
/* One value of the file for several of our keys. */
#define ECH_ROWS_ATTENTION_BIAS(otherwise)                                                         \
    ECH_ROW("attention_bias", "model.qkv_bias", .initial = otherwise),                             \
        ECH_ROW("attention_bias", "model.o_bias", otherwise, .use = ECH_ROW_UNWRITTEN)
#define ECH_ROW_MLP_BIAS(otherwise) ECH_ROW("mlp_bias", "model.mlp_bias", .initial = otherwise)
#define ECH_ROWS_TRAINING(range)                                                                   \
    ECH_ROW("attention_dropout", "model.attn_pdrop", "0", .use = ECH_ROW_MAY_DIFFER),              \
        ECH_ROW("initializer_range", "model.initializer_range", range, .use = ECH_ROW_MAY_DIFFER)
#define ECH_ROW_TIED(otherwise)                                                                    \
    ECH_ROW("tie_word_embeddings", "model.tie_word_embeddings", .initial = otherwise)
#define ECH_ROW_WHOLE_ROTARY                                                                       \
    ECH_ROW("partial_rotary_factor", .initial = "1", .use = ECH_ROW_UNWRITTEN,                     \
            .property = "rotary positions of a part of each head")
/* attention_dropout to partial_rotary_factor, as most families have them. */
#define ECH_ROWS_LLAMA_REST(tied)                                                                  \
    ECH_ROWS_TRAINING("0.02"), ECH_ROW_TIED(tied), ECH_ROW_WHOLE_ROTARY
#define ECH_ROW_NO_WINDOW                                                                          \
    ECH_ROW("sliding_window", .initial = "null", .use = ECH_ROW_UNWRITTEN,                         \
            .property = "attention windows")
#define ECH_ROW_WINDOW(otherwise)                                                                  \
    ECH_ROW("sliding_window", "model.sliding_window", .initial = otherwise, .null = "0")
#define ECH_ROWS_SOFTCAPS(scores, logits)                                                          \
    ECH_ROW("attn_logit_softcapping", "model.attn_logit_softcapping", scores, .use = ECH_ROW_REAL, \
            .null = "0"),                                                                          \
        ECH_ROW("final_logit_softcapping", "model.final_logit_softcapping", logits,                \
                .use = ECH_ROW_REAL, .null = "0")
#define ECH_ROW_CAUSAL                                                                             \
    ECH_ROW("use_bidirectional_attention", .initial = "false", .use = ECH_ROW_UNWRITTEN,           \
            .property = "attention to later tokens")
/* Of a class whose own default may lie beyond the vocabulary. */
#define ECH_ROW_NO_PAD ECH_ROW("pad_token_id", .initial = "null", .use = ECH_ROW_UNREAD)
/* Numbers of experts that only Echelon knows. */
#define ECH_ROWS_CAPACITY                                                                          \
    ECH_ROW("moe_capacity_factor", "model.moe_capacity_factor", "0",                               \
            .use = ECH_ROW_OURS | ECH_ROW_MAY_DIFFER),                                             \
        ECH_ROW("moe_group_samples", "model.moe_group_samples", "1",                               \
                .use = ECH_ROW_OURS | ECH_ROW_MAY_DIFFER),                                         \
        ECH_ROW("moe_gshard_ports", "model.moe_gshard_ports", "false",                             \
                .use = ECH_ROW_OURS | ECH_ROW_MAY_DIFFER)
#define ECH_CAPACITY_NAMES " moe_capacity_factor moe_group_samples moe_gshard_ports"
#define ECH_ROWS_END       ECH_ROW(.name = NULL)

int64_t ech_rows_heads(const ech_config *config);
int64_t ech_rows_head_dim(const ech_config *config);

/* What files of most rotary decoders have in common. replaced: further keys that ours replace. */
#define ECH_ROTARY_FILES(replaced)                                                                 \
    .replaces = "dtype rope_parameters" replaced, .prefix = "model.",                              \
    .buffers = ".rotary_emb.inv_freq"

/* num_experts, or num_local_experts. */
ech_status ech_family_import_experts(const ech_family_import *in, const char *otherwise);
/* mlp_only_layers: dense layers of a family with experts. */
ech_status ech_family_import_dense(const ech_family_import *in);
void ech_family_export_dense(const ech_config *config, json_t *json);

/* The divisor of `whole` nearest to `wanted`. */
int64_t ech_nearest_divisor(int64_t whole, int64_t wanted);

/* Feed-forward widths where the run file says "auto". */
int64_t ech_inner_quadruple(const ech_config *config);

/* ---- building ---- */

/* A decoder: layers of attention and feed-forward layers on a residual stream, and a head. */
void ech_decoder_build(const ech_config *config, ech_model *model);
/* Errors: properties that layers cannot have together. */
ech_status ech_decoder_check(const ech_config *config);
/* Keys a query of layer i sees, itself included; 0: all of its document up to it. */
int64_t ech_model_window(const ech_config *config, int64_t i);
/* Width of a head's values. */
int64_t ech_model_value_dim(const ech_config *config);
/* Whether layer i has rotary positions. */
bool ech_model_rotates(const ech_config *config, int64_t i);
/* Whether layer i has experts. */
bool ech_model_has_experts(const ech_config *config, int64_t i);

#endif
