/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys from files beside the run file: these fill keys that the user left open, and override none.
 */
#include <string.h>

#include "config/table.h"

static bool is_open(const ech_config_origin *origin)
{
    return !origin->place || strcmp(origin->text, "auto") == 0;
}

/* The key's value in both as text: equal texts are equal values. */
static bool is_same(const ech_config *a, const ech_config *b, const ech_config_key *key,
                    ech_text *of_b)
{
    ech_text of_a = {0};
    ech_config_format_value(a, key, &of_a);
    ech_config_format_value(b, key, of_b);
    bool same = strcmp(of_a.at, of_b->at) == 0;
    ech_text_free(&of_a);
    return same;
}

ech_status ech_config_fill(ech_config *config, const char *path, const char *text,
                           const char *place, bool may_differ)
{
    const ech_config_key *key = ech_config_find_path(path);
    ECH_ASSERT(key);
    if (is_open(ech_config_origin_of(config, key)))
        return ech_config_set_value(config, key, text, place);
    ech_config *filled = ech_config_copy(config);
    ech_text theirs = {0};
    ech_status st = ech_config_set_value(filled, key, text, place);
    if (st == ECH_OK && !is_same(config, filled, key, &theirs) && !may_differ)
        st = ech_config_complain(config, path, "%s says %s; leave the key out to take that", place,
                                 theirs.at);
    ech_text_free(&theirs);
    ech_config_destroy(filled);
    return st;
}

ech_status ech_config_fill_section(ech_config *config, const ech_config *from, const char *name,
                                   const char *place)
{
    const ech_config_section *section = ech_config_find_section(name);
    ECH_ASSERT(section);
    for (size_t k = section->first; k < section->end; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (!ech_config_origin_of(from, key)->place) continue;
        if (!is_open(ech_config_origin_of(config, key))) continue;
        ech_text text = {0};
        ech_config_format_value(from, key, &text);
        ech_status st = ech_config_set_value(config, key, text.at ? text.at : "", place);
        ech_text_free(&text);
        ECH_TRY(st);
    }
    return ECH_OK;
}
