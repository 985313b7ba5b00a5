/* SPDX-License-Identifier: Apache-2.0
 *
 * Defaults that follow the choice of another key (follows.def).
 */
#ifndef ECH_CONFIG_FOLLOW_H
#define ECH_CONFIG_FOLLOW_H

#include "config/config.h"

/* Sets the keys of follows.def that are not set. They do not count as set. Errors about such a key
 * name the choice that it follows. Call it once all assignments are made. */
void ech_config_follow(ech_config *config);
/* Sets a key that is not set, or is auto, to `value`, which follows `cause`: words as
 * "optimizer.name = muon". */
void ech_config_choose_for(ech_config *config, const char *key, const char *value,
                           const char *cause);
/* Sets all keys that are not set to their defaults again, except the keys of `kept`
 * (blank-separated "section.key" words): a resolved configuration can then be changed and resolved
 * anew. */
void ech_config_forget(ech_config *config, const char *kept);
/* Appends "optimizer.momentum = 0.95 (optimizer.name = muon)" for each of these keys, a line each;
 * nothing if there is none. `indent` stands before each line. */
void ech_config_print_followed(const ech_config *config, const char *indent, ech_text *out);
/* Appends the choices from which the default of a key ("section.key") may follow, a line each. */
void ech_config_help_followed(const char *key, ech_text *out);

#endif
