/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the manifest reader, with the input as it is and with the right hash appended. A manifest
 * that is read must print to a text that reads to the same manifest.
 */
#include <stdlib.h>

#include "base/log.h"
#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void parse(const char *text, size_t n)
{
    ech_manifest first, second;
    if (ech_manifest_parse("manifest", text, n, &first) != ECH_OK) return;
    ech_text printed = {0};
    ECH_ASSERT(ech_manifest_print(&first, &printed) == ECH_OK);
    ECH_ASSERT(ech_manifest_parse("printed", printed.at, printed.n, &second) == ECH_OK);
    ECH_ASSERT(first.info.step == second.info.step);
    for (int f = 0; f < ECH_FILES; f++) {
        ECH_ASSERT(first.files[f].bytes == second.files[f].bytes);
    }
    ech_text_free(&printed);
    ech_manifest_free(&first);
    ech_manifest_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    parse((const char *)bytes, n);

    ech_text text = {0};
    char digits[ECH_HASH_DIGITS + 1];
    ech_text_append_bytes(&text, bytes, n);
    ech_text_append(&text, ",\"xxh3_128\":\"");
    ech_hash_print(ech_hash_bytes(text.at, text.n), digits);
    ech_text_append(&text, "%s\"}\n", digits);
    parse(text.at, text.n);
    ech_text_free(&text);
    return 0;
}
