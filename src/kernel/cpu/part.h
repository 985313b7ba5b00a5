/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors in parts. Rows compute in fp32: a part of a 16-bit tensor is widened into a buffer that
 * stays in the L1 cache, and results are rounded once. Parts of fp32 tensors are read and written
 * in place. So a row is one loop for all types and their combinations, and in fp32 it is the same
 * as without parts.
 */
#ifndef ECH_KERNEL_CPU_PART_H
#define ECH_KERNEL_CPU_PART_H

#include <string.h>

#include "kernel/cpu/real.h"
#include "kernel/update.h"

/* Elements of a part. */
enum { ECH_PART = 1024 };

/* For buffers: a vector that crosses cache lines takes two accesses. */
#define ECH_ALIGNED _Alignas(64)

/* Elements of the part that begins with element `first` of n. */
ECH_INLINE int64_t ech_part(int64_t n, int64_t first, int64_t part)
{
    return n - first < part ? n - first : part;
}

/* Without instructions for fp16, the library's loops convert. */
#if defined(ECH_REAL_F16) && !defined(__F16C__)
enum { ECH_PART_CONVERTS = 1 };
#else
enum { ECH_PART_CONVERTS = 0 };
#endif

static inline void ech_widen(const ech_real *x, int64_t n, float *to)
{
    int64_t i = 0;
    if (ECH_PART_CONVERTS) {
        ech_convert(x, ECH_REAL, to, ECH_F32, n);
        return;
    }
    for (; i + ECH_WIDE <= n; i += ECH_WIDE) ech_wide_store(to + i, ech_wide_value(x + i));
    for (; i < n; i++) to[i] = ech_value(x[i]);
}

static inline void ech_narrow(const float *from, int64_t n, ech_real *x)
{
    int64_t i = 0;
    if (ECH_PART_CONVERTS) {
        ech_convert(from, ECH_F32, x, ECH_REAL, n);
        return;
    }
    for (; i + ECH_WIDE <= n; i += ECH_WIDE) ech_wide_stored(x + i, ech_wide_load(from + i));
    for (; i < n; i++) x[i] = ech_stored(from[i]);
}

/* One element of x's memory. */
ECH_INLINE float ech_number(const ech_tensor *x, int64_t i)
{
    return ech_either_value(ech_is_wide(x), x->data, i);
}

ECH_INLINE void ech_set_number(const ech_tensor *x, int64_t i, float value)
{
    ech_either_stored(ech_is_wide(x), x->data, i, value);
}

/* Elements [first, first + n) of x's memory, in place or in the buffer; NULL if x is. */
ECH_INLINE const float *ech_part_of(const ech_tensor *x, int64_t first, int64_t n, float *buffer)
{
    if (!x) return NULL;
    if (ech_is_wide(x)) return (const float *)x->data + first;
    ech_widen((const ech_real *)x->data + first, n, buffer);
    return buffer;
}

/* Where a part of y is to be written: in place, or in the buffer; ech_part_done then stores it. */
ECH_INLINE float *ech_part_to(const ech_tensor *y, int64_t first, float *buffer)
{
    return ech_is_wide(y) ? (float *)y->data + first : buffer;
}

ECH_INLINE void ech_part_done(const ech_tensor *y, int64_t first, int64_t n, const float *buffer)
{
    if (!ech_is_wide(y)) ech_narrow(buffer, n, (ech_real *)y->data + first);
}

/* Copies n elements of x from element `from` to y from element `to`, rounded if y is narrower. */
ECH_INLINE void ech_part_copy(const ech_tensor *x, int64_t from, int64_t n, const ech_tensor *y,
                              int64_t to)
{
    if (ech_is_wide(x) && !ech_is_wide(y))
        ech_narrow((const float *)x->data + from, n, (ech_real *)y->data + to);
    else if (!ech_is_wide(x) && ech_is_wide(y))
        ech_widen((const ech_real *)x->data + from, n, (float *)y->data + to);
    else
        memcpy(ech_either_at(y, to), ech_either_at(x, from),
               (size_t)n * (ech_is_wide(x) ? sizeof(float) : sizeof(ech_real)));
}

/* The rounded copy of a parameter whose update is withheld. */
static inline void ech_round_param(const ech_tensor *param, const ech_tensor *rounded)
{
    if (rounded) ech_part_copy(param, 0, ech_tensor_count(param), rounded, 0);
}

#endif
