/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of tokens: checked when they are opened, ids as they are read. Files are read, not
 * mapped: one that somebody cuts off meanwhile is an error, where a mapping would end the process.
 */
#include "data/token_file.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/token_runs.h"

enum { BUFFER = 4096 }; /* tokens read at a time */

ech_status ech_token_file_open(const char *path, const ech_token_options *options,
                               ech_token_file **out)
{
    ech_token_file *file = ech_calloc(1, sizeof *file);
    file->runs.documents = options->documents;
    ech_status st = ech_token_is_plain(path) ? ech_token_open_plain(path, options, file)
                                             : ech_token_open_megatron(path, file);
    if (st == ECH_OK)
        *out = file;
    else
        ech_token_file_close(file);
    return st;
}

void ech_token_file_close(ech_token_file *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->part.n; i++) {
        close(file->part.at[i].fd);
        free(file->part.at[i].path);
    }
    free(file->part.at);
    ech_token_runs_free(&file->runs);
    free(file);
}

/* The documents are counted by where they open, so that none is empty. */
void ech_token_file_select(ech_token_file *file, int64_t first, int64_t end, bool documents)
{
    ech_token_runs selected = {.documents = documents};
    int64_t document = -1;
    size_t p = 0;
    for (size_t i = 0; i < file->runs.run.n; i++) {
        ech_token_run run = file->runs.run.at[i];
        for (; p < file->part.n && file->part.at[p].first <= run.first; p++) {
            file->part.at[p].first = selected.tokens;
            ech_token_runs_part(&selected);
        }
        document += ech_token_run_opens(run);
        if (document < first || document >= end) continue;
        ech_token_runs_add(&selected, ech_token_run_at(run),
                           ech_token_run_end(&file->runs, i) - run.first, ech_token_run_opens(run),
                           ech_token_run_is_silent(run));
    }
    for (; p < file->part.n; p++) file->part.at[p].first = selected.tokens;
    ech_token_runs_free(&file->runs);
    file->runs = selected;
    file->documents = end - first;
}

int64_t ech_token_file_tokens(const ech_token_file *file)
{
    return file->runs.tokens;
}

int64_t ech_token_file_documents(const ech_token_file *file)
{
    return file->documents;
}

ech_status ech_token_part_read(const ech_token_part *part, int64_t at, int64_t n, void *tokens)
{
    return ech_file_read_at(part->fd, part->path, tokens, (size_t)(n * part->width),
                            part->header + at * part->width);
}

/* n tokens; `position` is the first one's place in the stream. */
static ech_status copy_ids(const ech_token_part *part, const void *tokens, int64_t position,
                           int64_t n, int64_t vocabulary, int32_t *ids)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ech_token_at(tokens, part->width, i);
        if (id < 0 || id >= vocabulary)
            ECH_FAIL(
                ECH_EINPUT,
                "%s: token %lld of the stream has id %lld, but the vocabulary has %lld: was it "
                "made with another data.tokenizer, or is model.vocab_size too small?",
                part->path, (long long)(position + i), (long long)id, (long long)vocabulary);
        ids[i] = (int32_t)id;
    }
    return ECH_OK;
}

/* n tokens that lie in one buffer, from the part's token `at` on. */
static ech_status read_run(const ech_token_part *part, int64_t at, int64_t position, int64_t n,
                           int64_t vocabulary, int32_t *ids)
{
    int64_t buffer[BUFFER]; /* aligned for every width */
    for (int64_t done = 0; done < n; done += BUFFER) {
        int64_t take = n - done < BUFFER ? n - done : BUFFER;
        ECH_TRY(ech_token_part_read(part, at + done, take, buffer));
        ECH_TRY(copy_ids(part, buffer, position + done, take, vocabulary, ids + done));
    }
    return ECH_OK;
}

/* The part in which the run that begins at `position` lies. */
static const ech_token_part *part_of(const ech_token_file *file, int64_t position)
{
    size_t low = 0, high = file->part.n - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (file->part.at[middle].first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return &file->part.at[low];
}

ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids)
{
    const ech_token_runs *runs = &file->runs;
    ECH_ASSERT(vocabulary <= INT32_MAX);
    if (first < 0 || n < 0 || first > runs->tokens - n)
        ECH_FAIL(ECH_EINTERNAL, "%s: %lld tokens from token %lld on asked for; the stream has %lld",
                 file->part.at[0].path, (long long)n, (long long)first, (long long)runs->tokens);
    if (n == 0) return ECH_OK;
    size_t i = ech_token_runs_find(runs, first);
    for (int64_t done = 0; done < n; i++) {
        ech_token_run run = runs->run.at[i];
        int64_t skipped = first + done - run.first,
                rest = ech_token_run_end(runs, i) - first - done;
        int64_t take = rest < n - done ? rest : n - done;
        ECH_TRY(read_run(part_of(file, run.first), ech_token_run_at(run) + skipped, first + done,
                         take, vocabulary, ids + done));
        done += take;
    }
    return ECH_OK;
}

/* ---- lists of runs, and finding one ---- */

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
