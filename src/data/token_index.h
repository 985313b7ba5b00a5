/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: the .idx half of a token file, in the layout of Megatron's indexed datasets. All
 * numbers are little-endian and packed, so the arrays are not aligned:
 *
 *      0  "MMIDIDX\0\0"                9  u64 version = 1        17  u8 dtype code
 *     18  u64 sequences S             26  u64 entries D of the document indices
 *     34  i32[S]  lengths of the sequences, in tokens
 *         i64[S]  where each begins in .bin, in bytes
 *         i64[D]  document indices: 0, then the count of sequences after each document
 *         i8[S]   modes: only in multimodal files, not read
 */
#ifndef ECH_DATA_TOKEN_INDEX_H
#define ECH_DATA_TOKEN_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");

#define ECH_TOKEN_MAGIC "MMIDIDX\0" /* nine bytes with the NUL that ends the literal */
enum { ECH_TOKEN_MAGIC_BYTES = 9, ECH_TOKEN_HEADER_BYTES = 34, ECH_TOKEN_VERSION = 1 };

/* Codes of the dtypes that hold token ids here. */
enum { ECH_TOKEN_U8 = 1, ECH_TOKEN_I32 = 4, ECH_TOKEN_I64 = 5, ECH_TOKEN_U16 = 8 };

typedef struct ech_token_index {
    const unsigned char *bytes; /* borrowed */
    int dtype;
    int64_t width; /* bytes of a token */
    int64_t sequences, documents, tokens;
    int64_t *sums; /* [ceil(sequences / 64)]: tokens before sequence 64 k */
} ech_token_index;

/* PREFIX + suffix in new memory, released with free(). */
char *ech_token_path(const char *prefix, const char *suffix);

/* Checks every number of the n bytes of `path` against each other and against the bytes of .bin. */
ech_status ech_token_index_open(const char *path, const unsigned char *bytes, size_t n,
                                size_t bin_bytes, ech_token_index *out);
void ech_token_index_close(ech_token_index *index);

/* The sequence that holds the stream's token `position` < tokens, and the position of its first. */
int64_t ech_token_index_find(const ech_token_index *index, int64_t position, int64_t *first);

static inline int64_t ech_token_index_length(const ech_token_index *index, int64_t sequence)
{
    int32_t length;
    memcpy(&length, index->bytes + ECH_TOKEN_HEADER_BYTES + 4 * sequence, sizeof length);
    return length;
}

static inline int64_t ech_token_index_pointer(const ech_token_index *index, int64_t sequence)
{
    int64_t pointer;
    memcpy(&pointer, index->bytes + ECH_TOKEN_HEADER_BYTES + 4 * index->sequences + 8 * sequence,
           sizeof pointer);
    return pointer;
}

#endif
