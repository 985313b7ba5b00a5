/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts other programs' weights to a Hugging Face folder, tensor by tensor, so that a model may
 * be larger than memory.
 */
#ifndef ECH_APP_CONVERT_H
#define ECH_APP_CONVERT_H

#include "checkpoint/peft.h"
#include "checkpoint/raw.h"
#include "checkpoint/shards.h"
#include "model/model.h"

/* The input: a file of llm.c or llama2.c, whose tensors have no names, or a Hugging Face folder. */
typedef struct ech_conversion {
    ech_config *config; /* with the model section of the input */
    ech_model *model;
    ech_raw raw;              /* the input if it is a file */
    ech_shards *shards;       /* the weights of an input folder; NULL: the input is a file */
    char *folder;             /* path of the weights' folder; NULL: the input is a file */
    ech_peft *adapters;       /* that are merged into the weights; NULL: none */
    const char *format;       /* name of the input's format: "Hugging Face folder"; static */
    ech_dtype dtype;          /* of most tensors of the input */
    ech_model_text_ends ends; /* tokens that begin and end a text */
} ech_conversion;

/* How to read the input. */
typedef struct ech_conversion_options {
    bool merge;       /* `in` has adapters (LoRA), which are added to their base's weights */
    const char *base; /* folder of the base; NULL: `in`, or the one that its adapters name */
} ech_conversion_options;

/* Opens and checks the file or folder `in`. Errors: it is damaged, of an unknown format, or does
 * not have exactly the tensors of a model that Echelon knows. Without `merge` it has adapters, or
 * with `merge` none; the adapters state another base. */
ech_status ech_conversion_open(const char *in, const ech_conversion_options *options,
                               ech_conversion *out);
void ech_conversion_close(ech_conversion *conversion);

/* Writes the folder `out` with weights of `dtype`, under a temporary name that is renamed at the
 * end. Errors: `out` exists; a value is too large for `dtype`; ECH_EIO. */
ech_status ech_conversion_write(const ech_conversion *conversion, const char *out, ech_dtype dtype);

#endif
