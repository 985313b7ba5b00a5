/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reading texts. A reader splits files into chunks, where its user allows it. A chunk has segments,
 * each a text or a part of one: a chunk of plain text is one segment, each line of a .jsonl one or two.
 */
#ifndef ECH_DATA_TEXT_CHUNK_H
#define ECH_DATA_TEXT_CHUNK_H

#include "data/data.h"
#include "data/text_file.h"
#include "data/texts.h"

/* Bytes of a chunk; more, up to LONGEST, if the text cannot be split there. */
enum {
    ECH_TEXT_CHUNK_BYTES = 1 << 20,
    ECH_TEXT_CHUNK_LONGEST = 256 << 20,
    ECH_TEXT_CHUNK_LONGEST_LINE = 64 << 20
};

typedef struct ech_text_chunk {
    const char *path;
    int64_t at, line;   /* where in the file it begins; lines from 1 */
    int64_t valid_from; /* where the file's validation part begins */
    bool lines;         /* whole lines of a .jsonl */
    bool ends;          /* it ends a document */
    unsigned char *bytes;
    size_t n, capacity;
} ech_text_chunk;

/* ---- text_chunk_read.c ---- */

/* A position in the texts: where the next chunk begins. */
typedef struct ech_text_position {
    int64_t file, at, line; /* at: a byte of that file */
} ech_text_position;

typedef struct ech_text_chunk_reader {
    const ech_texts *texts;
    double valid;              /* fraction of each file for validation */
    const struct ech_bpe *bpe; /* says where a text can be split */
    ech_text_position position;
    ech_text_file *file; /* the position's; NULL: not open */
    int64_t valid_from;  /* of that file */
    ech_text rest;       /* read already, after the position */
} ech_text_chunk_reader;

/* Reads the next chunk, into chunk->bytes, which it reuses. *found: there was one. */
ech_status ech_text_chunk_read(ech_text_chunk_reader *reader, ech_text_chunk *chunk, bool *found);
void ech_text_chunk_reader_close(ech_text_chunk_reader *reader);

/* ---- text_chunk_segments.c ---- */

typedef struct ech_text_segment {
    const void *bytes;
    size_t n;
    bool valid;  /* for the validation part */
    bool begins; /* begins a text; false: continues one */
    bool prompt;
    bool ends; /* ends a document */
} ech_text_segment;

typedef ech_status (*ech_text_segment_use)(const ech_text_segment *segment, void *context);

/* Calls `use` for each segment, in order. Errors name file and line, or file and byte: no UTF-8, a line that is no
 * such object or too long. `source` must be complete (ech_data_text_source_complete). */
ech_status ech_text_chunk_each(const ech_data_text_source *source, const ech_text_chunk *chunk,
                               ech_text_segment_use use, void *context);
/* Replaces keys that are NULL by the defaults. */
ech_data_text_source ech_data_text_source_complete(ech_data_text_source source);

#endif
