/* SPDX-License-Identifier: Apache-2.0
 *
 * One token per byte; id 256 ends a text. Any file has a tokenization, and nothing is to be learnt
 * or downloaded before training can begin.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "data/tokenizer.h"

enum { BYTES = 256, END_OF_TEXT = 256, VOCABULARY = 257 };
#define END_OF_TEXT_NAME "<|endoftext|>"

static ech_status open_bytes(const char *source, ech_tokenizer *out)
{
    (void)source;
    out->vocabulary = VOCABULARY;
    out->end_of_text = END_OF_TEXT;
    return ECH_OK;
}

static ech_status encode(ech_coder *coder, const void *bytes, size_t n, ech_ids *out)
{
    (void)coder;
    const unsigned char *from = bytes;
    out->at = ech_grow(out->at, &out->capacity, out->n + n, sizeof *out->at);
    for (size_t i = 0; i < n; i++) out->at[out->n + i] = from[i];
    out->n += n;
    return ECH_OK;
}

static void decode(const ech_tokenizer *tokenizer, int32_t id, ech_text *out)
{
    (void)tokenizer;
    unsigned char byte = (unsigned char)id;
    ech_text_append_bytes(out, &byte, 1);
}

static size_t cut(const ech_tokenizer *tokenizer, const void *bytes, size_t n)
{
    (void)tokenizer, (void)bytes;
    return n;
}

/* GPT-2's visible characters for bytes: printable Latin-1 stands for itself, the others take
 * U+0100, U+0101 ... in ascending order. */
static void byte_characters(unsigned characters[BYTES])
{
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < BYTES; byte++) {
        bool visible =
            (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        characters[byte] = visible ? byte : next++;
    }
}

/* Characters up to U+07FF as a JSON string. */
static void append_json_character(ech_text *out, unsigned character)
{
    if (character == '"' || character == '\\')
        ech_text_append(out, "\"\\%c\"", (int)character);
    else if (character < 0x80)
        ech_text_append(out, "\"%c\"", (int)character);
    else
        ech_text_append(out, "\"%c%c\"", (int)(0xc0 | character >> 6),
                        (int)(0x80 | (character & 0x3f)));
}

static void append_vocabulary(ech_text *out)
{
    unsigned characters[BYTES];
    byte_characters(characters);
    for (int byte = 0; byte < BYTES; byte++) {
        ech_text_append(out, "      ");
        append_json_character(out, characters[byte]);
        ech_text_append(out, ": %d,\n", byte);
    }
    ech_text_append(out, "      \"%s\": %d\n", END_OF_TEXT_NAME, END_OF_TEXT);
}

/* Byte-level BPE without merges: every byte's character is a token of its own. The one difference
 * from `encode`: where a text spells out <|endoftext|>, Hugging Face takes it for id 256. */
static void export_json(const ech_tokenizer *tokenizer, ech_text *tokenizer_json,
                        ech_text *tokenizer_config_json)
{
    (void)tokenizer;
    static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                     "\"trim_offsets\": true, \"use_regex\": false}";
    ech_text *out = tokenizer_json;
    ech_text_append(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                         "  \"padding\": null,\n");
    ech_text_append(out,
                    "  \"added_tokens\": [\n    {\"id\": %d, \"content\": \"%s\", "
                    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": false, \"special\": true}\n  ],\n",
                    END_OF_TEXT, END_OF_TEXT_NAME);
    ech_text_append(out,
                    "  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n"
                    "  \"post_processor\": null,\n  \"decoder\": %s,\n",
                    byte_level, byte_level);
    ech_text_append(out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                         "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
                         "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
                         "    \"byte_fallback\": false,\n    \"vocab\": {\n");
    append_vocabulary(out);
    ech_text_append(out, "    },\n    \"merges\": []\n  }\n}\n");

    ech_text_append(tokenizer_config_json,
                    "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                    "  \"bos_token\": \"%s\",\n  \"eos_token\": \"%s\",\n"
                    "  \"clean_up_tokenization_spaces\": false\n}\n",
                    END_OF_TEXT_NAME, END_OF_TEXT_NAME);
}

/* The word, or what export_json wrote: a file, or the folder of one. */
static bool takes(const char *source)
{
    ech_text own = {0}, config = {0};
    struct stat info;
    if (strcmp(source, "bytes") == 0) return true;
    export_json(NULL, &own, &config);
    char *path =
        ech_file_is_folder(source) ? ech_file_join(source, "tokenizer.json") : ech_strdup(source);
    char *text = NULL;
    size_t n;
    bool same = stat(path, &info) == 0 && info.st_size == (off_t)own.n &&
                ech_file_read(path, own.n, &text, &n) == ECH_OK && n == own.n &&
                memcmp(text, own.at, n) == 0;
    free(text);
    free(path);
    ech_text_free(&own);
    ech_text_free(&config);
    return same;
}

const ech_tokenizer_kind ech_tokenizer_bytes = {
    .name = "bytes",
    .takes = takes,
    .open = open_bytes,
    .encode = encode,
    .decode = decode,
    .export_json = export_json,
    .cut = cut,
};
