/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the parts of an import. It reads texts as text chunks (here: chunks), in order;
 * threads encode chunks; it writes their ids in order. Texts are split into chunks where that does
 * not change ids.
 */
#ifndef ECH_DATA_IMPORT_H
#define ECH_DATA_IMPORT_H

#include "base/memory.h"
#include "data/data.h"
#include "data/text_chunk.h"
#include "data/texts.h"
#include "data/token_writer.h"

typedef struct ech_import_chunk {
    ech_text_chunk read;
    /* Results of encoding; all memory is owned: */
    ech_ids ids;                        /* of all segments, one after the other */
    ECH_LIST(ech_text_segment) segment; /* .n counts ids instead of bytes */
    ech_text_bad bad;                   /* skipped objects */
    int64_t chats, unanswered;          /* conversations that are encoded; that are skipped */
    int64_t unwritten;                  /* system messages that the template leaves out */
    int64_t kept;                       /* names of special tokens that stayed text */
    int32_t kept_id;                    /* the last one's */
    ech_status status;
    char *message; /* of an error; NULL: none */
} ech_import_chunk;

/* ---- import_encode.c ---- */

/* Encodes a chunk: fills ids and segments, or status and message. Logs nothing. */
void ech_import_encode(const ech_import_options *options, ech_coder *coder,
                       ech_import_chunk *chunk);
/* Encodes n chunks on options->workers threads, including the caller's, each with its coder. */
ech_status ech_import_encode_all(const ech_import_options *options, ech_coder *const *coders,
                                 ech_import_chunk *chunks, size_t n);

/* ---- import_journal.c ---- */

typedef struct ech_import_journal {
    char hash[ECH_TOKENIZER_HASH]; /* ech_import_hash */
    bool sealed; /* all is written; only the renames to the final names are missing */
    ech_text_position position; /* where the next chunk begins */
    int64_t done;               /* bytes of text read */
    ech_import_count count;
    ech_token_state part[2]; /* of the writers: [0] training, or all; [1] validation */
} ech_import_journal;

/* Reads FOLDER/journal.json. *found: there is one with this hash. Warns about one with another
 * hash. */
ech_status ech_import_journal_read(const char *folder, const char *hash, bool *found,
                                   ech_import_journal *out);
ech_status ech_import_journal_write(const char *folder, const ech_import_journal *journal);
void ech_import_journal_remove(const char *folder);
/* A hash of all inputs of an import's result: texts, tokenizer and options. */
void ech_import_hash(const ech_import_options *options, const ech_texts *texts,
                     char hash[ECH_TOKENIZER_HASH]);

#endif
