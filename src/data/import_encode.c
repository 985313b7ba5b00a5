/* SPDX-License-Identifier: Apache-2.0
 *
 * From a piece of text, or of lines of JSON, to ids.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "data/import.h"

/* How long the character is that begins here, 0 if it is malformed (overlong, a surrogate, past
 * U+10FFFF) or does not end within n bytes (Unicode 14, table 3-7). */
static size_t character(const unsigned char *c, size_t n)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t length = c[0] < 0x80   ? 1
                    : c[0] < 0xc2 ? 0
                    : c[0] < 0xe0 ? 2
                    : c[0] < 0xf0 ? 3
                    : c[0] < 0xf5 ? 4
                                  : 0;
    if (c[0] == 0xe0) low = 0xa0;
    if (c[0] == 0xed) high = 0x9f;
    if (c[0] == 0xf0) low = 0x90;
    if (c[0] == 0xf4) high = 0x8f;
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++, low = 0x80, high = 0xbf)
        if (c[i] < low || c[i] > high) return 0;
    return length;
}

size_t ech_import_check_utf8(const unsigned char *bytes, size_t n)
{
    const uint64_t high_bits = UINT64_C(0x8080808080808080);
    for (size_t at = 0; at < n;) {
        uint64_t eight;
        if (n - at >= sizeof eight) {
            memcpy(&eight, bytes + at, sizeof eight);
            if (!(eight & high_bits)) {
                at += sizeof eight;
                continue;
            }
        }
        size_t length = character(bytes + at, n - at);
        if (length == 0) return at;
        at += length;
    }
    return n;
}

/* Encodes n bytes as one stretch. */
static ech_status encode(ech_coder *coder, const void *bytes, size_t n, ech_import_stretch stretch,
                         ech_import_piece *piece)
{
    size_t before = piece->ids.n;
    ECH_TRY(ech_coder_encode(coder, bytes, n, &piece->ids));
    stretch.n = piece->ids.n - before;
    ECH_PUSH(piece->stretch, stretch);
    return ECH_OK;
}

static void end_document(const ech_import_options *options, ech_import_piece *piece)
{
    ech_import_stretch *last = &piece->stretch.at[piece->stretch.n - 1];
    ECH_PUSH(piece->ids, ech_tokenizer_end_of_text(options->tokenizer));
    last->n++;
    last->ends = true;
}

static ech_status encode_text(const ech_import_options *options, ech_coder *coder,
                              ech_import_piece *piece)
{
    size_t good = options->binary ? piece->n : ech_import_check_utf8(piece->bytes, piece->n);
    if (good < piece->n)
        ECH_FAIL(
            ECH_EINPUT,
            "%s: byte %lld (0x%02x) is no UTF-8 text; convert the file with iconv, or take its "
            "bytes as they are with --binary",
            piece->path, (long long)piece->at + (long long)good, (unsigned)piece->bytes[good]);
    ech_import_stretch stretch = {.valid = piece->at >= piece->cut};
    ECH_TRY(encode(coder, piece->bytes, piece->n, stretch, piece));
    if (piece->ends) end_document(options, piece);
    return ECH_OK;
}

/* ---- lines ---- */

typedef struct line {
    const char *path;
    int64_t number;
    const char *text;
    size_t n;
    bool valid;
} line;

static bool is_blank(const line *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strchr(" \t\r\n", l->text[i]) || l->text[i] == '\0') return false;
    return true;
}

/* The string of a key. */
static ech_status find_string(const line *l, const json_t *object, const char *key,
                              const json_t **out)
{
    const json_t *value = json_object_get(object, key);
    if (value && !json_is_string(value))
        ECH_FAIL(ECH_EINPUT, "%s:%lld: \"%s\" must be a string", l->path, (long long)l->number,
                 key);
    *out = value;
    return ECH_OK;
}

static ech_status encode_string(ech_coder *coder, const json_t *string, bool prompt, const line *l,
                                ech_import_piece *piece)
{
    ech_import_stretch stretch = {.valid = l->valid, .prompt = prompt};
    return encode(coder, json_string_value(string), json_string_length(string), stretch, piece);
}

static ech_status encode_object(const ech_import_options *options, ech_coder *coder, const line *l,
                                const json_t *object, ech_import_piece *piece)
{
    const json_t *text, *prompt, *completion;
    if (!json_is_object(object))
        ECH_FAIL(ECH_EINPUT, "%s:%lld: must be an object, as in {\"text\": \"...\"}", l->path,
                 (long long)l->number);
    ECH_TRY(find_string(l, object, options->text_key, &text));
    ECH_TRY(find_string(l, object, options->prompt_key, &prompt));
    ECH_TRY(find_string(l, object, options->completion_key, &completion));
    if (!text && !(prompt && completion))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: has neither \"%s\" nor \"%s\" and \"%s\"; --text-key names another key",
                 l->path, (long long)l->number, options->text_key, options->prompt_key,
                 options->completion_key);
    size_t length = text ? json_string_length(text)
                         : json_string_length(prompt) + json_string_length(completion);
    if (length == 0) return ECH_OK;
    if (!text) ECH_TRY(encode_string(coder, prompt, true, l, piece));
    ECH_TRY(encode_string(coder, text ? text : completion, false, l, piece));
    end_document(options, piece);
    return ECH_OK;
}

static ech_status encode_line(const ech_import_options *options, ech_coder *coder, const line *l,
                              ech_import_piece *piece)
{
    json_error_t why;
    const ech_json_limits limits = {.depth = 64, .containers = 1 << 20, .values = 1 << 20};
    if (is_blank(l)) return ECH_OK;
    if (!ech_json_is_within(l->text, l->n, limits))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: more than 2^20 values, or deeper than 64: keep the text alone", l->path,
                 (long long)l->number);
    /* Numbers may be of any size; nobody looks at them. */
    json_t *object = json_loadb(
        l->text, l->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!object)
        ECH_FAIL(ECH_EINPUT, "%s:%lld:%d: no JSON: %s", l->path, (long long)l->number, why.column,
                 why.text);
    ech_status st = encode_object(options, coder, l, object, piece);
    json_decref(object);
    return st;
}

static ech_status encode_lines(const ech_import_options *options, ech_coder *coder,
                               ech_import_piece *piece)
{
    line l = {.path = piece->path, .number = piece->line};
    const char *at = (const char *)piece->bytes, *end = at + piece->n;
    for (; at < end; at += l.n, l.number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        l.text = at;
        l.n = (size_t)((newline ? newline + 1 : end) - at);
        l.valid = piece->at + (at - (const char *)piece->bytes) >= piece->cut;
        if (l.n > ECH_IMPORT_LONGEST_LINE)
            ECH_FAIL(ECH_EINPUT, "%s:%lld: a line of more than %d MiB", l.path, (long long)l.number,
                     (int)(ECH_IMPORT_LONGEST_LINE >> 20));
        ECH_TRY(encode_line(options, coder, &l, piece));
    }
    return ECH_OK;
}

void ech_import_encode(const ech_import_options *options, ech_coder *coder, ech_import_piece *piece)
{
    bool quiet = ech_log_set_quiet(true);
    piece->ids.n = piece->stretch.n = 0;
    free(piece->message);
    piece->message = NULL;
    piece->status =
        piece->lines ? encode_lines(options, coder, piece) : encode_text(options, coder, piece);
    if (piece->status != ECH_OK) piece->message = ech_strdup(ech_last_error());
    ech_log_set_quiet(quiet);
}
