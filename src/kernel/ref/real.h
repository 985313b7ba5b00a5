/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition's number type. Every file of ref/ is compiled twice, once with ECH_REAL_F32 and
 * once with ECH_REAL_F64; tensors hold `real`, arithmetic is done in double and rounded once where
 * a result is stored.
 */
#ifndef ECH_KERNEL_REF_REAL_H
#define ECH_KERNEL_REF_REAL_H

#include "kernel/ref/rows.h"
#include "kernel/shape.h"

#ifdef ECH_REAL_F64
typedef double real;
#define ECH_REAL    ECH_F64
#define ECH_REF(op) ech_ref_##op##_f64
#else
typedef float real;
#define ECH_REAL    ECH_F32
#define ECH_REF(op) ech_ref_##op##_f32
#endif

#endif
