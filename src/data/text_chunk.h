/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reading texts. A reader splits files into text chunks (here: chunks): lines of
 * JSON after a line, an array after an element, any other file where the tokenizer allows it. A
 * chunk has segments, each a text or a part of one: a chunk of plain text is one segment, each
 * object one or two, or a conversation.
 * */
#ifndef ECH_DATA_TEXT_CHUNK_H
#define ECH_DATA_TEXT_CHUNK_H

#include "data/chat.h"
#include "data/data.h"
#include "data/text_file.h"
#include "data/texts.h"

enum {
    ECH_TEXT_CHUNK_BYTES = 1 << 20,     /* usually; more if the text cannot be split there */
    ECH_TEXT_CHUNK_LONGEST = 256 << 20, /* from here on a text that cannot be split is an error */
    ECH_TEXT_CHUNK_LONGEST_LINE = 64 << 20 /* or an element; a longer one is an error */
};

typedef struct ech_text_chunk {
    const char *path;     /* of its file; borrowed from ech_texts */
    int64_t at;           /* byte of the file's text at which it begins */
    int64_t line;         /* number of its first line, from 1; not of plain text */
    int64_t valid_from;   /* byte of the file's text at which the validation part begins */
    /* LINES: complete lines; ARRAY: up to the end of an element, or of the file */
    ech_text_form form;
    bool ends; /* the file, or of plain text its part for training, ends here */
    unsigned char *bytes; /* owned, with room for `capacity` bytes */
    size_t n, capacity;
    /* length in bytes of a line that is too long and was skipped (n is 0); otherwise 0 */
    int64_t left_out;
} ech_text_chunk;

/* The chunk's length in bytes of its file's text. */
static inline int64_t ech_text_chunk_extent(const ech_text_chunk *chunk)
{
    return chunk->left_out ? chunk->left_out : (int64_t)chunk->n;
}

/* ---- text_chunk_read.c ---- */

/* A position in the texts: where the next chunk begins. */
typedef struct ech_text_position {
    int64_t file;     /* index in ech_texts */
    int64_t at, line; /* byte of that file's text, and number of the line there, from 1 */
} ech_text_position;

typedef struct ech_text_chunk_reader {
    const ech_texts *texts;     /* borrowed */
    double valid;               /* fraction of each file for validation */
    bool lines;                 /* every file is lines, whatever its content */
    bool leaves_out; /* lines that are too long are skipped; otherwise they are an error */
    const struct ech_bpe *bpe;  /* decides where a text can be split; borrowed */
    ech_text_position position; /* to begin: {.line = 1}, or where an earlier reader was */
    /* Internal, at first 0: */
    ech_text_file *file; /* the position's; NULL: not open */
    int64_t valid_from;  /* as in ech_text_chunk */
    ech_text rest;       /* bytes already read, from the position on */
} ech_text_chunk_reader;

/* Reads the next chunk into *chunk, whose bytes' memory is reused ({0}: none yet). *found: there
 * was one. */
ech_status ech_text_chunk_read(ech_text_chunk_reader *reader, ech_text_chunk *chunk, bool *found);

void ech_text_chunk_reader_close(ech_text_chunk_reader *reader);

/* ---- text_chunk_segments.c ---- */

typedef struct ech_text_segment {
    const void *bytes; /* valid during the call that gets the segment */
    size_t n;
    bool valid;  /* for the validation part */
    bool begins; /* begins a text; false: continues one */
    bool opens;  /* begins a document */
    bool prompt; /* not trained on */
    bool ends;   /* ends a document */
    const ech_chat *chat; /* instead of bytes: a conversation, which is a document; or NULL */
} ech_text_segment;

typedef ech_status (*ech_text_segment_use)(const ech_text_segment *segment, void *context);

/* Objects of a chunk that were skipped because they are invalid. */
typedef struct ech_text_bad {
    int64_t n;
    ech_text first; /* the errors of the first ones, each with a NUL; owned */
} ech_text_bad;

/* Calls `use` for each segment, in order. Errors: as for `use`; invalid UTF-8; a line that is too
 * long or has no valid object; these name file and line or byte. With source->skip_bad invalid
 * objects and lines that are too long are added to *bad instead. `source` must be complete. */
ech_status ech_text_chunk_each(const ech_data_text_source *source, const ech_text_chunk *chunk,
                               ech_text_segment_use use, void *context, ech_text_bad *bad);
/* Warns about the objects of `bad`, empties it, and adds their number to *all. Error: more than
 * source->skip_bad. */
ech_status ech_text_bad_report(const ech_data_text_source *source, ech_text_bad *bad, int64_t *all);
/* Replaces keys that are NULL by the defaults. */
ech_data_text_source ech_data_text_source_complete(ech_data_text_source source);

#endif
