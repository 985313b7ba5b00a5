/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading texts in chunks: lines are split after a line, an array after an element, a text where
 * the reader's user allows it.
 * */
#include <stdlib.h>
#include <string.h>

#include "data/bpe/coder.h"
#include "data/json_scan.h"
#include "data/text_chunk.h"

enum { LONGEST_CHARACTER = 4 };

static bool is_inside_character(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

/* Where the validation part of a text begins: the last fraction of its bytes, from the start of the
 * UTF-8 character that it would split. */
static ech_status find_valid(ech_text_chunk_reader *reader, const ech_data_text_file *file)
{
    unsigned char bytes[LONGEST_CHARACTER];
    int64_t split = file->bytes - (int64_t)((double)file->bytes * reader->valid);
    int64_t first = split < LONGEST_CHARACTER ? 0 : split - LONGEST_CHARACTER + 1;
    if (split < file->bytes) {
        ECH_TRY(ech_text_file_read(reader->file, first, (size_t)(split - first) + 1, bytes));
        while (split > first && is_inside_character(bytes[split - first])) split--;
    }
    reader->valid_from = split;
    return ECH_OK;
}

static ech_status open_file(ech_text_chunk_reader *reader, const ech_data_text_file *file)
{
    int64_t stored;
    ECH_TRY(ech_text_file_open(file->path, &reader->file, &stored));
    if (stored != file->stored)
        ECH_FAIL(ECH_EINPUT,
                 "%s: its size has changed since it was opened: start again when nothing writes to "
                 "it",
                 file->path);
    return find_valid(reader, file);
}

void ech_text_chunk_reader_close(ech_text_chunk_reader *reader)
{
    ech_text_file_close(reader->file);
    reader->file = NULL;
    ech_text_free(&reader->rest);
}

/* The largest k <= n such that no character is split after k bytes of a text. */
static size_t before_character(const unsigned char *bytes, size_t n)
{
    for (size_t back = 1; back < LONGEST_CHARACTER && back < n; back++) {
        unsigned char first = bytes[n - back];
        if (is_inside_character(first)) continue;
        size_t length = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        return length > back ? n - back : n;
    }
    return n;
}

/* Where the last whole element ends that a chunk of an array has; 0: there is none. What is no
 * array is all of it. */
static size_t after_element(const ech_text_chunk *chunk, size_t n)
{
    const char *text = (const char *)chunk->bytes;
    size_t at = chunk->at == 0 ? ech_json_skip_mark(text, n) : 0, end = 0;
    for (;;) {
        at = ech_json_skip_blanks(text, n, at);
        if (at == n) return end;
        if (!memchr("[,", text[at], 2)) return n;
        at = ech_json_skip_blanks(text, n, at + 1);
        if (at < n && text[at] != '{') return n;
        if (ech_json_skip_value(text, n, at, &at) != ECH_JSON_WHOLE) return end;
        end = at;
    }
}

/* How much of the n bytes that were read is a chunk; 0: none, more must be read. More text
 * follows. */
static size_t split_chunk(const ech_text_chunk_reader *reader, const ech_text_chunk *chunk,
                          size_t n)
{
    if (chunk->form == ECH_TEXT_ARRAY) return after_element(chunk, n);
    if (chunk->form == ECH_TEXT_LINES) {
        const unsigned char *newline = memrchr(chunk->bytes, '\n', n);
        return newline ? (size_t)(newline - chunk->bytes) + 1 : 0;
    }
    return before_character(chunk->bytes, ech_bpe_split(reader->bpe, chunk->bytes, n));
}

/* Of `have` bytes none is a chunk, and more follow. */
static ech_status check_length(const ech_text_chunk_reader *reader, const ech_text_chunk *chunk,
                               size_t have)
{
    if (chunk->form != ECH_TEXT_PLAIN && have > ECH_TEXT_CHUNK_LONGEST_LINE)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: %s of more than %d MiB: write one document %s", chunk->path,
                 (long long)reader->position.line,
                 chunk->form == ECH_TEXT_LINES ? "a line" : "an element",
                 (int)(ECH_TEXT_CHUNK_LONGEST_LINE >> 20),
                 chunk->form == ECH_TEXT_LINES ? "a line" : "an element");
    if (have >= ECH_TEXT_CHUNK_LONGEST)
        ECH_FAIL(ECH_EINPUT,
                 "%s: the %d MiB from byte %lld on must be tokenized in one piece, which needs too "
                 "much memory; split the text into several files, or into lines of JSON. The "
                 "tokenizer splits text only after a word. It does not split at all with "
                 "ignore_merges and no pattern, with a pattern of its own, or with NFC and "
                 "normalized added tokens",
                 chunk->path, (int)(ECH_TEXT_CHUNK_LONGEST >> 20), (long long)reader->position.at);
    return ECH_OK;
}

/* The chunk is a line; `have` bytes of it are read. Its end is searched for piece by piece. */
static ech_status leave_out_line(ech_text_chunk_reader *reader, int64_t end, ech_text_chunk *chunk,
                                 size_t have)
{
    int64_t at = chunk->at + (int64_t)have;
    const unsigned char *newline = NULL;
    while (at < end && !newline) {
        size_t n = end - at < ECH_TEXT_CHUNK_BYTES ? (size_t)(end - at) : ECH_TEXT_CHUNK_BYTES;
        ECH_TRY(ech_text_file_read(reader->file, at, n, chunk->bytes));
        newline = memchr(chunk->bytes, '\n', n);
        size_t used = newline ? (size_t)(newline - chunk->bytes) + 1 : n;
        ech_text_append_bytes(&reader->rest, chunk->bytes + used, n - used);
        at += (int64_t)used;
    }
    chunk->left_out = at - chunk->at;
    chunk->ends = at == end;
    free(chunk->bytes); /* more than other chunks take */
    chunk->bytes = NULL;
    chunk->capacity = 0;
    return ECH_OK;
}

/* Reads on from the reader's position, at most to `end`. Where a chunk of the usual length cannot
 * be split, it becomes longer. */
static ech_status read_chunk(ech_text_chunk_reader *reader, int64_t end, ech_text_chunk *chunk)
{
    ech_text *rest = &reader->rest;
    size_t have = rest->n, wanted = ECH_TEXT_CHUNK_BYTES, left = (size_t)(end - chunk->at);
    if (wanted < have) wanted = have;
    chunk->left_out = 0;
    for (chunk->n = 0; chunk->n == 0; wanted *= 2) {
        if (wanted > left) wanted = left;
        chunk->bytes = ech_grow(chunk->bytes, &chunk->capacity, wanted, 1);
        if (rest->n > 0) memcpy(chunk->bytes, rest->at, rest->n);
        rest->n = 0;
        ECH_TRY(ech_text_file_read(reader->file, chunk->at + (int64_t)have, wanted - have,
                                   chunk->bytes + have));
        have = wanted;
        chunk->n = have == left ? have : split_chunk(reader, chunk, have);
        if (chunk->n > 0) continue;
        if (chunk->form == ECH_TEXT_LINES && reader->leaves_out &&
            have > ECH_TEXT_CHUNK_LONGEST_LINE)
            return leave_out_line(reader, end, chunk, have);
        ECH_TRY(check_length(reader, chunk, have));
    }
    ech_text_append_bytes(rest, chunk->bytes + chunk->n, have - chunk->n);
    chunk->ends = chunk->n == left;
    return ECH_OK;
}

static int64_t count_lines(const ech_text_chunk *chunk)
{
    int64_t lines = 0;
    const unsigned char *end = chunk->bytes + chunk->n;
    for (const unsigned char *at = chunk->bytes; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        lines++;
    return lines;
}

static ech_status read_file(ech_text_chunk_reader *reader, const ech_data_text_file *file,
                            ech_text_chunk *chunk)
{
    if (!reader->file) ECH_TRY(open_file(reader, file));
    ech_text_position *position = &reader->position;
    chunk->path = file->path;
    chunk->at = position->at;
    chunk->line = position->line;
    chunk->valid_from = reader->valid_from;
    chunk->form = reader->lines ? ECH_TEXT_LINES : file->form;
    bool plain = chunk->form == ECH_TEXT_PLAIN;
    int64_t end = plain && position->at < reader->valid_from ? reader->valid_from : file->bytes;
    ECH_TRY(read_chunk(reader, end, chunk));
    position->at += ech_text_chunk_extent(chunk);
    if (!plain) position->line += chunk->left_out ? 1 : count_lines(chunk);
    return ECH_OK;
}

ech_status ech_text_chunk_read(ech_text_chunk_reader *reader, ech_text_chunk *chunk, bool *found)
{
    ech_text_position *position = &reader->position;
    *found = false;
    while (position->file < (int64_t)reader->texts->file.n) {
        const ech_data_text_file *file = &reader->texts->file.at[position->file];
        if (position->at < file->bytes) {
            *found = true;
            return read_file(reader, file, chunk);
        }
        ech_text_chunk_reader_close(reader);
        *position = (ech_text_position){.file = position->file + 1, .line = 1};
    }
    return ECH_OK;
}
