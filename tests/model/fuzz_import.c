/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a config.json: refused, or keys that a run file could have set.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "model/import_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_text_ends ends = {-1, -1};
    ech_config *config = import_config(), *back = import_config();
    if (ech_model_import_text(config, "config.json", (const char *)bytes, n, &ends) == ECH_OK) {
        if (ends.begin < 0 || ends.begin >= config->model.vocab_size) abort();
        if (ends.end < 0 || ends.end >= config->model.vocab_size) abort();
        ech_text text = {0};
        ech_config_print(config, &text);
        if (ech_config_read_text(back, text.at, text.n, "print") != ECH_OK) abort();
        ech_text_free(&text);
    }
    ech_config_destroy(back);
    ech_config_destroy(config);
    return 0;
}
