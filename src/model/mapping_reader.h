/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the readers of mapping files (mapping*.c): what they share.
 */
#ifndef ECH_MODEL_MAPPING_READER_H
#define ECH_MODEL_MAPPING_READER_H

#include "config/yaml_tree.h"
#include "model/mapping.h"

/* What the file says of a key of config.json. */
typedef struct ech_mapping_entry {
    const ech_yaml_node *node;
    const char *name;                               /* in config.json */
    const char *key;                                /* of the run file; NULL: a constant */
    const char *initial, *null, *values, *property; /* as in ech_family_row */
    bool lists; /* a constant that config.json has once for each layer */
    bool used;  /* it became a row */
} ech_mapping_entry;

typedef struct ech_mapping_reader {
    ech_mapping *to;
    ech_yaml_node *root;
    const ech_family *base;
    ech_config *config; /* in which values are tried, and get their types' errors */
    ech_text model_keys;
    ECH_LIST(ech_mapping_entry) entry;
} ech_mapping_reader;

/* Logs an error about a node, "FILE:LINE:COLUMN: ...", and returns ECH_EINPUT. */
#define ECH_MAPPING_FAIL(r, node, format, ...)                                                     \
    ECH_FAIL(ECH_EINPUT, "%s:%zu:%zu: " format, (r)->to->path, (node)->line, (node)->column,       \
             __VA_ARGS__)

/* The text of a node. Errors: it is no single value; `what` names it. */
ech_status ech_mapping_scalar(const ech_mapping_reader *r, const ech_yaml_node *node,
                              const char *what, const char **out);
/* The same. Errors: other characters than letters, digits and those of `more`. */
ech_status ech_mapping_word(const ech_mapping_reader *r, const ech_yaml_node *node,
                            const char *what, const char *more, const char **out);
ech_status ech_mapping_bool(const ech_mapping_reader *r, const ech_yaml_node *node,
                            const char *what, bool *out);
/* Errors: the node is of another kind, a list or a map. */
ech_status ech_mapping_kind(const ech_mapping_reader *r, const ech_yaml_node *node,
                            const char *what, ech_yaml_kind kind);
/* Errors: the node is no map, or has a key that is not among the words. */
ech_status ech_mapping_entries(const ech_mapping_reader *r, const ech_yaml_node *map,
                               const char *what, const char *words);
/* The error for a name that is not among the words: says the nearest one, or all. */
ech_status ech_mapping_unknown(const ech_mapping_reader *r, const ech_yaml_node *node,
                               const char *what, const char *name, const char *words);
/* Errors: `name` is no key of the model section that a decoder has. */
ech_status ech_mapping_model_key(const ech_mapping_reader *r, const ech_yaml_node *node,
                                 const char *name);
/* Errors: `text` is no value of the key. */
ech_status ech_mapping_check_value(const ech_mapping_reader *r, const ech_yaml_node *node,
                                   const char *key, const char *text);

/* Whether `keys` maps the model key from a key of config.json. */
bool ech_mapping_maps(const ech_mapping_reader *r, const char *key);
/* Errors: the base reads this key of `constants` from config.json with code of its own. */
ech_status ech_mapping_check_constant(const ech_mapping_reader *r, const ech_yaml_node *at);
/* Reads `keys`: sets the family's rows and rope. */
ech_status ech_mapping_read_keys(ech_mapping_reader *r);
/* Reads `names`, `in_first` and `fused`. */
ech_status ech_mapping_read_names(const ech_mapping_reader *r);

#endif
