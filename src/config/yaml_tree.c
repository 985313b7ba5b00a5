/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML as a tree.
 */
#include "config/yaml_tree.h"

#include <string.h>

#include "config/yaml_events.h"

enum { MOST_NODES = 16384 }; /* looking for keys given twice takes the square of these */

typedef struct builder {
    ech_yaml_events yaml;
    ech_pool *pool;
    int nodes;
} builder;

static ech_status make_node(builder *b, ech_yaml_node **out)
{
    if (++b->nodes > MOST_NODES)
        ECH_YAML_FAIL(&b->yaml, "more than %d values; %s", MOST_NODES, b->yaml.shape);
    *out = ech_pool_alloc(b->pool, sizeof **out);
    (*out)->line = b->yaml.event.start_mark.line + 1;
    (*out)->column = b->yaml.event.start_mark.column + 1;
    return ECH_OK;
}

static ech_status copy_scalar(builder *b, const char *what, const char **out)
{
    const char *text;
    ECH_TRY(ech_yaml_scalar(&b->yaml, what, ECH_YAML_PAIR, &text));
    *out = ech_pool_format(b->pool, "%s", text);
    return ECH_OK;
}

static ech_status read_children(builder *b, ech_yaml_node *parent);

/* The content of a node that begins at the event. */
static ech_status read_content(builder *b, ech_yaml_node *node)
{
    if (b->yaml.event.type == YAML_SCALAR_EVENT) {
        node->is_null = ech_yaml_is_null(&b->yaml);
        return copy_scalar(b, "value", &node->text);
    }
    node->kind = b->yaml.event.type == YAML_MAPPING_START_EVENT ? ECH_YAML_MAP : ECH_YAML_LIST;
    return read_children(b, node);
}

/* The event is an entry's key. */
static ech_status read_key(builder *b, const ech_yaml_node *map, ech_yaml_node *node)
{
    ECH_TRY(copy_scalar(b, "key", &node->key));
    const ech_yaml_node *twin = ech_yaml_find(map, node->key);
    if (twin)
        ECH_YAML_FAIL(&b->yaml, "%.60s: given twice, first in line %zu; remove one", node->key,
                      twin->line);
    return ech_yaml_advance(&b->yaml);
}

/* Depth is limited by the events. */
static ech_status read_children(builder *b, ech_yaml_node *parent)
{
    bool map = parent->kind == ECH_YAML_MAP;
    for (ech_yaml_node **to = &parent->first;; to = &(*to)->next) {
        ech_yaml_node *node;
        ECH_TRY(ech_yaml_advance(&b->yaml));
        if (b->yaml.event.type == YAML_MAPPING_END_EVENT ||
            b->yaml.event.type == YAML_SEQUENCE_END_EVENT)
            return ECH_OK;
        ECH_TRY(make_node(b, &node));
        if (map) ECH_TRY(read_key(b, parent, node));
        ECH_TRY(read_content(b, node));
        *to = node;
    }
}

static ech_status read_document(builder *b, ech_yaml_node **out)
{
    ECH_TRY(ech_yaml_advance(&b->yaml)); /* the stream's start */
    ECH_TRY(ech_yaml_advance(&b->yaml));
    *out = NULL;
    if (b->yaml.event.type == YAML_STREAM_END_EVENT) return ECH_OK;
    ECH_TRY(ech_yaml_advance(&b->yaml));
    ECH_TRY(make_node(b, out));
    ECH_TRY(read_content(b, *out));
    ECH_TRY(ech_yaml_advance(&b->yaml)); /* the document's end */
    ECH_TRY(ech_yaml_advance(&b->yaml));
    if (b->yaml.event.type != YAML_STREAM_END_EVENT)
        ECH_YAML_FAIL(&b->yaml, "%s", "a second document; remove it: a file is one document");
    return ECH_OK;
}

ech_status ech_yaml_read(const char *name, const char *text, size_t n, const char *shape,
                         ech_pool *pool, ech_yaml_node **out)
{
    builder b = {.pool = pool};
    ECH_TRY(ech_yaml_begin(&b.yaml, name, text, n, shape));
    ech_status status = read_document(&b, out);
    ech_yaml_end(&b.yaml);
    return status;
}

const ech_yaml_node *ech_yaml_find(const ech_yaml_node *map, const char *key)
{
    for (const ech_yaml_node *at = map ? map->first : NULL; at; at = at->next)
        if (at->key && strcmp(at->key, key) == 0) return at;
    return NULL;
}
