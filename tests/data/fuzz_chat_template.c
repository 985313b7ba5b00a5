/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as chat_template.jinja, or as tokenizer_config.json, of a tokenizer's folder: a
 * built-in template, or refused. Without a template the folder has the plain one.
 */
#include <string.h>

#include "base/log.h"
#include "data/chat_template.h"
#include "data/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static ech_tokenizer *tokenizer;
    const ech_chat_template *found;
    if (n == 0) return 0;
    if (!folder[0]) make_folder();
    if (!tokenizer && ech_tokenizer_open("bytes", &tokenizer) != ECH_OK) abort();
    ech_log_set_quiet(true);
    ech_tokenizer in_folder = *tokenizer;
    in_folder.name = folder;
    bool jinja = bytes[0] % 2;
    ECH_FREED char *path = ech_file_join(folder, "chat_template.jinja");
    if (!jinja) ech_file_remove_all(path);
    write_source(jinja ? "chat_template.jinja" : "tokenizer_config.json", bytes + 1, n - 1);
    if (ech_chat_template_find(&in_folder, NULL, &found) != ECH_OK) return 0;
    bool known =
        found >= ech_chat_templates && found < ech_chat_templates + ech_chat_template_count;
    if (!known || found->tokens[0]) abort(); /* a tokenizer of bytes has no such tokens */
    return 0;
}
