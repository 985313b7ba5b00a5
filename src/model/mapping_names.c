/* SPDX-License-Identifier: Apache-2.0
 *
 * `names` and `fused` of a mapping file: which tensors of other programs' files are which
 * parameters.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/mapping_reader.h"

#define FAIL_AT ECH_MAPPING_FAIL

static const struct role {
    const char *name, *otherwise;
    size_t offset; /* in ech_names */
} roles[] = {
#define ROLE(name, otherwise, meaning) {#name, otherwise, offsetof(ech_names, name)},
#include "model/roles.def"
};
enum { ROLES = sizeof roles / sizeof *roles };

static const char role_words[] =
#define ROLE(name, otherwise, meaning) #name " "
#include "model/roles.def"
    ;

static const char **field(ech_names *names, const struct role *role)
{
    return (const char **)((char *)names + role->offset);
}

static const struct role *find_role(const char *name)
{
    for (int i = 0; i < ROLES; i++)
        if (strcmp(roles[i].name, name) == 0) return &roles[i];
    return NULL;
}

/* ---- names ---- */

/* A role of each expert has the expert's number in its tensors' names. */
static bool is_of_experts(const struct role *role)
{
    return role->otherwise && strstr(role->otherwise, "%d");
}

static ech_status check_number(const ech_mapping_reader *r, const ech_yaml_node *at,
                               const struct role *role, const char *text)
{
    const char *number = strstr(text, "%d");
    int signs = 0;
    for (const char *p = text; *p; p++) signs += *p == '%';
    if (is_of_experts(role) && (!number || signs != 1))
        FAIL_AT(r, at, "names.%s: %s: needs %%d once, for the number of an expert, as in %s",
                role->name, text, role->otherwise);
    if (!is_of_experts(role) && signs)
        FAIL_AT(r, at, "names.%s: %s: only names of experts have a %%", role->name, text);
    return ECH_OK;
}

static ech_status check_dots(const ech_mapping_reader *r, const ech_yaml_node *at, const char *what,
                             const char *text)
{
    if (*text != '.' && text[strlen(text) - 1] != '.' && !strstr(text, "..")) return ECH_OK;
    FAIL_AT(r, at, "%s: %s: begins or ends with a dot, or has two in a row", what, text);
}

/* The role before `at` with the same name; NULL: none. */
static const ech_yaml_node *find_twin(const ech_yaml_node *map, const ech_yaml_node *at)
{
    for (const ech_yaml_node *node = map->first; node != at; node = node->next)
        if (node->text && strcmp(node->text, at->text) == 0) return node;
    return NULL;
}

static ech_status read_name(const ech_mapping_reader *r, const ech_yaml_node *map,
                            const ech_yaml_node *at)
{
    const struct role *role = find_role(at->key);
    const char *text = role ? role->otherwise : NULL;
    if (!role) return ech_mapping_unknown(r, at, "role", at->key, role_words);
    if (!at->is_null) {
        ECH_TRY(ech_mapping_word(r, at, at->key, "_-.%", &text));
        ECH_TRY(check_number(r, at, role, text));
        ECH_TRY(check_dots(r, at, role->name, text));
        const ech_yaml_node *twin = find_twin(map, at);
        if (twin)
            FAIL_AT(r, at,
                    "names.%s: %s is the name of %s in line %zu already; each role has its "
                    "own tensor",
                    at->key, text, twin->key, twin->line);
    }
    *field(&r->to->names, role) = text;
    return ECH_OK;
}

/* ---- fused tensors ---- */

/* Parts that the base's files have in one tensor are named there, too. */
static ech_status check_base_fused(const ech_mapping_reader *r, const ech_yaml_node *map)
{
    const ech_names names = ech_names_of(r->base);
    for (const ech_yaml_node *at = map ? map->first : NULL; at; at = at->next) {
        const char *was = *field((ech_names *)(uintptr_t)&names, find_role(at->key));
        ECH_FREED_TEXT part = {0};
        ech_text_append(&part, ".%s", was ? was : "");
        for (const ech_family_fused *row = r->base->fused; row && row->file; row++)
            if (ech_text_has_word(row->parts, part.at))
                FAIL_AT(r, at,
                        "names.%s: files of the base %s have it in the tensor %s; state fused for "
                        "this family, or fused: [] if its tensors are separate",
                        at->key, r->base->name, row->file + 1);
    }
    return ECH_OK;
}

static ech_status read_order(const ech_mapping_reader *r, const ech_yaml_node *node,
                             ech_fused_order *out)
{
    static const char *const orders[] = {
        [ECH_FUSED_PARTS] = "parts", [ECH_FUSED_HEADS] = "heads", [ECH_FUSED_ROWS] = "rows"};
    const char *text;
    *out = ECH_FUSED_PARTS;
    if (!node) return ECH_OK;
    ECH_TRY(ech_mapping_scalar(r, node, "order", &text));
    for (int i = 0; i < 3; i++)
        if (strcmp(orders[i], text) == 0) {
            *out = (ech_fused_order)i;
            return ECH_OK;
        }
    return ech_mapping_unknown(r, node, "order", text, "parts heads rows");
}

/* Roles that may be parts of a tensor. */
static const char part_words[] = "q k v q_b_nope q_b_rope q_nope q_rope kv_a k_rope k_nope gate up "
                                 "expert_gate expert_up shared_gate shared_up";

/* `taken`: parts of tensors so far. */
static ech_status read_parts(const ech_mapping_reader *r, const ech_yaml_node *map, ech_text *taken,
                             const char **out)
{
    const ech_yaml_node *list = ech_yaml_find(map, "parts");
    ECH_FREED_TEXT parts = {0};
    if (!list) FAIL_AT(r, map, "%s", "fused: needs parts: [ROLE, ROLE]");
    ECH_TRY(ech_mapping_kind(r, list, "parts", ECH_YAML_LIST));
    for (const ech_yaml_node *at = list->first; at; at = at->next) {
        const char *name;
        ECH_TRY(ech_mapping_scalar(r, at, "parts", &name));
        if (!ech_text_has_word(part_words, name))
            return ech_mapping_unknown(r, at, "parts", name, part_words);
        if (taken->at && ech_text_has_word(taken->at, name))
            FAIL_AT(r, at, "parts: %s is in a fused tensor already", name);
        ech_text_append(taken, " %s", name);
        ech_text_append(&parts, "%s.%s", parts.n ? " " : "",
                        *field(&r->to->names, find_role(name)));
    }
    if (!list->first || !list->first->next)
        FAIL_AT(r, list, "%s", "parts: a fused tensor has two parts or more");
    *out = ech_pool_format(r->to->pool, "%s", parts.at);
    return ECH_OK;
}

static ech_status read_fused(const ech_mapping_reader *r, const ech_yaml_node *map, ech_text *taken,
                             ech_family_fused *out)
{
    const ech_yaml_node *tensor = ech_yaml_find(map, "tensor"),
                        *transposed = ech_yaml_find(map, "transposed");
    const char *name;
    ECH_TRY(ech_mapping_entries(r, map, "fused", "tensor parts order transposed"));
    if (!tensor) FAIL_AT(r, map, "%s", "fused: needs tensor: NAME");
    ECH_TRY(ech_mapping_word(r, tensor, "tensor", "_-.%", &name));
    ECH_TRY(check_dots(r, tensor, "tensor", name));
    const char *number = strstr(name, "%d");
    if (strchr(name, '%') && (!number || strchr(name, '%') != number || strchr(number + 1, '%')))
        FAIL_AT(r, tensor, "tensor: %s: may have %%d once, and no other %%", name);
    out->file = ech_pool_format(r->to->pool, ".%s", name);
    ECH_TRY(read_parts(r, map, taken, &out->parts));
    ECH_TRY(read_order(r, ech_yaml_find(map, "order"), &out->order));
    if (transposed) ECH_TRY(ech_mapping_bool(r, transposed, "transposed", &out->transposed));
    if (number && !strstr(out->parts, "%d"))
        FAIL_AT(r, tensor, "tensor: %s: only names of experts have a %%", name);
    for (int i = 0; i < ROLES; i++) {
        const char *of = *field(&r->to->names, &roles[i]);
        if (of && strcmp(of, name) == 0)
            FAIL_AT(r, tensor, "tensor: %s is the name of %s, too", name, roles[i].name);
    }
    return ECH_OK;
}

static ech_status read_all_fused(const ech_mapping_reader *r, const ech_yaml_node *list)
{
    size_t n = 0;
    ECH_FREED_TEXT taken = {0};
    ECH_TRY(ech_mapping_kind(r, list, "fused", ECH_YAML_LIST));
    for (const ech_yaml_node *at = list->first; at; at = at->next) n++;
    ech_family_fused *rows = ech_pool_alloc(r->to->pool, (n + 1) * sizeof *rows);
    size_t i = 0;
    for (const ech_yaml_node *at = list->first; at; at = at->next, i++) {
        ECH_TRY(read_fused(r, at, &taken, &rows[i]));
        for (size_t k = 0; k < i; k++)
            if (strcmp(rows[k].file, rows[i].file) == 0)
                FAIL_AT(r, at, "tensor: %s: given twice", rows[i].file + 1);
    }
    r->to->family.fused = rows;
    return ECH_OK;
}

ech_status ech_mapping_read_names(const ech_mapping_reader *r)
{
    const ech_yaml_node *map = ech_yaml_find(r->root, "names"),
                        *fused = ech_yaml_find(r->root, "fused"),
                        *in_first = ech_yaml_find(r->root, "in_first");
    ech_mapping *to = r->to;
    to->names = ech_names_of(r->base);
    to->family.names = &to->names;
    to->family.fused = r->base->fused;
    if (in_first) ECH_TRY(ech_mapping_bool(r, in_first, "in_first", &to->names.in_first));
    if (map) ECH_TRY(ech_mapping_kind(r, map, "names", ECH_YAML_MAP));
    for (const ech_yaml_node *at = map ? map->first : NULL; at; at = at->next)
        ECH_TRY(read_name(r, map, at));
    if (fused && to->names.in_first)
        FAIL_AT(r, fused,
                "%s: not with in_first, whose parts would be joined along inputs; name qkv, or "
                "convert the weights to (outputs, inputs)",
                "fused");
    return fused ? read_all_fused(r, fused) : check_base_fused(r, map);
}

/* ---- what only the properties decide ---- */

ech_status ech_mapping_check_roles(const ech_mapping *mapping, const ech_config *config)
{
    const ech_names *names = &mapping->names;
    bool learned = config->model.position_encoding == ECH_POSITION_LEARNED;
    bool heads = config->model.head_norm != ECH_HEAD_NORM_NONE;
    int64_t H = config->model.num_attention_heads, G = config->model.num_key_value_heads;
    if (learned && !names->positions)
        ECH_FAIL(ECH_EINPUT,
                 "%s: names: no name for positions, which model.position_encoding = learned needs; "
                 "add positions: NAME",
                 mapping->path);
    if (names->qkv && (!learned || heads))
        ECH_FAIL(ECH_EINPUT,
                 "%s: names.qkv: one product makes queries, keys and values only with learned "
                 "positions and without head norms; name q, k and v instead, and state fused for a "
                 "tensor of all three",
                 mapping->path);
    if (names->qkv && G != ECH_AUTO && G != H)
        ECH_FAIL(ECH_EINPUT,
                 "%s: names.qkv: needs as many key/value heads as query heads, not %lld and %lld; "
                 "name q, k and v instead",
                 mapping->path, (long long)G, (long long)H);
    return ECH_OK;
}

ech_status ech_mapping_check_model(const ech_mapping *mapping, const ech_model *model)
{
    size_t n = model->param.n;
    ECH_FREED const char **names = ech_calloc(n + 1, sizeof *names);
    for (size_t i = 0; i < n; i++) names[i] = model->param.at[i].name;
    qsort(names, n, sizeof *names, ech_text_compare);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            ECH_FAIL(ECH_EINPUT,
                     "%s: names: two roles of this model have the tensor %s; give each its own",
                     mapping->path, names[i]);
    return ECH_OK;
}
