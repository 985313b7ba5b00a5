/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files of llm.c (Karpathy 2024): GPT-2 in versions 3 (fp32) and 5 (bf16). 256 numbers of 32 bits,
 * then the tensors, each kind for all layers; products are stored (out,in), and the vocabulary with
 * padding rows. Versions before them had no padding.
 */
#include "checkpoint/raw.h"

enum { MAGIC = 20240326, HEADER_BYTES = 1024, GPT2_VOCABULARY = 50257 };

enum { AT_VERSION = 1, AT_POSITIONS, AT_VOCABULARY, AT_LAYERS, AT_HEADS, AT_WIDTH, AT_PADDED };

static bool claims(const void *header, size_t n)
{
    return ech_raw_number(header, n, 0) == MAGIC;
}

static ech_status fill(const ech_raw *raw, const void *header, size_t n, ech_config *config)
{
    const struct {
        const char *key;
        int at;
    } rows[] = {
        {"model.max_position_embeddings", AT_POSITIONS}, {"model.vocab_size", AT_VOCABULARY},
        {"model.num_hidden_layers", AT_LAYERS},          {"model.num_attention_heads", AT_HEADS},
        {"model.num_key_value_heads", AT_HEADS},         {"model.hidden_size", AT_WIDTH}};
    int32_t version = ech_raw_number(header, n, AT_VERSION);
    if (version != 3 && version != 5)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: llm.c model file of version %d; only 3 (fp32) and 5 (bf16) are supported",
                 raw->path, version);
    if (n < HEADER_BYTES) ECH_FAIL(ECH_EINPUT, "%s: cut off within its header", raw->path);
    ECH_TRY(ech_config_fill(config, "model.architecture", "gpt2", raw->path, false));
    ECH_TRY(ech_config_fill(config, "model.tie_word_embeddings", "true", raw->path, false));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ECH_TRY(ech_raw_fill(raw, config, rows[i].key, ech_raw_number(header, n, rows[i].at)));
    if (ech_raw_number(header, n, AT_PADDED) < ech_raw_number(header, n, AT_VOCABULARY))
        ECH_FAIL(ECH_EINPUT, "%s: its padded vocabulary of %d is below its vocabulary of %d",
                 raw->path, ech_raw_number(header, n, AT_PADDED),
                 ech_raw_number(header, n, AT_VOCABULARY));
    return ECH_OK;
}

/* One tensor a layer. */
typedef struct kind {
    const char *name;
    int64_t in, out; /* in 0: a vector */
} kind;

static void add_layers(ech_raw *raw, int64_t layers, const kind *k)
{
    for (int64_t i = 0; i < layers; i++)
        if (k->in)
            ech_raw_matrix(raw, k->in, k->out, ECH_RAW_TRANSPOSED, 0, "transformer.h.%lld.%s",
                           (long long)i, k->name);
        else
            ech_raw_vector(raw, k->out, "transformer.h.%lld.%s", (long long)i, k->name);
}

static ech_status list(ech_raw *raw, const void *header, const ech_config *config)
{
    int64_t C = config->model.hidden_size, V = config->model.vocab_size;
    int64_t padded = ech_raw_number(header, HEADER_BYTES, AT_PADDED);
    const kind kinds[] = {{"ln_1.weight", 0, C},
                          {"ln_1.bias", 0, C},
                          {"attn.c_attn.weight", C, 3 * C},
                          {"attn.c_attn.bias", 0, 3 * C},
                          {"attn.c_proj.weight", C, C},
                          {"attn.c_proj.bias", 0, C},
                          {"ln_2.weight", 0, C},
                          {"ln_2.bias", 0, C},
                          {"mlp.c_fc.weight", C, 4 * C},
                          {"mlp.c_fc.bias", 0, 4 * C},
                          {"mlp.c_proj.weight", 4 * C, C},
                          {"mlp.c_proj.bias", 0, C}};
    raw->dtype = ech_raw_number(header, HEADER_BYTES, AT_VERSION) == 3 ? ECH_F32 : ECH_BF16;
    raw->bytes = HEADER_BYTES;
    raw->begin_of_text = raw->end_of_text =
        V == GPT2_VOCABULARY ? GPT2_VOCABULARY - 1 : (int32_t)V - 1;
    ech_raw_matrix(raw, V, C, ECH_RAW_PLAIN, 0, "transformer.wte.weight");
    ech_raw_skip(raw, padded - V, C);
    ech_raw_matrix(raw, config->model.max_position_embeddings, C, ECH_RAW_PLAIN, 0,
                   "transformer.wpe.weight");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        add_layers(raw, config->model.num_hidden_layers, &kinds[k]);
    ech_raw_vector(raw, C, "transformer.ln_f.weight");
    ech_raw_vector(raw, C, "transformer.ln_f.bias");
    return ECH_OK;
}

const ech_raw_format ech_raw_format_llmc = {
    .meaning = "llm.c model file", .claims = claims, .fill = fill, .list = list};
