/* SPDX-License-Identifier: Apache-2.0
 *
 * The formats of model files without names: how a file is recognized, where its header has which
 * number, and the tensors in their order.
 *
 *   llm.c (Karpathy 2024): GPT-2 in versions 3 (fp32) and 5 (bf16). 256 numbers of 32 bits, then
 *   the tensors;
 *       products are stored (out,in), and the vocabulary with padding rows. Versions before had no
 *       padding.
 *   llama2.c (Karpathy 2023), version 1: "ak42", the version, seven numbers, one byte that says
 *   whether the head
 *       is the table, zeros up to byte 256, then fp32. Queries and keys have the pairs that are
 *       rotated side by
 *       side, as Meta stores them.
 *   llama2.c as it was at first: seven numbers (the vocabulary negative where the head is not the
 *   table), then
 *       fp32, tables of angles among it. They have no magic number: any file whose size is right is
 *       one, so it comes last.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/raw.h"

enum { LLMC = 20240326, LLMC_BYTES = 1024, LLMC_VERSION = 1, LLMC_VOCABULARY = 3, LLMC_PADDED = 7 };
enum { LLAMA2C = 0x616b3432, LLAMA2C_BYTES = 256, LLAMA2C_VERSION = 1, LLAMA2C_SHARED = 36 };
enum { LEGACY_NUMBERS = 7, LEGACY_VOCABULARY = 5 };
enum { BEGIN_OF_TEXT = 1, END_OF_TEXT = 2 }; /* of Llama 2, whose tokens these models have */

/* Numbers of rows and columns. */
typedef enum size {
    ONE, /* columns of a vector */
    WIDTH,
    WIDTH_3, /* three times that */
    WIDTH_4,
    INNER, /* width of the feed-forward */
    KEYS,  /* width of all key/value heads */
    HEAD_WIDTH,
    VOCABULARY,
    PADDING, /* raw->padding */
    POSITIONS,
    SIZES
} size;

typedef struct row {
    const char *name; /* with "%lld": the tensors of all layers in order; NULL: not used */
    size rows, columns;
    ech_raw_order order;
} row;

/* The name of the head's table, which is absent if it is tied. */
#define HEAD "lm_head.weight"

typedef struct header {
    const uint8_t *at;
    size_t n;
} header;

/* The i-th 32-bit number; 0 past the header's end. */
static int32_t number(const header *head, int i)
{
    int32_t value = 0;
    if (4 * (size_t)i + 4 <= head->n) memcpy(&value, head->at + 4 * i, sizeof value);
    return value;
}

#define GPT2(name)  "transformer.h.%lld." name
#define LLAMA(name) "model.layers.%lld." name

/* ---- llm.c ---- */

static const char *const llmc_keys[] = {
    "model.max_position_embeddings", "model.vocab_size",  "model.num_hidden_layers",
    "model.num_attention_heads",     "model.hidden_size", NULL};

static const row llmc_rows[] = {
    {"transformer.wte.weight", VOCABULARY, WIDTH, ECH_RAW_PLAIN},
    {NULL, PADDING, WIDTH, ECH_RAW_PLAIN},
    {"transformer.wpe.weight", POSITIONS, WIDTH, ECH_RAW_PLAIN},
    {GPT2("ln_1.weight"), WIDTH, ONE, ECH_RAW_PLAIN},
    {GPT2("ln_1.bias"), WIDTH, ONE, ECH_RAW_PLAIN},
    {GPT2("attn.c_attn.weight"), WIDTH, WIDTH_3, ECH_RAW_TRANSPOSED},
    {GPT2("attn.c_attn.bias"), WIDTH_3, ONE, ECH_RAW_PLAIN},
    {GPT2("attn.c_proj.weight"), WIDTH, WIDTH, ECH_RAW_TRANSPOSED},
    {GPT2("attn.c_proj.bias"), WIDTH, ONE, ECH_RAW_PLAIN},
    {GPT2("ln_2.weight"), WIDTH, ONE, ECH_RAW_PLAIN},
    {GPT2("ln_2.bias"), WIDTH, ONE, ECH_RAW_PLAIN},
    {GPT2("mlp.c_fc.weight"), WIDTH, WIDTH_4, ECH_RAW_TRANSPOSED},
    {GPT2("mlp.c_fc.bias"), WIDTH_4, ONE, ECH_RAW_PLAIN},
    {GPT2("mlp.c_proj.weight"), WIDTH_4, WIDTH, ECH_RAW_TRANSPOSED},
    {GPT2("mlp.c_proj.bias"), WIDTH, ONE, ECH_RAW_PLAIN},
    {"transformer.ln_f.weight", WIDTH, ONE, ECH_RAW_PLAIN},
    {"transformer.ln_f.bias", WIDTH, ONE, ECH_RAW_PLAIN},
};

static ech_status read_llmc(ech_raw *raw, const header *head, bool *tied)
{
    int32_t version = number(head, LLMC_VERSION);
    int64_t padded = number(head, LLMC_PADDED), V = number(head, LLMC_VOCABULARY);
    if (version != 3 && version != 5)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: llm.c model file of version %d; only 3 (fp32) and 5 (bf16) are supported; "
                 "export it in one of these",
                 raw->path, version);
    if (head->n < LLMC_BYTES)
        ECH_FAIL(ECH_EINPUT, "%s: truncated within its header; copy or export it again", raw->path);
    if (padded < V)
        ECH_FAIL(ECH_EINPUT,
                 "%s: its padded vocabulary of %d is smaller than its vocabulary of %d; download "
                 "or convert it again",
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

static const row llama2c_rows[] = {
    {LLAMA("input_layernorm.weight"), WIDTH, ONE, ECH_RAW_PLAIN},
    {LLAMA("post_attention_layernorm.weight"), WIDTH, ONE, ECH_RAW_PLAIN},
    {"model.norm.weight", WIDTH, ONE, ECH_RAW_PLAIN},
    {"model.embed_tokens.weight", VOCABULARY, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("self_attn.q_proj.weight"), WIDTH, WIDTH, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.k_proj.weight"), KEYS, WIDTH, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.v_proj.weight"), KEYS, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("self_attn.o_proj.weight"), WIDTH, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("mlp.gate_proj.weight"), INNER, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("mlp.down_proj.weight"), WIDTH, INNER, ECH_RAW_PLAIN},
    {LLAMA("mlp.up_proj.weight"), INNER, WIDTH, ECH_RAW_PLAIN},
    {HEAD, VOCABULARY, WIDTH, ECH_RAW_PLAIN},
};

static const row legacy_rows[] = {
    {"model.embed_tokens.weight", VOCABULARY, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("input_layernorm.weight"), WIDTH, ONE, ECH_RAW_PLAIN},
    {LLAMA("self_attn.q_proj.weight"), WIDTH, WIDTH, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.k_proj.weight"), KEYS, WIDTH, ECH_RAW_INTERLEAVED},
    {LLAMA("self_attn.v_proj.weight"), KEYS, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("self_attn.o_proj.weight"), WIDTH, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("post_attention_layernorm.weight"), WIDTH, ONE, ECH_RAW_PLAIN},
    {LLAMA("mlp.gate_proj.weight"), INNER, WIDTH, ECH_RAW_PLAIN},
    {LLAMA("mlp.down_proj.weight"), WIDTH, INNER, ECH_RAW_PLAIN},
    {LLAMA("mlp.up_proj.weight"), INNER, WIDTH, ECH_RAW_PLAIN},
    {"model.norm.weight", WIDTH, ONE, ECH_RAW_PLAIN},
    {NULL, POSITIONS, HEAD_WIDTH, ECH_RAW_PLAIN}, /* cosines and sines */
    {HEAD, VOCABULARY, WIDTH, ECH_RAW_PLAIN},
};

static void set_llama2c(ech_raw *raw)
{
    raw->dtype = ECH_F32;
    raw->begin_of_text = BEGIN_OF_TEXT;
    raw->end_of_text = END_OF_TEXT;
}

static ech_status read_llama2c(ech_raw *raw, const header *head, bool *tied)
{
    int32_t version = number(head, LLAMA2C_VERSION);
    if (version != 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: llama2.c model file of version %d; only 1 and the legacy one (both fp32) are "
                 "supported; export it with --version 1",
                 raw->path, version);
    if (head->n < LLAMA2C_BYTES)
        ECH_FAIL(ECH_EINPUT, "%s: truncated within its header; copy or export it again", raw->path);
    if (head->at[LLAMA2C_SHARED] > 1)
        ECH_FAIL(ECH_EINPUT,
                 "%s: byte %d, which says whether the head shares the embedding, is neither 0 nor "
                 "1; export it again",
                 raw->path, LLAMA2C_SHARED);
    set_llama2c(raw);
    *tied = head->at[LLAMA2C_SHARED] == 1;
    return ECH_OK;
}

/* Width, feed-forward width, layers, heads, key/value heads, vocabulary, positions of anything that
 * is plausibly a model. */
static bool is_legacy(const header *head)
{
    static const int32_t largest[] = {1000000, 10000000, 100000,  100000,
                                      100000,  10000000, 10000000};
    for (int i = 0; i < LEGACY_NUMBERS; i++) {
        int32_t value = number(head, i);
        if (value < 0 && i == LEGACY_VOCABULARY) value = value == INT32_MIN ? 0 : -value;
        if (value < 1 || value > largest[i]) return false;
    }
    int32_t heads = number(head, 3), groups = number(head, 4);
    return number(head, 0) % heads == 0 && heads % groups == 0;
}

static ech_status read_legacy(ech_raw *raw, const header *head, bool *tied)
{
    set_llama2c(raw);
    *tied = number(head, LEGACY_VOCABULARY) > 0;
    return ECH_OK;
}

typedef struct format {
    const char *meaning; /* for messages */
    bool llama;          /* Llama, whose vocabulary may be negative; false: GPT-2 */
    int32_t magic;       /* the header's first number; 0: none (is_legacy) */
    int64_t bytes;       /* of the header */
    /* Checks the format's own fields, and sets raw's dtype, BOS, EOS and padding. *tied: the head
     * is tied. */
    ech_status (*read)(ech_raw *raw, const header *head, bool *tied);
    /* Keys of the model section whose values are the header's numbers from number `first` on. */
    const char *const *key;
    int first;
    const row *row; /* in the file's order */
    size_t rows;
} format;

#define ROWS(rows) rows, sizeof rows / sizeof *rows

static const format formats[] = {
    {"llm.c model file", false, LLMC, LLMC_BYTES, read_llmc, llmc_keys, 2, ROWS(llmc_rows)},
    {"llama2.c model file", true, LLAMA2C, LLAMA2C_BYTES, read_llama2c, llama2c_keys, 2,
     ROWS(llama2c_rows)},
    {"llama2.c model file of the legacy kind", true, 0, 4 * LEGACY_NUMBERS, read_legacy,
     llama2c_keys, 0, ROWS(legacy_rows)}};

/* ---- listing the tensors ---- */

/* Sizes have the bounds of keys.def, at most 2e9 and 1e8, and one file at most 4096 layers; so
 * nothing overflows but sums, which stop at the top. `counts`: only those are wanted. */
static void add(ech_raw *raw, const row *from, const int64_t *sizes, int64_t layer, bool counts)
{
    int64_t rows = sizes[from->rows], columns = sizes[from->columns];
    bool pairs = from->order == ECH_RAW_INTERLEAVED;
    ech_raw_tensor tensor = {.dims = from->columns == ONE ? 1 : 2,
                             .shape = {rows, columns},
                             .order = from->order,
                             .heads = pairs ? rows / sizes[HEAD_WIDTH] : 0,
                             .offset = raw->bytes};
    int64_t bytes = rows * columns * (int64_t)ech_dtype_bytes(raw->dtype);
    if (__builtin_add_overflow(raw->bytes, bytes, &raw->bytes)) raw->bytes = INT64_MAX;
    if (counts || !from->name) return;
    tensor.name = ech_pool_format(raw->pool, from->name, (long long)layer);
    ECH_PUSH(raw->tensor, tensor);
}

static void list(ech_raw *raw, const format *as, const ech_config *config, bool counts)
{
    int64_t C = config->model.hidden_size, D = C / config->model.num_attention_heads;
    const int64_t sizes[SIZES] = {[ONE] = 1,
                                  [WIDTH] = C,
                                  [WIDTH_3] = 3 * C,
                                  [WIDTH_4] = 4 * C,
                                  [INNER] = config->model.intermediate_size,
                                  [KEYS] = config->model.num_key_value_heads * D,
                                  [HEAD_WIDTH] = D,
                                  [VOCABULARY] = config->model.vocab_size,
                                  [PADDING] = raw->padding,
                                  [POSITIONS] = config->model.max_position_embeddings};
    raw->bytes = as->bytes;
    for (const row *from = as->row; from < as->row + as->rows; from++) {
        bool layered = from->name && strchr(from->name, '%');
        int64_t n = layered ? config->model.num_hidden_layers : 1;
        if (from->name && strcmp(from->name, HEAD) == 0 && config->model.tie_word_embeddings) n = 0;
        for (int64_t l = 0; l < n; l++) add(raw, from, sizes, l, counts);
    }
}

const ech_raw_tensor *ech_raw_find(const ech_raw *raw, const char *name)
{
    const ech_raw_tensor key = {.name = name};
    if (!raw->tensor.n) return NULL;
    return bsearch(&key, raw->tensor.at, raw->tensor.n, sizeof key, ech_text_compare);
}

/* ---- reading a header ---- */

static ech_status fill_number(const ech_raw *raw, const char *key, int64_t value,
                              ech_config *config)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return ech_config_fill(config, key, text, raw->path, false);
}

static ech_status fill(const ech_raw *raw, const format *as, const header *head, bool tied,
                       ech_config *config)
{
    const char *family = as->llama ? "llama" : "gpt2", *is_tied = tied ? "true" : "false";
    ECH_TRY(ech_config_fill(config, "model.architecture", family, raw->path, false));
    ECH_TRY(ech_config_fill(config, "model.tie_word_embeddings", is_tied, raw->path, false));
    for (int i = 0; as->key[i]; i++) {
        int64_t value = number(head, as->first + i);
        bool sign = as->llama && strcmp(as->key[i], "model.vocab_size") == 0;
        ECH_TRY(fill_number(raw, as->key[i], sign && value < 0 ? -value : value, config));
    }
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    if (!as->llama) return fill_number(raw, "model.num_key_value_heads", H, config);
    if (C % H == 0 && C / H % 2 == 0) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: %lld heads do not divide a width of %lld: damaged; copy or export it again",
             raw->path, (long long)H, (long long)C);
}

/* The tensors are listed twice: first for their size alone. */
static ech_status read_as(const format *as, const header *head, int64_t file_bytes,
                          ech_config *config, ech_raw *raw)
{
    bool tied = false;
    raw->format = as->meaning;
    ECH_TRY(as->read(raw, head, &tied));
    ECH_TRY(fill(raw, as, head, tied, config));
    list(raw, as, config, true);
    if (raw->bytes != file_bytes)
        ECH_FAIL(ECH_EINPUT,
                 "%s: has %" PRId64 " bytes; as a %s with this header it would have %" PRId64
                 ": truncated, or not such a file; copy or export it again",
                 raw->path, file_bytes, raw->format, raw->bytes);
    list(raw, as, config, false);
    qsort(raw->tensor.at, raw->tensor.n, sizeof *raw->tensor.at, ech_text_compare);
    return ECH_OK;
}

ech_status ech_raw_read(const char *path, const void *bytes, size_t n, int64_t file_bytes,
                        ech_config *config, ech_raw *out)
{
    const header head = {bytes, n};
    *out = (ech_raw){.pool = ech_pool_create(), .fd = -1};
    out->path = ech_pool_format(out->pool, "%s", path);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].magic ? number(&head, 0) == formats[i].magic : is_legacy(&head))
            return read_as(&formats[i], &head, file_bytes, config, out);
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: not a model; name a Hugging Face folder, or a model file of llm.c or llama2.c",
             path);
}
