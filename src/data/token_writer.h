/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data and its tests: the writer of token files, and resuming one.
 *
 * A writer appends tokens to .bin and sequences to a list (.sequences); at the end it makes .idx
 * from that list, and .origin.json. A writer with a folder has these files there under fixed names,
 * so that another process can resume from a synced state; what was written after that sync is
 * dropped.
 */
#ifndef ECH_DATA_TOKEN_WRITER_H
#define ECH_DATA_TOKEN_WRITER_H

#include "base/memory.h"
#include "data/data.h"
#include "data/sink.h"

/* A writer's progress. */
typedef struct ech_token_state {
    int64_t tokens;               /* written, including an unfinished sequence's */
    int64_t sequences, documents; /* finished */
    int32_t open_length;          /* tokens of the unfinished sequence */
    bool open;                    /* there is an unfinished sequence or document */
    bool prompts;                 /* some sequence is a prompt */
} ech_token_state;

struct ech_token_writer {
    char *prefix;
    char *folder; /* NULL: temporary files that are removed with the writer */
    int64_t vocabulary;
    const ech_tokenizer *tokenizer; /* of the ids, for .origin.json; NULL: unknown */
    bool begins;                    /* for .origin.json: documents begin with begin of text */
    int64_t width;                  /* bytes of a token: 2 for u16, 4 for i32 */
    int64_t longest; /* tokens of a sequence: lengths are i32; a longer document becomes several */
    ech_sink bin, sequences, idx, origin; /* the files; {0}: not open yet */
    ech_sink values;                      /* for samples of features; otherwise {0} */
    ech_token_state state;
};

/* Resumes in an existing `folder` from *state; {0}: from the beginning. folder NULL: under
 * temporary names. */
ech_status ech_token_writer_resume(const char *prefix, const char *folder, int64_t vocabulary,
                                   const ech_token_state *state, ech_token_writer **out);
/* Syncs what was added so far; *state: what ech_token_writer_resume needs to continue from here. */
ech_status ech_token_writer_sync(ech_token_writer *writer, ech_token_state *state);
/* Makes and syncs .idx, and .origin.json if writer->tokenizer is set. Nothing more can be added
 * then. */
ech_status ech_token_writer_seal(ech_token_writer *writer);
/* Renames the sealed files of a folder to their final names; an earlier call may have renamed
 * some. */
ech_status ech_token_publish(const char *prefix, const char *folder);
/* True if the index of sealed files is neither in the folder nor at its final name. */
bool ech_token_is_lost(const char *prefix, const char *folder);
/* Removes a writer's files from a folder, finished or not. */
void ech_token_clear(const char *prefix, const char *folder);

#endif
