/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a chunk of text, as lines of JSON and as an array: refused with a position in
 * the file, or as many ids as the segments say. What is UTF-8 is what utf8proc takes for it. Where
 * jansson reads a line, its text is the one that is found; with lines that are left out no line is
 * an error. All built-in chat templates write the conversations.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "data/chat_template.h"
#include "data/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static size_t check_slowly(const uint8_t *bytes, size_t n)
{
    size_t at = 0;
    while (at < n) {
        utf8proc_int32_t code;
        utf8proc_ssize_t length = utf8proc_iterate(bytes + at, (utf8proc_ssize_t)(n - at), &code);
        if (length <= 0) break;
        at += (size_t)length;
    }
    return at;
}

static void encode(const ech_import_options *options, ech_coder *coder, ech_import_chunk *chunk)
{
    size_t sum = 0;
    ech_import_encode(options, coder, chunk);
    if (chunk->status != ECH_OK) {
        if (!strstr(chunk->message, chunk->read.form ? "FILE:" : "FILE: byte ")) abort();
        return;
    }
    for (size_t i = 0; i < chunk->segment.n; i++) sum += chunk->segment.at[i].n;
    if (sum != chunk->ids.n) abort();
}

/* A line that jansson takes, with one text of that name: the ids are the text's bytes and the end.
 */
static void compare_line(const uint8_t *bytes, size_t n, const ech_import_chunk *chunk)
{
    if (n == 0 || memchr(bytes, '\n', n)) return;
    json_t *object =
        json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *text = json_object_get(object, "text");
    if (json_is_string(text)) {
        size_t length = json_string_length(text);
        if (chunk->status != ECH_OK || chunk->ids.n != length + (length > 0)) abort();
        for (size_t i = 0; i < length; i++)
            if (chunk->ids.at[i] != (unsigned char)json_string_value(text)[i]) abort();
    }
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static ech_tokenizer *tokenizer;
    if (!tokenizer && ech_tokenizer_open("bytes", &tokenizer) != ECH_OK) abort();
    ech_import_options options = {
        .tokenizer = tokenizer, .texts = ech_data_text_source_complete((ech_data_text_source){0})};
    if (ech_chat_template_find(tokenizer, NULL, &options.texts.chat) != ECH_OK) abort();
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_import_chunk chunk = {
        .read = {.path = "FILE", .line = 1, .valid_from = INT64_MAX, .ends = true, .n = n}};
    chunk.read.bytes = ech_calloc(n + 1, 1);
    memcpy(chunk.read.bytes, bytes, n);
    if (ech_utf8_valid(bytes, n) != check_slowly(bytes, n)) abort();
    encode(&options, coder, &chunk);
    chunk.read.form = ECH_TEXT_LINES;
    encode(&options, coder, &chunk);
    compare_line(bytes, n, &chunk);
    for (int i = 0; i < ech_chat_template_count; i++) {
        options.texts.chat = &ech_chat_templates[i];
        encode(&options, coder, &chunk);
    }
    options.texts.skip_bad = INT64_MAX;
    encode(&options, coder, &chunk);
    if (chunk.status != ECH_OK) abort();
    chunk.read.form = ECH_TEXT_ARRAY;
    for (int skip = 0; skip < 2; skip++) {
        options.texts.skip_bad = skip;
        encode(&options, coder, &chunk);
    }
    free(chunk.read.bytes);
    ech_text_free(&chunk.bad.first);
    free(chunk.ids.at);
    free(chunk.segment.at);
    free(chunk.message);
    ech_coder_destroy(coder);
    return 0;
}
