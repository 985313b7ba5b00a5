/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: a stream of tokens as a list of runs. A run is contiguous in a file, inside of one document, and
 * trained on as a whole or not at all. If documents are not needed, adjacent runs are merged: a file without gaps
 * is one run.
 */
#ifndef ECH_DATA_TOKEN_RUNS_H
#define ECH_DATA_TOKEN_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

typedef struct ech_token_run {
    int64_t first; /* position of its first token in the stream */
    uint64_t word; /* packed; read by the functions below */
} ech_token_run;

/* The index of its first token in the file. */
static inline int64_t ech_token_run_at(ech_token_run run)
{
    return (int64_t)(run.word >> 2);
}

/* Whether its first token begins a document. */
static inline bool ech_token_run_opens(ech_token_run run)
{
    return (run.word & 1) != 0;
}

/* Whether it is not trained on. */
static inline bool ech_token_run_is_silent(ech_token_run run)
{
    return (run.word & 2) != 0;
}

typedef struct ech_token_runs {
    ECH_LIST(ech_token_run) run; /* none is empty */
    int64_t tokens;              /* of all */
    bool documents;              /* do not merge runs of different documents */
    bool silent;                 /* some run is not trained on */
    bool opens;                  /* internal: an empty run began a document, so the next run does */
    bool apart;                  /* internal: the next run is in another file */
} ech_token_runs;

/* Appends a run of n tokens. tokens + n < 2^63, at < 2^62. */
void ech_token_runs_add(ech_token_runs *runs, int64_t at, int64_t n, bool opens, bool silent);

/* Runs that are added from now on are in another file. */
void ech_token_runs_part(ech_token_runs *runs);

/* The index of the run that has the stream's token `position` < tokens. */
size_t ech_token_runs_find(const ech_token_runs *runs, int64_t position);

static inline int64_t ech_token_run_end(const ech_token_runs *runs, size_t i)
{
    return i + 1 < runs->run.n ? runs->run.at[i + 1].first : runs->tokens;
}

/* The number of documents, if `documents` is set. */
int64_t ech_token_runs_documents(const ech_token_runs *runs);
void ech_token_runs_free(ech_token_runs *runs);

#endif
