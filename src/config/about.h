/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors about the content of a key's value, such as a file: they name the key and blame the run
 * file.
 */
#ifndef ECH_CONFIG_ABOUT_H
#define ECH_CONFIG_ABOUT_H

#include "base/about.h"
#include "config/config.h"

/* Evaluates `call`, which uses the key's value. Its errors begin with the key, as with
 * ech_config_complain. An error in a file (ECH_EINPUT, ECH_EUNSUPPORTED) becomes ECH_EUSAGE, since
 * a restart would meet it again. */
#define ECH_CONFIG_TRY_ABOUT(config, key, call)                                                    \
    do {                                                                                           \
        ECH_FREED_TEXT ech_about_ = {0};                                                           \
        ech_config_describe(config, key, &ech_about_);                                             \
        const char *ech_before_ = ech_set_about(ech_about_.at);                                    \
        ech_status ech_got_ = (call);                                                              \
        ech_set_about(ech_before_);                                                                \
        if (ech_got_ == ECH_EINPUT || ech_got_ == ECH_EUNSUPPORTED) ech_got_ = ECH_EUSAGE;         \
        ECH_TRY(ech_got_);                                                                         \
    } while (0)

/* Appends "run.yaml:7:16: data.tokenizer = x", or "data.tokenizer = x (default)". */
void ech_config_describe(const ech_config *config, const char *key, ech_text *out);

#endif
