/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of other programs' weights to a Hugging Face folder, tensor by tensor: a model may be larger than
 * memory.
 */
#ifndef ECH_APP_CONVERT_H
#define ECH_APP_CONVERT_H

#include "checkpoint/raw.h"
#include "checkpoint/shards.h"
#include "model/model.h"

/* The input: a file of llm.c or llama2.c, whose tensors have no names, or a folder. */
typedef struct ech_conversion {
    ech_config *config; /* with the model section of the input */
    ech_model *model;
    ech_raw raw;              /* of a file */
    ech_shards *shards;       /* of a folder; NULL: a file */
    char *folder;             /* likewise */
    const char *format;       /* its name: "Hugging Face folder" */
    ech_dtype dtype;          /* as which most tensors are stored */
    ech_model_text_ends ends; /* tokens that begin and end a text */
} ech_conversion;

ech_status ech_conversion_open(const char *in, ech_conversion *out);
void ech_conversion_close(ech_conversion *conversion);

/* Writes the folder `out`, which must not exist: under a temporary name, then renames it. */
ech_status ech_conversion_write(const ech_conversion *conversion, const char *out, ech_dtype dtype);

#endif
