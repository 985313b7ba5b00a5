/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the .idx of a token file, in the format of Megatron's indexed datasets. All
 * numbers are little-endian and packed, so arrays are not aligned:
 *
 *      0  "MMIDIDX\0\0"                9  u64 version = 1        17  u8 dtype code
 *     18  u64 sequences S             26  u64 document indices D
 *     34  i32[S]  lengths of the sequences, in tokens
 *         i64[S]  where each begins in .bin, in bytes
 *         i64[D]  document indices: 0, then for each document the number of sequences up to its end
 *         i8[S]   optional: modes: 0 trained on, 1 not trained on (a prompt)
 */
#ifndef ECH_DATA_TOKEN_INDEX_H
#define ECH_DATA_TOKEN_INDEX_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");

#define ECH_TOKEN_MAGIC "MMIDIDX\0" /* nine bytes with the NUL that ends the literal */
enum { ECH_TOKEN_VERSION = 1 };

typedef struct __attribute__((packed)) ech_token_header {
    char magic[9];
    uint64_t version;
    uint8_t dtype;
    uint64_t sequences, entries;
} ech_token_header;

/* Megatron's codes of the dtypes that are supported. */
enum { ECH_TOKEN_U8 = 1, ECH_TOKEN_I32 = 4, ECH_TOKEN_I64 = 5, ECH_TOKEN_U16 = 8 };

/* Modes of sequences. */
enum { ECH_TOKEN_TRAINED = 0, ECH_TOKEN_PROMPT = 1 };

/* PREFIX.values has an f32 number for each token of .bin. A token file with it consists of samples
 * of features (data.h). */
#define ECH_TOKEN_VALUES ".values"

/* PREFIX + suffix in new memory, released with free(). */
char *ech_token_path(const char *prefix, const char *suffix);

#endif
