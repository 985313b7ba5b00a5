/* SPDX-License-Identifier: Apache-2.0
 *
 * Other tools' names for keys and values (aliases.def).
 */
#ifndef ECH_CONFIG_ALIAS_H
#define ECH_CONFIG_ALIAS_H

#include <stdbool.h>

#include "base/text.h"

typedef struct ech_alias {
    const char *theirs; /* "n_layer" */
    const char *ours;   /* "model.num_hidden_layers", or "--ranks" */
    const char *note;   /* how values differ; NULL: they do not */
} ech_alias;

/* Our key for an option or key of another tool: "n_layer", "--n-layer", "optimizer.lr". Upper case
 * and '-' are accepted; of a name with dots, the part after the last one counts. NULL: unknown. */
const ech_alias *ech_alias_find(const char *name);
/* The index-th name of another tool; NULL: there are fewer. */
const ech_alias *ech_alias_at(int index);
/* Our value for another tool's value of our key ("section.key"); NULL: unknown. */
const char *ech_alias_value(const char *key, const char *value);
/* The index-th of these values; false: there are fewer. */
bool ech_alias_value_at(int index, const char **key, const char **theirs, const char **ours);
/* Appends "optimizer.learning_rate", or with a value "optimizer.learning_rate=3", and the note in
 * parentheses. value NULL: without one. */
void ech_alias_print(const ech_alias *foreign, const char *value, ech_text *out);

#endif
