/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes and checksums of file ranges of 16 MiB. The manifest has the XXH3-128 of each range, so
 * that an error can name the damaged range. During a save, checksums show that the bytes read back
 * and hashed are those that ranks had in memory: each adds up what it writes, and these sums are
 * added over ranks. None is collective.
 */
#ifndef ECH_CHECKPOINT_HASH_H
#define ECH_CHECKPOINT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { ECH_HASH_RANGE = 16 << 20, ECH_HASH_DIGITS = 32 }; /* bytes; characters without the NUL */

typedef struct ech_hash {
    uint64_t high, low;
} ech_hash;

ech_hash ech_hash_bytes(const void *bytes, size_t n);

/* The number of ranges of a file. The last range may be shorter. */
int64_t ech_hash_ranges(int64_t file_bytes);

/* A callback that gets the bytes of a range as they are hashed, in blocks. offset: in the file, a
 * multiple of 8. */
typedef struct ech_hash_visitor {
    void (*visit)(void *context, const char *bytes, size_t n, int64_t offset);
    void *context;
} ech_hash_visitor;
/* Reads and hashes range i of an open file of file_bytes. visitor: may be NULL. Errors name
 * `path`. */
ech_status ech_hash_file_range(int fd, const char *path, int64_t file_bytes, int64_t i,
                               const ech_hash_visitor *visitor, ech_hash *out);

/* Adds n bytes, which are at byte `offset` of a file, to `sums`: [ech_hash_ranges] checksums of the
 * file's ranges, at first 0. Any offset and n will do. A checksum is the sum modulo 2^64 of the
 * range's 8-byte words (little-endian, bytes that are not added count as 0), each times an odd
 * number that depends on the word's place in the file. So it does not depend on the order or the
 * blocks in which bytes are added, and changes with any single word. */
void ech_sum_bytes(uint64_t *sums, const void *bytes, size_t n, int64_t offset);
/* The number that ech_sum_bytes adds for n bytes that are all in one range. */
uint64_t ech_sum_part(const char *bytes, size_t n, int64_t offset);

/* A 64-bit hash of a number (the finalizer of splitmix64), from which checksums take their
 * factors. */
uint64_t ech_hash_number(uint64_t number);

bool ech_hash_equal(ech_hash a, ech_hash b);
/* Writes 32 lower-case hexadecimal digits, high half first, as xxhsum prints them, and a NUL. */
void ech_hash_print(ech_hash hash, char digits[ECH_HASH_DIGITS + 1]);
/* False: `digits` does not begin with 32 digits as ech_hash_print writes them; what follows them is
 * ignored. */
bool ech_hash_parse(const char *digits, ech_hash *out);

#endif
