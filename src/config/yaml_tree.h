/* SPDX-License-Identifier: Apache-2.0
 *
 * A small YAML file as a tree, with the place of each node: for files beside the run file. They are
 * untrusted: size, depth and number of nodes are limited.
 */
#ifndef ECH_CONFIG_YAML_TREE_H
#define ECH_CONFIG_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"
#include "base/status.h"

typedef enum ech_yaml_kind { ECH_YAML_SCALAR, ECH_YAML_LIST, ECH_YAML_MAP } ech_yaml_kind;

typedef struct ech_yaml_node {
    ech_yaml_kind kind;
    const char *key;                    /* of an entry of a map; NULL: the node is none */
    const char *text;                   /* of a scalar */
    bool is_null;                       /* a scalar that is empty, "~" or "null", without quotes */
    size_t line, column;                /* from 1; of the key, if there is one */
    struct ech_yaml_node *first, *next; /* the first child; the next sibling */
} ech_yaml_node;

/* Reads n bytes. *out and its texts are the pool's; NULL: the text has no content. `shape` says
 * what such a file has ("a mapping file has ..."). Errors (ECH_EUSAGE): bad YAML, an anchor, an
 * alias or a tag, a key that is given twice, a second document, too many nodes. */
ech_status ech_yaml_read(const char *name, const char *text, size_t n, const char *shape,
                         ech_pool *pool, ech_yaml_node **out);
/* The entry of a map with this key; NULL: none, or `map` is NULL or no map. */
const ech_yaml_node *ech_yaml_find(const ech_yaml_node *map, const char *key);

#endif
