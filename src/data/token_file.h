/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: an open token file, a stream of tokens as a list of runs. A run is a stretch of
 * tokens that is contiguous in one file, inside of one document, and either trained on or not. If
 * documents are not needed, a run continues over their boundaries: a file whose tokens are all
 * used and all trained on is one run.
 */
#ifndef ECH_DATA_TOKEN_FILE_H
#define ECH_DATA_TOKEN_FILE_H

#include "data/data.h"

/* ---- runs ---- */

typedef struct ech_token_run {
    int64_t first;       /* index of its first token in the stream */
    uint64_t at : 62;    /* index of its first token in its part (ech_token_part) */
    uint64_t silent : 1; /* it is not trained on */
    uint64_t opens : 1;  /* its first token begins a document */
} ech_token_run;

typedef struct ech_token_runs {
    ECH_LIST(ech_token_run) run; /* none is empty */
    int64_t tokens;              /* of all runs */
    bool documents;              /* runs of different documents are not merged */
    bool silent;                 /* some run is not trained on */
    bool opens;                  /* internal: the next run begins a document, as an empty one did */
    bool apart;                  /* internal: the next run is in another file */
} ech_token_runs;

/* Appends a run of n tokens, or merges it into the last. runs->tokens + n < 2^63, at < 2^62. */
void ech_token_runs_add(ech_token_runs *runs, int64_t at, int64_t n, bool opens, bool silent);
/* The index of the run that has the stream's token `position` < runs->tokens. */
size_t ech_token_runs_find(const ech_token_runs *runs, int64_t position);
/* The index in the stream of the first token after run i. */
static inline int64_t ech_token_run_end(const ech_token_runs *runs, size_t i)
{
    return i + 1 < runs->run.n ? runs->run.at[i + 1].first : runs->tokens;
}
/* The number of documents that are not empty, if `documents` is set. */
int64_t ech_token_runs_documents(const ech_token_runs *runs);
/* The number of tokens in [first, end) that are trained on as targets, 0 < first.
 * document_mask: without the first token of each document, which needs `documents`. */
int64_t ech_token_runs_targets(const ech_token_runs *runs, int64_t first, int64_t end,
                               bool document_mask);

/* ---- arrays of numbers in files ---- */

/* Borrows all pointers and the descriptor. */
typedef struct ech_token_array {
    const char *path; /* for errors */
    const char *held; /* the file's bytes; NULL: they are read from the file */
    int fd;
    int64_t width;    /* bytes of a number: 1 or 2, unsigned; 4 or 8, signed */
    int64_t header;   /* bytes of the file before number 0 */
} ech_token_array;

/* Reads n numbers from number `at` on, each of array->width bytes. */
ech_status ech_token_array_read(const ech_token_array *array, int64_t at, int64_t n, void *numbers);

/* Number i of what ech_token_array_read has read. */
static inline int64_t ech_token_at(const void *numbers, int64_t width, int64_t i)
{
    switch (width) {
    case 1:
        return ((const uint8_t *)numbers)[i];
    case 2:
        return ((const uint16_t *)numbers)[i];
    case 4:
        return ((const int32_t *)numbers)[i];
    default:
        return ((const int64_t *)numbers)[i];
    }
}

/* Reads an array in blocks. Set array and n, all else to 0. */
typedef struct ech_token_reader {
    ech_token_array array;
    int64_t n;           /* numbers in the array */
    int64_t begin, end;  /* numbers begin .. end - 1 are in the block */
    int64_t block[4096]; /* 4,096 numbers of any width */
} ech_token_reader;

ech_status ech_token_reader_load(ech_token_reader *reader, int64_t i); /* internal */
/* *out: number i < n. */
static inline ech_status ech_token_reader_get(ech_token_reader *reader, int64_t i, int64_t *out)
{
    if (i < reader->begin || i >= reader->end) ECH_TRY(ech_token_reader_load(reader, i));
    *out = ech_token_at(reader->block, reader->array.width, i - reader->begin);
    return ECH_OK;
}

/* ---- the file ---- */

/* An open file of tokens. A stream has one or several such parts. A part owns the descriptors of
 * its arrays, and values.path and what they hold. */
typedef struct ech_token_part {
    char *path; /* owned; tokens.path is the same */
    ech_token_array tokens;
    int64_t bytes;          /* of the file */
    ech_token_array values; /* value i is of token i; values.path NULL: there are none */
    int64_t first;          /* index in the stream of its first token that is in the stream */
} ech_token_part;

typedef struct ech_token_file {
    ECH_LIST(ech_token_part) part;
    ech_token_runs runs;
    /* Number of documents. An index counts empty ones, too; after ech_token_file_select, and in
     * files without an index, they are not counted. 0: unknown (no index, and not requested) */
    int64_t documents;
} ech_token_file;

typedef struct ech_token_options {
    bool documents;      /* find the documents' boundaries */
    int32_t end_of_text; /* ends a document in files without an index */
    bool values;         /* open PREFIX.values, too */
} ech_token_options;

/* Opens a stream of tokens (its paths are explained at ech_corpus_open). With options->documents,
 * files without an index are read once from end to end. */
ech_status ech_token_file_open(const char *path, const ech_token_options *options,
                               ech_token_file **out);
void ech_token_file_close(ech_token_file *file); /* accepts NULL */
ECH_DESTROY_AT(ech_token_file, ech_token_file_close)
/* Prefetches n tokens from the first of run i on, and their values, if they are held in memory. */
void ech_token_file_prefetch(const ech_token_file *file, size_t i, int64_t n);
/* Reads the files, ids and values, into memory if they have at most `most` bytes together. Later
 * reads need no system call, which matters for short ones in random order. */
ech_status ech_token_file_hold(ech_token_file *file, int64_t most);
/* Reads tokens [first, first + n) of the stream. Errors: an id outside of [0, vocabulary) (with
 * file, index, id and a hint), a range outside of the stream, a file that was truncated since it
 * was opened. */
ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids);
/* The same of n tokens from the first of run i on, without a search. */
ech_status ech_token_file_read_run(const ech_token_file *file, size_t i, int64_t n,
                                   int64_t vocabulary, int32_t *ids);
/* The same of the values of a file that was opened with options->values. Errors also: one that is
 * not finite. */
ech_status ech_token_file_read_values(const ech_token_file *file, size_t i, int64_t n,
                                      float *values);
/* Restricts a file that was opened with options->documents to its documents [first, end), not
 * counting empty ones. `documents`: their boundaries are still needed; if false, runs of several
 * documents may be merged. */
void ech_token_file_select(ech_token_file *file, int64_t first, int64_t end, bool documents);

/* The formats. Each fills an empty `file`; on failure the caller closes it. */

/* For the formats: opens a file as a part that begins at the end of the stream; *bytes: its
 * size. */
ech_status ech_token_part_open(const char *path, ech_token_file *file, int64_t *bytes);
/* token_megatron.c: PREFIX.bin and PREFIX.idx. */
ech_status ech_token_open_megatron(const char *prefix, ech_token_file *file);
/* token_plain.c: a file without an index, or all that match a pattern, as one stream. */
ech_status ech_token_open_plain(const char *path, const ech_token_options *options,
                                ech_token_file *file);
/* Whether `path` is for ech_token_open_plain: a pattern, or FILE.bin without FILE.idx. */
bool ech_token_is_plain(const char *path);

#endif
