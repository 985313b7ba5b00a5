/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of other programs as a Hugging Face folder. Nothing is ever in memory as a whole.
 */
#ifndef ECH_APP_CONVERT_H
#define ECH_APP_CONVERT_H

#include "checkpoint/raw.h"
#include "checkpoint/shards.h"
#include "model/model.h"

/* What is read: a file without names, or a folder. */
typedef struct ech_conversion {
    ech_config *config; /* the model section is filled */
    ech_model *model;
    ech_raw raw;        /* of a file */
    ech_shards *shards; /* of a folder; NULL: a file */
    char *folder;       /* likewise */
    const char *format; /* "Hugging Face folder": for people */
    ech_dtype dtype;    /* what most of it is stored as */
    int32_t begin_of_text, end_of_text;
} ech_conversion;

ech_status ech_conversion_open(const char *in, ech_conversion *out);
void ech_conversion_close(ech_conversion *conversion);

/* Writes the folder `out`, which must not be there: beside it first, then it gets its name. */
ech_status ech_conversion_write(const ech_conversion *conversion, const char *out, ech_dtype dtype);

#endif
