/* SPDX-License-Identifier: Apache-2.0
 *
 * The real type of the reference kernels. Every file of ref/ is compiled with ECH_REAL_F32 and again with ECH_REAL_F64;
 * those with rows of bf16.def also with ECH_REAL_BF16. Tensors hold `real`; arithmetic is in double, rounded once,
 * to nearest even, when a result is stored.
 */
#ifndef ECH_KERNEL_REF_REAL_H
#define ECH_KERNEL_REF_REAL_H

#include "kernel/ref/rows.h"
#include "kernel/shape.h"
#include "tensor/tensor.h"

#ifdef ECH_REAL_F64
typedef double real;
#define ECH_REAL    ECH_F64
#define ECH_REF(op) ech_ref_##op##_f64
#elif defined ECH_REAL_BF16
typedef uint16_t real; /* the bits */
#define ECH_REAL    ECH_BF16
#define ECH_REF(op) ech_ref_##op##_bf16
#else
typedef float real;
#define ECH_REAL    ECH_F32
#define ECH_REF(op) ech_ref_##op##_f32
#endif

/* Conversion from and to the stored type. */
#ifdef ECH_REAL_BF16
static inline double ech_value(real x)
{
    double value;
    ech_convert(&x, ECH_BF16, &value, ECH_F64, 1);
    return value;
}

static inline real ech_stored(double value)
{
    real x;
    ech_convert(&value, ECH_F64, &x, ECH_BF16, 1);
    return x;
}
#else
static inline double ech_value(real x)
{
    return (double)x;
}

static inline real ech_stored(double value)
{
    return (real)value;
}
#endif

#endif
