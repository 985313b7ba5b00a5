/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and checking a .idx file. It is read once, in blocks, not mapped: so the numbers that are used are those
 * that were checked, even if the file changes meanwhile.
 */
#include "data/token_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { PIECE = 4096 }; /* sequences, or document indices, read at a time */

/* Megatron's dtypes by code; width 0: none that holds token ids here. */
static const struct {
    const char *name;
    int width;
} dtypes[] = {
    {"0", 0},   {"u8", 1},  {"i8", 0},  {"i16", 0}, {"i32", 4},
    {"i64", 8}, {"f64", 0}, {"f32", 0}, {"u16", 2},
};

/* What is read of the arrays at a time. */
typedef struct window {
    int fd;
    const char *path;
    const ech_token_index *index;
    bool has_modes;
    int64_t first; /* sequence */
    int32_t length[PIECE];
    int64_t pointer[PIECE];
    int8_t mode[PIECE];
    int64_t first_entry, entries; /* of the document indices */
    uint64_t entry[PIECE];
} window;

char *ech_token_path(const char *prefix, const char *suffix)
{
    size_t room = strlen(prefix) + strlen(suffix) + 1;
    char *path = ech_calloc(room, 1);
    snprintf(path, room, "%s%s", prefix, suffix);
    return path;
}

static uint64_t read_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static ech_status check_header(const char *path, const unsigned char *bytes, ech_token_index *index)
{
    if (memcmp(bytes, ECH_TOKEN_MAGIC, ECH_TOKEN_MAGIC_BYTES) != 0)
        ECH_FAIL(ECH_EINPUT, "%s: does not begin with MMIDIDX: not the index of a token file",
                 path);
    uint64_t version = read_u64(bytes + 9);
    if (version != ECH_TOKEN_VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: version %llu of the format; only 1 is known", path,
                 (unsigned long long)version);
    int code = bytes[17];
    bool known = code > 0 && (size_t)code < sizeof dtypes / sizeof dtypes[0];
    if (!known)
        ECH_FAIL(ECH_EINPUT, "%s: dtype code %d is not one of the format's (1 to 8)", path, code);
    if (dtypes[code].width == 0)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: holds %s (dtype code %d); token ids must be u8, u16, i32 or i64", path,
                 dtypes[code].name, code);
    index->dtype = code;
    index->width = dtypes[code].width;
    return ECH_OK;
}

/* The two counts fit the file's size exactly, so that all arrays lie inside it. */
static ech_status check_size(const char *path, const unsigned char *bytes, uint64_t n,
                             ech_token_index *index, bool *has_modes)
{
    uint64_t sequences = read_u64(bytes + 18), entries = read_u64(bytes + 26);
    uint64_t room = n - ECH_TOKEN_HEADER_BYTES;
    bool fits = sequences <= room / 12 && entries <= (room - 12 * sequences) / 8;
    uint64_t rest = fits ? room - 12 * sequences - 8 * entries : 0;
    if (!fits || (rest != 0 && rest != sequences))
        ECH_FAIL(ECH_EINPUT,
                 "%s: %llu bytes do not hold the %llu sequences and %llu document indices that its "
                 "header counts: truncated or damaged",
                 path, (unsigned long long)n, (unsigned long long)sequences,
                 (unsigned long long)entries);
    if (entries == 0)
        ECH_FAIL(ECH_EINPUT, "%s: has no document indices; the first must be 0", path);
    index->sequences = (int64_t)sequences;
    index->documents = (int64_t)entries - 1;
    *has_modes = rest != 0;
    return ECH_OK;
}

static int64_t entries_begin(const ech_token_index *index)
{
    return ECH_TOKEN_HEADER_BYTES + 12 * index->sequences;
}

/* The entries after those in the window, checked. */
static ech_status read_entries(window *w)
{
    uint64_t before = w->entries > 0 ? w->entry[w->entries - 1] : 0;
    w->first_entry += w->entries;
    int64_t rest = w->index->documents + 1 - w->first_entry;
    w->entries = rest < PIECE ? rest : PIECE;
    ECH_TRY(ech_file_read_at(w->fd, w->path, w->entry, (size_t)w->entries * sizeof *w->entry,
                             entries_begin(w->index) + 8 * w->first_entry));
    for (int64_t i = 0; i < w->entries; i++) {
        uint64_t entry = w->entry[i];
        bool first_is_zero = w->first_entry + i > 0 || entry == 0;
        if (!first_is_zero || entry < before || entry > (uint64_t)w->index->sequences)
            ECH_FAIL(
                ECH_EINPUT,
                "%s: document index %lld is %llu; they must begin with 0 and ascend to at most "
                "%lld",
                w->path, (long long)(w->first_entry + i), (unsigned long long)entry,
                (long long)w->index->sequences);
        before = entry;
    }
    return ECH_OK;
}

/* The n sequences from `first` on. */
static ech_status read_sequences(window *w, int64_t first, int64_t n)
{
    int64_t lengths = ECH_TOKEN_HEADER_BYTES, pointers = lengths + 4 * w->index->sequences;
    int64_t modes = entries_begin(w->index) + 8 * (w->index->documents + 1);
    w->first = first;
    ECH_TRY(ech_file_read_at(w->fd, w->path, w->length, (size_t)n * 4, lengths + 4 * first));
    ECH_TRY(ech_file_read_at(w->fd, w->path, w->pointer, (size_t)n * 8, pointers + 8 * first));
    memset(w->mode, ECH_TOKEN_TRAINED, sizeof w->mode);
    return w->has_modes ? ech_file_read_at(w->fd, w->path, w->mode, (size_t)n, modes + first)
                        : ECH_OK;
}

static ech_status check_sequence(const window *w, int64_t i, int64_t bin_bytes)
{
    const ech_token_index *index = w->index;
    int64_t length = w->length[i - w->first], pointer = w->pointer[i - w->first];
    int mode = w->mode[i - w->first];
    if (length < 0)
        ECH_FAIL(ECH_EINPUT, "%s: sequence %lld has %lld tokens", w->path, (long long)i,
                 (long long)length);
    if (pointer < 0 || pointer > bin_bytes || length > (bin_bytes - pointer) / index->width)
        ECH_FAIL(ECH_EINPUT,
                 "%s: sequence %lld (%lld tokens at byte %lld) lies outside the %lld bytes of the "
                 ".bin file: truncated, or from another index?",
                 w->path, (long long)i, (long long)length, (long long)pointer,
                 (long long)bin_bytes);
    if (pointer % index->width != 0)
        ECH_FAIL(ECH_EINPUT, "%s: sequence %lld begins at byte %lld, no multiple of %lld", w->path,
                 (long long)i, (long long)pointer, (long long)index->width);
    if (mode != ECH_TOKEN_TRAINED && mode != ECH_TOKEN_PROMPT)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: sequence %lld has mode %d; known are 0 (trained on) and 1 (a prompt)",
                 w->path, (long long)i, mode);
    return ECH_OK;
}

/* Whether sequence i begins a document; *next is the entry to look at. Sequences after the last
 * document belong to it. */
static ech_status find_opening(window *w, int64_t i, int64_t *next, bool *opens)
{
    *opens = false;
    for (; *next < w->index->documents; ++*next) {
        if (*next == w->first_entry + w->entries) ECH_TRY(read_entries(w));
        if ((int64_t)w->entry[*next - w->first_entry] != i) break;
        *opens = true;
    }
    return ECH_OK;
}

static ech_status read_runs(window *w, int64_t bin_bytes, ech_token_runs *runs)
{
    int64_t sum, next = 0, S = w->index->sequences;
    for (int64_t i = 0; i < S; i++) {
        if (i % PIECE == 0) ECH_TRY(read_sequences(w, i, S - i < PIECE ? S - i : PIECE));
        ECH_TRY(check_sequence(w, i, bin_bytes));
        int64_t length = w->length[i - w->first], at = w->pointer[i - w->first] / w->index->width;
        bool opens;
        ECH_TRY(find_opening(w, i, &next, &opens));
        if (__builtin_add_overflow(runs->tokens, length, &sum))
            ECH_FAIL(ECH_EINPUT, "%s: its sequences have more than 2^63 tokens together", w->path);
        ech_token_runs_add(runs, at, length, opens, w->mode[i - w->first] == ECH_TOKEN_PROMPT);
    }
    /* Those that no sequence has asked for are not believed either. */
    while (w->first_entry + w->entries <= w->index->documents) ECH_TRY(read_entries(w));
    return ECH_OK;
}

ech_status ech_token_index_read(int fd, const char *path, int64_t n, int64_t bin_bytes,
                                ech_token_runs *runs, ech_token_index *out)
{
    unsigned char header[ECH_TOKEN_HEADER_BYTES];
    ech_token_index index = {0};
    bool has_modes;
    if (n < ECH_TOKEN_HEADER_BYTES)
        ECH_FAIL(ECH_EINPUT, "%s: %lld bytes are less than the header of an index has: truncated?",
                 path, (long long)n);
    ECH_TRY(ech_file_read_at(fd, path, header, sizeof header, 0));
    ECH_TRY(check_header(path, header, &index));
    ECH_TRY(check_size(path, header, (uint64_t)n, &index, &has_modes));
    window *w = ech_calloc(1, sizeof *w);
    *w = (window){.fd = fd, .path = path, .index = &index, .has_modes = has_modes};
    ech_status st = read_runs(w, bin_bytes, runs);
    free(w);
    if (st == ECH_OK) *out = index;
    return st;
}
