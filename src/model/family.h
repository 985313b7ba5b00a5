/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/model. What families share: the structure of decoder-only transformers, and the
 * table between the run file's model section and a Hugging Face config.json.
 */
#ifndef ECH_MODEL_FAMILY_H
#define ECH_MODEL_FAMILY_H

#include "base/json.h"
#include "model/model.h"

/* Keys of all families but logistic, which has no decoder and reads samples of features. */
#define ECH_DECODER_KEYS                                                                           \
    " model.hidden_size model.num_hidden_layers model.num_attention_heads "                        \
    "model.intermediate_size model.tie_word_embeddings "                                           \
    "model.initializer_range data.tokenizer data.document_mask"

#define X(name, help) extern const ech_family ech_family_row_##name;
#include "model/models.def"
#undef X

/* Appends a part (attention or MLP) with input value x to the block; returns its output value.
 * Parameters are named NAME.something. std: of the initial weights of the product that is added to
 * the residual stream. */
typedef int (*ech_decoder_part)(const ech_config *config, ech_model *model, ech_block *block,
                                const char *name, int x, double std);

/* Layers x + attention(norm(x)), x + mlp(norm(x)), a final norm and the head. */
typedef struct ech_decoder {
    /* Builds the first block. Returns the token table's parameter, which a tied head uses. */
    int (*embedding)(const ech_config *config, ech_model *model);
    const char *layers;                   /* "transformer.h": layer i is "transformer.h.i" */
    const char *first_norm, *second_norm; /* of a layer: "ln_1" is "transformer.h.i.ln_1" */
    const char *last_norm;                /* "transformer.ln_f" */
    int (*norm)(ech_model *model, ech_block *block, const ech_config *config, const char *name,
                int x);
    ech_decoder_part attention, mlp;
    /* in place of mlp in some layers (ech_model_has_experts); NULL: in none */
    ech_decoder_part experts;
} ech_decoder;

/* Whether layer i has experts, where the family has any. */
bool ech_model_has_experts(const ech_config *config, int64_t i);

/* ---- config.json ---- */

typedef enum ech_family_row_use {
    ECH_ROW_MAY_DIFFER = 1, /* the run file may set another value */
    ECH_ROW_UNREAD = 2,     /* only written */
    ECH_ROW_UNWRITTEN = 4,  /* only read */
    ECH_ROW_LIST = 8,       /* the file has a list of such values */
    /* no other program knows it: written where it is not `initial`, and not missed */
    ECH_ROW_OURS = 16,
    ECH_ROW_NAME = 32 /* the value is one of the key's names */
} ech_family_row_use;

/* A value of config.json, in the order in which they are written and read. */
struct ech_family_row {
    const char *name; /* "n_embd"; NULL ends the table */
    const char *key;  /* of the run file: "model.hidden_size"; NULL: a constant */
    /* The value if the file has none or null; NULL: an error then, unless `derived` gives it. Of a
     * constant: the values that we support, one of true, false, 1 and null, or blank-separated
     * words. The first one is written. */
    const char *initial;
    int64_t (*derived)(const ech_config *config); /* from rows before */
    /* blank-separated, those that have this row; NULL: all families of the table */
    const char *family;
    unsigned use;       /* bits of ech_family_row_use */
};

struct ech_family_import {
    ech_config *config;
    const char *path;   /* of the file, for errors */
    const json_t *json; /* the object; NULL: an empty one */
};

/* The value of a key of the file; NULL if it is absent or null. */
const json_t *ech_family_import_get(const ech_family_import *in, const char *name);
/* Sets a key of the run file to `text`. Errors: out of bounds; the run file has another value. */
ech_status ech_family_import_set(const ech_family_import *in, const char *key, const char *text);
/* Reads a row, or all rows of a table. ECH_EUNSUPPORTED: another constant. */
ech_status ech_family_import_row(const ech_family_import *in, const ech_family_row *row);
ech_status ech_family_import_rows(const ech_family_import *in, const ech_family_row *rows);
/* The object that a table writes. Release with json_decref. */
json_t *ech_family_export_rows(const ech_config *config, const ech_family_row *rows);

#endif
