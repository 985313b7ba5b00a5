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
    int64_t bytes;   /* that the tensors need, and the header; while it is read: so far */
    int64_t padding; /* rows of the vocabulary that are of no use */
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

/* ---- formats: a row each of a table; private to this room ---- */

/* Lengths of rows and columns. */
typedef enum ech_raw_size {
    ECH_RAW_1,  /* columns of a vector */
    ECH_RAW_C,  /* width */
    ECH_RAW_3C, /* three times that */
    ECH_RAW_4C,
    ECH_RAW_F,       /* width of the feed-forward */
    ECH_RAW_GD,      /* of all key/value heads */
    ECH_RAW_D,       /* of one head */
    ECH_RAW_V,       /* vocabulary */
    ECH_RAW_PADDING, /* raw->padding */
    ECH_RAW_P,       /* positions */
    ECH_RAW_SIZES
} ech_raw_size;

/* The head, left out where it is the table of tokens. */
#define ECH_RAW_HEAD "lm_head.weight"

typedef struct ech_raw_row {
    const char *name; /* with a "%lld": of all layers, one behind the other; NULL: of no use */
    ech_raw_size rows, columns;
    ech_raw_order order;
} ech_raw_row;

typedef struct ech_raw_header {
    const uint8_t *at;
    size_t n;
} ech_raw_header;

typedef struct ech_raw_format {
    const char *meaning; /* for people; the last: NULL */
    bool llama;          /* and no GPT-2. The sign of its vocabulary says something else */
    int64_t bytes;       /* of the header */
    bool (*claims)(const ech_raw_header *header);
    /* Checks what is particular, and sets raw's dtype, texts' ends and padding. *tied: the head is the table. */
    ech_status (*read)(ech_raw *raw, const ech_raw_header *header, bool *tied);
    const char *const
        *key; /* of the model section, one behind the other from number `first` of the header */
    int first;
    const ech_raw_row *row; /* in the file's order */
    size_t rows;
} ech_raw_format;

/* The first that claims a file reads it. */
extern const ech_raw_format ech_raw_formats[];

/* The i-th 32-bit number of a header; 0 behind its end. */
int32_t ech_raw_at(const ech_raw_header *header, int i);

#endif
