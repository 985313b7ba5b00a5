/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files of llama2.c (Karpathy 2023), version 1: "ak42", the version, seven numbers, one byte that
 * says whether the head is the table, zeros up to byte 256, then fp32. Queries and keys have the pairs
 * that are rotated side by side, as Meta stores them.
 */
#include "checkpoint/raw_llama2c.h"

enum { MAGIC = 0x616b3432, HEADER_BYTES = 256, AT_NUMBERS = 2, AT_SHARED = 36 };
enum { BEGIN_OF_TEXT = 1, END_OF_TEXT = 2 }; /* of Llama 2, whose tokens these models have */

ech_status ech_raw_llama2c_fill(const ech_raw *raw, const void *header, size_t n, int at,
                                bool shared, ech_config *config)
{
    static const char *const keys[] = {"model.hidden_size",
                                       "model.intermediate_size",
                                       "model.num_hidden_layers",
                                       "model.num_attention_heads",
                                       "model.num_key_value_heads",
                                       "model.vocab_size",
                                       "model.max_position_embeddings"};
    const char *tied = shared ? "true" : "false";
    ECH_TRY(ech_config_fill(config, "model.architecture", "llama", raw->path, false));
    ECH_TRY(ech_config_fill(config, "model.tie_word_embeddings", tied, raw->path, false));
    for (int i = 0; i < (int)(sizeof keys / sizeof *keys); i++) {
        int64_t value = ech_raw_number(header, n, at + i);
        ECH_TRY(ech_raw_fill(raw, config, keys[i], value < 0 && i == 5 ? -value : value));
    }
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    if (C % H || C / H % 2)
        ECH_FAIL(ECH_EINPUT, "%s: %lld heads do not fit a width of %lld", raw->path, (long long)H,
                 (long long)C);
    return ECH_OK;
}

static void add_layer(ech_raw *raw, ech_raw_llama2c_kind kind, int64_t i, const ech_config *config)
{
    static const char at[] = "model.layers";
    long long l = (long long)i;
    int64_t C = config->model.hidden_size, F = config->model.intermediate_size;
    int64_t H = config->model.num_attention_heads, G = config->model.num_key_value_heads;
    int64_t narrow = C / H * G;
    switch (kind) {
    case ECH_RAW_FIRST_NORM:
        ech_raw_vector(raw, C, "%s.%lld.input_layernorm.weight", at, l);
        break;
    case ECH_RAW_SECOND_NORM:
        ech_raw_vector(raw, C, "%s.%lld.post_attention_layernorm.weight", at, l);
        break;
    case ECH_RAW_QUERIES:
        ech_raw_matrix(raw, C, C, ECH_RAW_INTERLEAVED, H, "%s.%lld.self_attn.q_proj.weight", at, l);
        break;
    case ECH_RAW_KEYS:
        ech_raw_matrix(raw, narrow, C, ECH_RAW_INTERLEAVED, G, "%s.%lld.self_attn.k_proj.weight",
                       at, l);
        break;
    case ECH_RAW_VALUES:
        ech_raw_matrix(raw, narrow, C, ECH_RAW_PLAIN, 0, "%s.%lld.self_attn.v_proj.weight", at, l);
        break;
    case ECH_RAW_OUT:
        ech_raw_matrix(raw, C, C, ECH_RAW_PLAIN, 0, "%s.%lld.self_attn.o_proj.weight", at, l);
        break;
    case ECH_RAW_GATE:
        ech_raw_matrix(raw, F, C, ECH_RAW_PLAIN, 0, "%s.%lld.mlp.gate_proj.weight", at, l);
        break;
    case ECH_RAW_DOWN:
        ech_raw_matrix(raw, C, F, ECH_RAW_PLAIN, 0, "%s.%lld.mlp.down_proj.weight", at, l);
        break;
    default:
        ech_raw_matrix(raw, F, C, ECH_RAW_PLAIN, 0, "%s.%lld.mlp.up_proj.weight", at, l);
    }
}

static void add_kind(ech_raw *raw, ech_raw_llama2c_kind kind, const ech_config *config)
{
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    int64_t D = C / config->model.num_attention_heads;
    switch (kind) {
    case ECH_RAW_TABLE:
        ech_raw_matrix(raw, V, C, ECH_RAW_PLAIN, 0, "model.embed_tokens.weight");
        break;
    case ECH_RAW_LAST_NORM:
        ech_raw_vector(raw, C, "model.norm.weight");
        break;
    case ECH_RAW_ANGLES:
        ech_raw_skip(raw, config->model.max_position_embeddings, D);
        break;
    case ECH_RAW_HEAD:
        if (config->model.tie_word_embeddings == 0)
            ech_raw_matrix(raw, V, C, ECH_RAW_PLAIN, 0, "lm_head.weight");
        break;
    default:
        for (int64_t i = 0; i < config->model.num_hidden_layers; i++)
            add_layer(raw, kind, i, config);
    }
}

void ech_raw_llama2c_list(ech_raw *raw, int64_t header_bytes, const ech_raw_llama2c_kind *kinds,
                          size_t n, const ech_config *config)
{
    raw->dtype = ECH_F32;
    raw->bytes = header_bytes;
    raw->begin_of_text = BEGIN_OF_TEXT;
    raw->end_of_text = END_OF_TEXT;
    for (size_t k = 0; k < n; k++) add_kind(raw, kinds[k], config);
}

static bool claims(const void *header, size_t n)
{
    return ech_raw_number(header, n, 0) == MAGIC;
}

static ech_status fill(const ech_raw *raw, const void *header, size_t n, ech_config *config)
{
    int32_t version = ech_raw_number(header, n, 1);
    if (version != 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: llama2.c model file of version %d; only 1 and the legacy one, which are "
                 "fp32, are supported",
                 raw->path, version);
    if (n < HEADER_BYTES) ECH_FAIL(ECH_EINPUT, "%s: cut off within its header", raw->path);
    uint8_t shared = ((const uint8_t *)header)[AT_SHARED];
    if (shared > 1)
        ECH_FAIL(ECH_EINPUT, "%s: byte %d says neither that the head is the table nor not",
                 raw->path, AT_SHARED);
    return ech_raw_llama2c_fill(raw, header, n, AT_NUMBERS, shared == 1, config);
}

static ech_status list(ech_raw *raw, const void *header, const ech_config *config)
{
    static const ech_raw_llama2c_kind kinds[] = {
        ECH_RAW_FIRST_NORM, ECH_RAW_SECOND_NORM, ECH_RAW_LAST_NORM, ECH_RAW_TABLE,
        ECH_RAW_QUERIES,    ECH_RAW_KEYS,        ECH_RAW_VALUES,    ECH_RAW_OUT,
        ECH_RAW_GATE,       ECH_RAW_DOWN,        ECH_RAW_UP,        ECH_RAW_HEAD};
    (void)header;
    ech_raw_llama2c_list(raw, HEADER_BYTES, kinds, sizeof kinds / sizeof *kinds, config);
    return ECH_OK;
}

const ech_raw_format ech_raw_format_llama2c = {
    .meaning = "llama2.c model file", .claims = claims, .fill = fill, .list = list};
