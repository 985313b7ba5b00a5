/* SPDX-License-Identifier: Apache-2.0
 *
 * Models: stacks of blocks, each a small graph of layers. A family is an ech_family, the file
 * families/NAME.c: properties, from which one decoder (decoder.c) is built. Nothing here
 * communicates. Files are read and written by one process on its own.
 */
#ifndef ECH_MODEL_MODEL_H
#define ECH_MODEL_MODEL_H

#include "config/config.h"
#include "layer/layer.h"

typedef struct ech_family ech_family;
typedef struct ech_family_import ech_family_import; /* a config.json being read; private */
typedef struct ech_family_fused ech_family_fused;   /* a fused tensor of files; private */
typedef struct ech_family_row ech_family_row;       /* a value of config.json; private */
typedef struct ech_rope_names ech_rope_names;       /* rotary positions in config.json; private */
typedef struct ech_windows ech_windows;             /* layers with windows; private */
typedef struct ech_mapping ech_mapping;             /* a mapping file; private */
struct json_t;

/* Names of tensors by role, as a family's files have them. NULL: the role's own in roles.def. */
typedef struct ech_names {
#define ROLE(name, otherwise, meaning) const char *name;
#include "model/roles.def"
    bool in_first; /* matrices but tables are (in,out), like GPT-2's Conv1D */
} ech_names;

typedef struct ech_model {
    const ech_family *family;
    ech_pool *pool;
    ECH_LIST(ech_block *) block;
    ECH_LIST(ech_param) param; /* in the order of blocks; a tied table is one parameter */
    int64_t reports; /* numbers that its blocks report of a training step (ech_reported) */
    /* the last block's value that has the logits in ECH_GENERATE; -1: it generates nothing */
    int logits;
    int64_t vocabulary;
    int64_t layers;            /* of a decoder: L */
    double std;                /* of initial weights */
    double experts_used;       /* of stacked experts: the share that a token goes to */
    ech_block_options options; /* how layers are sharded, and more that changes blocks */
} ech_model;

struct ech_family {
    const char *name;  /* its file's, which defines ech_family_row_NAME */
    const char *help;  /* at most 100 characters */
    const char *reads; /* blank-separated keys that it reads, besides the keys of `rows` */
    /* "key=value key=value": properties that all models of the family have, which a run file cannot
     * set; and values of keys that a run file leaves open, where they differ from keys.def.
     * NULL: none. */
    const char *constants, *defaults;
    int64_t (*inner)(const ech_config *config); /* a feed-forward layer's width; NULL: as others' */
    ech_status (*check)(const ech_config *config); /* of the resolved section; NULL: nothing more */
    /* Makes its blocks; NULL: it is a decoder, which follows from the properties. */
    void (*build)(const ech_config *config, struct ech_model *model);
    ech_sample_kind samples; /* what it reads; 0: texts */
    bool shares; /* other programs know its shared experts */
    bool predicts_more; /* files may have layers that predict further tokens: they are not read */
    /* blank-separated keys that import_more and export_more translate, besides those of rows */
    const char *also;
    bool ours; /* no other program knows it: its model_type has our name in front */
    /* A Hugging Face config.json of this family: its architecture ("GPT2LMHeadModel"), the
     * table of its values, and what the table cannot express. Errors of import_more: what the
     * layers cannot do. NULL: nothing more. */
    const char *architecture;
    const ech_family_row *rows;
    ech_status (*import_more)(const ech_family_import *import);
    void (*export_more)(const ech_config *config, struct json_t *json);
    const ech_rope_names *rope; /* how files state rotary positions; NULL: not at all */
    const ech_windows *windows; /* which layers have an attention window; NULL: none in its files */
    /* Blank-separated keys of other programs' config.json that ours replace. */
    const char *replaces;
    /* Names of weights in other programs' files: */
    const ech_names *names; /* by role; NULL: all as in roles.def */
    const char *prefix;     /* "transformer.", which a file may omit */
    const char *buffers; /* blank-separated suffixes of names of tensors that are no parameters */
    const ech_family_fused *fused; /* tensors with several parameters; NULL: none */
    /* plugins' layers in place of its own; NULL: there is none */
    const struct echelon_layer *attention, *feed_forward;
    const ech_mapping *mapping;    /* the file that states the family; NULL: it is built in */
};

/* Built-in families, and families of mapping files that were read. */
const ech_family *ech_family_find(const char *name); /* NULL: none of that name */
const ech_family *ech_family_built_in(size_t i);     /* in the order of names; NULL: fewer */
const ech_family *ech_family_of(const ech_config *config);
const char *ech_family_names(void); /* blank-separated */

/* The name of a mapping file in a folder of weights. */
#define ECH_MAPPING_FILE "echelon-mapping.yaml"
/* Reads a mapping file (docs/mapping.md) and adds its family, for the rest of the process. The file
 * is untrusted. Errors name file, line and key; one is that a family of this name is built in, or
 * was stated otherwise by another file. */
ech_status ech_family_map(const char *path, const ech_family **out);
/* The same for FOLDER/echelon-mapping.yaml, if it exists. */
ech_status ech_family_map_folder(const char *folder);
/* The text of the family's mapping file, n bytes; NULL: the family is built in. */
const char *ech_family_mapping(const ech_family *family, size_t *n);
/* Whether the configuration's family uses a key that some others do not. */
bool ech_family_reads(const ech_config *config, const char *key);
/* Appends these keys, blank-separated. */
void ech_family_append_reads(const ech_family *family, ech_text *out);
/* A family's names, completed from roles.def. */
ech_names ech_names_of(const ech_family *family);
/* Names in files of the token embedding's table, and of a head's that is not tied. Release with
 * free. */
char *ech_family_table(const ech_family *family);
char *ech_family_head(const ech_family *family);

/* Begin-of-text and end-of-text token ids (BOS, EOS), below the vocabulary. */
typedef struct ech_model_text_ends {
    int32_t begin, end;
} ech_model_text_ends;

/* Sets the model section from a Hugging Face config.json, whose model_type names the family.
 * The file is untrusted. Errors name the file and its key. *ends (NULL: not wanted): the first
 * of several ids; default of EOS: the last id of the vocabulary; default of BOS: EOS. */
ech_status ech_model_import(ech_config *config, const char *path, ech_model_text_ends *ends);
/* The same from n bytes of text; `path` is the file's name in errors. */
ech_status ech_model_import_text(ech_config *config, const char *path, const char *text, size_t n,
                                 ech_model_text_ends *ends);
/* Appends the eos_token_id, one or several, of `text`, a config.json or generation_config.json:
 * those below the vocabulary that are not in `stops` yet. The text is untrusted. */
typedef ECH_LIST(int32_t) ech_stops;
ech_status ech_model_read_stops(const char *path, const char *text, size_t n, int64_t vocabulary,
                                ech_stops *stops);

/* The inputs of a config.json besides the configuration. */
typedef struct ech_model_export_options {
    ech_dtype dtype;                 /* of the weights in the same folder */
    const ech_model_text_ends *ends; /* the tokenizer's; NULL: no tokenizer is known */
    /* The config.json of the weights that the run began with, untrusted; NULL: none. Its keys
     * that we do not write are copied. Its BOS and EOS entries (or their absence) replace ours
     * if no tokenizer is known, if tokenizer and config.json are from the same folder
     * (came_together), or if they include ours. */
    const char *path, *text;
    size_t n;
    bool came_together;
} ech_model_export_options;
/* Appends a config.json. Errors: options->text is no valid one. */
ech_status ech_model_export(const ech_config *config, const ech_model_export_options *options,
                            ech_text *out);

/* Marks the keys that the configuration's family does not read (ech_config_mark_unread). */
void ech_model_mark_keys(const ech_config *config);
/* The same, and gives keys that the run file leaves open the family's constants and defaults. */
void ech_model_choose(ech_config *config);
/* Marks what is read where no family is named: keys of texts. */
void ech_model_mark_unnamed(const ech_config *config);
/* Resolves the model section's "auto" keys. Errors: keys that the family does not use; a width that
 * heads do not divide; a vocabulary smaller than the tokenizer's. */
ech_status ech_model_resolve(ech_config *config, int64_t tokenizer_vocabulary);
/* Whether its samples are texts (samples.def): a tokenizer makes them. */
bool ech_model_reads_texts(const ech_config *config);
/* The number of ids that targets may have: the vocabulary, or the classes of images. */
int64_t ech_model_outputs(const ech_config *config);
/* The fewest samples that a micro-batch may have: a balance group, or the samples of a norm. */
int64_t ech_model_least_samples(const ech_config *config);
/* The sizes of its images; 0 where it reads none. */
ech_image ech_model_image(const ech_config *config);
/* Appends properties that the configuration's model has unlike others of its family. */
void ech_model_describe(const ech_config *config, ech_text *out);
/* Degrees by which layers are sharded: tensor, key/value heads, context, sequence.
 * num_key_value_heads is resolved. */
ech_sharding ech_model_sharding(const ech_config *config);
/* The types that a configuration asks for. */
ech_types ech_model_types(const ech_config *config);
/* Builds the blocks of a resolved configuration. Errors: heads that are too wide, or no
 * multiple of the key/value heads; a sequence longer than the positions; the family's own.
 *
 * density, [blocks]: the measured share of non-zeros in outputs of ReLUs, for memory.encode_density
 * = 0; 0: of this block none is known. NULL: of no block. */
ech_status ech_model_create(const ech_config *config, const double *density, ech_model **out);
/* The same, unsharded: as if all keys of parallel and memory had their defaults. For code that
 * needs blocks and parameters before the layout has checked that the model can be sharded. */
ech_status ech_model_create_whole(const ech_config *config, ech_model **out);
void ech_model_destroy(ech_model *model); /* accepts NULL */
ECH_DESTROY_AT(ech_model, ech_model_destroy)

int64_t ech_model_params(const ech_model *model);  /* elements of all but layer states */
int64_t ech_model_trained(const ech_model *model); /* of these, those that are not frozen */
/* of these, without experts that a token does not go to */
int64_t ech_model_active(const ech_model *model);
/* True for a table from which only the rows of a batch's tokens are read. */
bool ech_model_looks_up(const ech_model *model, int param);
/* Whether context ranks send different numbers of messages: those at the ends slide fewer. */
bool ech_model_slides(const ech_model *model);
/* FLOPs of forward and backward of one sample of T positions, in a model that is not sharded
 * (ech_model_create_whole): twice the multiplications that layers declare, of each product once
 * forward and once for each operand with a gradient. That is 6 N T + 6 L T H D T of a decoder,
 * N the numbers of its matrices (Narayanan et al. 2021), of experts those that a token goes
 * to. Frozen matrices need 4 N T. Recomputation does not count. */
double ech_model_flops(const ech_model *whole, int64_t T);

/* For families. The first four add a parameter to the block and return its index. */
int ech_model_matrix(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                     double std);
/* A matrix of an adapter: A (r,in), uniform within 1 / sqrt(in), or B (out,r), zeros. */
int ech_model_adapter(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                      ech_adapter part);
int ech_model_vector(ech_model *model, ech_block *block, const char *name, ech_axis axis,
                     int64_t size, ech_initializer initializer);
/* Adds a layer state (ech_param.commit), which begins as zeros; of the wide type. */
int ech_model_state(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                    void (*commit)(const ech_commit *), double rate);
ech_block *ech_model_block(ech_model *model, const char *name);

#endif
