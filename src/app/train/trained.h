/* SPDX-License-Identifier: Apache-2.0
 *
 * A trained model, read from a checkpoint, on one rank that only runs forwards.
 */
#ifndef ECH_APP_TRAIN_TRAINED_H
#define ECH_APP_TRAIN_TRAINED_H

#include "app/setup/setup.h"

typedef struct ech_trained {
    ech_config *config; /* the checkpoint's run file, resolved for one rank */
    ech_tokenizer *tokenizer;
    ech_design design;
    ech_session session; /* forward-only, parameters restored */
} ech_trained;

/* What to do with it. */
typedef ech_status (*ech_trained_use)(ech_trained *trained, void *context);

/* Reads `path` (a checkpoint, a checkpoints folder, a run directory, or a Hugging Face model's folder,
 * whose samples have as many tokens as it has positions, up to 1,024), makes a session that
 * evaluates `samples` samples at a time, and calls `use` with it. */
ech_status ech_trained_run(const char *path, int64_t samples, ech_trained_use use, void *context);

#endif
