/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files of llm.c and llama2.c: a header of numbers, then tensors of one dtype without names,
 * in a fixed order (docs/formats.md). Files are untrusted: before anything is allocated, a file's
 * size is compared with its header.
 */
#ifndef ECH_CHECKPOINT_RAW_H
#define ECH_CHECKPOINT_RAW_H

#include "base/memory.h"
#include "config/config.h"
#include "tensor/tensor.h"

enum { ECH_RAW_HEADER = 1024 }; /* bytes to read of a file as its header, or all of a shorter one */

typedef enum ech_raw_order {
    ECH_RAW_PLAIN,
    ECH_RAW_TRANSPOSED, /* stored as (out,in), read as (in,out) */
    /* stored rows 2j and 2j + 1 of a head of D rows are read as rows j and j + D/2 */
    ECH_RAW_INTERLEAVED,
} ech_raw_order;

typedef struct ech_raw_tensor {
    const char *name; /* of the parameter; first, for ech_text_compare */
    int dims;         /* 1 or 2 */
    int64_t shape[2]; /* as read */
    ech_raw_order order;
    int64_t heads;  /* number of heads in shape[0]; only with ECH_RAW_INTERLEAVED */
    int64_t offset; /* in the file, in bytes */
} ech_raw_tensor;

typedef struct ech_raw {
    ech_pool *pool;                     /* of path and names */
    const char *path, *format;          /* format: for messages */
    int fd;                             /* -1: none is open */
    ech_dtype dtype;                    /* of all tensors in the file */
    int32_t begin_of_text, end_of_text; /* token ids */
    ECH_LIST(ech_raw_tensor) tensor;    /* sorted by name */
    int64_t bytes;                      /* of header and tensors */
    int64_t padding;                    /* padding rows of the vocabulary; not read */
} ech_raw;

/* Opens a file of one of the formats, sets the model section of `config` and lists the tensors.
 * Errors: no such file, none of the formats, a size that does not fit the header. Release with
 * ech_raw_close. */
ech_status ech_raw_open(const char *path, ech_config *config, ech_raw *out);
void ech_raw_close(ech_raw *raw);
/* The same from the n bytes of a header and a file's size, without opening a file; `path` is its
 * name in errors. Release with ech_raw_close, also after failures. For ech_raw_open and fuzzing. */
ech_status ech_raw_read(const char *path, const void *header, size_t n, int64_t file_bytes,
                        ech_config *config, ech_raw *out);

const ech_raw_tensor *ech_raw_find(const ech_raw *raw, const char *name); /* NULL: none */
/* Reads rows [first, first + rows) of a tensor in its `shape` into `to`, (rows, columns). A vector
 * is one row. */
ech_status ech_raw_rows(const ech_raw *raw, const ech_raw_tensor *tensor, int64_t first,
                        int64_t rows, double *to);

#endif
