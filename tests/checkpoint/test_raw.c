/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files without names: every element of small ones comes from the place where its program put
 * it. A file's element number k is k itself, so that values are places.
 */
#include "checkpoint/scratch.h"

#include "checkpoint/raw.h"
#include "model/import_names.h"

/* Writes a header and then `elements` fp32 numbers 0, 1, 2, and so on. */
static char *write_counting(const char *folder, const void *header, size_t header_bytes,
                            int elements)
{
    size_t bytes = header_bytes + (size_t)elements * sizeof(float);
    char *all = ech_calloc(bytes, 1);
    memcpy(all, header, header_bytes);
    for (int i = 0; i < elements; i++) {
        float x = (float)i;
        memcpy(all + header_bytes + (size_t)i * sizeof x, &x, sizeof x);
    }
    char *path = scratch_write(folder, "model.bin", all, bytes);
    free(all);
    return path;
}

static double element(const ech_raw *raw, const char *name, int64_t row, int64_t column)
{
    double values[64];
    const ech_raw_tensor *t = ech_raw_find(raw, name);
    assert_non_null(t);
    int64_t width = t->dims > 1 ? t->shape[1] : t->shape[0];
    assert_in_range(width, column + 1, 64);
    assert_int_equal(ech_raw_rows(raw, t, row, 1, values), ECH_OK);
    return values[column];
}

TEST(llmc)
{
    enum { T = 5, V = 7, L = 2, C = 4, PADDED = 8 };
    const int32_t header[256] = {20240326, 3, T, V, L, 2, C, PADDED};
    char *folder = scratch_make();
    int per_layer = 4 * C + 3 * C * C + 3 * C + C * C + C + 8 * C * C + 5 * C;
    int all = PADDED * C + T * C + L * per_layer + 2 * C;
    char *path = write_counting(folder, header, sizeof header, all);
    ech_config *config = import_config();
    ech_raw raw;
    assert_int_equal(ech_raw_open(path, config, &raw), ECH_OK);
    assert_int_equal(config->model.vocab_size, V);
    assert_int_equal(config->model.hidden_size, C);
    assert_int_equal(raw.tensor.n, 4 + 12 * L);
    assert_true(element(&raw, "transformer.wte.weight", 6, 3) == 6 * C + 3);
    int at = PADDED * C;
    assert_true(element(&raw, "transformer.wpe.weight", 2, 1) == at + 2 * C + 1);
    at += T * C;
    assert_true(element(&raw, "transformer.h.1.ln_1.weight", 0, 2) == at + C + 2);
    at += 2 * L * C;
    /* (out,in) as stored, (in,out) as wanted */
    assert_true(element(&raw, "transformer.h.1.attn.c_attn.weight", 3, 10) ==
                at + 3 * C * C + 10 * C + 3);
    at += L * (3 * C * C + 3 * C + C * C + C + 2 * C + 4 * C * C + 4 * C);
    assert_true(element(&raw, "transformer.h.0.mlp.c_proj.weight", 15, 2) == at + 2 * 4 * C + 15);
    assert_true(element(&raw, "transformer.ln_f.bias", 0, C - 1) == all - 1);
    ech_raw_close(&raw);
    ech_config_destroy(config);
    free(path);
    scratch_remove(folder);
}

enum { DIM = 8, HIDDEN = 5, LAYERS = 2, HEADS = 2, KV = 1, WORDS = 6, LENGTH = 3 };
enum { D = DIM / HEADS, NARROW = D * KV };
enum { ATTENTION = DIM * DIM + 2 * NARROW * DIM + DIM * DIM, MLP = 3 * HIDDEN * DIM };

/* Row j of a head's first half is the pair's first row, of its second half the second. */
static void check_interleaved(const ech_raw *raw, const char *name, int at, int rows)
{
    for (int r = 0; r < rows; r++) {
        int head = r / D, j = r % D, pair = j % (D / 2), second = j >= D / 2;
        int from = head * D + 2 * pair + second;
        assert_true(element(raw, name, r, 5) == at + from * DIM + 5);
    }
}

TEST(llama2c_legacy)
{
    const int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, KV, -WORDS, LENGTH};
    char *folder = scratch_make();
    int body = WORDS * DIM + LAYERS * (ATTENTION + MLP + 2 * DIM) + DIM;
    int all = body + LENGTH * D + WORDS * DIM;
    char *path = write_counting(folder, header, sizeof header, all);
    ech_config *config = import_config();
    ech_raw raw;
    assert_int_equal(ech_raw_open(path, config, &raw), ECH_OK);
    assert_int_equal(config->model.vocab_size, WORDS);
    assert_int_equal(config->model.tie_word_embeddings, 0);
    int at = WORDS * DIM;
    assert_true(element(&raw, "model.layers.1.input_layernorm.weight", 0, 3) == at + DIM + 3);
    at += LAYERS * DIM;
    check_interleaved(&raw, "model.layers.1.self_attn.q_proj.weight", at + DIM * DIM, DIM);
    at += LAYERS * DIM * DIM;
    check_interleaved(&raw, "model.layers.0.self_attn.k_proj.weight", at, NARROW);
    at += LAYERS * NARROW * DIM;
    assert_true(element(&raw, "model.layers.0.self_attn.v_proj.weight", 3, 0) == at + 3 * DIM);
    at += LAYERS * (NARROW * DIM + DIM * DIM + DIM);
    assert_true(element(&raw, "model.layers.0.mlp.gate_proj.weight", 4, 1) == at + 4 * DIM + 1);
    at += LAYERS * HIDDEN * DIM;
    assert_true(element(&raw, "model.layers.0.mlp.down_proj.weight", 6, 4) == at + 6 * HIDDEN + 4);
    assert_true(element(&raw, "model.norm.weight", 0, 0) == body - DIM);
    assert_true(element(&raw, "lm_head.weight", 0, 0) == body + LENGTH * D);
    ech_raw_close(&raw);
    ech_config_destroy(config);
    free(path);
    scratch_remove(folder);
}

TEST(llama2c)
{
    const int32_t numbers[] = {0x616b3432, 1, DIM, HIDDEN, LAYERS, HEADS, KV, WORDS, LENGTH, 1};
    char header[256] = {0}, *folder = scratch_make();
    memcpy(header, numbers, sizeof numbers);
    int all = 2 * LAYERS * DIM + DIM + WORDS * DIM + LAYERS * (ATTENTION + MLP);
    char *path = write_counting(folder, header, sizeof header, all);
    ech_config *config = import_config();
    ech_raw raw;
    assert_int_equal(ech_raw_open(path, config, &raw), ECH_OK);
    assert_int_equal(config->model.tie_word_embeddings, 1);
    assert_null(ech_raw_find(&raw, "lm_head.weight"));
    int at = LAYERS * DIM;
    assert_true(element(&raw, "model.layers.1.post_attention_layernorm.weight", 0, 0) == at + DIM);
    at += LAYERS * DIM + DIM;
    assert_true(element(&raw, "model.embed_tokens.weight", 2, 2) == at + 2 * DIM + 2);
    at += WORDS * DIM;
    check_interleaved(&raw, "model.layers.0.self_attn.q_proj.weight", at, DIM);
    assert_true(element(&raw, "model.layers.1.mlp.up_proj.weight", HIDDEN - 1, DIM - 1) == all - 1);
    ech_raw_close(&raw);
    ech_config_destroy(config);
    free(path);
    scratch_remove(folder);
}

static void check_refused(const int32_t *numbers, int n, int64_t bytes, const char *part)
{
    char header[ECH_RAW_HEADER] = {0};
    ech_raw raw;
    ech_config *config = import_config();
    memcpy(header, numbers, (size_t)n * sizeof *numbers);
    assert_int_not_equal(ech_raw_read("model.bin", header, sizeof header, bytes, config, &raw),
                         ECH_OK);
    assert_error_has(part);
    assert_error_has("model.bin");
    assert_int_equal(raw.tensor.n, 0);
    ech_raw_close(&raw);
    ech_config_destroy(config);
}

TEST(refuses)
{
    const int32_t good[] = {20240326, 3, 5, 7, 2, 2, 4, 8}, old[] = {20240326, 1, 5, 7, 2, 2, 4},
                  narrow[] = {20240326, 3, 5, 7, 2, 2, 4, 6},
                  none[] = {20240326, 3, 5, 7, 0, 2, 4, 8},
                  large[] = {20240326, 5, 100000000, 2000000000, 4096, 1, 1000000, 2000000000},
                  quantised[] = {0x616b3432, 2, 8, 12, 2, 4, 2, 20, 16},
                  odd[] = {10, 12, 2, 2, 2, 20, 16}, uneven[] = {9, 12, 2, 2, 2, 20, 16},
                  tokens[] = {6881350, 7536741, 2, 2, 2, 20, 16},
                  text[] = {0x6c6c6568, 0x206f, 0, 0};
    check_refused(good, 8, 2000, "2000 bytes");
    check_refused(old, 7, 2000, "version 1");
    check_refused(narrow, 8, 2000, "padded vocabulary");
    check_refused(none, 8, 2000, "model.num_hidden_layers = 0: out of bounds");
    check_refused(large, 8, INT64_MAX - 1, "bytes");
    check_refused(quantised, 9, 2000, "version 2");
    check_refused(odd, 7, 2000, "heads");
    check_refused(uneven, 7, 2000, "not a model");
    check_refused(tokens, 7, 2000, "not a model");
    check_refused(text, 4, 2000, "not a model");
}
