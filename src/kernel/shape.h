/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of kernel arguments: shapes, dtypes, strides and scratch. A failed check is a programming error: it
 * aborts with the tensor's name and both shapes.
 */
#ifndef ECH_KERNEL_SHAPE_H
#define ECH_KERNEL_SHAPE_H

#include "kernel/kernel.h"

/* What a kernel requires of one of its tensors. */
typedef struct ech_shape_rule {
    const char *file;
    int line;
    const char *name; /* the argument */
    bool contiguous;  /* false: only the last dimension must be */
    ech_dtype dtype;
    int dims;
    int64_t shape[ECH_MAX_DIMS];
} ech_shape_rule;

void ech_shape_check(const ech_tensor *x, ech_shape_rule rule);
/* b has a's shape and dtype, and both are contiguous. */
void ech_shape_check_like(const char *file, int line, const ech_tensor *a, const ech_tensor *b);

#define ECH_SHAPE_COUNT(...) (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define ECH_SHAPE_RULE(x, packed, type, ...)                                                       \
    ech_shape_check(                                                                               \
        x, (ech_shape_rule){                                                                       \
               __FILE__, __LINE__, #x, packed, type, ECH_SHAPE_COUNT(__VA_ARGS__), {__VA_ARGS__}})

/* ECH_SHAPE(y, ECH_F32, R, C): y is a contiguous (R, C) tensor of fp32. */
#define ECH_SHAPE(x, type, ...) ECH_SHAPE_RULE(x, true, type, __VA_ARGS__)
/* The same, but only the last dimension must be contiguous. */
#define ECH_SHAPE_STRIDED(x, type, ...) ECH_SHAPE_RULE(x, false, type, __VA_ARGS__)
/* The same for an optional tensor. */
#define ECH_SHAPE_OPTIONAL(x, type, ...)                                                           \
    do {                                                                                           \
        if (x) ECH_SHAPE(x, type, __VA_ARGS__);                                                    \
    } while (0)
#define ECH_LIKE(a, b) ech_shape_check_like(__FILE__, __LINE__, a, b)

/* The positions of `count` rows from rows->first on ascend and are within the sample. */
void ech_rows_check(const char *file, int line, const ech_rows *rows, int64_t count);
#define ECH_ROWS(rows, count) ech_rows_check(__FILE__, __LINE__, rows, count)
/* The same for a view of whole local samples: rows->tokens is T, rows->first is 0. */
#define ECH_SAMPLES(rows, T)                                                                       \
    do {                                                                                           \
        ECH_ROWS(rows, T);                                                                         \
        ECH_ASSERT((rows)->tokens == (T) && (rows)->first == 0);                                   \
    } while (0)

/* `starts` (kernel.def) has a row for each sample that `count` rows from rows->first on touch; its entries are in
 * [0, position] and do not descend. */
void ech_starts_check(const char *file, int line, const ech_tensor *starts, const ech_rows *rows,
                      int64_t count);
#define ECH_DOCUMENTS(starts, rows, count) ech_starts_check(__FILE__, __LINE__, starts, rows, count)

/* The context's scratch, which must hold `bytes`. */
void *ech_scratch(const ech_kernel_context *context, size_t bytes);

#endif
