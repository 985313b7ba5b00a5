/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing token files. Tokens stream into .bin, their sequences into a list; the index is made from
 * the list at the end.
 */
#include "data/token_writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/token_file.h"
#include "data/token_index.h"
#include "data/token_origin.h"

enum { FIRST_WIDE_VOCABULARY = 65500, BLOCK = 4096 };

/* A sequence in the list: its length, and above it these. */
static const uint64_t LENGTH = UINT32_MAX, PROMPT = UINT64_C(1) << 32, LAST = UINT64_C(1) << 33;

/* FOLDER/NAME.suffix, or PREFIX.suffix. */
static char *path_of(const char *prefix, const char *folder, const char *suffix)
{
    const char *slash = strrchr(prefix, '/');
    ECH_FREED char *name = ech_token_path(folder && slash ? slash + 1 : prefix, suffix);
    return folder ? ech_file_join(folder, name) : ech_strdup(name);
}

static ech_status open_sink(const ech_token_writer *writer, const char *suffix, int64_t bytes,
                            ech_sink *out)
{
    ECH_FREED char *path = path_of(writer->prefix, writer->folder, suffix);
    return writer->folder ? ech_sink_resume(path, bytes, out) : ech_sink_open(path, out);
}

ech_status ech_token_writer_resume(const char *prefix, const char *folder, int64_t vocabulary,
                                   const ech_token_state *state, ech_token_writer **out)
{
    ECH_ASSERT(vocabulary > 0 && vocabulary <= INT32_MAX);
    bool wide = vocabulary >= FIRST_WIDE_VOCABULARY;
    ECH_CLEANUP(ech_token_writer_discard_at)
    ech_token_writer *writer = ech_calloc(1, sizeof *writer);
    writer->prefix = ech_strdup(prefix);
    writer->folder = folder ? ech_strdup(folder) : NULL;
    writer->vocabulary = vocabulary;
    writer->width = wide ? 4 : 2;
    writer->longest = INT32_MAX;
    writer->state = *state;
    ECH_TRY(open_sink(writer, ".bin", state->tokens * writer->width, &writer->bin));
    ECH_TRY(open_sink(writer, ".sequences", state->sequences * 8, &writer->sequences));
    *out = writer;
    writer = NULL;
    return ECH_OK;
}

ech_status ech_token_writer_create(const char *prefix, int64_t vocabulary, ech_token_writer **out)
{
    return ech_token_writer_resume(prefix, NULL, vocabulary, &(ech_token_state){0}, out);
}

ech_status ech_token_writer_create_valued(const char *prefix, int64_t vocabulary,
                                          ech_token_writer **out)
{
    ECH_CLEANUP(ech_token_writer_discard_at) ech_token_writer *writer = NULL;
    ECH_TRY(ech_token_writer_create(prefix, vocabulary, &writer));
    ECH_TRY(open_sink(writer, ECH_TOKEN_VALUES, 0, &writer->values));
    *out = writer;
    writer = NULL;
    return ECH_OK;
}

static ech_status end_sequence(ech_token_writer *writer, uint64_t marks)
{
    uint64_t sequence = (uint64_t)writer->state.open_length | marks;
    writer->state.open_length = 0;
    writer->state.open = false;
    writer->state.sequences++;
    writer->state.documents += (marks & LAST) != 0;
    writer->state.prompts = writer->state.prompts || (marks & PROMPT);
    return ech_sink_put(&writer->sequences, &sequence, sizeof sequence);
}

/* At most BLOCK ids, as they lie in the file. */
static ech_status put_block(ech_token_writer *writer, const int32_t *ids, size_t n)
{
    uint16_t narrow[BLOCK];
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= writer->vocabulary)
            ECH_FAIL(ECH_EINPUT,
                     "%s.bin: cannot hold token id %d: the vocabulary has %lld; give the tokenizer "
                     "of these ids",
                     writer->prefix, (int)ids[i], (long long)writer->vocabulary);
        narrow[i] = (uint16_t)ids[i];
    }
    const void *bytes = writer->width == 4 ? (const void *)ids : narrow;
    return ech_sink_put(&writer->bin, bytes, n * (size_t)writer->width);
}

/* A sequence that becomes too long is ended with `marks`. */
static ech_status add(ech_token_writer *writer, const int32_t *ids, size_t n, uint64_t marks)
{
    ech_token_state *state = &writer->state;
    while (n > 0) {
        if (state->open_length == writer->longest) ECH_TRY(end_sequence(writer, marks));
        size_t room = (size_t)(writer->longest - state->open_length);
        size_t take = n < BLOCK ? n : BLOCK;
        if (take > room) take = room;
        ECH_TRY(put_block(writer, ids, take));
        state->open_length += (int32_t)take;
        state->tokens += (int64_t)take;
        state->open = true;
        ids += take;
        n -= take;
    }
    return ECH_OK;
}

ech_status ech_token_writer_add(ech_token_writer *writer, const int32_t *ids, size_t n)
{
    return add(writer, ids, n, 0);
}

ech_status ech_token_writer_add_prompt(ech_token_writer *writer, const int32_t *ids, size_t n)
{
    if (n == 0) return ECH_OK;
    if (writer->state.open_length > 0) ECH_TRY(end_sequence(writer, 0));
    ECH_TRY(add(writer, ids, n, PROMPT));
    ECH_TRY(end_sequence(writer, PROMPT));
    writer->state.open = true;
    return ECH_OK;
}

ech_status ech_token_writer_end_document(ech_token_writer *writer)
{
    return end_sequence(writer, LAST);
}

/* The label has a value as well, which nobody reads. */
ech_status ech_token_writer_add_sample(ech_token_writer *writer, const int32_t *ids,
                                       const float *values, size_t n, int32_t label)
{
    const float none = 0;
    ECH_ASSERT(writer->values.temporary && n > 0 && (label == 0 || label == 1));
    ECH_TRY(ech_token_writer_add_prompt(writer, ids, n));
    ECH_TRY(ech_token_writer_add(writer, &label, 1));
    ECH_TRY(ech_sink_put(&writer->values, values, n * sizeof *values));
    ECH_TRY(ech_sink_put(&writer->values, &none, sizeof none));
    return ech_token_writer_end_document(writer);
}

ech_status ech_token_writer_sync(ech_token_writer *writer, ech_token_state *state)
{
    ECH_TRY(ech_sink_flush(&writer->bin));
    ECH_TRY(ech_sink_flush(&writer->sequences));
    *state = writer->state;
    return ECH_OK;
}

/* ---- the index ---- */

typedef enum index_array { LENGTHS, POINTERS, DOCUMENTS, MODES } index_array;

/* Whether an array of the index has a number for sequence i: *value. *pointer: where the sequence
 * begins in .bin. */
static bool find_value(const ech_token_writer *writer, index_array array, int64_t i,
                       uint64_t sequence, int64_t *pointer, int64_t *value)
{
    switch (array) {
    case LENGTHS:
        *value = (int64_t)(sequence & LENGTH);
        return true;
    case POINTERS:
        *value = *pointer;
        *pointer += (int64_t)(sequence & LENGTH) * writer->width;
        return true;
    case DOCUMENTS:
        *value = i + 1;
        return (sequence & LAST) != 0;
    case MODES:
        *value = sequence & PROMPT ? ECH_TOKEN_PROMPT : ECH_TOKEN_TRAINED;
        return writer->state.prompts;
    }
    return false;
}

/* One array, each number of `width` bytes, by reading the list of sequences. */
static ech_status put_array(ech_token_writer *writer, index_array array, size_t width)
{
    const ech_sink *list = &writer->sequences;
    int64_t pointer = 0, value, sequence;
    ECH_FREED ech_token_reader *reader = ech_calloc(1, sizeof *reader);
    reader->array = (ech_token_array){.path = list->temporary, .fd = list->fd, .width = 8};
    reader->n = writer->state.sequences;
    for (int64_t i = 0; i < reader->n; i++) {
        ECH_TRY(ech_token_reader_get(reader, i, &sequence));
        if (find_value(writer, array, i, (uint64_t)sequence, &pointer, &value))
            ECH_TRY(ech_sink_put(&writer->idx, &value, width));
    }
    return ECH_OK;
}

static ech_status put_index(ech_token_writer *writer)
{
    const int64_t zero = 0;
    ech_token_header header = {.magic = ECH_TOKEN_MAGIC,
                               .version = ECH_TOKEN_VERSION,
                               .dtype = writer->width == 4 ? ECH_TOKEN_I32 : ECH_TOKEN_U16,
                               .sequences = (uint64_t)writer->state.sequences,
                               .entries = (uint64_t)writer->state.documents + 1};
    ECH_TRY(ech_sink_put(&writer->idx, &header, sizeof header));
    ECH_TRY(put_array(writer, LENGTHS, 4));
    ECH_TRY(put_array(writer, POINTERS, 8));
    ECH_TRY(ech_sink_put(&writer->idx, &zero, sizeof zero));
    ECH_TRY(put_array(writer, DOCUMENTS, 8));
    ECH_TRY(put_array(writer, MODES, 1));
    return ech_sink_flush(&writer->idx);
}

static ech_status put_origin(ech_token_writer *writer)
{
    ECH_FREED_TEXT text = {0};
    ech_token_origin_print(writer->tokenizer, writer->state.tokens, writer->begins, &text);
    ECH_TRY(open_sink(writer, ECH_TOKEN_ORIGIN, 0, &writer->origin));
    ECH_TRY(ech_sink_put(&writer->origin, text.at, text.n));
    return ech_sink_flush(&writer->origin);
}

ech_status ech_token_writer_seal(ech_token_writer *writer)
{
    ECH_ASSERT(!writer->state.open);
    ECH_TRY(ech_sink_flush(&writer->bin));
    ECH_TRY(ech_sink_flush(&writer->sequences));
    if (writer->values.temporary) ECH_TRY(ech_sink_flush(&writer->values));
    if (writer->tokenizer) ECH_TRY(put_origin(writer));
    ECH_TRY(open_sink(writer, ".idx", 0, &writer->idx));
    return put_index(writer);
}

/* ---- final names ---- */

/* An older index goes first: a crash between the renames leaves no index, never another .bin's
 * index. */
static ech_status remove_older(const char *prefix, const char *suffix)
{
    ECH_FREED char *path = ech_token_path(prefix, suffix);
    if (unlink(path) != 0 && errno != ENOENT)
        ECH_FAIL(ECH_EIO, "%s: cannot remove the older one: %s", path, ech_system_error(errno));
    return ECH_OK;
}

ech_status ech_token_writer_finish(ech_token_writer *writer)
{
    ECH_CLEANUP(ech_token_writer_discard_at) ech_token_writer *finished = writer;
    ECH_FREED char *bin = ech_token_path(writer->prefix, ".bin");
    ECH_FREED char *idx = ech_token_path(writer->prefix, ".idx");
    ECH_FREED char *values = ech_token_path(writer->prefix, ECH_TOKEN_VALUES);
    ECH_ASSERT(!writer->tokenizer); /* a writer that knows it has a folder */
    ECH_TRY(ech_token_writer_seal(finished));
    ECH_TRY(remove_older(writer->prefix, ".idx"));
    ECH_TRY(remove_older(writer->prefix, ECH_TOKEN_ORIGIN)); /* which tells of the older .bin */
    ECH_TRY(remove_older(writer->prefix, ECH_TOKEN_VALUES));
    if (writer->values.temporary) ECH_TRY(ech_sink_rename(&writer->values, values));
    ECH_TRY(ech_sink_rename(&writer->bin, bin));
    ECH_TRY(ech_sink_rename(&writer->idx, idx));
    return ech_file_sync_parent(idx);
}

/* The index goes last: where it is gone, all has been done. */
ech_status ech_token_publish(const char *prefix, const char *folder)
{
    static const char *const suffixes[] = {".bin", ECH_TOKEN_ORIGIN, ".idx"};
    ECH_FREED char *idx = path_of(prefix, folder, ".idx");
    if (!ech_file_exists(idx)) return ECH_OK;
    ECH_TRY(remove_older(prefix, ".idx"));
    ECH_TRY(remove_older(prefix, ECH_TOKEN_VALUES)); /* of an import that was none of texts */
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        ECH_FREED char *from = path_of(prefix, folder, suffixes[i]);
        ECH_FREED char *to = path_of(prefix, NULL, suffixes[i]);
        if (rename(from, to) != 0 && errno != ENOENT)
            ECH_FAIL(ECH_EIO, "%s: cannot rename %s to it: %s", to, from, ech_system_error(errno));
    }
    return ech_file_sync_parent(prefix);
}

bool ech_token_is_lost(const char *prefix, const char *folder)
{
    ECH_FREED char *from = path_of(prefix, folder, ".idx"), *to = path_of(prefix, NULL, ".idx");
    return !ech_file_exists(from) && !ech_file_exists(to);
}

void ech_token_clear(const char *prefix, const char *folder)
{
    const char *const suffixes[] = {".bin", ".sequences", ".idx", ECH_TOKEN_ORIGIN};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        ECH_FREED char *path = path_of(prefix, folder, suffixes[i]);
        unlink(path);
    }
}

void ech_token_writer_discard(ech_token_writer *writer)
{
    if (!writer) return;
    ech_sink_close(&writer->bin);
    ech_sink_close(&writer->sequences);
    ech_sink_close(&writer->idx);
    ech_sink_close(&writer->origin);
    ech_sink_close(&writer->values);
    free(writer->folder);
    free(writer->prefix);
    free(writer);
}
