/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as adapter_config.json: refused, or numbers within bounds and a name.
 */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "checkpoint/peft.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_peft_settings config = {0};
    if (ech_peft_settings_parse("config", (const char *)bytes, n, &config) == ECH_OK &&
        (config.rank < 1 || config.rank > 1000000 || !isfinite(config.alpha) || config.alpha < 0 ||
         !(config.dropout >= 0 && config.dropout <= 1) || !config.base))
        abort();
    ech_peft_settings_free(&config);
    return 0;
}
