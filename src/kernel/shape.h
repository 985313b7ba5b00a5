/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of kernel arguments: shapes, dtypes, strides and scratch. A failed check is a programming error: it
 * aborts with the tensor's name and both shapes.
 */
#ifndef ECH_KERNEL_SHAPE_H
#define ECH_KERNEL_SHAPE_H

#include "kernel/kernel.h"

/* Checks n tensors of a call against the shapes of its row (kernel.def); real is the table's type. A letter's size
 * is that of the first tensor that has it. */
void ech_shapes_check(const char *file, int line, ech_op op, ech_dtype real, int n,
                      const ech_tensor *const *x);
/* ECH_SHAPES(add, ECH_F32, a, b, y): all tensors that the row names, in its order. */
#define ECH_SHAPES(op, real, ...)                                                                  \
    ech_shapes_check(__FILE__, __LINE__, ECH_OP_##op, real,                                        \
                     (int)(sizeof((const ech_tensor *const[]){__VA_ARGS__}) / sizeof(void *)),     \
                     (const ech_tensor *const[]){__VA_ARGS__})

/* x with the sizes of op(x): only for the check of a product. */
ech_tensor ech_shape_transposed(const ech_tensor *x, bool transposed);

/* The positions of `count` rows from rows->first on ascend and are within the sample. `starts` (kernel.def), if not
 * NULL, has a row for each sample that they touch; its entries are in [0, position] and do not descend. */
void ech_rows_check(const char *file, int line, const ech_rows *rows, const ech_tensor *starts,
                    int64_t count);
#define ECH_ROWS(rows, starts, count) ech_rows_check(__FILE__, __LINE__, rows, starts, count)
/* The same for a view of B whole local samples: rows->tokens is T, rows->first is 0. */
#define ECH_SAMPLES(rows, starts, B, T)                                                            \
    do {                                                                                           \
        ECH_ROWS(rows, starts, (B) * (T));                                                         \
        ECH_ASSERT((rows)->tokens == (T) && (rows)->first == 0);                                   \
    } while (0)

/* The context's scratch, which must hold `bytes`. */
void *ech_scratch(const ech_kernel_context *context, size_t bytes);

#endif
