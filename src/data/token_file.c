/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of tokens: checked when they are opened, ids as they are read. Files are read, not
 * mapped: truncating one during a run is an error, whereas a mapping would end the process.
 */
#include "data/token_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "data/token_index.h"

enum {
    BUFFER = 4096, /* tokens read at a time */
    HUGE_PAGE = 2 << 20
};

ech_status ech_token_array_read(const ech_token_array *array, int64_t at, int64_t n, void *numbers)
{
    size_t bytes = (size_t)(n * array->width);
    int64_t first = array->header + at * array->width;
    if (!array->held) return ech_file_read_at(array->fd, array->path, numbers, bytes, first);
    memcpy(numbers, array->held + first, bytes);
    return ECH_OK;
}

ech_status ech_token_reader_load(ech_token_reader *reader, int64_t i)
{
    const int64_t most = sizeof reader->block / sizeof *reader->block;
    reader->begin = i;
    reader->end = reader->n - i < most ? reader->n : i + most;
    return ech_token_array_read(&reader->array, i, reader->end - i, reader->block);
}

static ech_status open_values(const char *prefix, ech_token_file *file)
{
    int64_t bytes;
    ech_token_part *part = &file->part.at[0];
    ECH_FREED char *path = ech_token_path(prefix, ECH_TOKEN_VALUES);
    if (file->part.n > 1 || !ech_file_exists(path))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no such file, so %s is not a feature data set; create one with `echelon data "
                 "FILE.libsvm %s`",
                 path, prefix, prefix);
    ech_token_array values = {.width = sizeof(float)};
    ECH_TRY(ech_file_open(path, &values.fd, &bytes));
    values.path = path;
    path = NULL;
    part->values = values;
    if (bytes / values.width == part->bytes / part->tokens.width && bytes % values.width == 0)
        return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: has %lld bytes, but %s has %lld tokens with a value of 4 bytes each: they are "
             "from different imports, or truncated; import again",
             values.path, (long long)bytes, part->path,
             (long long)(part->bytes / part->tokens.width));
}

ech_status ech_token_file_open(const char *path, const ech_token_options *options,
                               ech_token_file **out)
{
    ECH_CLEANUP(ech_token_file_close_at) ech_token_file *file = ech_calloc(1, sizeof *file);
    file->runs.documents = options->documents;
    ECH_TRY(ech_token_is_plain(path) ? ech_token_open_plain(path, options, file)
                                     : ech_token_open_megatron(path, file));
    if (options->values) ECH_TRY(open_values(path, file));
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
                                          .bytes = *bytes,
                                          .first = file->runs.tokens});
    file->runs.apart = true;
    return ECH_OK;
}

/* In huge pages if the system has them, since each sample is in other pages. */
static ech_status hold(ech_token_array *array, int64_t bytes)
{
    size_t room = ((size_t)bytes / HUGE_PAGE + 1) * HUGE_PAGE;
    ECH_FREED char *held = aligned_alloc(HUGE_PAGE, room);
    if (!held)
        ECH_FAIL(ECH_ENOMEM, "%s: no memory for its %lld bytes", array->path, (long long)bytes);
    madvise(held, room, MADV_HUGEPAGE);
    ECH_TRY(ech_file_read_at(array->fd, array->path, held, (size_t)bytes, 0));
    array->held = held;
    held = NULL;
    return ECH_OK;
}

/* open_values has compared the sizes of the two files. */
static int64_t bytes_of_values(const ech_token_part *part)
{
    return part->values.path ? part->bytes / part->tokens.width * part->values.width : 0;
}

ech_status ech_token_file_hold(ech_token_file *file, int64_t most)
{
    int64_t all = 0;
    for (size_t i = 0; i < file->part.n; i++)
        all += file->part.at[i].bytes + bytes_of_values(&file->part.at[i]);
    for (size_t i = 0; i < file->part.n && all <= most; i++) {
        ech_token_part *part = &file->part.at[i];
        ECH_TRY(hold(&part->tokens, part->bytes));
        if (part->values.path) ECH_TRY(hold(&part->values, bytes_of_values(part)));
    }
    return ECH_OK;
}

void ech_token_file_close(ech_token_file *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->part.n; i++) {
        ech_token_part *part = &file->part.at[i];
        if (part->values.path) close(part->values.fd);
        free((char *)part->values.held);
        free((char *)part->tokens.held);
        free((char *)part->values.path);
        close(part->tokens.fd);
        free(part->path);
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

/* n consecutive tokens of a part, beginning with its token `at`, which is the stream's token
 * `position`. The reader's first requested token is `done` tokens before it. */
typedef struct piece {
    const ech_token_part *part;
    int64_t at, position, n, done;
} piece;

/* How much further in its part than in the stream a run's tokens are. */
static int64_t shift_of(ech_token_run run)
{
    return (int64_t)run.at - run.first;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Calls `use` for each piece of tokens [first, first + n); the first token is in run i. Runs that
 * are adjacent in the file are read together, because every read is expensive. */
static ech_status each_piece(const ech_token_file *file, size_t i, int64_t first, int64_t n,
                             ech_status (*use)(const piece *p, void *context), void *context)
{
    const ech_token_runs *runs = &file->runs;
    size_t part = 0;
    for (int64_t at = first, next; at < first + n; at = next) {
        int64_t shift = shift_of(runs->run.at[i]), end = first + n;
        while (part + 1 < file->part.n && file->part.at[part + 1].first <= at) part++;
        if (part + 1 < file->part.n) end = least(end, file->part.at[part + 1].first);
        do next = least(end, ech_token_run_end(runs, i++));
        while (next < end && shift_of(runs->run.at[i]) == shift);
        const piece one = {&file->part.at[part], at + shift, at, next - at, at - first};
        ECH_TRY(use(&one, context));
    }
    return ECH_OK;
}

/* ids = numbers, 0 for those outside of the vocabulary; whether there is none. Without branches,
 * and by vectors where the width is a constant: they are many. */
static inline bool narrow(const void *numbers, int64_t width, int64_t n, int64_t vocabulary,
                          int32_t *ids)
{
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ech_token_at(numbers, width, i);
        bool known = id >= 0 && id < vocabulary;
        good &= known;
        ids[i] = known ? (int32_t)id : 0;
    }
    return good;
}

typedef struct reading {
    int64_t vocabulary;
    int32_t *ids;
} reading;

static ech_status fail_outside(const piece *p, int64_t vocabulary, const void *numbers, int64_t i)
{
    int64_t id;
    do id = ech_token_at(numbers, p->part->tokens.width, i++ % BUFFER);
    while (id >= 0 && id < vocabulary);
    if (p->part->values.path && id >= 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: feature %lld stands in it, but model.vocab_size is %lld, and features are "
                 "numbered from 0: make it larger",
                 p->part->path, (long long)id, (long long)vocabulary);
    ECH_FAIL(ECH_EINPUT,
             "%s: token %lld of the stream has id %lld, but the vocabulary has %lld: set "
             "data.tokenizer to the one that made the file, or raise model.vocab_size",
             p->part->path, (long long)(p->position + i - 1), (long long)id, (long long)vocabulary);
}

static ech_status read_ids(const piece *p, void *context)
{
    const reading *to = context;
    const ech_token_array *array = &p->part->tokens;
    int64_t buffer[BUFFER]; /* aligned for every width */
    for (int64_t i = 0; i < p->n; i += BUFFER) {
        int64_t n = least(p->n - i, BUFFER);
        ECH_TRY(ech_token_array_read(array, p->at + i, n, buffer));
        int32_t *ids = to->ids + p->done + i;
        bool good = array->width == 4 ? narrow(buffer, 4, n, to->vocabulary, ids)
                                      : narrow(buffer, array->width, n, to->vocabulary, ids);
        if (!good) return fail_outside(p, to->vocabulary, buffer, i);
    }
    return ECH_OK;
}

ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids)
{
    reading to = {vocabulary, ids};
    const ech_token_runs *runs = &file->runs;
    ECH_ASSERT(vocabulary <= INT32_MAX);
    if (first < 0 || n < 0 || first > runs->tokens - n)
        ECH_FAIL(ECH_EINTERNAL, "%s: %lld tokens from token %lld on asked for; the stream has %lld",
                 file->part.at[0].path, (long long)n, (long long)first, (long long)runs->tokens);
    if (n == 0) return ECH_OK;
    return each_piece(file, ech_token_runs_find(runs, first), first, n, read_ids, &to);
}

ech_status ech_token_file_read_run(const ech_token_file *file, size_t i, int64_t n,
                                   int64_t vocabulary, int32_t *ids)
{
    reading to = {vocabulary, ids};
    ECH_ASSERT(vocabulary <= INT32_MAX);
    return each_piece(file, i, file->runs.run.at[i].first, n, read_ids, &to);
}

static ech_status read_values(const piece *p, void *context)
{
    float *values = (float *)context + p->done;
    const ech_token_array *array = &p->part->values;
    ECH_TRY(ech_token_array_read(array, p->at, p->n, values));
    for (int64_t i = 0; i < p->n; i++)
        if (!isfinite(values[i]))
            ECH_FAIL(ECH_EINPUT,
                     "%s: the value of token %lld is not finite: damaged; import the lines again",
                     array->path, (long long)(p->at + i));
    return ECH_OK;
}

ech_status ech_token_file_read_values(const ech_token_file *file, size_t i, int64_t n,
                                      float *values)
{
    return each_piece(file, i, file->runs.run.at[i].first, n, read_values, values);
}

static void prefetch(const ech_token_array *array, int64_t at, int64_t n)
{
    enum { LINE = 64 };
    const char *from = array->held + array->header + at * array->width;
    for (int64_t byte = 0; byte < n * array->width; byte += LINE) __builtin_prefetch(from + byte);
}

static ech_status prefetch_piece(const piece *p, void *context)
{
    (void)context;
    if (p->part->tokens.held) prefetch(&p->part->tokens, p->at, p->n);
    if (p->part->values.held) prefetch(&p->part->values, p->at, p->n);
    return ECH_OK;
}

void ech_token_file_prefetch(const ech_token_file *file, size_t i, int64_t n)
{
    (void)each_piece(file, i, file->runs.run.at[i].first, n, prefetch_piece, NULL);
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

int64_t ech_token_runs_targets(const ech_token_runs *runs, int64_t first, int64_t end,
                               bool document_mask)
{
    int64_t targets = end > first ? end - first : 0;
    if (targets == 0 || (!document_mask && !runs->silent)) return targets;
    for (size_t i = ech_token_runs_find(runs, first); i < runs->run.n; i++) {
        ech_token_run run = runs->run.at[i];
        if (run.first >= end) break;
        int64_t from = run.first > first ? run.first : first;
        if (run.silent)
            targets -= least(ech_token_run_end(runs, i), end) - from;
        else if (document_mask && run.opens && run.first >= first)
            targets--;
    }
    return targets;
}
