/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run begins with: model.init_from, or random numbers.
 */
#ifndef ECH_APP_SETUP_INITIAL_H
#define ECH_APP_SETUP_INITIAL_H

#include "app/setup/setup.h"

/* With model.init_from fills the model keys that are not set: from the checkpoint that the run will go on
 * from, which wins, otherwise from that folder, which may be gone once there is a checkpoint. */
ech_status ech_setup_fill_model(ech_config *config);

/* Opens what data.tokenizer names. auto is that of the checkpoint that the run goes on from, or
 * of model.init_from's folder, and bytes where there is neither. A folder without one knows
 * none: *out = NULL, and the run knows its tokens by their ids alone. auto stays auto in
 * resolved run files unless it is bytes: checkpoints come and go, and the next start finds its
 * own. *end_of_text: the token that ends a text in the run's data: the tokenizer's, or where none is known what the
 * folder's config.json says; -1: nobody says. */
ech_status ech_initial_open_tokenizer(const ech_config *config, ech_tokenizer **out,
                                      int32_t *end_of_text);
/* That of a folder; NULL: it has none. */
ech_status ech_initial_open_folder(const char *folder, ech_tokenizer **out);

/* The ids of begin and end that the folder's config.json says. */
ech_status ech_initial_read_ends(const char *folder, ech_model_text_ends *out);

/* What checkpoint.resume asks for. */
typedef enum ech_resume {
    ECH_RESUME_AUTO,  /* the run's newest checkpoint, if it has one */
    ECH_RESUME_NEVER, /* none may be there */
    ECH_RESUME_PATH   /* that one to begin with, later the run's newest */
} ech_resume;
ech_resume ech_initial_resume(const ech_config *config);

/* Whether the path is a Hugging Face model's own folder. */
bool ech_initial_is_folder(const char *path);

/* The weights of a folder, by the names of the model section's family; verify: as ech_shards_open. */
ech_status ech_initial_open(const ech_config *config, const char *folder, bool verify,
                            ech_shards **out);

/* Exactly the model's tensors are there, in its shapes. */
ech_status ech_initial_check_model(const ech_model *model, const ech_shards *weights);
/* The same of a folder's headers and the model section that its config.json has filled: before anything is
 * planned or allocated by a stranger's numbers. Without weights nothing is known, and nothing refused. */
ech_status ech_initial_check_shapes(const ech_config *config, const char *folder);

/* Weights to begin with are there, if model.init_from is to give them: known before memory is taken. */
ech_status ech_initial_expect(const ech_config *config);

/* Initial parameters: those of model.init_from, else random ones. Collective. */
ech_status ech_session_initialise(ech_session *session, const ech_config *config);

#endif
