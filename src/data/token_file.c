/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of tokens: checked when they are opened, ids as they are read. Files are read, not mapped: one that is
 * truncated meanwhile is an error, where a mapping would end the process.
 */
#include "data/token_file.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

enum { BUFFER = 4096 }; /* tokens read at a time */

ech_status ech_token_array_read(const ech_token_array *array, int64_t at, int64_t n, void *numbers)
{
    return ech_file_read_at(array->fd, array->path, numbers, (size_t)(n * array->width),
                            array->header + at * array->width);
}

ech_status ech_token_reader_load(ech_token_reader *reader, int64_t i)
{
    const int64_t most = sizeof reader->block / sizeof *reader->block;
    reader->begin = i;
    reader->end = reader->n - i < most ? reader->n : i + most;
    return ech_token_array_read(&reader->array, i, reader->end - i, reader->block);
}

ech_status ech_token_file_open(const char *path, const ech_token_options *options,
                               ech_token_file **out)
{
    ECH_CLEANUP(ech_token_file_close_at) ech_token_file *file = ech_calloc(1, sizeof *file);
    file->runs.documents = options->documents;
    ECH_TRY(ech_token_is_plain(path) ? ech_token_open_plain(path, options, file)
                                     : ech_token_open_megatron(path, file));
    *out = file;
    file = NULL;
    return ECH_OK;
}

ech_status ech_token_part_open(const char *path, ech_token_file *file, int64_t *bytes)
{
    int fd;
    ECH_TRY(ech_file_open(path, &fd, bytes));
    char *copy = ech_strdup(path);
    ECH_PUSH(file->part, (ech_token_part){.path = copy,
                                          .tokens = {.path = copy, .fd = fd},
                                          .first = file->runs.tokens});
    file->runs.apart = true;
    return ECH_OK;
}

void ech_token_file_close(ech_token_file *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->part.n; i++) {
        close(file->part.at[i].tokens.fd);
        free(file->part.at[i].path);
    }
    free(file->part.at);
    free(file->runs.run.at);
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
            selected.apart = true;
        }
        document += run.opens;
        if (document < first || document >= end) continue;
        ech_token_runs_add(&selected, (int64_t)run.at,
                           ech_token_run_end(&file->runs, i) - run.first, run.opens, run.silent);
    }
    for (; p < file->part.n; p++) file->part.at[p].first = selected.tokens;
    free(file->runs.run.at);
    file->runs = selected;
    file->documents = end - first;
}

/* n tokens that lie in one buffer, from the part's token `at` on; `position` is the first one's in the stream. */
static ech_status read_run(const ech_token_part *part, int64_t at, int64_t position, int64_t n,
                           int64_t vocabulary, int32_t *ids)
{
    int64_t buffer[BUFFER]; /* aligned for every width */
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = n - i;
        if (i % BUFFER == 0)
            ECH_TRY(
                ech_token_array_read(&part->tokens, at + i, rest < BUFFER ? rest : BUFFER, buffer));
        int64_t id = ech_token_at(buffer, part->tokens.width, i % BUFFER);
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

ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids)
{
    const ech_token_runs *runs = &file->runs;
    ECH_ASSERT(vocabulary <= INT32_MAX);
    if (first < 0 || n < 0 || first > runs->tokens - n)
        ECH_FAIL(ECH_EINTERNAL, "%s: %lld tokens from token %lld on asked for; the stream has %lld",
                 file->part.at[0].path, (long long)n, (long long)first, (long long)runs->tokens);
    if (n == 0) return ECH_OK;
    size_t i = ech_token_runs_find(runs, first), p = 0;
    for (int64_t done = 0; done < n; i++) {
        ech_token_run run = runs->run.at[i];
        int64_t skipped = first + done - run.first,
                rest = ech_token_run_end(runs, i) - first - done;
        int64_t take = rest < n - done ? rest : n - done;
        while (p + 1 < file->part.n && file->part.at[p + 1].first <= run.first) p++;
        ECH_TRY(read_run(&file->part.at[p], (int64_t)run.at + skipped, first + done, take,
                         vocabulary, ids + done));
        done += take;
    }
    return ECH_OK;
}

/* ---- lists of runs, and finding one ---- */

/* Whether the run that begins at `at` only continues the last one. */
static bool continues(const ech_token_runs *runs, int64_t at, bool opens, bool silent)
{
    if (runs->run.n == 0 || runs->apart || (opens && runs->documents)) return false;
    ech_token_run last = runs->run.at[runs->run.n - 1];
    return last.silent == silent && (int64_t)last.at + (runs->tokens - last.first) == at;
}

void ech_token_runs_add(ech_token_runs *runs, int64_t at, int64_t n, bool opens, bool silent)
{
    runs->opens = runs->opens || opens;
    if (n == 0) return;
    if (!continues(runs, at, runs->opens, silent))
        ECH_PUSH(runs->run, (ech_token_run){.first = runs->tokens,
                                            .at = (uint64_t)at & (UINT64_MAX >> 2),
                                            .silent = silent,
                                            .opens = runs->opens});
    runs->tokens += n;
    runs->silent = runs->silent || silent;
    runs->opens = runs->apart = false;
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
    for (size_t i = 0; i < runs->run.n; i++) n += runs->run.at[i].opens;
    return n;
}
