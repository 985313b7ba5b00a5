/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of weights as Hugging Face transformers keep them: config.json beside model.safetensors, or
 * beside model.safetensors.index.json and the shards it names. Nothing in them is trusted.
 */
#ifndef ECH_CHECKPOINT_SHARDS_H
#define ECH_CHECKPOINT_SHARDS_H

#include "checkpoint/checkpoint.h"

/* How a family's names may differ from ours. Texts are borrowed. */
typedef struct ech_shards_names {
    const char *prefix;  /* "transformer.", which a file may leave out */
    const char *buffers; /* blank-separated ends of names that are no weights: ".attn.bias" */
    const char *table;   /* of a tied head; NULL: the head is not tied */
    const char *head;    /* what a file may have for it besides: "lm_head.weight" */
} ech_shards_names;

/* The folder with config.json that `path` means: itself, the model/ of a checkpoint, or that of the
 * newest checkpoint of a run directory. Of a checkpoint's, sizes and texts must be those of its manifest.
 * New memory, released with free(). */
ech_status ech_shards_find(const char *path, char **folder);
/* Whether it is a folder of Hugging Face's cache that holds versions of a model, each a folder. */
bool ech_shards_is_cache(const char *path);

/* Whether the folder has weights that can be opened; a plan does without. */
bool ech_shards_are_there(const char *folder);

typedef struct ech_shards ech_shards;
/* Opens what is in the folder and checks all headers; with `verify`, which is for those who read weights,
 * also that those of a checkpoint are as they were saved, by its manifest's hashes. */
ech_status ech_shards_open(const char *folder, const ech_shards_names *names, bool verify,
                           ech_shards **out);
void ech_shards_close(ech_shards *weights); /* accepts NULL */
/* Tensors stored, buffers and the like included. */
int ech_shards_count(const ech_shards *weights);
/* Of a tensor that is there. */
ech_dtype ech_shards_dtype(const ech_shards *weights, const char *name);

/* Exactly these tensors, n in all, are there in these shapes, of floating-point types. Boxes are not
 * looked at. Errors name the first that is missing, left over or of another shape. */
ech_status ech_shards_check(const ech_shards *weights, const ech_saved_tensor *tensors, int n);
/* Where a tied head is stored besides the table, both are equal: reads both. */
ech_status ech_shards_check_head(const ech_shards *weights);
/* Reads each tensor's boxes, converted to its type. */
ech_status ech_shards_load(const ech_shards *weights, const ech_saved_tensor *tensors, int n);

#endif
