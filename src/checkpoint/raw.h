/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files without names: a header of numbers, then tensors of one type one after the other, in an
 * order that their programs know (docs/formats.md). Nothing in them is trusted: a file is refused before
 * anything is allocated unless its size is what its header says.
 */
#ifndef ECH_CHECKPOINT_RAW_H
#define ECH_CHECKPOINT_RAW_H

#include "base/memory.h"
#include "config/config.h"
#include "tensor/tensor.h"

enum { ECH_RAW_HEADER = 1024 }; /* bytes that tell all of a file; of a shorter one, what there is */

typedef enum ech_raw_order {
    ECH_RAW_PLAIN,
    ECH_RAW_TRANSPOSED,  /* stored (out,in), wanted (in,out) */
    ECH_RAW_INTERLEAVED, /* rows 2j and 2j + 1 of a head are wanted as rows j and j + D/2 */
} ech_raw_order;

typedef struct ech_raw_tensor {
    const char *name; /* of the parameter that it becomes */
    int dims;
    int64_t shape[2]; /* as wanted */
    ech_raw_order order;
    int64_t heads;  /* of ECH_RAW_INTERLEAVED */
    int64_t offset; /* in the file */
} ech_raw_tensor;

typedef struct ech_raw {
    ech_pool *pool; /* of texts */
    const char *path, *format;
    int fd;
    ech_dtype dtype;
    int32_t begin_of_text, end_of_text;
    ECH_LIST(ech_raw_tensor) tensor; /* sorted by name */
    int64_t bytes; /* that the tensors need, and the header; while it is read: so far */
    bool counts;   /* only those are wanted; private */
} ech_raw;

/* Whether a file is one of these; fills the model section of `config`, lists the tensors and keeps the
 * file open. */
ech_status ech_raw_open(const char *path, ech_config *config, ech_raw *out);
void ech_raw_close(ech_raw *raw);
/* The same from a header's n bytes and the size of a file that is not looked at; released with
 * ech_raw_close as well. For ech_raw_open and fuzzing. */
ech_status ech_raw_read(const char *path, const void *header, size_t n, int64_t file_bytes,
                        ech_config *config, ech_raw *out);

const ech_raw_tensor *ech_raw_find(const ech_raw *raw, const char *name); /* NULL: none */
/* Rows [first, first + rows) of a tensor as it is wanted; a vector is one row. */
ech_status ech_raw_rows(const ech_raw *raw, const ech_raw_tensor *tensor, int64_t first,
                        int64_t rows, double *to);

/* ---- for the formats ---- */

typedef struct ech_raw_format {
    const char *meaning;
    bool (*claims)(const void *header, size_t n);
    /* Fills the model section, and says of each tensor in the file's order where it is. */
    ech_status (*fill)(const ech_raw *raw, const void *header, size_t n, ech_config *config);
    ech_status (*list)(ech_raw *raw, const void *header, const ech_config *config);
} ech_raw_format;

/* The i-th 32-bit number of a header; 0 behind its end. */
int32_t ech_raw_number(const void *header, size_t n, int i);
/* A key of the model section from a number of the header. */
ech_status ech_raw_fill(const ech_raw *raw, ech_config *config, const char *key, int64_t value);
/* The next tensor of the file, named by the format; heads 0: not interleaved. */
void ech_raw_vector(ech_raw *raw, int64_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ech_raw_matrix(ech_raw *raw, int64_t rows, int64_t columns, ech_raw_order order, int64_t heads,
                    const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Elements that are of no use. */
void ech_raw_skip(ech_raw *raw, int64_t rows, int64_t columns);

#endif
