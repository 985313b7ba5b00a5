/* SPDX-License-Identifier: Apache-2.0
 *
 * A trained model, from a checkpoint or a Hugging Face folder, on ranks of this process that only
 * run forwards.
 */
#ifndef ECH_APP_TRAIN_TRAINED_H
#define ECH_APP_TRAIN_TRAINED_H

#include "app/setup/setup.h"

typedef struct ech_trained {
    ech_config *config;       /* of the checkpoint, or from config.json; resolved for the ranks */
    char *folder;             /* where the model's config.json is */
    ech_tokenizer *tokenizer; /* NULL: none */
    ech_model_text_ends ends; /* tokens that begin and end a text: of tokenizer, else config.json */
    ech_stops stops; /* tokens that end a text: of tokenizer, config.json, generation_config.json */
    int64_t window;  /* the longest data.sequence_length that the model accepts */
    ech_design design;
    ech_comm *comm;      /* the rank's */
    ech_session session; /* the rank's: forward-only, parameters restored */
} ech_trained;

/* Called with the model; `context` is the caller's. */
typedef ech_status (*ech_trained_use)(ech_trained *trained, void *context);

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
    /* The ranks, as keys of the parallel section, "tensor=2 pipeline=2": pipeline, tensor,
     * sequence, context, context_method, expert. NULL: one rank. */
    const char *parallel;
    bool ids_do; /* ids are enough: a model's own tokenizer that cannot be used is only a warning */
    /* Called with config, tokenizer and ends, before there are ranks: may change
     * data.sequence_length. NULL: not wanted. */
    ech_trained_use fit;
} ech_trained_options;

/* Reads the model, makes a session for each rank, a thread of this process, calls `use` on it and
 * frees all of it. Ranks share all else. Errors: there is no model at the path, or it is damaged; a
 * key of `parallel` is wrong; as for `fit` and `use`. Not collective. */
ech_status ech_trained_run(const ech_trained_options *options, ech_trained_use use, void *context);

#endif
