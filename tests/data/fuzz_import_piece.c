/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a piece of text and as lines of JSON: refused with a place in the file, or as
 * many ids as the stretches say. What is UTF-8 is what utf8proc takes for it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
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

static void encode(const ech_import_options *options, ech_coder *coder, ech_import_piece *piece)
{
    size_t sum = 0;
    ech_import_encode(options, coder, piece);
    if (piece->status != ECH_OK) {
        if (!strstr(piece->message, piece->read.lines ? "FILE:" : "FILE: byte ")) abort();
        return;
    }
    for (size_t i = 0; i < piece->stretch.n; i++) sum += piece->stretch.at[i].n;
    if (sum != piece->ids.n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static ech_tokenizer *tokenizer;
    if (!tokenizer && ech_tokenizer_open("bytes", &tokenizer) != ECH_OK) abort();
    ech_import_options options = {.tokenizer = tokenizer,
                                  .texts = ech_text_source_complete((ech_text_source){0})};
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_import_piece piece = {
        .read = {.path = "FILE", .line = 1, .cut = INT64_MAX, .ends = true, .n = n}};
    piece.read.bytes = ech_calloc(n + 1, 1);
    memcpy(piece.read.bytes, bytes, n);
    if (ech_utf8_valid(bytes, n) != check_slowly(bytes, n)) abort();
    encode(&options, coder, &piece);
    piece.read.lines = true;
    encode(&options, coder, &piece);
    free(piece.read.bytes);
    free(piece.ids.at);
    free(piece.stretch.at);
    free(piece.message);
    ech_coder_destroy(coder);
    return 0;
}
