/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a tokenizer.model: refused, or a tokenizer that keeps its promises.
 */
#include "data/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    remove_source("tokenizer_config.json");
    write_source("tokenizer.model", bytes, n);
    try_folder(bytes, n);
    return 0;
}
