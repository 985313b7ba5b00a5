/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of a run: its model section and tokenizer, and its initial weights (model.init_from or random
 * numbers).
 */
#ifndef ECH_APP_SETUP_INITIAL_H
#define ECH_APP_SETUP_INITIAL_H

#include "app/setup/setup.h"

/* With model.init_from, sets the model keys that the run file does not: from the checkpoint that the run will
 * resume from, or without one from that folder (which may be removed once there is a checkpoint). */
ech_status ech_setup_fill_model(ech_config *config);

/* Opens the tokenizer that data.tokenizer names. auto: that of the checkpoint to resume from, else that of
 * model.init_from's folder, else bytes. *out is NULL if that checkpoint or folder has none: the run then has
 * ids only. In resolved run files auto stays auto unless it is bytes, since the next start may find another
 * checkpoint. *end_of_text: the token that ends a text in the run's data, by the tokenizer, or without one by
 * config.json; -1: unknown. */
ech_status ech_initial_open_tokenizer(const ech_config *config, ech_tokenizer **out,
                                      int32_t *end_of_text);
/* Opens the tokenizer of a folder; *out NULL: it has none. */
ech_status ech_initial_open_folder(const char *folder, ech_tokenizer **out);

/* The tokens that begin and end a text by the folder's config.json. */
ech_status ech_initial_read_ends(const char *folder, ech_model_text_ends *out);

/* Appends a config.json for weights of `dtype`. `folder`: has the config.json that the model came from, NULL: it is
 * new. `ends`, `came_together`: as in ech_model_export_options. */
ech_status ech_initial_export(const ech_config *config, const char *folder, ech_dtype dtype,
                              const ech_model_text_ends *ends, bool came_together, ech_text *out);

/* Whether the path is a Hugging Face folder (and not a checkpoint of Echelon, which contains one). */
bool ech_initial_is_folder(const char *path);

/* Opens the weights of a folder under the tensor names of the model's family; verify: as ech_shards_open. */
ech_status ech_initial_open(const ech_config *config, const char *folder, bool verify,
                            ech_shards **out);

/* Names and shapes of the whole model's tensors, [model->param.n]. Release with free(). */
ech_saved_tensor *ech_initial_tensors(const ech_model *model);
/* Errors: the weights have not exactly the model's tensors, in its shapes. */
ech_status ech_initial_check_model(const ech_model *model, const ech_shards *weights);
/* The same for the headers of a folder's files and the model section that its config.json has filled, before
 * anything is planned or allocated by an untrusted config.json. A folder without weights passes. */
ech_status ech_initial_check_shapes(const ech_config *config, const char *folder);

/* Errors: model.init_from names no weights, or not this model's. To be checked before memory is allocated. */
ech_status ech_initial_expect(const ech_config *config);

/* Sets the parameters: those of model.init_from, else random numbers. Collective. */
ech_status ech_session_initialise(ech_session *session, const ech_config *config);

#endif
