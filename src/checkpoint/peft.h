/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of adapters (LoRA) in the format of Hugging Face's PEFT: adapter_config.json, and
 * adapter_model.safetensors with base_model.model.X.lora_A.weight (r,in) and
 * base_model.model.X.lora_B.weight (out,r) for a product with the weight X.weight. They are
 * untrusted. None is collective: each rank reads its own.
 */
#ifndef ECH_CHECKPOINT_PEFT_H
#define ECH_CHECKPOINT_PEFT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"

#define ECH_PEFT_CONFIG "adapter_config.json"

enum { ECH_PEFT_CONFIG_LIMIT = 4 << 20 }; /* bytes */

/* What adapter_config.json says. */
typedef struct ech_peft_settings {
    int64_t rank;
    double alpha; /* results are scaled by alpha / rank */
    double dropout;
    char *base; /* path or name of the base, the model that has the other weights; "": none */
} ech_peft_settings;
void ech_peft_settings_free(ech_peft_settings *config);
/* Parses an adapter_config.json, which is untrusted; `path` is its name in errors. Release with
 * ech_peft_settings_free, also after failures. Errors: ECH_EUNSUPPORTED names an option that
 * Echelon does not have. */
ech_status ech_peft_settings_parse(const char *path, const char *text, size_t n,
                                   ech_peft_settings *out);

/* Appends an adapter_config.json for the adapters of the model. Errors: the base's name is not
 * UTF-8. */
ech_status ech_peft_settings_print(const ech_peft_settings *config, const ech_model *model,
                                   ech_text *out);

/* True if the folder has an adapter_config.json. */
bool ech_peft_is_there(const char *folder);
/* Finds the folder with adapter_config.json that `path` names: `path` itself, or as
 * ech_shards_find. Release *folder with free(). Errors: ECH_EUSAGE if there is none. */
ech_status ech_peft_find(const char *path, char **folder);

typedef struct ech_peft ech_peft;
/* Reads the folder's adapter_config.json, opens its tensors and checks their header. verify: as in
 * ech_shards_open. */
ech_status ech_peft_open(const char *folder, bool verify, ech_peft **out);
void ech_peft_close(ech_peft *adapters); /* accepts NULL */
ECH_DESTROY_AT(ech_peft, ech_peft_close)
const ech_peft_settings *ech_peft_settings_of(const ech_peft *adapters); /* borrowed */
/* The hash of the base's weights (ech_shards_hash); NULL: the folder does not state it. */
const char *ech_peft_base(const ech_peft *adapters);
/* Appends the last parts of the names of modules with adapters, blank-separated, each once: "q_proj
 * v_proj". */
void ech_peft_append_targets(const ech_peft *adapters, ech_text *out);
/* The tensor that the file has under our name, "X.lora_A.weight"; false: it has none. */
bool ech_peft_has(const ech_peft *adapters, const char *name);
/* Checks that the file has these n tensors and no others, in these shapes, as F32, F64, BF16 or
 * F16. Tensors have the names in the file; boxes are ignored. Errors name the first tensor that is
 * missing, unexpected or of another shape. */
ech_status ech_peft_check(const ech_peft *adapters, const ech_saved_tensor *tensors, int n);
/* Reads the boxes of n tensors, which ech_peft_check has checked, into their memory, converted
 * to tensors[i].dtype. */
ech_status ech_peft_load(const ech_peft *adapters, const ech_saved_tensor *tensors, int n);

#endif
