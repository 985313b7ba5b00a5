/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: how an import is divided up. Text is read in chunks, in order; threads encode
 * chunks; what they made is written in order. Chunks are cut where no id depends on it.
 */
#ifndef ECH_DATA_IMPORT_H
#define ECH_DATA_IMPORT_H

#include "base/memory.h"
#include "data/data.h"
#include "data/text_chunk.h"
#include "data/texts.h"
#include "data/token_writer.h"

/* What a segment of a chunk's ids is. */
typedef struct ech_import_segment {
    size_t n;   /* ids */
    bool valid; /* for the validation part */
    bool prompt;
    bool ends; /* a document */
} ech_import_segment;

typedef struct ech_import_chunk {
    ech_text_chunk read;
    /* As encoded. */
    ech_ids ids;
    ECH_LIST(ech_import_segment) segment;
    ech_status status;
    char *message;
} ech_import_chunk;

/* ---- import_crew.c ---- */

/* Fills ids and segments, or status and message. Logs nothing. */
void ech_import_encode(const ech_import_options *options, ech_coder *coder,
                       ech_import_chunk *chunk);

/* Threads that encode. */
typedef struct ech_import_crew ech_import_crew;
ech_status ech_import_crew_create(const ech_import_options *options, ech_import_crew **out);
void ech_import_crew_destroy(ech_import_crew *crew); /* accepts NULL */
/* Encodes the n chunks, together with the caller's thread. */
void ech_import_crew_encode(ech_import_crew *crew, ech_import_chunk *chunk, size_t n);

/* ---- import_journal.c ---- */

typedef struct ech_import_journal {
    char hash[33]; /* of all that the result depends on */
    bool sealed;   /* all is written but the final names */
    ech_text_position position;
    int64_t done; /* bytes read */
    ech_import_count count;
    ech_token_state part[2]; /* training or all; validation */
} ech_import_journal;

/* Reads FOLDER/journal.json. *found: there is one, and it is about the same import; one that
 * is not is warned about. */
ech_status ech_import_journal_read(const char *folder, const char *hash, bool *found,
                                   ech_import_journal *out);
ech_status ech_import_journal_write(const char *folder, const ech_import_journal *journal);
void ech_import_journal_remove(const char *folder);
void ech_import_hash(const ech_import_options *options, const ech_texts *texts, char hash[33]);

#endif
