/* SPDX-License-Identifier: Apache-2.0
 *
 * Models: stacks of blocks, each a small graph of layers. A family is a file and a row of
 * models.def.
 */
#ifndef ECH_MODEL_MODEL_H
#define ECH_MODEL_MODEL_H

#include "config/config.h"
#include "layer/layer.h"

typedef struct ech_family ech_family;
typedef struct ech_family_import ech_family_import; /* a config.json that is read; private */

typedef struct ech_model {
    const ech_family *family;
    ech_pool *pool;
    ECH_LIST(ech_block *) block;
    ECH_LIST(ech_param) param; /* in the model's order; a tied table is one parameter */
    int logits;                /* the last block's value that ECH_GENERATE fills */
    int64_t vocabulary;
    int64_t layers, width; /* L, and H D of attention: for FLOPs */
    double std;            /* of initial weights */
    ech_ways ways;         /* how it is cut */
} ech_model;

struct ech_family {
    const char *name;
    const char *reads;                   /* keys that not every family reads */
    void (*resolve)(ech_config *config); /* fills "auto" keys of the model section */
    ech_status (*build)(const ech_config *config, ech_model *model);
    /* Hugging Face's config.json, of weights of that type (for others: ech_model_export). */
    void (*export_json)(const ech_config *config, int32_t begin_of_text, int32_t end_of_text,
                        ech_dtype dtype, ech_text *out);
    /* Fills keys from a config.json of this family (import.h); refuses what layers cannot do. */
    ech_status (*import_json)(const ech_family_import *import);
    const char *replaces; /* blank-separated keys of config.json that say what ours do */
    /* Names of weights in other people's files: */
    const char *prefix;  /* "transformer.", which may be missing */
    const char *table;   /* the token table: what a tied head repeats */
    const char *buffers; /* blank-separated ends of names that are stored, but no parameters */
};

const ech_family *ech_family_find(const char *name); /* NULL: none of that name */
const ech_family *ech_family_of(const ech_config *config);
const char *ech_family_names(void); /* blank-separated */

/* Tokens at the beginning and at the end of a text, below the vocabulary. */
typedef struct ech_model_text_ends {
    int32_t begin, end;
} ech_model_text_ends;

/* Fills the model section from a Hugging Face config.json at `path`, whose model_type names the family.
 * Nothing in the file is trusted. Errors name the file and its key. *ends (NULL: not wanted): of several
 * ids the first; where the file has none the last token is the end, and the end is the begin. */
ech_status ech_model_import(ech_config *config, const char *path, ech_model_text_ends *ends);
/* The same from memory; `path` stands for the file. */
ech_status ech_model_import_text(ech_config *config, const char *path, const char *text, size_t n,
                                 ech_model_text_ends *ends);
/* The tokens that end a text in `text`, a config.json or generation_config.json: eos_token_id,
 * one or several. Appends those below the vocabulary that `stops` has not yet. Nothing in the
 * text is trusted. */
typedef ECH_LIST(int32_t) ech_stops;
ech_status ech_model_read_stops(const char *path, const char *text, size_t n, int64_t vocabulary,
                                ech_stops *stops);

/* What a config.json is made of besides the configuration. */
typedef struct ech_model_export_options {
    ech_dtype dtype;                 /* of the weights beside it */
    const ech_model_text_ends *ends; /* the tokenizer's; NULL: none is known */
    /* The config.json that the run began with, a stranger's; NULL: there is none. What it says
     * and we do not, it goes on saying; also what it says, or does not say, of begin and end
     * where no tokenizer is known, or it came with it, or its ids are among them. */
    const char *path, *text;
    size_t n;
    bool came_together;
} ech_model_export_options;
/* Appends a config.json. Errors: those of the text that was carried. */
ech_status ech_model_export(const ech_config *config, const ech_model_export_options *options,
                            ech_text *out);

/* The name of the head's own table where it is not tied, in all families. */
#define ECH_MODEL_HEAD "lm_head.weight"

/* Fills the model section's "auto" keys: what the family says, heads, positions and vocabulary. Errors: keys that
 * the family does not read; heads that do not divide the width; a vocabulary smaller than the tokenizer's. */
ech_status ech_model_resolve(ech_config *config, int64_t tokenizer_vocabulary);
/* In how many ways the configuration cuts layers; its key/value heads are known. */
ech_cut ech_model_cut(const ech_config *config);
/* Builds the blocks of a resolved configuration. Errors: heads that are too wide, or not divided by those of
 * keys and values; a sequence longer than the positions; what the family refuses. */
ech_status ech_model_create(const ech_config *config, ech_model **out);
/* The same, as if nothing were cut: for who asks for blocks and parameters before the layout has said
 * that the model can be cut so. */
ech_status ech_model_create_whole(const ech_config *config, ech_model **out);
void ech_model_destroy(ech_model *model); /* accepts NULL */

/* How parallel and memory keys cut the model's layers. */
ech_cut ech_model_cut(const ech_config *config);

int64_t ech_model_params(const ech_model *model); /* elements of all parameters */
/* Floating-point operations of one training step on that many tokens, in sequences of T:
 * 6 N tokens + 6 L T H D tokens, N without tables that are only looked up (Narayanan et al. 2021). */
double ech_model_flops(const ech_model *model, int64_t tokens, int64_t T);

/* "bfloat16": as config.json says it. Of floating-point types. */
const char *ech_model_torch_dtype(ech_dtype dtype);

/* For families. Each returns the parameter's index. */
int ech_model_matrix(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                     double std);
int ech_model_vector(ech_model *model, ech_block *block, const char *name, ech_axis axis,
                     int64_t size, ech_initializer initializer);
ech_block *ech_model_block(ech_model *model, const char *name);

#endif
