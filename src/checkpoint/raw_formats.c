/* SPDX-License-Identifier: Apache-2.0
 *
 * The formats of model files without names: how a file is known, where its header has which number, and the
 * tensors in their order.
 *
 *   llm.c (Karpathy 2024): GPT-2 in versions 3 (fp32) and 5 (bf16). 256 numbers of 32 bits, then the tensors;
 *       products are stored (out,in), and the vocabulary with padding rows. Versions before had no padding.
 *   llama2.c (Karpathy 2023), version 1: "ak42", the version, seven numbers, one byte that says whether the head
 *       is the table, zeros up to byte 256, then fp32. Queries and keys have the pairs that are rotated side by
 *       side, as Meta stores them.
 *   llama2.c as it was at first: seven numbers (the vocabulary negative where the head is not the table), then
 *       fp32, tables of angles among it. There is no mark by which to know them: any file whose size is right is
 *       one, so it comes last.
 */
#include "checkpoint/raw.h"

enum { LLMC = 20240326, LLMC_BYTES = 1024, LLMC_VERSION = 1, LLMC_VOCABULARY = 3, LLMC_PADDED = 7 };
enum { LLAMA2C = 0x616b3432, LLAMA2C_BYTES = 256, LLAMA2C_VERSION = 1, LLAMA2C_SHARED = 36 };
enum { LEGACY_NUMBERS = 7, LEGACY_VOCABULARY = 5 };
enum { BEGIN_OF_TEXT = 1, END_OF_TEXT = 2 }; /* of Llama 2, whose tokens these models have */

#define GPT2(name)  "transformer.h.%lld." name
#define LLAMA(name) "model.layers.%lld." name

/* ---- llm.c ---- */

static const char *const llmc_keys[] = {
    "model.max_position_embeddings", "model.vocab_size",  "model.num_hidden_layers",
    "model.num_attention_heads",     "model.hidden_size", NULL};

static const ech_raw_row llmc_rows[] = {
    {"transformer.wte.weight", ECH_RAW_V, ECH_RAW_C, ECH_RAW_PLAIN},
    {NULL, ECH_RAW_PADDING, ECH_RAW_C, ECH_RAW_PLAIN},
    {"transformer.wpe.weight", ECH_RAW_P, ECH_RAW_C, ECH_RAW_PLAIN},
    {GPT2("ln_1.weight"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("ln_1.bias"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("attn.c_attn.weight"), ECH_RAW_C, ECH_RAW_3C, ECH_RAW_TRANSPOSED},
    {GPT2("attn.c_attn.bias"), ECH_RAW_3C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("attn.c_proj.weight"), ECH_RAW_C, ECH_RAW_C, ECH_RAW_TRANSPOSED},
    {GPT2("attn.c_proj.bias"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("ln_2.weight"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("ln_2.bias"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("mlp.c_fc.weight"), ECH_RAW_C, ECH_RAW_4C, ECH_RAW_TRANSPOSED},
    {GPT2("mlp.c_fc.bias"), ECH_RAW_4C, ECH_RAW_1, ECH_RAW_PLAIN},
    {GPT2("mlp.c_proj.weight"), ECH_RAW_4C, ECH_RAW_C, ECH_RAW_TRANSPOSED},
    {GPT2("mlp.c_proj.bias"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {"transformer.ln_f.weight", ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {"transformer.ln_f.bias", ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
};

static bool is_llmc(const ech_raw_header *header)
{
    return ech_raw_at(header, 0) == LLMC;
}

static ech_status read_llmc(ech_raw *raw, const ech_raw_header *header, bool *tied)
{
    int32_t version = ech_raw_at(header, LLMC_VERSION);
    int64_t padded = ech_raw_at(header, LLMC_PADDED), V = ech_raw_at(header, LLMC_VOCABULARY);
    if (version != 3 && version != 5)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: llm.c model file of version %d; only 3 (fp32) and 5 (bf16) are supported",
                 raw->path, version);
    if (header->n < LLMC_BYTES) ECH_FAIL(ECH_EINPUT, "%s: truncated within its header", raw->path);
    if (padded < V)
        ECH_FAIL(ECH_EINPUT, "%s: its padded vocabulary of %d is below its vocabulary of %d",
                 raw->path, (int)padded, (int)V);
    raw->dtype = version == 3 ? ECH_F32 : ECH_BF16;
    raw->padding = padded - V;
    raw->begin_of_text = raw->end_of_text = (int32_t)(V - 1);
    *tied = true;
    return ECH_OK;
}

/* ---- llama2.c ---- */

static const char *const llama2c_keys[] = {"model.hidden_size",
                                           "model.intermediate_size",
                                           "model.num_hidden_layers",
                                           "model.num_attention_heads",
                                           "model.num_key_value_heads",
                                           "model.vocab_size",
                                           "model.max_position_embeddings",
                                           NULL};

static const ech_raw_row llama2c_rows[] = {
    {LLAMA("input_layernorm.weight"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {LLAMA("post_attention_layernorm.weight"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {"model.norm.weight", ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {"model.embed_tokens.weight", ECH_RAW_V, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("self_attn.q_proj.weight"), ECH_RAW_C, ECH_RAW_C, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.k_proj.weight"), ECH_RAW_GD, ECH_RAW_C, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.v_proj.weight"), ECH_RAW_GD, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("self_attn.o_proj.weight"), ECH_RAW_C, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("mlp.gate_proj.weight"), ECH_RAW_F, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("mlp.down_proj.weight"), ECH_RAW_C, ECH_RAW_F, ECH_RAW_PLAIN},
    {LLAMA("mlp.up_proj.weight"), ECH_RAW_F, ECH_RAW_C, ECH_RAW_PLAIN},
    {ECH_RAW_HEAD, ECH_RAW_V, ECH_RAW_C, ECH_RAW_PLAIN},
};

static const ech_raw_row legacy_rows[] = {
    {"model.embed_tokens.weight", ECH_RAW_V, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("input_layernorm.weight"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {LLAMA("self_attn.q_proj.weight"), ECH_RAW_C, ECH_RAW_C, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.k_proj.weight"), ECH_RAW_GD, ECH_RAW_C, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.v_proj.weight"), ECH_RAW_GD, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("self_attn.o_proj.weight"), ECH_RAW_C, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("post_attention_layernorm.weight"), ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {LLAMA("mlp.gate_proj.weight"), ECH_RAW_F, ECH_RAW_C, ECH_RAW_PLAIN},
    {LLAMA("mlp.down_proj.weight"), ECH_RAW_C, ECH_RAW_F, ECH_RAW_PLAIN},
    {LLAMA("mlp.up_proj.weight"), ECH_RAW_F, ECH_RAW_C, ECH_RAW_PLAIN},
    {"model.norm.weight", ECH_RAW_C, ECH_RAW_1, ECH_RAW_PLAIN},
    {NULL, ECH_RAW_P, ECH_RAW_D, ECH_RAW_PLAIN}, /* cosines and sines */
    {ECH_RAW_HEAD, ECH_RAW_V, ECH_RAW_C, ECH_RAW_PLAIN},
};

static bool is_llama2c(const ech_raw_header *header)
{
    return ech_raw_at(header, 0) == LLAMA2C;
}

static void set_llama2c(ech_raw *raw)
{
    raw->dtype = ECH_F32;
    raw->begin_of_text = BEGIN_OF_TEXT;
    raw->end_of_text = END_OF_TEXT;
}

static ech_status read_llama2c(ech_raw *raw, const ech_raw_header *header, bool *tied)
{
    int32_t version = ech_raw_at(header, LLAMA2C_VERSION);
    if (version != 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: llama2.c model file of version %d; only 1 and the legacy one, which are "
                 "fp32, are supported",
                 raw->path, version);
    if (header->n < LLAMA2C_BYTES)
        ECH_FAIL(ECH_EINPUT, "%s: truncated within its header", raw->path);
    if (header->at[LLAMA2C_SHARED] > 1)
        ECH_FAIL(ECH_EINPUT, "%s: byte %d says neither that the head is the table nor not",
                 raw->path, LLAMA2C_SHARED);
    set_llama2c(raw);
    *tied = header->at[LLAMA2C_SHARED] == 1;
    return ECH_OK;
}

/* Width, feed-forward width, layers, heads, key/value heads, vocabulary, positions of anything that is
 * plausibly a model. */
static bool is_legacy(const ech_raw_header *header)
{
    static const int32_t largest[] = {1000000, 10000000, 100000,  100000,
                                      100000,  10000000, 10000000};
    for (int i = 0; i < LEGACY_NUMBERS; i++) {
        int32_t value = ech_raw_at(header, i);
        if (value < 0 && i == LEGACY_VOCABULARY) value = value == INT32_MIN ? 0 : -value;
        if (value < 1 || value > largest[i]) return false;
    }
    int32_t heads = ech_raw_at(header, 3), groups = ech_raw_at(header, 4);
    return ech_raw_at(header, 0) % heads == 0 && heads % groups == 0;
}

static ech_status read_legacy(ech_raw *raw, const ech_raw_header *header, bool *tied)
{
    set_llama2c(raw);
    *tied = ech_raw_at(header, LEGACY_VOCABULARY) > 0;
    return ECH_OK;
}

#define ROWS(rows) rows, sizeof rows / sizeof *rows

const ech_raw_format ech_raw_formats[] = {
    {"llm.c model file", false, LLMC_BYTES, is_llmc, read_llmc, llmc_keys, 2, ROWS(llmc_rows)},
    {"llama2.c model file", true, LLAMA2C_BYTES, is_llama2c, read_llama2c, llama2c_keys, 2,
     ROWS(llama2c_rows)},
    {"llama2.c model file of the legacy kind", true, 4 * LEGACY_NUMBERS, is_legacy, read_legacy,
     llama2c_keys, 0, ROWS(legacy_rows)},
    {.meaning = NULL}};
