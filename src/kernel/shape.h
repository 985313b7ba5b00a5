/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of kernel arguments: shapes, dtypes, strides and scratch. A failed check is a programming
 * error: the process aborts with the tensor's name and both shapes.
 */
#ifndef ECH_KERNEL_SHAPE_H
#define ECH_KERNEL_SHAPE_H

#include "kernel/kernel.h"

/* Checks n tensors of a call against the shapes of its row of kernel.def; `real` is the table's
 * dtype. The first tensor with a letter determines the letter's size. */
void ech_shapes_check(const char *file, int line, ech_op op, ech_dtype real, int n,
                      const ech_tensor *const *x);
/* ECH_SHAPES(add, ECH_F32, a, b, y): all tensors that the row names, in its order. */
#define ECH_SHAPES(op, real, ...)                                                                  \
    ech_shapes_check(__FILE__, __LINE__, ECH_OP_##op, real,                                        \
                     (int)(sizeof((const ech_tensor *const[]){__VA_ARGS__}) / sizeof(void *)),     \
                     (const ech_tensor *const[]){__VA_ARGS__})

/* x with the sizes of op(x), which is x or its transpose: only to check a product. */
ech_tensor ech_shape_transposed(const ech_tensor *x, bool transposed);

/* Checks that the positions of `count` rows from rows->first ascend and are within the sample; and
 * that `starts` (kernel.def; NULL: not checked) has a row for each of their samples, with entries
 * in [0, position] that do not descend. */
void ech_rows_check(const char *file, int line, const ech_rows *rows, const ech_tensor *starts,
                    int64_t count);
#define ECH_ROWS(rows, starts, count) ech_rows_check(__FILE__, __LINE__, rows, starts, count)
/* ECH_ROWS for a view of B samples with all of the rank's tokens: rows->tokens is T, rows->first is
 * 0. */
#define ECH_SAMPLES(rows, starts, B, T)                                                            \
    do {                                                                                           \
        ECH_ROWS(rows, starts, (B) * (T));                                                         \
        ECH_ASSERT((rows)->tokens == (T) && (rows)->first == 0);                                   \
    } while (0)

/* The first line of a row with rows: reads their positions. */
#define ECH_ROWS_NOW(rows)                                                                         \
    const ech_rows rows_now = ech_rows_now(rows);                                                  \
    (rows) = &rows_now

/* Checks the arguments of gate_forward (kernel.def) against the gate: sizes of all members' rows
 * and groups. */
void ech_gate_check(const ech_gate *gate, const ech_tensor *logits, const ech_tensor *noise,
                    const ech_tensor *all, const ech_tensor *all_noise, const ech_rows *rows,
                    const ech_tensor *statistics, const ech_tensor *partial);

/* The context's scratch. Checks that it holds `bytes`. */
void *ech_scratch(const ech_kernel_context *context, size_t bytes);

#endif
