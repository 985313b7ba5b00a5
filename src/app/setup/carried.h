/* SPDX-License-Identifier: Apache-2.0
 *
 * What belongs to a model besides its weights, and is handed on from the folder that a run
 * begins with, or from the checkpoint that it goes on from, to every checkpoint that it makes.
 */
#ifndef ECH_APP_SETUP_CARRIED_H
#define ECH_APP_SETUP_CARRIED_H

#include "app/setup/setup.h"
#include "checkpoint/checkpoint.h"

/* Fills the texts of checkpoints. `folder` is the one with config.json that the model came from,
 * NULL: it is new. config.json keeps what is not ours to say. generation_config.json and the
 * tokenizer's files are the same bytes, the latter from where the tokenizer was opened; a
 * tokenizer that has no such files is exported, and without one (NULL) there is none. On failure
 * some texts may be set. */
ech_status ech_carried_read(const ech_config *config, const ech_tokenizer *tokenizer,
                            const char *folder, ech_dtype dtype, ech_checkpoint_info *out);

#endif
