/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as encoder.json, vocab.bpe and tokenizer_config.json, with a NUL between:
 * refused, or a tokenizer that keeps its promises.
 */
#include "data/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *const names[] = {"encoder.json", "vocab.bpe", "tokenizer_config.json"};
    const uint8_t *at = bytes, *end = bytes + n;
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    remove_source("tokenizer.json"); /* it would be read first */
    for (int i = 0; i < 3; i++) {
        const uint8_t *stop = at < end && i < 2 ? memchr(at, 0, (size_t)(end - at)) : NULL;
        if (!stop) stop = end;
        remove_source(names[i]);
        if (at < end) write_source(names[i], at, (size_t)(stop - at));
        at = stop < end ? stop + 1 : end;
    }
    try_folder(bytes, n);
    return 0;
}
