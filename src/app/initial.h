/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run begins with: model.init_from, or random numbers.
 */
#ifndef ECH_APP_INITIAL_H
#define ECH_APP_INITIAL_H

#include "app/setup.h"

/* With model.init_from fills the model keys that are not set, and data.tokenizer: from the run's own
 * newest checkpoint if it has one, which wins, otherwise from that folder. */
ech_status ech_setup_fill_model(ech_config *config);

/* Whether the path is a Hugging Face model's own folder. */
bool ech_initial_is_folder(const char *path);

/* The weights of a folder, by the names of the model section's family. */
ech_status ech_initial_open(const ech_config *config, const char *folder, ech_shards **out);

/* Plans of as many layers as a stranger's config.json asks for could take hours: refused unless there is a
 * tensor for each. Without weights nothing is known, and nothing refused. */
ech_status ech_initial_check_layers(const ech_config *config, const char *folder);

/* Initial parameters: those of model.init_from, else random ones. Collective. */
ech_status ech_session_initialise(ech_session *session, const ech_config *config);

#endif
