/* SPDX-License-Identifier: Apache-2.0
 *
 * The real type of the reference kernels. Every file of ref/ is compiled once per type, with
 * ECH_REAL_F32, _F64, _BF16 or _F16. Elements are read and written in their tensor's dtype, which
 * is `real` or `wide`; in fp32 and fp64 these are equal, and nothing is checked. Arithmetic is in
 * double, and rounds once, to nearest even, when a result is stored.
 */
#ifndef ECH_KERNEL_REF_REAL_H
#define ECH_KERNEL_REF_REAL_H

#include "kernel/ref/rows.h"
#include "kernel/shape.h"
#include "kernel/update.h"
#include "tensor/tensor.h"

#ifdef ECH_REAL_F64
typedef double wide;
#else
typedef float wide;
#endif

#if defined ECH_REAL_F64
#define ECH_REAL    ECH_F64
#define ECH_REF(op) ech_ref_##op##_f64
#elif defined ECH_REAL_BF16
#define ECH_REAL    ECH_BF16
#define ECH_REF(op) ech_ref_##op##_bf16
#elif defined ECH_REAL_F16
#define ECH_REAL    ECH_F16
#define ECH_REF(op) ech_ref_##op##_f16
#else
#define ECH_REAL    ECH_F32
#define ECH_REF(op) ech_ref_##op##_f32
#endif

/* True if the tensor's elements have 16 bits. */
static inline bool ech_is_half(const ech_tensor *x)
{
    return ECH_REAL != ECH_F32 && ECH_REAL != ECH_F64 && x->dtype == ECH_REAL;
}

/* Element i of x's memory. */
static inline double ech_value(const ech_tensor *x, int64_t i)
{
    double value;
    if (!ech_is_half(x)) return (double)((const wide *)x->data)[i];
    ech_convert((const uint16_t *)x->data + i, ECH_REAL, &value, ECH_F64, 1);
    return value;
}

static inline void ech_store(const ech_tensor *x, int64_t i, double value)
{
    if (ech_is_half(x))
        ech_convert(&value, ECH_F64, (uint16_t *)x->data + i, ECH_REAL, 1);
    else
        ((wide *)x->data)[i] = (wide)value;
}

/* Element i of a parameter and, optionally, of its rounded copy, which is made from the stored
 * number. */
static inline void ech_store_param(const ech_tensor *param, const ech_tensor *rounded, int64_t i,
                                   double value)
{
    ech_store(param, i, value);
    if (rounded) ech_store(rounded, i, ech_value(param, i));
}

/* The rounded copy of a parameter whose update is withheld. */
static inline void ech_store_rounded(const ech_tensor *param, const ech_tensor *rounded)
{
    for (int64_t i = 0; rounded && i < ech_tensor_count(param); i++)
        ech_store(rounded, i, ech_value(param, i));
}

/* Where token t of sample b and head h begins in the memory of x (B,T,H,D). */
static inline int64_t ech_head(const ech_tensor *x, int64_t b, int64_t t, int64_t h)
{
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

#endif
