/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: how texts are read, for whatever use. A reader goes through files in pieces, cut
 * where the user does not mind; a piece consists of stretches, each a text or a part of one: of a
 * plain text all of its bytes, of a .jsonl the strings of its lines.
 */
#ifndef ECH_DATA_PIECE_H
#define ECH_DATA_PIECE_H

#include "data/data.h"
#include "data/gunzip.h"
#include "data/texts.h"

/* LONGEST: of text that nowhere may be cut. */
enum {
    ECH_PIECE_BYTES = 1 << 20,
    ECH_PIECE_LONGEST = 256 << 20,
    ECH_PIECE_LONGEST_LINE = 64 << 20
};

typedef struct ech_piece {
    const char *path;
    int64_t at, line; /* where in the file it begins; lines from 1 */
    int64_t cut;      /* where the file's validation part begins */
    bool lines;       /* whole lines of a .jsonl */
    bool ends;        /* the last piece of a document */
    unsigned char *bytes;
    size_t n, capacity;
} ech_piece;

/* ---- piece_read.c ---- */

/* A place in the texts, between two pieces. */
typedef struct ech_piece_place {
    int64_t file, at, line; /* at: a byte of that file */
} ech_piece_place;

typedef struct ech_piece_reader {
    const ech_texts *texts;
    double valid; /* share of each file for validation */
    /* Where the first n bytes of a text may be cut, as ech_tokenizer_cut has it. */
    size_t (*cut_at)(const void *context, const void *bytes, size_t n);
    const void *context;
    ech_piece_place place;
    int fd;             /* of the place's file; -1: not open, or packed: */
    ech_gunzip *gunzip; /* NULL: likewise */
    int64_t cut;        /* of that file */
} ech_piece_reader;

/* The next piece; *found: whether there was one. */
ech_status ech_piece_read(ech_piece_reader *reader, ech_piece *piece, bool *found);
void ech_piece_reader_close(ech_piece_reader *reader);

/* ---- piece_text.c ---- */

typedef struct ech_piece_stretch {
    const void *bytes;
    size_t n;
    bool valid;  /* for the validation part */
    bool begins; /* a text, else it goes on with one */
    bool prompt;
    bool ends; /* a document */
} ech_piece_stretch;

typedef ech_status (*ech_piece_use)(const ech_piece_stretch *stretch, void *context);

/* Calls `use` for every stretch, in order. Errors name file and line, or file and byte: no UTF-8, a
 * line that is no such object or too long. Sources have all their keys (ech_text_source_complete). */
ech_status ech_piece_each(const ech_text_source *source, const ech_piece *piece, ech_piece_use use,
                          void *context);
/* With the usual keys of a .jsonl where none are given. */
ech_text_source ech_text_source_complete(ech_text_source source);

#endif
