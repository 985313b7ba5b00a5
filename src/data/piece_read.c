/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading texts piece by piece, cut where it does not matter: of a .jsonl behind a line, of a text where
 * the reader's user says.
 */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/piece.h"

enum { LONGEST_CHARACTER = 4 };

static bool is_inside_character(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

static bool has_lines(const char *path)
{
    static const char ending[] = ".jsonl";
    size_t n = strlen(path), m = sizeof ending - 1;
    if (ech_gunzip_is_packed(path)) n -= strlen(".gz");
    return n >= m && strncmp(path + n - m, ending, m) == 0;
}

/* n bytes of the text of the place's file; none before `keep` will be asked for again. */
static ech_status read_bytes(ech_piece_reader *reader, const char *path, int64_t keep, int64_t at,
                             size_t n, void *bytes)
{
    if (reader->gunzip) return ech_gunzip_read(reader->gunzip, keep, at, n, bytes);
    return ech_file_read_at(reader->fd, path, bytes, n, at);
}

/* Where the validation part of a text begins: the last share of its bytes, from the start of the
 * UTF-8 character that the cut would go through. */
static ech_status find_cut(ech_piece_reader *reader, const ech_text_file *file)
{
    int64_t cut = file->bytes - (int64_t)((double)file->bytes * reader->valid);
    int64_t first = cut < LONGEST_CHARACTER ? 0 : cut - LONGEST_CHARACTER;
    for (int back = 0; back < LONGEST_CHARACTER - 1 && cut > 0 && cut < file->bytes; back++) {
        unsigned char byte;
        ECH_TRY(read_bytes(reader, file->path, first, cut, 1, &byte));
        if (!is_inside_character(byte)) break;
        cut--;
    }
    reader->cut = cut;
    return ECH_OK;
}

static ech_status open_file(ech_piece_reader *reader, const ech_text_file *file)
{
    int64_t bytes;
    if (ech_gunzip_is_packed(file->path))
        ECH_TRY(ech_gunzip_open(file->path, &reader->gunzip, &bytes));
    else
        ECH_TRY(ech_file_open(file->path, &reader->fd, &bytes));
    if (bytes != file->stored)
        ECH_FAIL(ECH_EINPUT,
                 "%s: its size has changed since it was first looked at: begin again when nothing "
                 "writes to it",
                 file->path);
    return find_cut(reader, file);
}

void ech_piece_reader_close(ech_piece_reader *reader)
{
    if (reader->fd >= 0) close(reader->fd);
    reader->fd = -1;
    ech_gunzip_close(reader->gunzip);
    reader->gunzip = NULL;
}

/* Where the first n bytes of a text can be cut so as not to go through a character. */
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

/* How much of the n bytes that were read is a piece; 0: none, more must be read. More text follows. */
static size_t cut_piece(const ech_piece_reader *reader, const ech_piece *piece, size_t n)
{
    if (piece->lines) {
        const unsigned char *newline = memrchr(piece->bytes, '\n', n);
        return newline ? (size_t)(newline - piece->bytes) + 1 : 0;
    }
    return before_character(piece->bytes, reader->cut_at(reader->context, piece->bytes, n));
}

/* Of `have` bytes none is a piece, and more follow. */
static ech_status check_length(const ech_piece_reader *reader, const ech_piece *piece, size_t have)
{
    if (piece->lines && have > ECH_PIECE_LONGEST_LINE)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: a line of more than %d MiB: is it one document a line?",
                 piece->path, (long long)reader->place.line, (int)(ECH_PIECE_LONGEST_LINE >> 20));
    if (have >= ECH_PIECE_LONGEST)
        ECH_FAIL(ECH_EINPUT,
                 "%s: the %d MiB from byte %lld on would have to be tokenized as one, which takes "
                 "too much memory: the tokenizer lets text be cut only behind a word, or (with "
                 "ignore_merges and no pattern, or with NFC and normalized added tokens) nowhere; "
                 "make it "
                 "several files",
                 piece->path, (int)(ECH_PIECE_LONGEST >> 20), (long long)reader->place.at);
    return ECH_OK;
}

/* Reads on from the reader's place, at most to `end`. Where a piece as long as usual cannot be cut, it
 * becomes longer. */
static ech_status read_piece(ech_piece_reader *reader, int64_t end, ech_piece *piece)
{
    int64_t at = reader->place.at;
    size_t have = 0, wanted = ECH_PIECE_BYTES, left = (size_t)(end - at);
    for (piece->n = 0; piece->n == 0; wanted *= 2) {
        if (wanted > left) wanted = left;
        piece->bytes = ech_grow(piece->bytes, &piece->capacity, wanted, 1);
        ECH_TRY(read_bytes(reader, piece->path, at, at + (int64_t)have, wanted - have,
                           piece->bytes + have));
        have = wanted;
        piece->n = have == left ? have : cut_piece(reader, piece, have);
        if (piece->n == 0) ECH_TRY(check_length(reader, piece, have));
    }
    piece->ends = !piece->lines && piece->n == left;
    return ECH_OK;
}

static int64_t count_lines(const ech_piece *piece)
{
    int64_t lines = 0;
    const unsigned char *end = piece->bytes + piece->n;
    for (const unsigned char *at = piece->bytes; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        lines++;
    return lines;
}

static ech_status read_file(ech_piece_reader *reader, const ech_text_file *file, ech_piece *piece)
{
    if (reader->fd < 0 && !reader->gunzip) ECH_TRY(open_file(reader, file));
    ech_piece_place *place = &reader->place;
    piece->path = file->path;
    piece->at = place->at;
    piece->line = place->line;
    piece->cut = reader->cut;
    piece->lines = has_lines(file->path);
    int64_t end = !piece->lines && place->at < reader->cut ? reader->cut : file->bytes;
    ECH_TRY(read_piece(reader, end, piece));
    place->at += (int64_t)piece->n;
    if (piece->lines) place->line += count_lines(piece);
    return ECH_OK;
}

ech_status ech_piece_read(ech_piece_reader *reader, ech_piece *piece, bool *found)
{
    ech_piece_place *place = &reader->place;
    *found = false;
    while (place->file < (int64_t)reader->texts->file.n) {
        const ech_text_file *file = &reader->texts->file.at[place->file];
        if (place->at < file->bytes) {
            *found = true;
            return read_file(reader, file, piece);
        }
        ech_piece_reader_close(reader);
        *place = (ech_piece_place){.file = place->file + 1, .line = 1};
    }
    return ECH_OK;
}
