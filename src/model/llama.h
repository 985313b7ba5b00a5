/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/model: between llama.c and llama_json.c.
 */
#ifndef ECH_MODEL_LLAMA_H
#define ECH_MODEL_LLAMA_H

#include "model/family.h"

/* config.json of Llama and its kin: the table, and what it cannot express. */
extern const ech_family_row ech_llama_rows[];
ech_status ech_llama_import(const ech_family_import *in);
void ech_llama_export(const ech_config *config, json_t *json);

#endif
