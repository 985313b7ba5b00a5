/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor is a view: shape, strides and dtype of memory that it does not own. Views are made on
 * the stack, passed by pointer, and copied freely.
 */
#ifndef ECH_TENSOR_TENSOR_H
#define ECH_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { ECH_MAX_DIMS = 4 };

typedef enum ech_dtype {
#define X(name, text, bytes, on_disk) ECH_##name,
#include "tensor/dtype.def"
#undef X
    ECH_DTYPES
} ech_dtype;

size_t ech_dtype_bytes(ech_dtype dtype);
const char *ech_dtype_name(ech_dtype dtype);    /* "fp32": in run files and prints */
const char *ech_dtype_on_disk(ech_dtype dtype); /* "F32": in safetensors; "": not there */
/* The inverses. False, *out unchanged: no type has that name. */
bool ech_dtype_from_name(const char *name, ech_dtype *out);
bool ech_dtype_from_disk(const char *name, ech_dtype *out);
/* True for a floating-point type that kernels compute in: fp32, fp64, bf16 or fp16. */
bool ech_dtype_is_real(ech_dtype dtype);
/* True if ech_convert accepts it: the types above, and e6m9, with 6 bits of exponent and 9 of
 * significand, which is only a transfer type (Ramesh et al. 2021, arXiv:2102.12092, appendix E:
 * wider than fp16's range, and more digits than bf16's). */
bool ech_dtype_converts(ech_dtype dtype);
/* The wide type of a run in `compute`: fp64 for fp64, otherwise fp32. */
ech_dtype ech_dtype_wide(ech_dtype compute);

/* The types of a run (mixed precision, Micikevicius et al. 2018, arXiv:1710.03740). In fp32 and
 * fp64 all three are equal. */
typedef struct ech_types {
    ech_dtype compute; /* of matrices and activations */
    /* of vectors, statistics, losses, masters and other optimizer states: ech_dtype_wide */
    ech_dtype wide;
    ech_dtype gradient; /* of the gradients of parameters of type `compute` */
} ech_types;

/* The types of a run in `compute` with gradients of the wide type. */
ech_types ech_types_of(ech_dtype compute);

/* How a value or parameter declares its type. */
typedef enum ech_type {
    ECH_TYPE_COMPUTE,
    ECH_TYPE_WIDE,
    ECH_TYPE_FIXED, /* the same in all runs */
} ech_type;

/* The dtype in a run of those types; `fixed` is for ECH_TYPE_FIXED. */
ech_dtype ech_type_dtype(ech_type type, ech_dtype fixed, ech_types types);

/* Converts n elements between floating-point types. Widening is exact; narrowing rounds to nearest,
 * ties to even, and overflows to infinity (IEEE 754). Both arrays are aligned for their types; they
 * must not overlap unless the types are the same. */
void ech_convert(const void *from, ech_dtype from_dtype, void *to, ech_dtype to_dtype, int64_t n);

typedef struct ech_tensor {
    void *data;
    ech_dtype dtype;
    int dims; /* 0 (a scalar) to ECH_MAX_DIMS */
    int64_t shape[ECH_MAX_DIMS];
    int64_t stride[ECH_MAX_DIMS]; /* in elements; the last is 1 in all tensors passed to kernels */
} ech_tensor;

/* A contiguous row-major view with `dims` dimensions of the sizes in `shape`. */
ech_tensor ech_tensor_view(void *data, ech_dtype dtype, int dims, const int64_t *shape);
ech_tensor ech_tensor_1d(void *data, ech_dtype dtype, int64_t n);
ech_tensor ech_tensor_2d(void *data, ech_dtype dtype, int64_t rows, int64_t columns);

/* A view of x with only [first, first + count) of dimension d. */
ech_tensor ech_tensor_narrow(const ech_tensor *x, int d, int64_t first, int64_t count);
/* ech_tensor_narrow for dimension 0. */
ech_tensor ech_tensor_rows(const ech_tensor *x, int64_t first, int64_t count);
/* All elements of a contiguous x in one dimension. */
ech_tensor ech_tensor_flat(const ech_tensor *x);
/* Flattens all but the last dimension: (B, T, C) -> (B·T, C), and (C) -> (1, C). The strides must
 * allow it. */
ech_tensor ech_tensor_matrix(const ech_tensor *x);

int64_t ech_tensor_count(const ech_tensor *x); /* elements */
size_t ech_tensor_bytes(const ech_tensor *x);  /* elements x bytes of one */
bool ech_tensor_is_contiguous(const ech_tensor *x);

/* sum[n] = ((p0 + p1) + p2) + ..., N addends in order, all of one type that ech_convert accepts;
 * halves are added in fp32 and rounded once. Addend `index` is own[n]; the others are in
 * parts[N-1][n], in order, which is overwritten. `sum` may be own or the first part. */
void ech_tensor_add_parts(const ech_tensor *own, const ech_tensor *parts, int64_t index,
                          const ech_tensor *sum);
/* y[n] = x[n], as ech_convert; both begin at the same address. */
void ech_tensor_convert(const ech_tensor *x, const ech_tensor *y);

#endif
