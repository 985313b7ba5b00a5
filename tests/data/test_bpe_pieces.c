/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's tokenizer.model by hand: what is taken, what is refused and why. Ids against the
 * library's: test_bpe_fixtures.c, check_pieces.py.
 */
#include "data/scratch.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* ---- the wire ---- */

static void put_number(ech_text *out, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        ech_text_append_bytes(out, &(unsigned char){(unsigned char)(number | 0x80)}, 1);
    ech_text_append_bytes(out, &(unsigned char){(unsigned char)number}, 1);
}

static void put_varint(ech_text *out, unsigned field, uint64_t number)
{
    put_number(out, field << 3);
    put_number(out, number);
}

static void put_bytes(ech_text *out, unsigned field, const void *bytes, size_t n)
{
    put_number(out, field << 3 | 2);
    put_number(out, n);
    if (n > 0) ech_text_append_bytes(out, bytes, n);
}

static void put_piece_of(ech_text *out, const void *bytes, size_t n, float score, int type)
{
    ech_text piece = {0};
    put_bytes(&piece, 1, bytes, n);
    put_number(&piece, 2 << 3 | 5);
    ech_text_append_bytes(&piece, &score, sizeof score);
    put_varint(&piece, 3, (uint64_t)type);
    put_bytes(out, 1, piece.at, piece.n);
    ech_text_free(&piece);
}

static void put_piece(ech_text *out, const char *name, float score, int type)
{
    put_piece_of(out, name, strlen(name), score, type);
}

/* ---- files ---- */

typedef struct model {
    int type, suffix, fallback, prefix, extra, escapes;
    const char *charsmap;
    int missing; /* a byte */
} model;

static const model good = {.type = 2, .fallback = 1, .prefix = 1, .escapes = 1, .missing = -1};

/* <unk> 0, <s> 1, </s> 2, the bytes from 3 on; what comes next begins with 259. */
static ech_text begin(const model *m)
{
    ech_text out = {0};
    put_piece(&out, "<unk>", 0, UNKNOWN);
    put_piece(&out, "<s>", 0, CONTROL);
    put_piece(&out, "</s>", 0, CONTROL);
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)(i == m->missing ? 0x100 : i));
        put_piece(&out, name, 0, BYTE);
    }
    return out;
}

static ech_status end(const model *m, ech_text *out, ech_tokenizer **tokenizer)
{
    ech_text trainer = {0}, normalizer = {0};
    put_varint(&trainer, 3, (uint64_t)m->type);
    put_varint(&trainer, 24, (uint64_t)m->suffix);
    put_varint(&trainer, 35, (uint64_t)m->fallback);
    put_bytes(&normalizer, 1, "nmt_nfkc", 8);
    if (m->charsmap) put_bytes(&normalizer, 2, m->charsmap, strlen(m->charsmap));
    put_varint(&normalizer, 3, (uint64_t)m->prefix);
    put_varint(&normalizer, 4, (uint64_t)m->extra);
    put_varint(&normalizer, 5, (uint64_t)m->escapes);
    put_bytes(out, 2, trainer.at, trainer.n);
    put_bytes(out, 3, normalizer.at, normalizer.n);
    write_file("tokenizer.model", out->at, out->n);
    ech_text_free(&trainer);
    ech_text_free(&normalizer);
    ech_text_free(out);
    ech_clear_error();
    return ech_tokenizer_open(scratch, tokenizer);
}

static void assert_ids(const ech_tokenizer *tokenizer, const char *text, size_t n,
                       const int32_t *expected)
{
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_ids ids = {0};
    assert_int_equal(ech_coder_encode(coder, text, strlen(text), true, &ids), ECH_OK);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.at, expected, n * sizeof *expected);
    free(ids.at);
    ech_coder_destroy(coder);
}
#define ASSERT_IDS(text, ...)                                                                      \
    assert_ids(tokenizer, text, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t),          \
               (const int32_t[]){__VA_ARGS__})

TEST(test_taken)
{
    model m = good;
    ech_tokenizer *tokenizer;
    m.prefix = 0;
    ech_text out = begin(&m), back = {0};
    put_piece(&out, "a", -9, NORMAL);                 /* 259 */
    put_piece(&out, "aa", -1, NORMAL);                /* 260 */
    put_piece(&out, "aaa", -1, NORMAL);               /* 261: of equal score */
    put_piece(&out, "b", -9, NORMAL);                 /* 262 */
    put_piece(&out, "ba", -0.5F, NORMAL);             /* 263 */
    put_piece(&out, "\u2581", -9, NORMAL);            /* 264 */
    put_piece(&out, "<end>", 0, USER_DEFINED);        /* 265 */
    put_piece(&out, "\u2581\u2581", 0, USER_DEFINED); /* 266 */
    assert_int_equal(end(&m, &out, &tokenizer), ECH_OK);
    assert_int_equal(tokenizer->vocabulary, 267);
    assert_int_equal(tokenizer->end_of_text, 2);
    assert_int_equal(tokenizer->begin_of_text, 1);
    assert_int_equal(tokenizer->front.n, 1);
    ASSERT_IDS("aa", 260);
    ASSERT_IDS("aaa", 261);
    ASSERT_IDS("baaa", 263, 260); /* b a first; then the leftmost of equals */
    ASSERT_IDS("a<end>a", 259, 265, 259);
    ASSERT_IDS("a   a", 259, 266, 264, 259);
    ASSERT_IDS("<s>", 3 + '<', 3 + 's', 3 + '>'); /* control symbols are not looked for */
    ech_tokenizer_decode(tokenizer, 266, false, &back);
    ech_tokenizer_decode(tokenizer, 1, false, &back);
    ech_tokenizer_decode(tokenizer, 3 + 'z', false, &back);
    assert_string_equal(back.at, "  z");
    ech_text_free(&back);
    ech_tokenizer_close(tokenizer);
}

static void refuse(const model *m, ech_text *out, const char *why)
{
    ech_tokenizer *tokenizer;
    assert_int_not_equal(end(m, out, &tokenizer), ECH_OK);
    assert_error_has("tokenizer.model: ");
    assert_error_has(why);
}

static void refuse_model(model m, const char *why)
{
    ech_text out = begin(&m);
    refuse(&m, &out, why);
}

static void refuse_piece(const char *bytes, size_t n, float score, int type, const char *why)
{
    ech_text out = begin(&good);
    put_piece(&out, "a", -9, NORMAL);
    put_piece_of(&out, bytes, n, score, type);
    refuse(&good, &out, why);
}

TEST(test_refused)
{
    model m[8];
    for (int i = 0; i < 8; i++) m[i] = good;
    m[0].type = 1;
    m[1].type = 3;
    m[2].suffix = 1;
    m[3].fallback = 0;
    m[4].extra = 1;
    m[5].escapes = 0;
    m[6].charsmap = "map";
    m[7].missing = 7;
    static const char *const why[] = {"a SentencePiece model of type unigram; only type BPE",
                                      "a SentencePiece model of type word",
                                      "treat_whitespace_as_suffix",
                                      "without byte_fallback",
                                      "remove_extra_whitespaces is true, which is not supported",
                                      "escape_whitespaces is false",
                                      "normalizer nmt_nfkc is not supported; use a model",
                                      "no token <0x07>"};
    for (int i = 0; i < 8; i++) refuse_model(m[i], why[i]);
    refuse_piece("", 0, 0, NORMAL, "piece 260: must be 1 to 256 bytes of UTF-8");
    refuse_piece("\xff", 1, 0, NORMAL, "piece 260: must be 1 to 256 bytes of UTF-8");
    refuse_piece("b", 1, 0, UNUSED, "piece 260: type 5");
    refuse_piece("b", 1, 0, 77, "piece 260: type 77");
    refuse_piece("b", 1, (float)(0.0 / 0.0), NORMAL, "piece 260: its score");
    refuse_piece("a", 1, 0, NORMAL, "piece 260: \"a\" comes twice");
    refuse_piece("ac", 2, 0, NORMAL, "piece 260: \"c\" of \"ac\" is no piece");
}
