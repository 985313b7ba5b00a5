/* SPDX-License-Identifier: Apache-2.0
 *
 * The run file that trains the model of a Hugging Face folder, with the origin of each value.
 */
#ifndef ECH_APP_SETUP_TEMPLATE_H
#define ECH_APP_SETUP_TEMPLATE_H

#include "base/status.h"
#include "base/text.h"

/* Appends it. Only the folder's config.json is read. ranks: a global batch can be shared by so
 * many. Errors: as of ech_model_import. */
ech_status ech_template_of_model(const char *folder, int ranks, ech_text *out);

#endif
