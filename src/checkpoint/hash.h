/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes and checksums of file ranges of 16 MiB. The manifest has the XXH3-128 of each range, so that an error can
 * name the damaged range.
 */
#ifndef ECH_CHECKPOINT_HASH_H
#define ECH_CHECKPOINT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { ECH_HASH_RANGE = 16 << 20, ECH_HASH_DIGITS = 32 };

typedef struct ech_hash {
    uint64_t high, low;
} ech_hash;

ech_hash ech_hash_bytes(const void *bytes, size_t n);

/* The number of ranges of a file. The last range may be shorter. */
int64_t ech_hash_ranges(int64_t file_bytes);

/* A callback that gets the bytes of a range as they are hashed, in blocks that begin at multiples of 8. */
typedef struct ech_hash_visitor {
    void (*visit)(void *context, const char *bytes, size_t n, int64_t offset);
    void *context;
} ech_hash_visitor;
/* Reads and hashes range i of an open file of file_bytes. visitor: may be NULL. */
ech_status ech_hash_file_range(int fd, const char *path, int64_t file_bytes, int64_t i,
                               const ech_hash_visitor *visitor, ech_hash *out);

/* Adds n bytes, at `offset` of a file, to the checksums of their ranges: sums modulo 2^64 of 8-byte words, each times
 * an odd number that depends on its offset. So a checksum does not depend on the order or the blocks in which bytes
 * are added, and changes with any single word. */
void ech_sum_bytes(uint64_t *sums, const void *bytes, size_t n, int64_t offset);
/* What ech_sum_bytes adds, for bytes in one range. */
uint64_t ech_sum_part(const char *bytes, size_t n, int64_t offset);

/* A 64-bit hash of a number: the finalizer of splitmix64. */
uint64_t ech_hash_number(uint64_t number);

bool ech_hash_equal(ech_hash a, ech_hash b);
/* Writes 32 lower-case hexadecimal digits, high half first, as xxhsum prints them, and a NUL. */
void ech_hash_print(ech_hash hash, char digits[ECH_HASH_DIGITS + 1]);
/* False: the text does not begin with 32 such digits. */
bool ech_hash_parse(const char *digits, ech_hash *out);

#endif
