/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as words of the command line, a line each: refused without a change, or taken,
 * and then what was taken prints as a run file that says the same.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "config/same.h"
#include "config/sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void assign(ech_config *config, const char *word)
{
    ech_config *before = ech_config_copy(config);
    ech_clear_error();
    if (ech_config_set(config, word) != ECH_OK) {
        if (first_difference(config, before)) abort();
        if (!ech_last_error()[0] || strpbrk(ech_last_error(), "\n\r\x1b")) abort();
    }
    ech_config_destroy(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_config *config = sample_create(), *back = sample_create();
    char *words = malloc(n + 1), *rest = words, *word;
    memcpy(words, bytes, n);
    words[n] = '\0';
    while ((word = strsep(&rest, "\n"))) assign(config, word);
    ech_text text = {0};
    ech_config_print(config, &text);
    if (ech_config_read_text(back, text.n ? text.at : "", text.n, "print") != ECH_OK) abort();
    if (first_difference(config, back)) abort();
    ech_text_free(&text);
    free(words);
    ech_config_destroy(back);
    ech_config_destroy(config);
    return 0;
}
