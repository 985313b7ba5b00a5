/* SPDX-License-Identifier: Apache-2.0
 *
 * For data and its tests alone: what a writer of token files knows, and how it is interrupted.
 *
 * Files grow: .bin, a list of its sequences, and at the end .idx, made of that list, and
 * .origin.json. A writer with a folder keeps them there under fixed names, so that another
 * process may go on from a state that was synced, whatever was written since.
 */
#ifndef ECH_DATA_TOKEN_WRITER_H
#define ECH_DATA_TOKEN_WRITER_H

#include "base/memory.h"
#include "data/data.h"
#include "data/sink.h"

/* How far a writer has come. */
typedef struct ech_token_state {
    int64_t tokens, sequences, documents;
    int32_t open_length; /* tokens of the sequence being written */
    bool open;           /* a sequence or document is begun */
    bool prompts;        /* some sequence is a prompt */
} ech_token_state;

struct ech_token_writer {
    char *prefix;
    char *folder; /* NULL: the files go with the writer */
    int64_t vocabulary;
    const ech_tokenizer *tokenizer; /* that makes the ids, for .origin.json; NULL: not known */
    int dtype;
    int64_t width;   /* bytes of a token */
    int64_t longest; /* a longer document becomes several sequences: lengths are 32 bits wide */
    ech_sink bin, sequences, idx, origin;
    ech_token_state state;
};

/* Goes on in `folder`, which is there, from a state; {0}: begins. */
ech_status ech_token_writer_resume(const char *prefix, const char *folder, int64_t vocabulary,
                                   const ech_token_state *state, ech_token_writer **out);
/* Brings to disk what was added so far. */
ech_status ech_token_writer_sync(ech_token_writer *writer, ech_token_state *state);
/* Makes .idx and .origin.json and brings them to disk. Then nothing more can be added. */
ech_status ech_token_writer_seal(ech_token_writer *writer);
/* Gives the sealed files of a folder their final names, as far as an earlier try has not. */
ech_status ech_token_publish(const char *prefix, const char *folder);
/* Whether sealed files are neither in the folder any more nor under their final names. */
bool ech_token_is_lost(const char *prefix, const char *folder);
/* Removes what a writer leaves in a folder, finished or not. */
void ech_token_clear(const char *prefix, const char *folder);

#endif
