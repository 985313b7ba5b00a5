/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to model: from a Hugging Face config.json to the run file's model section.
 */
#ifndef ECH_MODEL_IMPORT_H
#define ECH_MODEL_IMPORT_H

#include "base/json.h"
#include "model/model.h"

/* The largest config.json, in bytes. */
enum { ECH_IMPORT_LARGEST = 4 << 20 };
/* Parses a config.json or generation_config.json. Release *out with json_decref. */
ech_status ech_family_import_parse(const char *path, const char *text, size_t n, json_t **out);

struct ech_family_import {
    ech_config *config;
    const char *path;   /* of the file, for errors */
    const json_t *json; /* the object; NULL: an empty one */
};

/* Maps a number or boolean of the file to a key of the run file. */
typedef struct ech_family_import_row {
    const char *name, *key; /* "n_embd", "model.hidden_size" */
    const char *initial;    /* the value if the file has none or null; NULL: an error then */
    bool may_differ;        /* the run file may set another value */
} ech_family_import_row;
ech_status ech_family_import_rows(const ech_family_import *in, const ech_family_import_row *rows,
                                  size_t n);

/* Sets a key of the run file to `text`. Errors: out of bounds; the run file has another value. */
ech_status ech_family_import_set(const ech_family_import *in, const char *key, const char *text);

/* The value of a key of the file; NULL if it is absent or null. */
const json_t *ech_family_import_get(const ech_family_import *in, const char *name);
/* The integer >= 1 of that name. False: it is absent, or something else. */
bool ech_family_import_int(const ech_family_import *in, const char *name, int64_t *out);

/* ECH_EUNSUPPORTED, with the key's name, unless the value is absent, null, or */
ech_status ech_family_import_only(const ech_family_import *in, const char *name,
                                  const char *words); /* one of the blank-separated words, */
ech_status ech_family_import_only_all(const ech_family_import *in, const char *name,
                                      const char *words); /* a list of these, */
ech_status ech_family_import_only_bool(const ech_family_import *in, const char *name,
                                       bool value);                                   /* `value`, */
ech_status ech_family_import_only_one(const ech_family_import *in, const char *name); /* 1. */
ech_status ech_family_import_never(const ech_family_import *in,
                                   const char *name); /* No other value at all. */

#endif
