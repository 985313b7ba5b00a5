/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of a run: its model section and tokenizer, and its initial weights (model.init_from or
 * random numbers). A run resumes from its newest checkpoint; without one, from the one that
 * checkpoint.resume names. Nothing is collective except ech_session_initialise.
 */
#ifndef ECH_APP_SETUP_INITIAL_H
#define ECH_APP_SETUP_INITIAL_H

#include "app/setup/setup.h"

/* If model.init_from is set, sets the model keys that the run file omits, and with lora.init_from
 * also the keys of section lora. They come from the checkpoint to resume from; if there is none,
 * from these folders, which may be removed once there is a checkpoint. */
ech_status ech_setup_fill_model(ech_config *config);

/* The training step of the checkpoint to resume from; 0: there is none. */
ech_status ech_initial_step(const ech_config *config, int64_t *out);

/* Opens the tokenizer that data.tokenizer names. `auto` names exactly one place: the checkpoint to
 * resume from; if there is none, the folder model.init_from; if that is not set, the byte
 * tokenizer. *out is NULL if this checkpoint or folder has no tokenizer: the run then has ids only.
 * Else the caller closes it. (Resolved run files say `bytes` for the byte tokenizer and otherwise
 * leave `auto`, since the next start may find another checkpoint.) *end_of_text: the token that
 * ends a text in the run's data, according to the tokenizer, or else to the config.json of that
 * checkpoint or folder; -1: unknown. */
ech_status ech_initial_open_tokenizer(const ech_config *config, ech_tokenizer **out,
                                      int32_t *end_of_text);
/* Opens the tokenizer of a folder; *out NULL: it has none. The caller closes it. */
ech_status ech_initial_open_folder(const char *folder, ech_tokenizer **out);

/* Resolves data.begin_of_text from the files of data.train. Error: the key contradicts them. */
ech_status ech_initial_resolve_begin(ech_config *config);

/* Reads from the folder's config.json which tokens begin and end a text; -1: not given. */
ech_status ech_initial_read_ends(const char *folder, ech_model_text_ends *out);

/* Appends a config.json for weights of `dtype`. `folder`: location of the model's original
 * config.json; NULL: the model is new. `ends`: the ids with which a text begins and ends, according
 * to the tokenizer; NULL: no tokenizer is known. If `came_together`, the tokenizer is from the same
 * folder, so its ids match config.json's (ech_model_export_options). */
ech_status ech_initial_export(const ech_config *config, const char *folder, ech_dtype dtype,
                              const ech_model_text_ends *ends, bool came_together, ech_text *out);

/* True if the path is a Hugging Face folder (and not a checkpoint of Echelon, which contains
 * one). */
bool ech_initial_is_folder(const char *path);

/* Opens the weights of a folder. Tensors get the names of the model's parameters; the names in
 * files may differ, as the family defines. `verify`: as in ech_shards_open, needed before weights
 * are read. Close with ech_shards_close. */
ech_status ech_initial_open(const ech_config *config, const char *folder, bool verify,
                            ech_shards **out);

/* The shape of the unsharded parameter; other fields are 0. */
ech_saved_tensor ech_initial_tensor(const ech_param *param);
/* Appends the model's adapters, or all other parameters, without boxes. */
void ech_initial_list(const ech_model *model, bool adapters, ech_saved_list *out);
/* Errors: the weights are not exactly the model's tensors without adapters in the model's shapes
 * (ech_shards_check). */
ech_status ech_initial_check_model(const ech_model *model, const ech_shards *weights);
/* Checks the headers of a folder's files in the same way against a model section from the folder's
 * config.json. Call it before anything is planned or allocated with sizes from this untrusted
 * config.json. A folder without weights passes. */
ech_status ech_initial_check_shapes(const ech_config *config, const char *folder);

/* Checks early that the weights of model.init_from can be opened. Errors: there are none, or their
 * files are damaged. No error if model.init_from is not set, or if there is a checkpoint to resume
 * from, which makes them unnecessary. */
ech_status ech_initial_expect(const ech_config *config);

/* Sets the parameters of a run that does not resume: to the weights of model.init_from, or to
 * random numbers. Errors: the weights are damaged or not this model's. Collective. */
ech_status ech_session_initialise(ech_session *session, const ech_config *config);

#endif
