/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of weights in the format of Hugging Face transformers: config.json with model.safetensors, or with
 * model.safetensors.index.json and the shards (files) that it names. They are untrusted.
 */
#ifndef ECH_CHECKPOINT_SHARDS_H
#define ECH_CHECKPOINT_SHARDS_H

#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* Finds the folder with config.json that `path` names: itself, the model/ of a checkpoint, or that of the newest
 * checkpoint of a run directory. A checkpoint's sizes and texts must match its manifest. Release *folder with
 * free(). */
ech_status ech_shards_find(const char *path, char **folder);
/* Whether it is a model's folder in Hugging Face's cache, which has a folder per version of the model. */
bool ech_shards_is_cache(const char *path);

/* Whether the folder has files of weights. (`echelon plan` works without.) */
bool ech_shards_are_there(const char *folder);

typedef struct ech_shards ech_shards;
/* Opens all files of the folder and checks their headers. `family`: how names in files may differ from those of our
 * parameters. `tied`: the head is the token table, which a file may repeat under the head's name. With `verify`, which
 * is needed before weights are read, also compares a checkpoint's weights with the hashes of its manifest. */
ech_status ech_shards_open(const char *folder, const ech_family *family, bool tied, bool verify,
                           ech_shards **out);
void ech_shards_close(ech_shards *weights); /* accepts NULL */
ECH_DESTROY_AT(ech_shards, ech_shards_close)
/* The number of tensors in the files, buffers included. */
int ech_shards_count(const ech_shards *weights);
/* The dtype of a tensor that is in the files. */
ech_dtype ech_shards_dtype(const ech_shards *weights, const char *name);

/* Checks that the files have exactly these n tensors, besides buffers and a tied head, in these shapes, of
 * floating-point types. Boxes are ignored. Errors name the first tensor that is missing, unexpected or of another
 * shape. */
ech_status ech_shards_check(const ech_shards *weights, const ech_saved_tensor *tensors, int n);
/* Checks that a tied head that is stored in addition to the table equals it. Reads both. */
ech_status ech_shards_check_head(const ech_shards *weights);
/* Reads each tensor's boxes, converted to its dtype. Not collective. */
ech_status ech_shards_load(const ech_shards *weights, const ech_saved_tensor *tensors, int n);

#endif
