/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of one kernel, described once and run by any table: in fp64 and fp32 by the definition,
 * and by the fast rows with one and two threads. Memory is laid out with gaps where a stride asks
 * for them and with guards all around; scratch has exactly the bytes that the row asks for.
 */
#ifndef ECH_TESTS_KERNEL_TRIAL_H
#define ECH_TESTS_KERNEL_TRIAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"
#include "kernel/values.h"

enum { TRIAL_TENSORS = 11, TRIAL_GUARD = 16 };

/* Outputs are full of NaN before the call, unless they are inputs as well. */
typedef enum trial_role { TRIAL_ABSENT, TRIAL_IN, TRIAL_OUT, TRIAL_IN_OUT } trial_role;

typedef struct trial_tensor {
    trial_role role;
    int dims;
    int64_t shape[ECH_MAX_DIMS];
    double low, high; /* range of the values before the call */
    int64_t gap;   /* elements between rows (2 dimensions) or tokens (4) that are not the view's */
    int alias;     /* shares the memory of tensor alias - 1; 0: has its own */
    bool is_fixed; /* of type `dtype` in every table, otherwise of the table's */
    ech_dtype dtype;
} trial_tensor;

typedef void (*trial_call)(const ech_kernels *kernels, ech_kernel_context *context,
                           const ech_tensor *const *t, const void *options);

typedef struct trial {
    const char *name;
    ech_op op;
    trial_call call;
    const void *options;
    int64_t dims[ECH_MAX_DIMS * 2]; /* of the scratch function */
    trial_tensor tensor[TRIAL_TENSORS];
    double tolerance; /* of fp32 results, relative to the tensor's largest element */
    bool depends_on_threads;
} trial;

/* The tensors of one run; values of all elements after it, as doubles, gaps left out. */
typedef struct trial_run {
    ech_tensor view[TRIAL_TENSORS];
    char *memory[TRIAL_TENSORS];
    size_t bytes[TRIAL_TENSORS];
    double *result[TRIAL_TENSORS];
} trial_run;

static inline double trial_get(const ech_tensor *x, int64_t at)
{
    switch (x->dtype) {
    case ECH_F32:
        return (double)((const float *)x->data)[at];
    case ECH_F64:
        return ((const double *)x->data)[at];
    default:
        return ((const int32_t *)x->data)[at];
    }
}

static inline void trial_set(const ech_tensor *x, int64_t at, double value)
{
    switch (x->dtype) {
    case ECH_F32:
        ((float *)x->data)[at] = (float)value;
        break;
    case ECH_F64:
        ((double *)x->data)[at] = value;
        break;
    default:
        ((int32_t *)x->data)[at] = (int32_t)floor(value);
    }
}

/* Where element i, counted without gaps, lies. */
static inline int64_t trial_place(const ech_tensor *x, int64_t i)
{
    int64_t place = 0;
    for (int d = x->dims - 1; d >= 0; d--) {
        place += i % x->shape[d] * x->stride[d];
        i /= x->shape[d];
    }
    return place;
}

static inline void trial_lay_out(const trial *t, int i, ech_dtype real, trial_run *run)
{
    const trial_tensor *want = &t->tensor[i];
    ech_tensor view =
        ech_tensor_view(NULL, want->is_fixed ? want->dtype : real, want->dims, want->shape);
    int spaced = want->dims == 4 ? 1 : 0;
    for (int d = spaced; d >= 0 && want->gap; d--)
        view.stride[d] = view.stride[d + 1] * view.shape[d + 1] + (d == spaced ? want->gap : 0);
    int64_t elements = view.dims ? view.stride[0] * view.shape[0] : 1;
    size_t width = ech_dtype_bytes(view.dtype);
    run->bytes[i] = ((size_t)elements + 2 * TRIAL_GUARD) * width;
    if (want->alias) {
        view.data = run->view[want->alias - 1].data;
    } else {
        run->memory[i] = ech_calloc(run->bytes[i], 1);
        memset(run->memory[i], 0x7f, run->bytes[i]); /* a large number in every type */
        view.data = run->memory[i] + TRIAL_GUARD * width;
        for (int64_t e = 0, n = ech_tensor_count(&view); e < n; e++)
            trial_set(&view, trial_place(&view, e),
                      want->role == TRIAL_OUT ? (double)NAN
                                              : value_at((uint32_t)i, e, want->low, want->high));
    }
    run->view[i] = view;
}

/* Every byte outside of the view is as before. */
static inline void trial_check_guards(const trial_run *run, int i)
{
    const ech_tensor *x = &run->view[i];
    size_t width = ech_dtype_bytes(x->dtype);
    if (!run->memory[i]) return;
    char *seen = ech_calloc(run->bytes[i], 1);
    for (int64_t e = 0, n = ech_tensor_count(x); e < n; e++)
        memset(seen + (size_t)(trial_place(x, e) + TRIAL_GUARD) * width, 1, width);
    for (size_t b = 0; b < run->bytes[i]; b++)
        if (!seen[b]) assert_int_equal(run->memory[i][b], 0x7f);
    free(seen);
}

/* Lays out the tensors, lets `prepare` (optional) change them, calls, and collects. */
static inline trial_run trial_execute(const trial *t, const ech_kernels *kernels, int threads,
                                      void (*prepare)(const ech_tensor *views))
{
    trial_run run = {0};
    const ech_tensor *views[TRIAL_TENSORS] = {0};
    for (int i = 0; i < TRIAL_TENSORS; i++)
        if (t->tensor[i].role != TRIAL_ABSENT) {
            trial_lay_out(t, i, kernels->dtype, &run);
            views[i] = &run.view[i];
        }
    if (prepare) prepare(run.view);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(threads, &context), ECH_OK);
    context->scratch_bytes = ech_kernel_scratch(kernels, t->op, context->threads, t->dims);
    context->scratch = malloc(context->scratch_bytes ? context->scratch_bytes : 1);
    assert_non_null(context->scratch);
    memset(context->scratch, 0xff, context->scratch_bytes); /* NaN in every type */
    t->call(kernels, context, views, t->options);
    free(context->scratch);
    ech_kernel_context_destroy(context);
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (!views[i]) continue;
        trial_check_guards(&run, i);
        int64_t n = ech_tensor_count(views[i]);
        run.result[i] = ech_calloc((size_t)n, sizeof(double));
        for (int64_t e = 0; e < n; e++)
            run.result[i][e] = trial_get(views[i], trial_place(views[i], e));
    }
    return run;
}

static inline void trial_free(trial_run *run)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        free(run->memory[i]);
        free(run->result[i]);
    }
}

/* All elements of all tensors agree within tolerance x the tensor's largest element; 0: bitwise. */
static inline void trial_compare(const trial *t, const char *what, const trial_run *a,
                                 const trial_run *b, double tolerance)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (t->tensor[i].role == TRIAL_ABSENT) continue;
        int64_t n = ech_tensor_count(&a->view[i]);
        double bound = tolerance * largest(n, b->result[i], 1e-3);
        for (int64_t e = 0; e < n; e++) {
            double x = a->result[i][e], y = b->result[i][e];
            bool same = memcmp(&x, &y, sizeof x) == 0;
            if (same || (tolerance > 0 && fabs(x - y) <= bound)) continue;
            fail_msg("%s (%s): %s differ in tensor %d, element %lld: %.9g and %.9g, bound %.2g",
                     t->name, ech_op_name(t->op), what, i, (long long)e, x, y, bound);
        }
    }
}

/* The definition in fp32 and the fast rows (where this build has any) against the definition in
 * fp64; the fast rows again, and with another number of threads. */
static inline void trial_check(const trial *t)
{
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    trial_run exact = trial_execute(t, ech_kernels_ref(ECH_F64), 1, NULL);
    trial_run ref = trial_execute(t, ech_kernels_ref(ECH_F32), 1, NULL);
    trial_compare(t, "fp32 and fp64 of the definition", &ref, &exact, t->tolerance);
    trial_free(&ref);
    if (fast == ech_kernels_ref(ECH_F32)) {
        trial_free(&exact);
        return;
    }
    trial_run one = trial_execute(t, fast, 1, NULL);
    trial_run two = trial_execute(t, fast, 2, NULL);
    trial_run again = trial_execute(t, fast, 2, NULL);
    trial_compare(t, "fast and definition", &one, &exact, t->tolerance);
    trial_compare(t, "one and two threads", &two, &one, t->depends_on_threads ? t->tolerance : 0);
    trial_compare(t, "two runs", &again, &two, 0);
    trial_free(&exact);
    trial_free(&one);
    trial_free(&two);
    trial_free(&again);
}

static inline void trial_check_all(const trial *trials, size_t count)
{
    for (size_t i = 0; i < count; i++) trial_check(&trials[i]);
}

#define TRIAL_COUNT(trials) (sizeof(trials) / sizeof *(trials))

/* Shorthands for tables: values in (-1, 1). */
#define TRIAL_INPUT(...)                                                                           \
    {                                                                                              \
        .role = TRIAL_IN, .low = -1, .high = 1, __VA_ARGS__                                        \
    }
#define TRIAL_RESULT(...)                                                                          \
    {                                                                                              \
        .role = TRIAL_OUT, __VA_ARGS__                                                             \
    }
#define TRIAL_CHANGED(...)                                                                         \
    {                                                                                              \
        .role = TRIAL_IN_OUT, .low = -1, .high = 1, __VA_ARGS__                                    \
    }
#define TRIAL_1D(n)          .dims = 1, .shape = {n}
#define TRIAL_2D(a, b)       .dims = 2, .shape = {a, b}
#define TRIAL_3D(a, b, c)    .dims = 3, .shape = {a, b, c}
#define TRIAL_4D(a, b, c, d) .dims = 4, .shape = {a, b, c, d}

#endif
