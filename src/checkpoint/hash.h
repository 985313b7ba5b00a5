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

/* Sees the bytes of a range that are hashed, piece by piece; pieces begin at multiples of 8. */
typedef struct ech_hash_visitor {
    void (*visit)(void *context, const char *bytes, size_t n, int64_t offset);
    void *context;
} ech_hash_visitor;
/* Reads and hashes range i of an open file of that size. visitor: NULL: none. */
ech_status ech_hash_file_range(int fd, const char *path, int64_t file_bytes, int64_t i,
                               const ech_hash_visitor *visitor, ech_hash *out);

/* Adds the bytes of a file that lie at `offset` to the sums of their ranges, modulo 2^64: of words of 8
 * bytes, each times an odd number of its own. So sums do not depend on who adds which bytes and when,
 * and another word gives another sum. */
void ech_sum_bytes(uint64_t *sums, const void *bytes, size_t n, int64_t offset);
/* The addend of bytes that all lie in one range. */
uint64_t ech_sum_part(const char *bytes, size_t n, int64_t offset);

/* A number that looks random, of each number. (The finalizer of splitmix64.) */
uint64_t ech_hash_number(uint64_t number);

bool ech_hash_equal(ech_hash a, ech_hash b);
/* 32 lower-case hexadecimal digits, high half first, as xxhsum prints them; then a NUL. */
void ech_hash_print(ech_hash hash, char digits[ECH_HASH_DIGITS + 1]);
/* False if the text does not begin with 32 such digits. */
bool ech_hash_parse(const char *digits, ech_hash *out);

#endif
