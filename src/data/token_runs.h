/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: of what runs of tokens a stream consists. A run lies in one piece in a file, in
 * one document, and is trained on as a whole or not at all. Where nobody asks for documents, runs
 * that follow each other in the file are kept as one, so a file without gaps is a single run.
 */
#ifndef ECH_DATA_TOKEN_RUNS_H
#define ECH_DATA_TOKEN_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

typedef struct ech_token_run {
    int64_t first; /* place of its first token in the stream */
    uint64_t word; /* read by the functions below */
} ech_token_run;

/* Its first token's place in the file, in tokens. */
static inline int64_t ech_token_run_at(ech_token_run run)
{
    return (int64_t)(run.word >> 2);
}

/* Its first token begins a document. */
static inline bool ech_token_run_opens(ech_token_run run)
{
    return (run.word & 1) != 0;
}

/* It is not trained on. */
static inline bool ech_token_run_is_silent(ech_token_run run)
{
    return (run.word & 2) != 0;
}

typedef struct ech_token_runs {
    ECH_LIST(ech_token_run) run; /* none is empty */
    int64_t tokens;              /* of all */
    bool documents;              /* keep them apart */
    bool silent;                 /* some run is not trained on */
    bool opens;                  /* an empty run began a document: so does the next one */
    bool apart;                  /* the next run lies in another file */
} ech_token_runs;

/* Appends n tokens, where tokens + n fits 63 bits and `at` 62. */
void ech_token_runs_add(ech_token_runs *runs, int64_t at, int64_t n, bool opens, bool silent);

/* What is added from now on lies in another file. */
void ech_token_runs_part(ech_token_runs *runs);

/* The run that holds the stream's token `position` < tokens. */
size_t ech_token_runs_find(const ech_token_runs *runs, int64_t position);

static inline int64_t ech_token_run_end(const ech_token_runs *runs, size_t i)
{
    return i + 1 < runs->run.n ? runs->run.at[i + 1].first : runs->tokens;
}

/* How many documents the runs tell apart. */
int64_t ech_token_runs_documents(const ech_token_runs *runs);
void ech_token_runs_free(ech_token_runs *runs);

#endif
