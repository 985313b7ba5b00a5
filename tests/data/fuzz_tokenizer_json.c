/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a tokenizer.json and the files beside it, with a NUL between: refused, or a
 * tokenizer that keeps its promises.
 * */
#include "data/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                 "special_tokens_map.json", "added_tokens.json"};
    const uint8_t *at = bytes, *end = bytes + n;
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    for (int i = 0; i < 4; i++) {
        const uint8_t *stop = at < end && i < 3 ? memchr(at, 0, (size_t)(end - at)) : NULL;
        if (!stop) stop = end;
        remove_source(names[i]);
        if (i == 0 || at < end) write_source(names[i], at, (size_t)(stop - at));
        at = stop < end ? stop + 1 : end;
    }
    try_folder(bytes, n);
    return 0;
}
