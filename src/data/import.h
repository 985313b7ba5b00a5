/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: how an import is divided up. Text is read in pieces, in order; threads encode
 * pieces; what they made is written in order. Pieces are cut where no id depends on it.
 */
#ifndef ECH_DATA_IMPORT_H
#define ECH_DATA_IMPORT_H

#include "base/memory.h"
#include "data/data.h"
#include "data/texts.h"
#include "data/token_writer.h"

enum { ECH_IMPORT_PIECE = 1 << 20, ECH_IMPORT_LONGEST_LINE = 64 << 20 };

/* What a stretch of a piece's ids is. */
typedef struct ech_import_stretch {
    size_t n;   /* ids */
    bool valid; /* for the validation part */
    bool prompt;
    bool ends; /* a document */
} ech_import_stretch;

typedef struct ech_import_piece {
    /* As read. */
    const char *path;
    int64_t at, line; /* where in the file it begins; lines from 1 */
    int64_t cut;      /* where the file's validation part begins */
    bool lines;       /* whole lines of a .jsonl */
    bool ends;        /* the last piece of a document */
    unsigned char *bytes;
    size_t n, capacity;
    /* As encoded. */
    ech_ids ids;
    ECH_LIST(ech_import_stretch) stretch;
    ech_status status;
    char *message;
} ech_import_piece;

/* ---- import_read.c ---- */

/* A place in the texts, between two pieces. */
typedef struct ech_import_place {
    int64_t file, at, line; /* at: a byte of that file */
} ech_import_place;

typedef struct ech_import_reader {
    const ech_import_options *options;
    const ech_texts *texts;
    ech_import_place place;
    int fd;      /* of the place's file; -1: not open */
    int64_t cut; /* of that file */
} ech_import_reader;

/* The next piece; *found: whether there was one. */
ech_status ech_import_read(ech_import_reader *reader, ech_import_piece *piece, bool *found);
void ech_import_reader_close(ech_import_reader *reader);

/* ---- import_encode.c ---- */

/* Fills ids and stretches, or status and message. Logs nothing. */
void ech_import_encode(const ech_import_options *options, ech_coder *coder,
                       ech_import_piece *piece);
/* The first byte of n that begins no UTF-8 character which ends within them; n: none. */
size_t ech_import_check_utf8(const unsigned char *bytes, size_t n);

/* ---- import_crew.c ---- */

/* Threads that encode. */
typedef struct ech_import_crew ech_import_crew;
ech_status ech_import_crew_create(const ech_import_options *options, ech_import_crew **out);
void ech_import_crew_destroy(ech_import_crew *crew); /* accepts NULL */
/* Encodes the n pieces, together with the caller's thread. */
void ech_import_crew_encode(ech_import_crew *crew, ech_import_piece *piece, size_t n);

/* ---- import_journal.c ---- */

typedef struct ech_import_journal {
    char hash[33]; /* of all that the result depends on */
    bool sealed;   /* all is written but the final names */
    ech_import_place place;
    int64_t done; /* bytes read */
    ech_import_count count;
    ech_token_state part[2]; /* training or all; validation */
} ech_import_journal;

/* Reads FOLDER/journal.json. *found: there is one, and it is about the same import. */
ech_status ech_import_journal_read(const char *folder, const char *hash, bool *found,
                                   ech_import_journal *out);
ech_status ech_import_journal_write(const char *folder, const ech_import_journal *journal);
void ech_import_journal_remove(const char *folder);
void ech_import_hash(const ech_import_options *options, const ech_texts *texts, char hash[33]);

#endif
