/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as PREFIX.origin.json: refused, or every number is one that was allowed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/token_origin.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_token_origin origin;
    ech_log_set_quiet(true);
    if (ech_token_origin_parse("origin.json", (const char *)bytes, n, &origin) != ECH_OK) return 0;
    if (origin.vocabulary < 1 || origin.vocabulary > INT32_MAX || origin.tokens < 0) abort();
    if (strlen(origin.hash) != ECH_TOKENIZER_HASH - 1 || !origin.tokenizer) abort();
    ech_token_origin_free(&origin);
    return 0;
}
