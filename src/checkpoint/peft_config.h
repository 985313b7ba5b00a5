/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint: PEFT's adapter_config.json.
 */
#ifndef ECH_CHECKPOINT_PEFT_CONFIG_H
#define ECH_CHECKPOINT_PEFT_CONFIG_H

#include "checkpoint/peft.h"

/* Parses the file's text, which is untrusted; `path` is its name in errors. Release with
 * ech_peft_settings_free, also after failures. Errors: ECH_EUNSUPPORTED names an option that
 * Echelon does not have. */
ech_status ech_peft_settings_parse(const char *path, const char *text, size_t n,
                                   ech_peft_settings *out);

#endif
