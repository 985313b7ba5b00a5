/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening token files of two halves, PREFIX.bin and PREFIX.idx. The index is read once, in blocks,
 * not mapped. So the numbers that are used are the checked ones, even if the file changes later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "data/image_file.h"
#include "data/token_file.h"
#include "data/token_index.h"

#define MAKE_AGAIN ": make the .idx and .bin again, or copy both again"

/* Megatron's dtypes by code; width 0: none that holds token ids here. */
static const struct {
    const char *name;
    int width;
} dtypes[] = {
    {"0", 0},   {"u8", 1},  {"i8", 0},  {"i16", 0}, {"i32", 4},
    {"i64", 8}, {"f64", 0}, {"f32", 0}, {"u16", 2},
};

char *ech_token_path(const char *prefix, const char *suffix)
{
    size_t room = strlen(prefix) + strlen(suffix) + 1;
    char *path = ech_calloc(room, 1);
    snprintf(path, room, "%s%s", prefix, suffix);
    return path;
}

static ech_status check_header(const char *path, const ech_token_header *header, int64_t *width)
{
    int code = header->dtype;
    if (memcmp(header->magic, ECH_TOKEN_MAGIC, sizeof header->magic) != 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: does not begin with MMIDIDX: not the index of a token file" MAKE_AGAIN, path);
    if (header->version != ECH_TOKEN_VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: version %llu of the format; only 1 is known" MAKE_AGAIN,
                 path, (unsigned long long)header->version);
    bool known = code > 0 && (size_t)code < sizeof dtypes / sizeof dtypes[0];
    if (!known)
        ECH_FAIL(ECH_EINPUT, "%s: dtype code %d is not one of the format's (1 to 8)" MAKE_AGAIN,
                 path, code);
    if (dtypes[code].width == 0)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: holds %s (dtype code %d); token ids must be u8, u16, i32 or i64; make it "
                 "again in one of these",
                 path, dtypes[code].name, code);
    *width = dtypes[code].width;
    return ECH_OK;
}

/* An index that is being read. */
typedef struct token_index {
    const char *path;
    int64_t width, bin_bytes; /* of a token, and of all */
    int64_t sequences, documents;
    bool has_modes;
    int64_t next, before; /* the document index to look at, and the one before it */
    ech_token_reader length, pointer, entry, mode;
} token_index;

/* The two counts fit the file's size exactly, so that all arrays lie inside it. */
static ech_status check_size(const ech_token_header *header, uint64_t n, token_index *x)
{
    uint64_t sequences = header->sequences, entries = header->entries;
    uint64_t room = n - sizeof *header;
    bool fits = sequences <= room / 12 && entries <= (room - 12 * sequences) / 8;
    uint64_t rest = fits ? room - 12 * sequences - 8 * entries : 0;
    if (!fits || (rest != 0 && rest != sequences))
        ECH_FAIL(ECH_EINPUT,
                 "%s: %llu bytes do not hold the %llu sequences and %llu document indices that its "
                 "header counts" MAKE_AGAIN,
                 x->path, (unsigned long long)n, (unsigned long long)sequences,
                 (unsigned long long)entries);
    if (entries == 0)
        ECH_FAIL(ECH_EINPUT, "%s: has no document indices, and the first must be 0" MAKE_AGAIN,
                 x->path);
    x->sequences = (int64_t)sequences;
    x->documents = (int64_t)entries - 1;
    x->has_modes = rest != 0;
    return ECH_OK;
}

/* The array of n numbers that begins at *at; moves *at past it. */
static ech_token_reader place_array(const token_index *x, int fd, int64_t width, int64_t n,
                                    int64_t *at)
{
    *at += width * n;
    const ech_token_array array = {
        .path = x->path, .fd = fd, .width = width, .header = *at - width * n};
    return (ech_token_reader){.array = array, .n = n};
}

static ech_status get_sequence(token_index *x, int64_t i, int64_t *length, int64_t *pointer,
                               bool *prompt)
{
    int64_t mode = ECH_TOKEN_TRAINED;
    ECH_TRY(ech_token_reader_get(&x->length, i, length));
    ECH_TRY(ech_token_reader_get(&x->pointer, i, pointer));
    if (x->has_modes) ECH_TRY(ech_token_reader_get(&x->mode, i, &mode));
    if (*length < 0)
        ECH_FAIL(ECH_EINPUT, "%s: sequence %lld has %lld tokens" MAKE_AGAIN, x->path, (long long)i,
                 (long long)*length);
    if (*pointer < 0 || *pointer > x->bin_bytes || *length > (x->bin_bytes - *pointer) / x->width)
        ECH_FAIL(ECH_EINPUT,
                 "%s: sequence %lld (%lld tokens at byte %lld) lies outside the %lld bytes of the "
                 ".bin file; copy both again, or make them again",
                 x->path, (long long)i, (long long)*length, (long long)*pointer,
                 (long long)x->bin_bytes);
    if (*pointer % x->width != 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: sequence %lld begins at byte %lld, no multiple of the %lld bytes of a token; "
                 "damaged, or of another .bin file; copy both again, or make them again",
                 x->path, (long long)i, (long long)*pointer, (long long)x->width);
    if (mode != ECH_TOKEN_TRAINED && mode != ECH_TOKEN_PROMPT)
        ECH_FAIL(
            ECH_EUNSUPPORTED,
            "%s: sequence %lld has mode %d; known are 0 (trained on) and 1 (a prompt)" MAKE_AGAIN,
            x->path, (long long)i, (int)(int8_t)mode);
    *prompt = mode == ECH_TOKEN_PROMPT;
    return ECH_OK;
}

/* Skips the document indices that are i, after checking them. *opens: there are any, so sequence i
 * begins a document. Sequences after the last document belong to it. */
static ech_status skip_entries(token_index *x, int64_t i, bool *opens)
{
    int64_t entry;
    for (*opens = false; x->next <= x->documents; x->next++, x->before = entry) {
        ECH_TRY(ech_token_reader_get(&x->entry, x->next, &entry));
        if ((x->next == 0 && entry != 0) || entry < x->before || entry > x->sequences)
            ECH_FAIL(ECH_EINPUT,
                     "%s: document index %lld is %llu; they must begin with 0 and ascend to at "
                     "most %lld" MAKE_AGAIN,
                     x->path, (long long)x->next, (unsigned long long)entry,
                     (long long)x->sequences);
        if (entry != i) break;
        *opens = *opens || x->next < x->documents;
    }
    return ECH_OK;
}

static ech_status read_runs(token_index *x, ech_token_runs *runs)
{
    int64_t length, pointer, sum;
    bool prompt, opens;
    for (int64_t i = 0; i < x->sequences; i++) {
        ECH_TRY(get_sequence(x, i, &length, &pointer, &prompt));
        ECH_TRY(skip_entries(x, i, &opens));
        if (__builtin_add_overflow(runs->tokens, length, &sum))
            ECH_FAIL(ECH_EINPUT, "%s: its sequences have more than 2^63 tokens together" MAKE_AGAIN,
                     x->path);
        ech_token_runs_add(runs, pointer / x->width, length, opens, prompt);
    }
    return skip_entries(x, x->sequences, &opens);
}

/* Reads an index of n bytes, open as fd, and checks all its numbers, also against the size of
 * .bin. */
static ech_status read_index(int fd, const char *path, int64_t n, int64_t bin_bytes,
                             ech_token_file *file)
{
    ech_token_header header;
    int64_t at = sizeof header;
    ECH_FREED token_index *x = ech_calloc(1, sizeof *x);
    x->path = path;
    x->bin_bytes = bin_bytes;
    if (n < at)
        ECH_FAIL(ECH_EINPUT, "%s: %lld bytes are less than the header of an index has" MAKE_AGAIN,
                 path, (long long)n);
    ECH_TRY(ech_file_read_at(fd, path, &header, sizeof header, 0));
    ECH_TRY(check_header(path, &header, &x->width));
    ECH_TRY(check_size(&header, (uint64_t)n, x));
    x->length = place_array(x, fd, 4, x->sequences, &at);
    x->pointer = place_array(x, fd, 8, x->sequences, &at);
    x->entry = place_array(x, fd, 8, x->documents + 1, &at);
    x->mode = place_array(x, fd, 1, x->sequences, &at);
    ECH_TRY(read_runs(x, &file->runs));
    file->part.at[0].tokens.width = x->width;
    file->documents = x->documents;
    return ECH_OK;
}

/* ---- opening ---- */

/* There is no PREFIX.idx: says what the user most likely has to do. */
static ech_status fail_missing(const char *prefix)
{
    if (ech_file_is_folder(prefix))
        ECH_FAIL(ECH_EUSAGE,
                 "%s is a folder, not the prefix of a token file: tokenize the texts in it with "
                 "`echelon data %s PREFIX`, then give PREFIX",
                 prefix, prefix);
    if (ech_file_exists(prefix) &&
        (ech_text_ends_in(prefix, ".bin") || ech_text_ends_in(prefix, ".idx")))
        ECH_FAIL(ECH_EUSAGE, "%s: give the prefix of the token file, without %s", prefix,
                 prefix + strlen(prefix) - 4);
    if (ech_file_exists(prefix) && ech_text_ends_in(prefix, ECH_IMAGE_ENDING))
        ECH_FAIL(ECH_EUSAGE, "%s has images, and this model reads texts; name a file of tokens",
                 prefix);
    if (ech_file_exists(prefix))
        ECH_FAIL(ECH_EUSAGE,
                 "%s is no token file: if it is a text, tokenize it with `echelon data %s PREFIX`, "
                 "then give PREFIX",
                 prefix, prefix);
    if (ech_text_ends_in(prefix, ".bin") || ech_text_ends_in(prefix, ".idx"))
        ECH_FAIL(ECH_EUSAGE, "%s: no such file; give the prefix of a token file, without .bin",
                 prefix);
    ECH_FREED char *train = ech_token_path(prefix, "-train.idx");
    if (ech_file_exists(train))
        ECH_FAIL(ECH_EUSAGE, "%s.idx: no such file, but %s-train.idx is there: give %s-train",
                 prefix, prefix, prefix);
    ECH_FAIL(ECH_EUSAGE, "%s.idx: no such file: make it with `echelon data TEXT %s`", prefix,
             prefix);
}

ech_status ech_token_open_megatron(const char *prefix, ech_token_file *file)
{
    int fd;
    int64_t bytes, bin_bytes;
    ECH_FREED char *idx = ech_token_path(prefix, ".idx"), *bin = ech_token_path(prefix, ".bin");
    if (!ech_file_exists(idx)) return fail_missing(prefix);
    ECH_TRY(ech_token_part_open(bin, file, &bin_bytes));
    ECH_TRY(ech_file_open(idx, &fd, &bytes));
    ech_status st = read_index(fd, idx, bytes, bin_bytes, file);
    close(fd);
    return st;
}
