/* SPDX-License-Identifier: Apache-2.0
 *
 * From a chunk to its segments: all of its bytes, or the strings of its lines of JSON.
 */
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/text_chunk.h"

ech_data_text_source ech_data_text_source_complete(ech_data_text_source source)
{
    if (!source.text_key) source.text_key = "text";
    if (!source.prompt_key) source.prompt_key = "prompt";
    if (!source.completion_key) source.completion_key = "completion";
    return source;
}

/* Whose segments, and for what. */
typedef struct walk {
    const ech_data_text_source *source;
    const ech_text_chunk *chunk;
    ech_text_segment_use use;
    void *context;
} walk;

static ech_status use_text(const walk *w)
{
    const ech_text_chunk *chunk = w->chunk;
    size_t good = w->source->binary ? chunk->n : ech_utf8_valid(chunk->bytes, chunk->n);
    if (good < chunk->n)
        ECH_FAIL(
            ECH_EINPUT,
            "%s: byte %lld (0x%02x) is no UTF-8 text; convert the file with iconv, or take its "
            "bytes as they are with --binary",
            chunk->path, (long long)chunk->at + (long long)good, (unsigned)chunk->bytes[good]);
    const ech_text_segment segment = {.bytes = chunk->bytes,
                                      .n = chunk->n,
                                      .valid = chunk->at >= chunk->valid_from,
                                      .begins = chunk->at == 0 || chunk->at == chunk->valid_from,
                                      .ends = chunk->ends};
    return w->use(&segment, w->context);
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

static ech_status use_string(const walk *w, const line *l, const json_t *string, bool prompt)
{
    const ech_text_segment segment = {.bytes = json_string_value(string),
                                      .n = json_string_length(string),
                                      .valid = l->valid,
                                      .begins = true,
                                      .prompt = prompt,
                                      .ends = !prompt};
    return w->use(&segment, w->context);
}

static ech_status use_object(const walk *w, const line *l, const json_t *object)
{
    const ech_data_text_source *source = w->source;
    const json_t *text, *prompt, *completion;
    if (!json_is_object(object))
        ECH_FAIL(ECH_EINPUT, "%s:%lld: must be an object, as in {\"text\": \"...\"}", l->path,
                 (long long)l->number);
    ECH_TRY(find_string(l, object, source->text_key, &text));
    ECH_TRY(find_string(l, object, source->prompt_key, &prompt));
    ECH_TRY(find_string(l, object, source->completion_key, &completion));
    if (!text && !(prompt && completion))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: has neither \"%s\" nor \"%s\" and \"%s\"; --text-key names another key",
                 l->path, (long long)l->number, source->text_key, source->prompt_key,
                 source->completion_key);
    size_t length = text ? json_string_length(text)
                         : json_string_length(prompt) + json_string_length(completion);
    if (length == 0) return ECH_OK;
    if (!text) ECH_TRY(use_string(w, l, prompt, true));
    return use_string(w, l, text ? text : completion, false);
}

static ech_status use_line(const walk *w, const line *l)
{
    json_error_t why;
    const ech_json_limits limits = {.depth = 64, .containers = 1 << 20, .values = 1 << 20};
    if (is_blank(l)) return ECH_OK;
    if (!ech_json_is_within(l->text, l->n, limits))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: more than 2^20 values, or deeper than 64: keep the text alone", l->path,
                 (long long)l->number);
    /* Numbers may be of any size; nobody looks at them. */
    json_auto_t *object = json_loadb(
        l->text, l->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!object)
        ECH_FAIL(ECH_EINPUT, "%s:%lld:%d: no JSON: %s", l->path, (long long)l->number, why.column,
                 why.text);
    return use_object(w, l, object);
}

/* Bytes of the mark with which some editors begin a file; JSON does not allow it (RFC 8259, section 8.1). */
static size_t mark_bytes(const ech_text_chunk *chunk)
{
    static const unsigned char mark[] = {0xef, 0xbb, 0xbf};
    bool has =
        chunk->at == 0 && chunk->n >= sizeof mark && memcmp(chunk->bytes, mark, sizeof mark) == 0;
    return has ? sizeof mark : 0;
}

static ech_status use_lines(const walk *w)
{
    const ech_text_chunk *chunk = w->chunk;
    line l = {.path = chunk->path, .number = chunk->line};
    const char *end = (const char *)chunk->bytes + chunk->n;
    const char *at = (const char *)chunk->bytes + mark_bytes(chunk);
    for (; at < end; at += l.n, l.number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        l.text = at;
        l.n = (size_t)((newline ? newline + 1 : end) - at);
        l.valid = chunk->at + (at - (const char *)chunk->bytes) >= chunk->valid_from;
        if (l.n > ECH_TEXT_CHUNK_LONGEST_LINE)
            ECH_FAIL(ECH_EINPUT, "%s:%lld: a line of more than %d MiB", l.path, (long long)l.number,
                     (int)(ECH_TEXT_CHUNK_LONGEST_LINE >> 20));
        ECH_TRY(use_line(w, &l));
    }
    return ECH_OK;
}

ech_status ech_text_chunk_each(const ech_data_text_source *source, const ech_text_chunk *chunk,
                               ech_text_segment_use use, void *context)
{
    const walk w = {source, chunk, use, context};
    return chunk->lines ? use_lines(&w) : use_text(&w);
}
