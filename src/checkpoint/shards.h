/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of weights in the format of Hugging Face transformers: config.json with
 * model.safetensors, or with model.safetensors.index.json and the files that it names, which
 * Hugging Face calls shards. They are untrusted. None is collective: each rank reads its own.
 */
#ifndef ECH_CHECKPOINT_SHARDS_H
#define ECH_CHECKPOINT_SHARDS_H

#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* Finds the folder with config.json that `path` names: `path` itself, PATH/model if `path` is a
 * checkpoint, or model/ of the newest checkpoint if it is a run directory or a folder of
 * checkpoints. In a checkpoint the sizes of files and the texts must match the manifest. Release
 * *folder with free(). Errors: ECH_EUSAGE if there is none. */
ech_status ech_shards_find(const char *path, char **folder);
/* True if `path` is a model in Hugging Face's cache: without config.json, with a folder per version
 * in snapshots/. */
bool ech_shards_is_cache(const char *path);

/* True if the folder has files of weights. (`echelon plan` needs only config.json.) */
bool ech_shards_are_there(const char *folder);

typedef struct ech_shards ech_shards;
/* Opens all files of the folder and checks their headers. How names in files may differ from the
 * names of our parameters depends on `family` (borrowed); the names below are ours. If `tied`, the
 * head is the token table, which a file may repeat under the head's name. With `verify` it compares
 * the weights with the hashes in the manifest, if the folder is a checkpoint's model/. Callers that
 * will read weights must set it, since reading does not compare. */
ech_status ech_shards_open(const char *folder, const ech_family *family, bool tied, bool verify,
                           ech_shards **out);
void ech_shards_close(ech_shards *weights); /* accepts NULL */
ECH_DESTROY_AT(ech_shards, ech_shards_close)
/* The number of tensors in the files, buffers included. */
int ech_shards_count(const ech_shards *weights);
/* The dtype in the files of a tensor that they must have. */
ech_dtype ech_shards_dtype(const ech_shards *weights, const char *name);

/* Tables with a row for each token (ech_saved_tensor.by_token) have `had` rows in the files. The
 * model may have more: each new row is the mean of rows from[n], or of all rows if n is 0, rounded
 * to fp32 unless the file has fp64. Entries of `from` must be below `had`. */
void ech_shards_grow(ech_shards *weights, int64_t had, const int64_t *from, int n);
/* The `had` of ech_shards_grow; 0: it was not called. */
int64_t ech_shards_grown_from(const ech_shards *weights);
/* Checks that the files have these n tensors and no others but buffers and a tied head, in these
 * shapes, as F32, F64, BF16 or F16. Boxes are ignored. Errors name the first tensor that is
 * missing, unexpected or of another shape. */
ech_status ech_shards_check(const ech_shards *weights, const ech_saved_tensor *tensors, int n);
/* If the files repeat the token table as the tied head, checks that both are equal. Call it after
 * ech_shards_check. */
ech_status ech_shards_check_head(const ech_shards *weights);
/* Reads the boxes of n tensors into their memory, converted to tensors[i].dtype. Errors: a missing
 * tensor, another shape or type. */
ech_status ech_shards_load(const ech_shards *weights, const ech_saved_tensor *tensors, int n);
/* Reads the scalar `name`, an ech_param.counter. *count: 0 if the files do not have it. Errors:
 * another type or shape than an I64 scalar; a negative number. */
ech_status ech_shards_read_count(const ech_shards *weights, const char *name, int64_t *count);
/* The hash of n tensors, at least one-dimensional: XXH3-128 of each one's name, a NUL, and its
 * values rounded to bf16, row-major. So folders with the same weights in fp32 and in bf16 have the
 * same hash. Reads all of them. */
ech_status ech_shards_hash(const ech_shards *weights, const ech_saved_tensor *tensors, int n,
                           char digits[ECH_CHECKPOINT_DIGITS + 1]);

#endif
