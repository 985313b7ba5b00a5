/* SPDX-License-Identifier: Apache-2.0
 *
 * Believing a .idx file only after every number in it was checked.
 */
#include "data/token_index.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

enum { SEQUENCES_PER_SUM = 64 };

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

static uint64_t read_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static ech_status check_header(const char *path, const unsigned char *bytes, size_t n,
                               ech_token_index *index)
{
    if (n < ECH_TOKEN_HEADER_BYTES)
        ECH_FAIL(ECH_EINPUT, "%s: %zu bytes are less than the header of an index has: cut off?",
                 path, n);
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
static ech_status check_size(const char *path, const unsigned char *bytes, size_t n,
                             ech_token_index *index)
{
    uint64_t sequences = read_u64(bytes + 18), entries = read_u64(bytes + 26);
    uint64_t room = n - ECH_TOKEN_HEADER_BYTES;
    bool fits = sequences <= room / 12 && entries <= (room - 12 * sequences) / 8;
    uint64_t rest = fits ? room - 12 * sequences - 8 * entries : 0;
    if (!fits || (rest != 0 && rest != sequences))
        ECH_FAIL(ECH_EINPUT,
                 "%s: %zu bytes do not hold the %llu sequences and %llu document indices that its "
                 "header counts: cut off or damaged",
                 path, n, (unsigned long long)sequences, (unsigned long long)entries);
    if (entries == 0)
        ECH_FAIL(ECH_EINPUT, "%s: has no document indices; the first must be 0", path);
    index->sequences = (int64_t)sequences;
    index->documents = (int64_t)entries - 1;
    return ECH_OK;
}

static ech_status check_sequence(const char *path, const ech_token_index *index, int64_t i,
                                 int64_t bin_bytes)
{
    int64_t length = ech_token_index_length(index, i);
    int64_t pointer = ech_token_index_pointer(index, i);
    if (length < 0)
        ECH_FAIL(ECH_EINPUT, "%s: sequence %lld has %lld tokens", path, (long long)i,
                 (long long)length);
    if (pointer < 0 || pointer > bin_bytes || length > (bin_bytes - pointer) / index->width)
        ECH_FAIL(ECH_EINPUT,
                 "%s: sequence %lld (%lld tokens at byte %lld) lies outside the %lld bytes of the "
                 ".bin file: cut off, or from another index?",
                 path, (long long)i, (long long)length, (long long)pointer, (long long)bin_bytes);
    if (pointer % index->width != 0)
        ECH_FAIL(ECH_EINPUT, "%s: sequence %lld begins at byte %lld, no multiple of %lld", path,
                 (long long)i, (long long)pointer, (long long)index->width);
    return ECH_OK;
}

static ech_status sum_sequences(const char *path, int64_t bin_bytes, ech_token_index *index)
{
    for (int64_t i = 0; i < index->sequences; i++) {
        if (i % SEQUENCES_PER_SUM == 0) index->sums[i / SEQUENCES_PER_SUM] = index->tokens;
        ECH_TRY(check_sequence(path, index, i, bin_bytes));
        if (__builtin_add_overflow(index->tokens, ech_token_index_length(index, i), &index->tokens))
            ECH_FAIL(ECH_EINPUT, "%s: its sequences have more than 2^63 tokens together", path);
    }
    return ECH_OK;
}

static ech_status check_documents(const char *path, const ech_token_index *index)
{
    const unsigned char *at = index->bytes + ECH_TOKEN_HEADER_BYTES + 12 * index->sequences;
    uint64_t before = 0;
    for (int64_t i = 0; i <= index->documents; i++) {
        uint64_t entry = read_u64(at + 8 * i);
        bool first_is_zero = i > 0 || entry == 0;
        if (!first_is_zero || entry < before || entry > (uint64_t)index->sequences)
            ECH_FAIL(
                ECH_EINPUT,
                "%s: document index %lld is %llu; they must begin with 0 and ascend to at most "
                "%lld",
                path, (long long)i, (unsigned long long)entry, (long long)index->sequences);
        before = entry;
    }
    return ECH_OK;
}

ech_status ech_token_index_open(const char *path, const unsigned char *bytes, size_t n,
                                size_t bin_bytes, ech_token_index *out)
{
    ech_token_index index = {.bytes = bytes};
    ECH_TRY(check_header(path, bytes, n, &index));
    ECH_TRY(check_size(path, bytes, n, &index));
    ECH_TRY(check_documents(path, &index));
    size_t sums = (size_t)(index.sequences + SEQUENCES_PER_SUM - 1) / SEQUENCES_PER_SUM;
    index.sums = ech_calloc(sums, sizeof *index.sums);
    ech_status st = sum_sequences(path, (int64_t)bin_bytes, &index);
    if (st != ECH_OK) {
        free(index.sums);
        return st;
    }
    *out = index;
    return ECH_OK;
}

void ech_token_index_close(ech_token_index *index)
{
    free(index->sums);
    index->sums = NULL;
}

int64_t ech_token_index_find(const ech_token_index *index, int64_t position, int64_t *first)
{
    /* The last sum that is not past the position, then on by single sequences. */
    int64_t low = 0, high = (index->sequences - 1) / SEQUENCES_PER_SUM;
    while (low < high) {
        int64_t middle = high - (high - low) / 2;
        if (index->sums[middle] <= position)
            low = middle;
        else
            high = middle - 1;
    }
    int64_t sequence = low * SEQUENCES_PER_SUM, begin = index->sums[low];
    for (;;) {
        int64_t length = ech_token_index_length(index, sequence);
        if (position - begin < length) break;
        begin += length;
        sequence++;
    }
    *first = begin;
    return sequence;
}
