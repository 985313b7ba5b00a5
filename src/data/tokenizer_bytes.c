/* SPDX-License-Identifier: Apache-2.0
 *
 * One token per byte; id 256 ends a text. Any file has a tokenization, and nothing is to be learnt
 * or downloaded before training can begin.
 */
#include "base/memory.h"
#include "data/tokenizer.h"

enum { BYTES = 256, END_OF_TEXT = 256, VOCABULARY = 257 };
#define END_OF_TEXT_NAME "<|endoftext|>"

static void encode(const void *bytes, size_t n, int32_t **ids, size_t *count, size_t *capacity)
{
    if (n == 0) return;
    const unsigned char *from = bytes;
    *ids = ech_grow(*ids, capacity, *count + n, sizeof **ids);
    int32_t *to = *ids + *count;
    for (size_t i = 0; i < n; i++) to[i] = from[i];
    *count += n;
}

static void decode(int32_t id, ech_text *out)
{
    if (id == END_OF_TEXT) return;
    unsigned char byte = (unsigned char)id;
    ech_text_append_bytes(out, &byte, 1);
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
static void export_json(ech_text *tokenizer_json, ech_text *tokenizer_config_json)
{
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

const ech_tokenizer ech_tokenizer_bytes = {
    .name = "bytes",
    .vocabulary = VOCABULARY,
    .end_of_text = END_OF_TEXT,
    .takes_pieces = true,
    .encode = encode,
    .decode = decode,
    .export_json = export_json,
};
