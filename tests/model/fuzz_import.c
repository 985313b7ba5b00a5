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
    ech_config *config = import_config(), *back = import_config();
    if (ech_model_import_text(config, "config.json", (const char *)bytes, n) == ECH_OK) {
        ech_text text = {0};
        ech_config_print(config, &text);
        if (ech_config_read_text(back, text.at, text.n, "print") != ECH_OK) abort();
        ech_text_free(&text);
    }
    ech_config_destroy(back);
    ech_config_destroy(config);
    return 0;
}
