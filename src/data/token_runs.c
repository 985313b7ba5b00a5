/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of runs, and finding one.
 */
#include "data/token_runs.h"

#include <stdlib.h>

/* Whether the run that begins at `at` only goes on with the last one. */
static bool goes_on(const ech_token_runs *runs, int64_t at, bool opens, bool silent)
{
    if (runs->run.n == 0 || runs->apart || (opens && runs->documents)) return false;
    ech_token_run last = runs->run.at[runs->run.n - 1];
    return ech_token_run_is_silent(last) == silent &&
           ech_token_run_at(last) + (runs->tokens - last.first) == at;
}

void ech_token_runs_add(ech_token_runs *runs, int64_t at, int64_t n, bool opens, bool silent)
{
    runs->opens = runs->opens || opens;
    if (n == 0) return;
    if (!goes_on(runs, at, runs->opens, silent)) {
        uint64_t word = (uint64_t)at << 2 | (uint64_t)silent << 1 | (uint64_t)runs->opens;
        ECH_PUSH(runs->run, (ech_token_run){runs->tokens, word});
    }
    runs->tokens += n;
    runs->silent = runs->silent || silent;
    runs->opens = runs->apart = false;
}

void ech_token_runs_part(ech_token_runs *runs)
{
    runs->apart = true;
}

size_t ech_token_runs_find(const ech_token_runs *runs, int64_t position)
{
    size_t low = 0, high = runs->run.n - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (runs->run.at[middle].first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int64_t ech_token_runs_documents(const ech_token_runs *runs)
{
    int64_t n = 0;
    for (size_t i = 0; i < runs->run.n; i++) n += ech_token_run_opens(runs->run.at[i]);
    return n;
}

void ech_token_runs_free(ech_token_runs *runs)
{
    free(runs->run.at);
    *runs = (ech_token_runs){0};
}
