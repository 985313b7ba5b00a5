/* SPDX-License-Identifier: Apache-2.0
 *
 * A corpus of given token lists. Its tokens are in a file without a name, in memory; the stream has
 * T + 1 places for each item, so that no two samples share a token.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "data/corpus.h"

static const char name[] = "the items";

static ech_status open_part(ech_token_file *file)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: no file in memory: %s", name, strerror(errno));
    char *path = ech_strdup(name);
    ECH_PUSH(file->part,
             (ech_token_part){.path = path,
                              .tokens = {.path = path, .fd = fd, .width = sizeof(int32_t)}});
    return ECH_OK;
}

/* The file begins with the padding, T + 1 zeros, which all items share. */
static ech_status write_part(const ech_item *items, int64_t n, int64_t T, ech_token_file *file)
{
    ech_token_part *part = &file->part.at[0];
    ECH_FREED int32_t *padding = ech_calloc((size_t)T + 1, sizeof *padding);
    int64_t at = T + 1;
    ECH_TRY(ech_file_write_at(part->tokens.fd, name, padding, (size_t)at * sizeof *padding, 0));
    for (int64_t i = 0; i < n; i++) {
        int64_t size = (int64_t)items[i].n, silent = size - (int64_t)items[i].targets;
        ECH_ASSERT(size <= T + 1 && silent > 0);
        ECH_TRY(ech_file_write_at(part->tokens.fd, name, items[i].ids,
                                  items[i].n * sizeof *items[i].ids,
                                  at * (int64_t)sizeof *items[i].ids));
        ech_token_runs_add(&file->runs, at, silent, true, true);
        ech_token_runs_add(&file->runs, at + silent, size - silent, false, false);
        ech_token_runs_add(&file->runs, 0, T + 1 - size, false, true);
        at += size;
    }
    part->bytes = at * (int64_t)sizeof(int32_t);
    return ECH_OK;
}

ech_status ech_corpus_of_items(const ech_item *items, int64_t n, int64_t sequence_length,
                               ech_corpus **out)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = ech_calloc(1, sizeof *corpus);
    ech_token_file *file = ech_calloc(1, sizeof *file);
    ECH_ASSERT(n > 0 && sequence_length > 0);
    corpus->sequence_length = sequence_length;
    corpus->kind = ech_data_kind_of(ECH_SAMPLES_OF_tokens);
    ECH_PUSH(corpus->source, (ech_source){.file = file, .samples = n, .apart = 1});
    ECH_TRY(open_part(file));
    ECH_TRY(write_part(items, n, sequence_length, file));
    ech_blend_create(&n, 1, ECH_BLEND_PERIOD, &corpus->blend);
    *out = corpus;
    corpus = NULL;
    return ECH_OK;
}
