/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: vocabularies in which bytes are their own ids.
 */
#ifndef ECH_TESTS_DATA_BYTE_IDS_H
#define ECH_TESTS_DATA_BYTE_IDS_H

#include "data/bpe/bpe.h"

/* All bytes as members of a JSON object, 0 to 255, as GPT-2 names them. */
static inline void append_byte_ids(ech_text *out)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        ech_text_append(out, "%s\"%s", i ? ", " : "", byte == '"' || byte == '\\' ? "\\" : "");
        ech_bpe_show(&byte, 1, out);
        ech_text_append(out, "\": %d", i);
    }
}

/* tokenizer.json over bytes with these added tokens; more: members beside its model. */
static inline void write_byte_tokenizer(const char *added, bool prefix, const char *more)
{
    ech_text out = {0};
    ech_text_append(&out,
                    "{\"added_tokens\": [%s], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                    "\"add_prefix_space\": %s}, %s\"model\": {\"type\": \"BPE\", \"vocab\": {",
                    added, prefix ? "true" : "false", more);
    append_byte_ids(&out);
    ech_text_append(&out, "}, \"merges\": []}}\n");
    write_file("tokenizer.json", out.at, out.n);
    ech_text_free(&out);
}

#endif
