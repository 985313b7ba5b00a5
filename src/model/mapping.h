/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/model. Mapping files: YAML texts that state a family as the files of families/ do.
 */
#ifndef ECH_MODEL_MAPPING_H
#define ECH_MODEL_MAPPING_H

#include "model/family.h"

struct ech_mapping {
    ech_pool *pool; /* of the mapping, and of all that its family points to */
    const char *path, *text;
    size_t n;            /* bytes of `text` */
    const char *summary; /* what the file states, without layout and comments */
    ech_family family;
    ech_names names;
    ech_rope_names rope; /* the family's, if the file renames keys of rotary positions */
    const char *ignored; /* blank-separated keys of config.json that change nothing */
    const char *defaults; /* "key=value key=value" of the file, without its base's; NULL: none */
};

/* Reads a mapping file of n bytes, which is untrusted. Release *out with ech_mapping_destroy.
 * Errors (ECH_EINPUT or ECH_EUSAGE) name file, line, column and key. */
ech_status ech_mapping_parse(const char *path, const char *text, size_t n, ech_mapping **out);
void ech_mapping_destroy(ech_mapping *mapping); /* accepts NULL */
ECH_DESTROY_AT(ech_mapping, ech_mapping_destroy)

/* Replaces *out by ech_text_nearest of blank-separated words; false: none is close. */
bool ech_mapping_nearest(const char *name, const char *words, ech_text *out);
/* Errors: config.json has a key that the mapping neither maps nor ignores. */
ech_status ech_mapping_check_keys(const ech_mapping *mapping, const ech_family_import *in);
/* The error for a row whose key config.json does not have. */
ech_status ech_mapping_miss_key(const ech_mapping *mapping, const ech_family_import *in,
                                const ech_family_row *row);
/* Errors: the properties need a role that has no name, or exclude one that has. */
ech_status ech_mapping_check_roles(const ech_mapping *mapping, const ech_config *config);
/* Errors: two parameters of the model have one name. */
ech_status ech_mapping_check_model(const ech_mapping *mapping, const ech_model *model);

#endif
