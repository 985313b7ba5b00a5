/* SPDX-License-Identifier: Apache-2.0
 *
 * A trained model, read from a checkpoint, on one rank that only runs forwards.
 */
#ifndef ECH_APP_TRAIN_TRAINED_H
#define ECH_APP_TRAIN_TRAINED_H

#include "app/setup/setup.h"

typedef struct ech_trained {
    ech_config *config;       /* the checkpoint's run file, resolved for one rank */
    char *folder;             /* where its config.json is */
    ech_tokenizer *tokenizer; /* NULL: none is known, or needed */
    ech_model_text_ends
        ends; /* begin and end of a text: the tokenizer's, without one what config.json says */
    ech_stops stops; /* ends of text: the tokenizer's, config.json's, generation_config.json's */
    ech_design design;
    ech_session session; /* forward-only, parameters restored */
} ech_trained;

typedef struct ech_trained_options {
    /* A checkpoint, a checkpoints folder, a run directory, or a Hugging Face model's folder,
     * whose samples have as many tokens as it has positions, up to 1,024. */
    const char *path;
    int64_t samples;       /* evaluated at a time */
    const char *tokenizer; /* NULL: the model's own */
    bool ids_do; /* the model's own is not needed: where it cannot be used, that is told */
} ech_trained_options;

/* What to do with it. */
typedef ech_status (*ech_trained_use)(ech_trained *trained, void *context);

/* Reads the model, makes a session, and calls `use` with it. */
ech_status ech_trained_run(const ech_trained_options *options, ech_trained_use use, void *context);

#endif
