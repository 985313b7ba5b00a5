/* SPDX-License-Identifier: Apache-2.0
 *
 * The adapters (LoRA) that a run starts from: lora.init_from. Nothing is collective.
 */
#ifndef ECH_APP_SETUP_ADAPTERS_H
#define ECH_APP_SETUP_ADAPTERS_H

#include "app/setup/setup.h"
#include "checkpoint/peft.h"

/* Sets the keys of section lora that the run file omits from the folder lora.init_from, if that is
 * set. Errors: the folder has no adapters, or keys contradict it; model.init_from has adapters that
 * lora.init_from does not name. */
ech_status ech_setup_fill_adapters(ech_config *config);
/* Checks that the folder lora.init_from, if that is set, has the adapters of the model, whose
 * section is complete. Errors name the tensor. */
ech_status ech_setup_check_adapters(const ech_config *config);
/* For a model's folder instead of a run file: sets lora.init_from if the folder has adapters, and
 * model.init_from to their base if the folder has no config.json. Error: the base is no folder. */
ech_status ech_setup_name_adapters(ech_config *config, const char *folder);
/* Opens the adapters of lora.init_from. verify: as in ech_shards_open. */
ech_status ech_setup_open_adapters(const ech_config *config, bool verify, ech_peft **out);
/* Errors: the adapters state another base than `hash`, the hash of model.init_from's weights. */
ech_status ech_setup_check_base(const ech_config *config, const ech_peft *adapters,
                                const char *hash);

/* The hash of the model's weights in a folder (ech_shards_hash), without adapters. */
ech_status ech_setup_hash_base(const ech_model *model, const ech_shards *weights,
                               char digits[ECH_CHECKPOINT_DIGITS + 1]);
/* Appends the adapter_config.json of a run's checkpoints. */
ech_status ech_setup_export_adapters(const ech_config *config, const ech_model *model,
                                     ech_text *out);

#endif
