/* SPDX-License-Identifier: Apache-2.0
 *
 * A Hugging Face config.json on its way into the model section. Private to this room.
 */
#ifndef ECH_MODEL_IMPORT_H
#define ECH_MODEL_IMPORT_H

#include "base/json.h"
#include "model/model.h"

/* Bytes of a file; a classifier's label names may take some. */
enum { ECH_IMPORT_LARGEST = 4 << 20 };
/* The tree of a config.json, or of one of its companions. */
ech_status ech_family_import_parse(const char *path, const char *text, size_t n, json_t **out);

struct ech_family_import {
    ech_config *config;
    const char *path;   /* of the file, for errors */
    const json_t *json; /* the object that is read; NULL: an empty one */
};

/* How a number or a truth value of the file becomes a key's. */
typedef struct ech_family_import_row {
    const char *name, *key; /* "n_embd", "model.hidden_size" */
    const char *initial;    /* where the file has none or null; NULL: it must have it */
    bool may_differ;        /* the run file may say otherwise */
} ech_family_import_row;
ech_status ech_family_import_rows(const ech_family_import *in, const ech_family_import_row *rows,
                                  size_t n);

/* A key that the file need not have, from a text of our own. */
ech_status ech_family_import_set(const ech_family_import *in, const char *key, const char *text);

/* The value of a key of the file where it is there and not null; else NULL. */
const json_t *ech_family_import_get(const ech_family_import *in, const char *name);
/* The integer of that name: false if it is none, or below 1. */
bool ech_family_import_int(const ech_family_import *in, const char *name, int64_t *out);

/* Refuses, by name, what the layers cannot do: */
ech_status ech_family_import_only(const ech_family_import *in, const char *name,
                                  const char *words); /* a text */
ech_status ech_family_import_only_all(const ech_family_import *in, const char *name,
                                      const char *words); /* a list of texts */
ech_status ech_family_import_only_bool(const ech_family_import *in, const char *name, bool value);
ech_status ech_family_import_only_one(const ech_family_import *in,
                                      const char *name); /* the number 1 */
ech_status ech_family_import_never(const ech_family_import *in,
                                   const char *name); /* must be absent or null */

#endif
