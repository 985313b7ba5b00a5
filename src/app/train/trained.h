/* SPDX-License-Identifier: Apache-2.0
 *
 * A trained model, from a checkpoint or a Hugging Face folder, on one rank that only runs forwards.
 */
#ifndef ECH_APP_TRAIN_TRAINED_H
#define ECH_APP_TRAIN_TRAINED_H

#include "app/setup/setup.h"

typedef struct ech_trained {
    ech_config *config;       /* of the checkpoint, or from config.json; resolved for one rank */
    char *folder;             /* where the model's config.json is */
    ech_tokenizer *tokenizer; /* NULL: none */
    ech_model_text_ends ends; /* tokens that begin and end a text: of tokenizer, else config.json */
    ech_stops stops; /* tokens that end a text: of tokenizer, config.json, generation_config.json */
    ech_design design;
    ech_session session; /* forward-only, parameters restored */
} ech_trained;

typedef struct ech_trained_options {
    /* A checkpoint, a folder of checkpoints, a run directory, or a Hugging Face folder. The
     * sequence length is the run's; for a Hugging Face folder max_position_embeddings, at most
     * 1,024. */
    const char *path;
    int64_t samples;       /* batch size */
    bool evaluates;        /* losses are needed, not only the next token of a text */
    const char *tokenizer; /* as data.tokenizer; NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    const char *plugins;   /* as training.plugins; NULL: none */
    bool ids_do; /* ids are enough: a model's own tokenizer that cannot be used is only a warning */
} ech_trained_options;

/* Called with the model; `context` is the caller's. */
typedef ech_status (*ech_trained_use)(ech_trained *trained, void *context);

/* Reads the model, makes its session, calls `use` and frees all of it. Errors: there is no model at
 * the path, or it is damaged; as for `use`. Not collective: one rank in this process. */
ech_status ech_trained_run(const ech_trained_options *options, ech_trained_use use, void *context);

#endif
