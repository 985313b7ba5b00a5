/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a run file: refused, or printed so that they read back to the same struct.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "config/same.h"
#include "config/sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_config *config = sample_create(), *back = sample_create();
    if (ech_config_read_text(config, (const char *)bytes, n, "fuzz") == ECH_OK) {
        ech_text text = {0}, again = {0};
        ech_config_print(config, &text);
        if (ech_config_read_text(back, text.at, text.n, "print") != ECH_OK) abort();
        if (first_difference(config, back)) abort();
        ech_config_print(back, &again);
        if (strcmp(text.at, again.at) != 0) abort();
        ech_text_free(&text);
        ech_text_free(&again);
    }
    ech_config_destroy(back);
    ech_config_destroy(config);
    return 0;
}
