/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3-128 of file ranges.
 */
#include "checkpoint/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

enum { CHUNK = 256 << 10 }; /* bytes read at a time */

ech_hash ech_hash_bytes(const void *bytes, size_t n)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (ech_hash){hash.high64, hash.low64};
}

int64_t ech_hash_ranges(int64_t file_bytes)
{
    return file_bytes / ECH_HASH_RANGE + (file_bytes % ECH_HASH_RANGE != 0);
}

ECH_DESTROY_AT(XXH3_state_t, XXH3_freeState)

ech_status ech_hash_file_range(int fd, const char *path, int64_t file_bytes, int64_t i,
                               const ech_hash_visitor *visitor, ech_hash *out)
{
    int64_t begin = i * ECH_HASH_RANGE;
    int64_t end = file_bytes - begin < ECH_HASH_RANGE ? file_bytes : begin + ECH_HASH_RANGE;
    ECH_CLEANUP(XXH3_freeState_at) XXH3_state_t *state = XXH3_createState();
    if (!state)
        ECH_FAIL(ECH_ENOMEM, "%s: no memory to hash it; end other programs that use memory", path);
    ECH_FREED char *buffer = ech_calloc(end - begin < CHUNK ? (size_t)(end - begin) : CHUNK, 1);
    XXH3_128bits_reset(state);
    while (begin < end) {
        size_t n = end - begin < CHUNK ? (size_t)(end - begin) : CHUNK;
        ECH_TRY(ech_file_read_at(fd, path, buffer, n, begin));
        XXH3_128bits_update(state, buffer, n);
        if (visitor) visitor->visit(visitor->context, buffer, n, begin);
        begin += (int64_t)n;
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    *out = (ech_hash){hash.high64, hash.low64};
    return ECH_OK;
}

/* ---- sums ---- */

enum { WORD = 8 }; /* bytes */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte i of a word has weight 256^i");

uint64_t ech_hash_number(uint64_t number)
{
    uint64_t x = number + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Odd, so that no difference of two words is lost. */
static uint64_t factor_of(uint64_t word)
{
    return ech_hash_number(word) | 1;
}

/* Bytes of one word. */
static uint64_t part_of_word(const char *bytes, size_t n, int64_t offset)
{
    uint64_t value = 0;
    memcpy((char *)&value + offset % WORD, bytes, n);
    return value * factor_of((uint64_t)(offset / WORD));
}

uint64_t ech_sum_part(const char *bytes, size_t n, int64_t offset)
{
    uint64_t sum = 0;
    size_t head = (size_t)(-(uint64_t)offset % WORD);
    if (head > n) head = n;
    if (head) sum += part_of_word(bytes, head, offset);
    size_t at = head;
    for (; n - at >= WORD; at += WORD) {
        uint64_t value;
        memcpy(&value, bytes + at, WORD);
        sum += value * factor_of(((uint64_t)offset + at) / WORD);
    }
    return at < n ? sum + part_of_word(bytes + at, n - at, offset + (int64_t)at) : sum;
}

void ech_sum_bytes(uint64_t *sums, const void *bytes, size_t n, int64_t offset)
{
    for (const char *from = bytes; n > 0;) {
        size_t left = (size_t)(ECH_HASH_RANGE - offset % ECH_HASH_RANGE),
               part = n < left ? n : left;
        sums[offset / ECH_HASH_RANGE] += ech_sum_part(from, part, offset);
        from += part;
        offset += (int64_t)part;
        n -= part;
    }
}

bool ech_hash_equal(ech_hash a, ech_hash b)
{
    return a.high == b.high && a.low == b.low;
}

void ech_hash_print(ech_hash hash, char digits[ECH_HASH_DIGITS + 1])
{
    snprintf(digits, ECH_HASH_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

bool ech_hash_parse(const char *digits, ech_hash *out)
{
    ech_hash hash;
    char text[ECH_HASH_DIGITS + 1], back[ECH_HASH_DIGITS + 1];
    snprintf(text, sizeof text, "%.*s", ECH_HASH_DIGITS, digits);
    if (sscanf(text, "%16" SCNx64 "%16" SCNx64, &hash.high, &hash.low) != 2) return false;
    ech_hash_print(hash, back);
    if (strcmp(text, back) != 0) return false; /* blanks, signs or upper case */
    *out = hash;
    return true;
}

_Static_assert((int)ECH_CHECKPOINT_DIGITS == (int)ECH_HASH_DIGITS, "the same digits");

ech_status ech_checkpoint_hash_file(const char *path, size_t limit,
                                    char digits[ECH_CHECKPOINT_DIGITS + 1])
{
    ECH_FREED char *bytes = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, limit, &bytes, &n));
    ech_hash_print(ech_hash_bytes(bytes, n), digits);
    return ECH_OK;
}
