/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing token files: tokens stream into .bin, the index is made at the end.
 */
#include "data/token_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/token_index.h"

enum { FIRST_WIDE_VOCABULARY = 65500, PIECE = 4096 };

static ech_status open_sink(const char *prefix, const char *suffix, ech_sink *out)
{
    char *path = ech_token_path(prefix, suffix);
    ech_status st = ech_sink_open(path, out);
    free(path);
    return st;
}

ech_status ech_token_writer_create(const char *prefix, int64_t vocabulary, ech_token_writer **out)
{
    ECH_ASSERT(vocabulary > 0 && vocabulary <= INT32_MAX);
    ech_token_writer *writer = ech_calloc(1, sizeof *writer);
    ech_status st = open_sink(prefix, ".bin", &writer->bin);
    if (st != ECH_OK) {
        free(writer);
        return st;
    }
    bool wide = vocabulary >= FIRST_WIDE_VOCABULARY;
    writer->prefix = ech_strdup(prefix);
    writer->vocabulary = vocabulary;
    writer->dtype = wide ? ECH_TOKEN_I32 : ECH_TOKEN_U16;
    writer->width = wide ? 4 : 2;
    writer->longest = INT32_MAX;
    *out = writer;
    return ECH_OK;
}

static void end_sequence(ech_token_writer *writer)
{
    ECH_PUSH(writer->length, writer->open_length);
    writer->open_length = 0;
    writer->open = false;
}

/* At most PIECE ids, as they lie in the file. */
static ech_status put_piece(ech_token_writer *writer, const int32_t *ids, size_t n)
{
    uint16_t narrow[PIECE];
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= writer->vocabulary)
            ECH_FAIL(ECH_EINPUT, "%s.bin: cannot hold token id %d: the vocabulary has %lld",
                     writer->prefix, (int)ids[i], (long long)writer->vocabulary);
        narrow[i] = (uint16_t)ids[i];
    }
    const void *bytes = writer->dtype == ECH_TOKEN_I32 ? (const void *)ids : narrow;
    return ech_sink_put(&writer->bin, bytes, n * (size_t)writer->width);
}

ech_status ech_token_writer_add(ech_token_writer *writer, const int32_t *ids, size_t n)
{
    while (n > 0) {
        if (writer->open_length == writer->longest) end_sequence(writer);
        size_t room = (size_t)(writer->longest - writer->open_length);
        size_t take = n < PIECE ? n : PIECE;
        if (take > room) take = room;
        ECH_TRY(put_piece(writer, ids, take));
        writer->open_length += (int32_t)take;
        writer->open = true;
        ids += take;
        n -= take;
    }
    return ECH_OK;
}

ech_status ech_token_writer_end_document(ech_token_writer *writer)
{
    end_sequence(writer);
    ECH_PUSH(writer->document, (int64_t)writer->length.n);
    return ECH_OK;
}

static ech_status put_header(const ech_token_writer *writer, ech_sink *idx)
{
    uint64_t version = ECH_TOKEN_VERSION;
    unsigned char dtype = (unsigned char)writer->dtype;
    uint64_t sequences = writer->length.n, entries = writer->document.n + 1;
    ECH_TRY(ech_sink_put(idx, ECH_TOKEN_MAGIC, ECH_TOKEN_MAGIC_BYTES));
    ECH_TRY(ech_sink_put(idx, &version, sizeof version));
    ECH_TRY(ech_sink_put(idx, &dtype, sizeof dtype));
    ECH_TRY(ech_sink_put(idx, &sequences, sizeof sequences));
    return ech_sink_put(idx, &entries, sizeof entries);
}

static ech_status put_index(const ech_token_writer *writer, ech_sink *idx)
{
    ECH_TRY(put_header(writer, idx));
    ECH_TRY(ech_sink_put(idx, writer->length.at, writer->length.n * sizeof *writer->length.at));
    int64_t pointer = 0, first = 0;
    for (size_t i = 0; i < writer->length.n; i++) {
        ECH_TRY(ech_sink_put(idx, &pointer, sizeof pointer));
        pointer += writer->length.at[i] * writer->width;
    }
    ECH_TRY(ech_sink_put(idx, &first, sizeof first));
    ECH_TRY(
        ech_sink_put(idx, writer->document.at, writer->document.n * sizeof *writer->document.at));
    return ech_sink_flush(idx);
}

static ech_status sync_folder_of(const char *path)
{
    char *folder = ech_strdup(path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    ech_status st = ech_file_sync_folder(slash ? folder : ".");
    free(folder);
    return st;
}

/* An older index goes first: a crash between the renames leaves no index, never that of another
 * .bin. */
static ech_status publish(ech_sink *bin, ech_sink *idx)
{
    if (unlink(idx->path) != 0 && errno != ENOENT)
        ECH_FAIL(ECH_EIO, "%s: cannot remove the older one: %s", idx->path, strerror(errno));
    ECH_TRY(ech_sink_rename(bin));
    ECH_TRY(ech_sink_rename(idx));
    return sync_folder_of(idx->path);
}

ech_status ech_token_writer_finish(ech_token_writer *writer)
{
    ECH_ASSERT(!writer->open);
    ech_sink idx = {0};
    ech_status st = ech_sink_flush(&writer->bin);
    if (st == ECH_OK) st = open_sink(writer->prefix, ".idx", &idx);
    if (st == ECH_OK) st = put_index(writer, &idx);
    if (st == ECH_OK) st = publish(&writer->bin, &idx);
    ech_sink_close(&idx);
    ech_token_writer_discard(writer);
    return st;
}

void ech_token_writer_discard(ech_token_writer *writer)
{
    if (!writer) return;
    ech_sink_close(&writer->bin);
    free(writer->length.at);
    free(writer->document.at);
    free(writer->prefix);
    free(writer);
}
