/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of what a key names, such as a file: they say which key, and that the run file is wrong.
 */
#ifndef ECH_CONFIG_ABOUT_H
#define ECH_CONFIG_ABOUT_H

#include "base/about.h"
#include "config/config.h"

/* Calls what reads the key's value. Its errors begin with the key as those of ech_config_complain
 * do. One that lies in the file (ECH_EINPUT, ECH_EUNSUPPORTED) becomes ECH_EUSAGE: it would come
 * again at the next start. */
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
