/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes of tensors.
 */
#include <string.h>

#include "kernel/hash.h"
#include "kernel/ref/real.h"

void ECH_REF(hash)(ech_kernel_context *context, const ech_tensor *x, int64_t first,
                   const ech_tensor *sum)
{
    size_t item = ech_dtype_bytes(x->dtype);
    uint64_t hash = 0;
    ECH_SHAPES(hash, ECH_REAL, x, sum);
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)x->data + (size_t)i * item, item);
        hash += ech_hash_of(first + i, bits);
    }
    *(uint64_t *)sum->data += hash;
}

void ECH_REF(hash_parts)(ech_kernel_context *context, const ech_tensor *sum,
                         const ech_tensor *parts)
{
    enum { QUARTERS = 4, BITS = 16 };
    ECH_SHAPES(hash_parts, ECH_REAL, sum, parts);
    double *to = parts->data;
    for (int i = 0; i < QUARTERS; i++) {
        to[i] = (double)(*(const uint64_t *)sum->data >> BITS * i & 0xffff);
        to[QUARTERS + i] = -to[i];
    }
}
