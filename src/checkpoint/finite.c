/* SPDX-License-Identifier: Apache-2.0
 *
 * In IEEE 754 an exponent with all bits set is an infinity, or a NaN if any bit of the significand
 * is set.
 */
#include "checkpoint/finite.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 4096 }; /* elements that are looked at together */

/* The first of n words whose bits without the sign are at least the infinity's. The loop over a
 * block has no exit, so that it runs at the rate of memory. */
#define FIND(name, word)                                                                           \
    static int64_t name(const char *bytes, int64_t n, word infinity)                               \
    {                                                                                              \
        const word magnitude = (word) ~((word)1 << (8 * sizeof(word) - 1));                        \
        for (int64_t first = 0; first < n; first += BLOCK) {                                       \
            int64_t end = n - first < BLOCK ? n : first + BLOCK;                                   \
            word found = 0, value;                                                                 \
            for (int64_t i = first; i < end; i++) {                                                \
                memcpy(&value, bytes + (size_t)i * sizeof value, sizeof value);                    \
                found |= (word)((value & magnitude) >= infinity);                                  \
            }                                                                                      \
            for (int64_t i = first; found && i < end; i++) {                                       \
                memcpy(&value, bytes + (size_t)i * sizeof value, sizeof value);                    \
                if ((value & magnitude) >= infinity) return i;                                     \
            }                                                                                      \
        }                                                                                          \
        return -1;                                                                                 \
    }

FIND(find_16, uint16_t)
FIND(find_32, uint32_t)
FIND(find_64, uint64_t)
#undef FIND

static uint64_t infinity_of(ech_dtype dtype)
{
    static const uint64_t infinity[ECH_DTYPES] = {[ECH_F16] = 0x7c00,
                                                  [ECH_BF16] = 0x7f80,
                                                  [ECH_F32] = 0x7f800000,
                                                  [ECH_F64] = UINT64_C(0x7ff0000000000000)};
    return infinity[dtype];
}

int64_t ech_find_nonfinite(ech_dtype dtype, const void *bytes, int64_t n)
{
    uint64_t infinity = infinity_of(dtype);
    if (!ech_dtype_is_real(dtype)) return -1;
    if (ech_dtype_bytes(dtype) == 2) return find_16(bytes, n, (uint16_t)infinity);
    if (ech_dtype_bytes(dtype) == 4) return find_32(bytes, n, (uint32_t)infinity);
    return find_64(bytes, n, infinity);
}

const char *ech_nonfinite_name(ech_dtype dtype, const void *element)
{
    uint64_t bits = 0;
    memcpy(&bits, element, ech_dtype_bytes(dtype));
    uint64_t sign = UINT64_C(1) << (8 * ech_dtype_bytes(dtype) - 1);
    if ((bits & ~sign) != infinity_of(dtype)) return "nan";
    return bits & sign ? "-inf" : "inf";
}
