/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3-128 of file ranges of 16 MiB: what the manifest holds, so that damage is found and its place
 * is named.
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

/* Ranges of a file; the last one may be shorter. */
int64_t ech_hash_ranges(int64_t file_bytes);
/* Reads and hashes range i of an open file of that size. */
ech_status ech_hash_file_range(int fd, const char *path, int64_t file_bytes, int64_t i,
                               ech_hash *out);

bool ech_hash_equal(ech_hash a, ech_hash b);
/* 32 lower-case hexadecimal digits, high half first, as xxhsum prints them; then a NUL. */
void ech_hash_print(ech_hash hash, char digits[ECH_HASH_DIGITS + 1]);
/* False if the text does not begin with 32 such digits. */
bool ech_hash_parse(const char *digits, ech_hash *out);

#endif
