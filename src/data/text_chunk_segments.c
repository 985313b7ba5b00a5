/* SPDX-License-Identifier: Apache-2.0
 *
 * From a chunk to its segments: all of its bytes, or the strings of its objects.
 */
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "data/json_scan.h"
#include "data/text_chats.h"
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
    ech_text_bad *bad;
    ech_text room[3]; /* of strings that are decoded */
    ech_chat chat;    /* the object's, if it has one */
} walk;

static int64_t count_lines(const char *at, const char *end)
{
    int64_t lines = 0;
    for (; (at = memchr(at, '\n', (size_t)(end - at))); at++) lines++;
    return lines;
}

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
    bool begins = chunk->at == 0 || chunk->at == chunk->valid_from;
    const ech_text_segment segment = {.bytes = chunk->bytes,
                                      .n = chunk->n,
                                      .valid = chunk->at >= chunk->valid_from,
                                      .begins = begins,
                                      .opens = begins,
                                      .ends = chunk->ends};
    return w->use(&segment, w->context);
}

/* ---- objects: lines of JSON, or elements of an array ---- */

typedef ech_text_object object;

/* The strings of an object that are read; NULL: there is none, or it is null. */
enum { TEXT, PROMPT, COMPLETION, KEYS };
typedef struct strings {
    const char *at[KEYS];
    size_t n[KEYS];
} strings;

static ech_status read_string(walk *w, const object *o, const char *const *keys,
                              const ech_json_span *span, int key, strings *out)
{
    if (!ech_text_has(o, span[key])) return ECH_OK;
    if (o->text[span[key].at] != '"')
        ECH_FAIL(ECH_EINPUT, "%s:%lld: \"%s\" must be a string%s", o->path, (long long)o->line,
                 keys[key],
                 o->text[span[key].at] == '['
                     ? "; of a conversation, prompt and completion must be "
                       "lists of messages"
                     : "");
    const char *why =
        ech_json_decode(o->text, span[key], &w->room[key], &out->at[key], &out->n[key]);
    return why ? ech_text_complain(o, span[key].at, why) : ECH_OK;
}

/* Finds the values of an object's keys: texts', then conversations'. */
static ech_status find_values(const walk *w, const object *o, ech_json_span *span)
{
    const char *keys[KEYS + ECH_CHAT_KEYS] = {w->source->text_key, w->source->prompt_key,
                                              w->source->completion_key};
    memcpy(keys + KEYS, ech_chat_keys, sizeof ech_chat_keys);
    size_t at = ech_json_skip_blanks(o->text, o->n, 0);
    bool is_object = at < o->n && o->text[at] == '{';
    const char *why = ech_json_find(o->text, o->n, at, keys, KEYS + ECH_CHAT_KEYS, span, &at);
    if (!is_object)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: must be an object, as in {\"text\": \"...\"}", o->path,
                 (long long)o->line);
    if (!why) at = ech_json_skip_blanks(o->text, o->n, at);
    if (!why && at < o->n) why = "something follows the object";
    return why ? ech_text_complain(o, at, why) : ECH_OK;
}

/* With a text, nothing else is read. *chats: w->chat is the object's conversation. */
static ech_status read_object(walk *w, const object *o, strings *out, bool *chats)
{
    const char *const keys[KEYS] = {w->source->text_key, w->source->prompt_key,
                                    w->source->completion_key};
    ech_json_span span[KEYS + ECH_CHAT_KEYS];
    *chats = false;
    ECH_TRY(find_values(w, o, span));
    ECH_TRY(read_string(w, o, keys, span, TEXT, out));
    if (out->at[TEXT]) return ECH_OK;
    ECH_TRY(ech_text_read_chat(o, span + KEYS, span[PROMPT], span[COMPLETION], w->source->chat,
                               &w->chat, chats));
    if (*chats && w->source->no_chat && !w->chat.rendered)
        ECH_FAIL(ECH_EUSAGE, "%s:%lld: a conversation, but %s", o->path, (long long)o->line,
                 w->source->no_chat);
    for (int i = PROMPT; i < KEYS && !*chats; i++) ECH_TRY(read_string(w, o, keys, span, i, out));
    if (*chats || (out->at[PROMPT] && out->at[COMPLETION])) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s:%lld: has neither \"%s\" nor \"%s\" and \"%s\", nor a conversation "
             "(\"messages\", \"conversations\", or \"instruction\" and \"output\"); --text-key "
             "names another key, and --as-text reads the file as plain text",
             o->path, (long long)o->line, keys[TEXT], keys[PROMPT], keys[COMPLETION]);
}

static ech_status use_string(const walk *w, const object *o, const strings *s, int key)
{
    const ech_text_segment segment = {.bytes = s->at[key],
                                      .n = s->n[key],
                                      .valid = o->valid,
                                      .begins = true,
                                      .opens = key != COMPLETION,
                                      .prompt = key == PROMPT,
                                      .ends = key != PROMPT};
    return w->use(&segment, w->context);
}

enum { MOST_SHOWN = 10 };

static void keep_bad(ech_text_bad *bad)
{
    const char *why = ech_last_error();
    if (bad->n++ < MOST_SHOWN) ech_text_append_bytes(&bad->first, why, strlen(why) + 1);
}

static ech_status check_length(const object *o, const char *what)
{
    if (o->n > ECH_TEXT_CHUNK_LONGEST_LINE)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: %s of more than %d MiB; split it, or remove it", o->path,
                 (long long)o->line, what, (int)(ECH_TEXT_CHUNK_LONGEST_LINE >> 20));
    return ECH_OK;
}

/* what: "a line". */
static ech_status use_object(walk *w, const object *o, const char *what)
{
    strings s = {0};
    bool chats, skips = w->source->skip_bad > 0, quiet = skips && ech_log_set_quiet(true);
    ech_status status = check_length(o, what);
    if (status == ECH_OK) status = read_object(w, o, &s, &chats);
    if (skips) ech_log_set_quiet(quiet);
    if (status != ECH_OK && !skips) return status;
    if (status != ECH_OK) {
        keep_bad(w->bad);
        return ECH_OK;
    }
    if (chats) return w->use(&(ech_text_segment){.valid = o->valid, .chat = &w->chat}, w->context);
    int last = s.at[TEXT] ? TEXT : COMPLETION;
    if (s.n[last] + s.n[PROMPT] == 0) return ECH_OK;
    if (last == COMPLETION) ECH_TRY(use_string(w, o, &s, PROMPT));
    return use_string(w, o, &s, last);
}

ech_status ech_text_bad_report(const ech_data_text_source *source, ech_text_bad *bad, int64_t *all)
{
    const char *why = bad->first.at;
    for (int64_t i = 0; i < bad->n; i++) {
        bool known = i < MOST_SHOWN;
        if (++*all > source->skip_bad)
            ECH_FAIL(ECH_EINPUT, "%s (the first bad one after %lld that --skip-bad leaves out)",
                     known ? why : source->in, (long long)source->skip_bad);
        if (known && *all <= MOST_SHOWN) ech_log_warn("%s: left out", why);
        if (known) why += strlen(why) + 1;
    }
    bad->n = 0;
    bad->first.n = 0;
    return ECH_OK;
}

static ech_status use_lines(walk *w)
{
    const ech_text_chunk *chunk = w->chunk;
    object o = {.path = chunk->path, .line = chunk->line, .n = (size_t)chunk->left_out};
    if (chunk->left_out) return use_object(w, &o, "a line");
    const char *begin = (const char *)chunk->bytes, *end = begin + chunk->n;
    const char *at = begin + (chunk->at == 0 ? ech_json_skip_mark(begin, chunk->n) : 0);
    o.line += count_lines(begin, at);
    for (; at < end; at += o.n, o.line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        o.text = at;
        o.n = (size_t)((newline ? newline + 1 : end) - at);
        o.valid = chunk->at + (at - begin) >= chunk->valid_from;
        if (ech_json_skip_blanks(o.text, o.n, 0) < o.n) ECH_TRY(use_object(w, &o, "a line"));
    }
    return ECH_OK;
}

/* ---- arrays ---- */

/* The element that begins at or after `at`, where a bracket or a comma is due before it. *found:
 * there is one, and *o is it; else the array has ended. */
static ech_status next_element(const ech_text_chunk *chunk, bool first, size_t at, object *o,
                               bool *found)
{
    const char *text = (const char *)chunk->bytes;
    size_t n = chunk->n, end;
    const char *why = NULL;
    *found = false;
    if (text[at] == (first ? '[' : ',')) {
        bool empty;
        at = ech_json_skip_blanks(text, n, at + 1);
        empty = first && at < n && text[at] == ']';
        *found = !empty;
        ech_json_found is = empty ? ECH_JSON_WHOLE : ech_json_skip_value(text, n, at, &end);
        if (is == ECH_JSON_CUT) why = "an element does not end";
        if (is == ECH_JSON_NONE) why = "expected an element";
    } else if (text[at] != ']') {
        why = first ? "expected an array" : "expected a comma or the end of the array";
    }
    if (!why && !*found && !(chunk->ends && ech_json_skip_blanks(text, n, at + 1) == n))
        why = "something follows the array";
    o->line += count_lines(o->text, text + at);
    o->text = text + at;
    if (why) return ech_text_complain(o, 0, why);
    if (*found) o->n = end - at;
    return ECH_OK;
}

static ech_status use_array(walk *w)
{
    const ech_text_chunk *chunk = w->chunk;
    const char *text = (const char *)chunk->bytes;
    object o = {.path = chunk->path, .line = chunk->line, .text = text};
    bool first = chunk->at == 0, found = true;
    size_t at =
        first ? ech_json_skip_mark(text, chunk->n) : ech_json_skip_blanks(text, chunk->n, 0);
    for (; found && at < chunk->n; first = false) {
        ECH_TRY(next_element(chunk, first, at, &o, &found));
        if (!found) return ECH_OK;
        o.valid = chunk->at + (o.text - text) >= chunk->valid_from;
        ECH_TRY(use_object(w, &o, "an element"));
        at = ech_json_skip_blanks(text, chunk->n, (size_t)(o.text - text) + o.n);
    }
    return chunk->ends ? ech_text_complain(&o, 0, "the array does not end") : ECH_OK;
}

ech_status ech_text_chunk_each(const ech_data_text_source *source, const ech_text_chunk *chunk,
                               ech_text_segment_use use, void *context, ech_text_bad *bad)
{
    walk w = {.source = source, .chunk = chunk, .use = use, .context = context, .bad = bad};
    ech_status status = ECH_OK;
    switch (chunk->form) {
    case ECH_TEXT_PLAIN:
        return use_text(&w);
    case ECH_TEXT_LINES:
        status = use_lines(&w);
        break;
    case ECH_TEXT_ARRAY:
        status = use_array(&w);
        break;
    }
    for (int i = 0; i < KEYS; i++) ech_text_free(&w.room[i]);
    ech_chat_free(&w.chat);
    return status;
}
