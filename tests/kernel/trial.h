/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial describes one call of one kernel, and any table runs it. The definition runs it in fp64
 * and fp32, and the fast rows of every instruction set with one to three threads, in bf16 and fp16,
 * too, if the trial says so. Memory has gaps where there is a stride, and guards all around, and
 * lies at aligned and at odd addresses. Scratch has exactly the bytes that the row needs. The
 * values are ordinary ones, and then some of them denormal, large, infinite or NaN.
 */
#ifndef ECH_TESTS_KERNEL_TRIAL_H
#define ECH_TESTS_KERNEL_TRIAL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"
#include "kernel/values.h"
#include "share.h"
#include "tensor/tensor.h"
#include "unit.h"

enum { TRIAL_TENSORS = 11, TRIAL_GUARD = 16, TRIAL_ALIGN = 64, TRIAL_THREADS = 3 };
/* Sanitizers look at addresses, slowly: which bits come out is left to the other builds. Of odd
 * values and of 16-bit types' wide tensors, every trial takes the next in turns. */
#ifdef __SANITIZE_ADDRESS__
enum { TRIAL_LEAST_THREADS = TRIAL_THREADS, TRIAL_IN_TURNS = 1 };
#else
enum { TRIAL_LEAST_THREADS = 1, TRIAL_IN_TURNS = 0 };
#endif

/* Outputs are full of NaN before the call, unless they are inputs as well. */
typedef enum trial_role { TRIAL_ABSENT, TRIAL_IN, TRIAL_OUT, TRIAL_IN_OUT } trial_role;

/* As kernel.def says. A TRIAL_EITHER is real, or wide where the way of a run says so. */
typedef enum trial_type { TRIAL_REAL, TRIAL_WIDE, TRIAL_EITHER, TRIAL_FIXED } trial_type;

/* Chooses the bound. The rows of kernel/cuda add in orders of their own, so they may have another
 * bound than the processor's. */
#ifdef TRIAL_CUDA
#define TRIAL_BOUND(processor, cuda) (cuda)
#else
#define TRIAL_BOUND(processor, cuda) (processor)
#endif
/* Of 16-bit products: a bias that cuBLASLt adds is rounded first. */
#ifdef TRIAL_GPU
#define TRIAL_HALF_PRODUCTS 1e-2
#else
#define TRIAL_HALF_PRODUCTS TRIAL_BOUND(4e-6, getenv("ECHELON_EMULATED_LIBRARY") ? 1e-2 : 4e-6)
#endif

typedef struct trial_tensor {
    trial_role role;
    int dims;
    int64_t shape[ECH_MAX_DIMS];
    double low, high; /* range of the values before the call */
    int64_t gap; /* elements between rows (2 dimensions) or tokens (4) that are not the view's */
    int alias;   /* shares the memory of tensor alias - 1; 0: has its own */
    trial_type type;
    ech_dtype dtype; /* of TRIAL_FIXED */
} trial_tensor;

typedef void (*trial_call)(const ech_kernels *kernels, ech_kernel_context *context,
                           const ech_tensor *const *t, const void *options);

/* call_ROW: calls that row with these arguments, of t, the tensors, and options; or of o, which
 * options are of that type. */
#define TRIAL_CALL(row, ...)                                                                       \
    static void call_##row(const ech_kernels *kernels, ech_kernel_context *context,                \
                           const ech_tensor *const *t, const void *options)                        \
    {                                                                                              \
        (void)options;                                                                             \
        kernels->row(context, __VA_ARGS__);                                                        \
    }
#define TRIAL_CALL_WITH(type, row, ...)                                                            \
    static void call_##row(const ech_kernels *kernels, ech_kernel_context *context,                \
                           const ech_tensor *const *t, const void *options)                        \
    {                                                                                              \
        const type *o = options;                                                                   \
        kernels->row(context, __VA_ARGS__);                                                        \
    }

typedef struct trial {
    const char *name;
    ech_op op;
    trial_call call;
    const void *options;
    int64_t dims[12]; /* of the scratch function */
    trial_tensor tensor[TRIAL_TENSORS];
    double tolerance;        /* of fp32 results, relative to the tensor's largest element */
    double tolerance_f64;    /* 0: 1e-12 */
    bool depends_on_threads; /* other bits with other numbers of threads */
    bool depends_on_address; /* other bits where memory is aligned otherwise */
    bool is_library;         /* the same function in each set: what it uses, ECHELON_ISA decides */
    bool spreads;    /* an infinity or a NaN may reach more of the results than in the definition */
    bool has_limits; /* at infinities, where the definition's formula has NaN */
    double large;    /* the magnitude up to which it computes as the definition does; 0: 1e18 */
    bool halves;     /* its tensors have their types, so it runs in bf16 and fp16 as well */
} trial;

/* The tensors of one run; values of all elements after it, as doubles, gaps left out. */
typedef struct trial_run {
    ech_tensor view[TRIAL_TENSORS];
    char *memory[TRIAL_TENSORS];
    size_t bytes[TRIAL_TENSORS];
    int64_t before[TRIAL_TENSORS]; /* elements of memory before the view */
    double *result[TRIAL_TENSORS];
} trial_run;

static inline double trial_get(const ech_tensor *x, int64_t at)
{
    double value;
    if (x->dtype == ECH_I32) return ((const int32_t *)x->data)[at];
    if (x->dtype == ECH_U8) return ((const uint8_t *)x->data)[at];
    if (x->dtype == ECH_F32) return (double)((const float *)x->data)[at];
    if (x->dtype == ECH_F64) return ((const double *)x->data)[at];
    const char *element = (const char *)x->data + (size_t)at * ech_dtype_bytes(x->dtype);
    ech_convert(element, x->dtype, &value, ECH_F64, 1);
    return value;
}

static inline void trial_set(const ech_tensor *x, int64_t at, double value)
{
    if (x->dtype == ECH_I32) {
        ((int32_t *)x->data)[at] = (int32_t)floor(value);
        return;
    }
    if (x->dtype == ECH_U8) {
        ((uint8_t *)x->data)[at] = (uint8_t)value;
        return;
    }
    char *element = (char *)x->data + (size_t)at * ech_dtype_bytes(x->dtype);
    ech_convert(&value, ECH_F64, element, x->dtype, 1);
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

/* Rows of elements side by side: their number, and of row r the first element. */
static inline int64_t trial_width(const ech_tensor *x)
{
    return x->dims ? x->shape[x->dims - 1] : 1;
}

static inline int64_t trial_rows(const ech_tensor *x)
{
    return trial_width(x) ? ech_tensor_count(x) / trial_width(x) : 0;
}

static inline char *trial_row_at(const ech_tensor *x, int64_t r)
{
    return (char *)x->data +
           trial_place(x, r * trial_width(x)) * (int64_t)ech_dtype_bytes(x->dtype);
}

/* All elements, gaps left out, from and to doubles: as trial_get and trial_set do, a row at a
 * time. */
static inline void trial_get_all(const ech_tensor *x, double *to)
{
    int64_t width = trial_width(x);
    for (int64_t r = 0; r < trial_rows(x); r++, to += width) {
        const char *from = trial_row_at(x, r);
        if (ech_dtype_is_real(x->dtype))
            ech_convert(from, x->dtype, to, ECH_F64, width);
        else
            for (int64_t i = 0; i < width; i++) to[i] = trial_get(x, trial_place(x, r * width + i));
    }
}

static inline void trial_set_all(const ech_tensor *x, const double *from)
{
    int64_t width = trial_width(x);
    for (int64_t r = 0; r < trial_rows(x); r++, from += width) {
        char *to = trial_row_at(x, r);
        if (ech_dtype_is_real(x->dtype))
            ech_convert(from, ECH_F64, to, x->dtype, width);
        else
            for (int64_t i = 0; i < width; i++)
                trial_set(x, trial_place(x, r * width + i), from[i]);
    }
}

/* What tensor i has before a call, gaps left out: drawn once for all runs of a trial. */
static inline const double *trial_values(const trial_tensor *want, int i, int64_t n)
{
    static struct drawn {
        int64_t n;
        double low, high;
        double *value;
    } all[TRIAL_TENSORS];
    struct drawn *d = &all[i];
    double low = want->role == TRIAL_OUT ? (double)NAN : want->low, high = want->high;
    bool same = d->value && d->n == n && memcmp(&d->low, &low, sizeof low) == 0;
    if (same && memcmp(&d->high, &high, sizeof high) == 0) return d->value;
    free(d->value);
    *d = (struct drawn){n, low, high, ech_calloc((size_t)n + 1, sizeof(double))};
    for (int64_t e = 0; e < n; e++)
        d->value[e] = want->role == TRIAL_OUT ? (double)NAN : value_at((uint32_t)i, e, low, high);
    return d->value;
}

/* How one run of a trial differs from another. */
typedef struct trial_way {
    int threads;
    bool
        is_odd; /* every tensor begins at an address of its own that is no multiple of a vector's */
    unsigned wide; /* bit i: tensor i, if a TRIAL_EITHER, is wide */
    void (*prepare)(const trial *t,
                    const ech_tensor *views); /* optional: changes the tensors first */
} trial_way;

static inline ech_dtype trial_dtype(const trial *t, int i, ech_dtype real, trial_way way)
{
    if (t->tensor[i].alias) i = t->tensor[i].alias - 1; /* which has its own memory */
    trial_type type = t->tensor[i].type;
    bool wide = type == TRIAL_WIDE || (type == TRIAL_EITHER && way.wide >> i & 1);
    return type == TRIAL_FIXED ? t->tensor[i].dtype : wide ? ech_dtype_wide(real) : real;
}

static inline void trial_lay_out(const trial *t, int i, ech_dtype real, trial_way way,
                                 trial_run *run)
{
    const trial_tensor *want = &t->tensor[i];
    ech_tensor view = ech_tensor_view(NULL, trial_dtype(t, i, real, way), want->dims, want->shape);
    int spaced = want->dims == 4 ? 1 : 0;
    for (int d = spaced; d >= 0 && want->gap; d--)
        view.stride[d] = view.stride[d + 1] * view.shape[d + 1] + (d == spaced ? want->gap : 0);
    int64_t elements = view.dims ? view.stride[0] * view.shape[0] : 1;
    size_t width = ech_dtype_bytes(view.dtype);
    run->bytes[i] = ((size_t)elements + 3 * TRIAL_GUARD) * width;
    if (want->alias) {
        view.data = run->view[want->alias - 1].data;
    } else {
        run->memory[i] = aligned_alloc(TRIAL_ALIGN, (run->bytes[i] + TRIAL_ALIGN - 1) /
                                                        TRIAL_ALIGN * TRIAL_ALIGN);
        assert_non_null(run->memory[i]);
        memset(run->memory[i], 0x7f, run->bytes[i]); /* a large number in every type */
        run->before[i] = TRIAL_GUARD + (way.is_odd ? 1 + 2 * i % TRIAL_GUARD : 0);
        view.data = run->memory[i] + (size_t)run->before[i] * width;
        trial_set_all(&view, trial_values(want, i, ech_tensor_count(&view)));
    }
    run->view[i] = view;
}

/* Every byte outside of the view is as before. */
static inline void trial_check_guards(const trial_run *run, int i)
{
    const ech_tensor *x = &run->view[i];
    size_t width = (size_t)trial_width(x) * ech_dtype_bytes(x->dtype);
    if (!run->memory[i]) return;
    char *expected = malloc(run->bytes[i]);
    assert_non_null(expected);
    memset(expected, 0x7f, run->bytes[i]);
    for (int64_t r = 0; r < trial_rows(x); r++) {
        const char *row = trial_row_at(x, r);
        memcpy(expected + (row - run->memory[i]), row, width);
    }
    assert_memory_equal(run->memory[i], expected, run->bytes[i]);
    free(expected);
}

/* Memory that begins as an arena's scratch does, which rows of GPUs rely on. */
static inline void *trial_scratch(size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 256, bytes ? bytes : 1), 0);
    return memory;
}

/* Lays out the tensors, lets `prepare` (optional) change them, calls, and collects. */
static inline trial_run trial_execute(const trial *t, const ech_kernels *kernels, trial_way way)
{
    trial_run run = {0};
    const ech_tensor *views[TRIAL_TENSORS] = {0};
    for (int i = 0; i < TRIAL_TENSORS; i++)
        if (t->tensor[i].role != TRIAL_ABSENT) {
            trial_lay_out(t, i, kernels->dtype, way, &run);
            views[i] = &run.view[i];
        }
    if (way.prepare) way.prepare(t, run.view);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(way.threads, &context), ECH_OK);
    context->scratch_bytes = ech_kernel_scratch(kernels, t->op, context->threads, t->dims);
    context->scratch = trial_scratch(context->scratch_bytes);
    memset(context->scratch, 0xff, context->scratch_bytes); /* NaN in every type */
    t->call(kernels, context, views, t->options);
    free(context->scratch);
    ech_kernel_context_destroy(context);
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (!views[i]) continue;
        trial_check_guards(&run, i);
        int64_t n = ech_tensor_count(views[i]);
        run.result[i] = ech_calloc((size_t)n, sizeof(double));
        trial_get_all(views[i], run.result[i]);
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

static inline void trial_differ(const trial *t, const char *what, int tensor, int64_t element,
                                double x, double y, double bound)
{
    fail_msg("%s (%s): %s differ in tensor %d, element %lld: %.9g and %.9g, bound %.2g", t->name,
             ech_op_name(t->op), what, tensor, (long long)element, x, y, bound);
}

/* A unit in the last place of a 16-bit type's number y; of the other types 0. */
static inline double trial_unit(double y, ech_dtype dtype)
{
    int exponent, kept = dtype == ECH_BF16 ? 7 : 10, least = dtype == ECH_F16 ? -14 : -126;
    if (dtype != ECH_BF16 && dtype != ECH_F16) return 0;
    frexp(y, &exponent); /* |y| is in [1/2, 1) 2^exponent */
    exponent = y == 0 || exponent - 1 < least ? least : exponent - 1;
    return ldexp(1, exponent - kept);
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
            trial_differ(t, what, i, e, x, y, bound);
        }
    }
}

/* ---- values that are not ordinary ---- */

typedef enum trial_kind {
    TRIAL_TINY,
    TRIAL_LARGE,
    TRIAL_INFINITE,
    TRIAL_NAN,
    TRIAL_KINDS
} trial_kind;
static const char *const trial_kind_names[] = {"with denormals", "with large numbers",
                                               "with infinities", "with NaN"};
static trial_kind trial_kind_now;
static ech_dtype trial_real_now; /* of the table */

/* Some elements of all inputs of the table's type are of that kind; infinities and NaN one in many,
 * so that good rows are left. */
static inline void trial_put_odd_values(const trial *t, const ech_tensor *views)
{
    static const int64_t every[] = {3, 5, 61, 61};
    const bool is_short = trial_real_now == ECH_F16;
    const double most = is_short ? 100 : 1e18;
    const double large = t->large > 0 && t->large < most ? t->large : most;
    const double value[] = {is_short ? 2e-6 : 3e-39, large, (double)INFINITY, (double)NAN};
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        const trial_tensor *x = &t->tensor[i];
        bool is_input = x->role == TRIAL_IN || x->role == TRIAL_IN_OUT;
        if (!is_input || x->type == TRIAL_FIXED || x->alias) continue;
        for (int64_t e = i, n = ech_tensor_count(&views[i]); e < n; e += every[trial_kind_now]) {
            /* Large numbers of both signs would cancel, down to what rounding left. */
            double sign = e % 2 && trial_kind_now != TRIAL_LARGE ? -1 : 1;
            trial_set(&views[i], trial_place(&views[i], e), sign * value[trial_kind_now]);
        }
    }
}

/* Of fp32 results of rows that are not the definition: functions of a GPU's own have other last
 * bits. */
static inline double trial_tolerance(double tolerance)
{
#ifdef TRIAL_GPU
    return tolerance > 1e-5 ? tolerance : 1e-5;
#else
    return tolerance;
#endif
}

/* Where y is finite, x is finite, too, and close to it relative to the tensor's largest element.
 * Where y is infinite or NaN, x is infinite or NaN (the row's order of operations decides which).
 * `spreads`: x may be infinite or NaN anywhere. */
static inline void trial_compare_odd(const trial *t, const char *what, const trial_run *a,
                                     const trial_run *b)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (t->tensor[i].role == TRIAL_ABSENT) continue;
        double most = 0.1; /* of inputs around 1, some results may be all that is left */
        int64_t n = ech_tensor_count(&a->view[i]);
        for (int64_t e = 0; e < n; e++)
            if (isfinite(b->result[i][e])) most = fmax(most, fabs(b->result[i][e]));
        for (int64_t e = 0; e < n; e++) {
            double x = a->result[i][e], y = b->result[i][e],
                   bound = 2 * trial_tolerance(t->tolerance) * most;
            bound += isfinite(y) ? trial_unit(y, a->view[i].dtype) : 0;
            bool same = isfinite(x) ? fabs(x - y) <= bound : !isfinite(y) || t->spreads;
            if (t->has_limits && trial_kind_now == TRIAL_INFINITE) same = same || isnan(y);
            if (!same) trial_differ(t, what, i, e, x, y, bound);
        }
    }
}

/* ---- every instruction set ---- */

/* A row of a table, only to be compared. */
static inline void (*trial_row(const ech_kernels *kernels, ech_op op))(void)
{
    void (*const rows[])(void) = {
#define X(name, ...) (void (*)(void)) kernels->name,
#include "kernel/kernel.def"
#undef X
    };
    return rows[op];
}

/* The fast rows of a set. NULL: the machine or the build lacks the set, or its row of the operation
 * is the one of the set before. */
static inline const ech_kernels *trial_set_of(ech_isa isa, ech_dtype dtype, ech_op op)
{
    const ech_kernels *fast = ech_kernels_of(isa, dtype), *before = NULL;
    for (int smaller = (int)isa - 1; smaller >= 0 && !before; smaller--)
        before = ech_kernels_of((ech_isa)smaller, dtype);
    if (!before) before = ech_kernels_ref(dtype);
    return fast && before && trial_row(fast, op) == trial_row(before, op) ? NULL : fast;
}

/* Fast rows against the definition, and against themselves: again, with more threads, elsewhere. */
static inline void trial_check_set(const trial *t, ech_isa isa, const trial_run *exact)
{
    const ech_kernels *fast = trial_set_of(isa, ECH_F32, t->op);
    const char *set = ech_isa_name(isa);
    char what[80];
    if (!fast) return;
    const double loose = t->depends_on_threads ? trial_tolerance(t->tolerance) : 0;
    const double moved = t->depends_on_address ? trial_tolerance(t->tolerance) : 0;
    trial_run one = trial_execute(t, fast, (trial_way){.threads = 1});
    snprintf(what, sizeof what, "fast (%s) and definition", set);
    trial_compare(t, what, &one, exact, trial_tolerance(t->tolerance));
    const bool counts = strcmp(fast->name, "cuda") != 0; /* whether numbers of threads do */
    for (int threads = counts ? TRIAL_LEAST_THREADS : TRIAL_THREADS; threads <= TRIAL_THREADS;
         threads++) {
        const trial_way way = {.threads = threads}, odd = {.threads = threads, .is_odd = true};
        trial_run first = trial_execute(t, fast, way), again = trial_execute(t, fast, way);
        trial_run elsewhere = trial_execute(t, fast, odd);
        snprintf(what, sizeof what, "one and %d threads (%s)", threads, set);
        trial_compare(t, what, &first, &one, threads == 1 ? 0 : loose);
        snprintf(what, sizeof what, "two runs of %d threads (%s)", threads, set);
        trial_compare(t, what, &again, &first, 0);
        snprintf(what, sizeof what, "aligned and odd addresses (%s)", set);
        trial_compare(t, what, &elsewhere, &first, moved);
        trial_free(&first);
        trial_free(&again);
        trial_free(&elsewhere);
    }
    trial_free(&one);
}

static inline void trial_check_odd_values(const trial *t, trial_kind kind, ech_dtype dtype,
                                          unsigned wide)
{
    const trial_way way = {.threads = 2, .wide = wide, .prepare = trial_put_odd_values};
    trial_kind_now = kind;
    trial_real_now = dtype;
    trial_run ref = trial_execute(t, ech_kernels_ref(dtype), way);
    for (ech_isa isa = 0; isa < ECH_ISAS; isa++) {
        char what[100];
        const ech_kernels *set = trial_set_of(isa, dtype, t->op);
        if (!set) continue;
        snprintf(what, sizeof what, "fast (%s %s, wide %x) and definition %s", ech_isa_name(isa),
                 ech_dtype_name(dtype), wide, trial_kind_names[kind]);
        trial_run fast = trial_execute(t, set, way);
        trial_compare_odd(t, what, &fast, &ref);
        trial_free(&fast);
    }
    trial_free(&ref);
}

/* ---- 16-bit types ---- */

/* As trial_compare; a result of 16 bits may also be the number next to the definition's. */
static inline void trial_compare_halves(const trial *t, const char *what, const trial_run *a,
                                        const trial_run *b, double tolerance)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (t->tensor[i].role == TRIAL_ABSENT) continue;
        ech_dtype dtype = a->view[i].dtype;
        double next = dtype == ECH_BF16 ? 0x1p-7 : dtype == ECH_F16 ? 0x1p-10 : 0;
        int64_t n = ech_tensor_count(&a->view[i]);
        /* What cancels leaves the rounding of inputs around 1. */
        double bound = tolerance * largest(n, b->result[i], 0.1);
        for (int64_t e = 0; e < n; e++) {
            double x = a->result[i][e], y = b->result[i][e], more = next * fabs(y);
            bool same = memcmp(&x, &y, sizeof x) == 0;
            if (same || (tolerance > 0 && fabs(x - y) <= bound + more)) continue;
            trial_differ(t, what, i, e, x, y, bound + more);
        }
    }
}

/* Compares the fast rows of bf16 and fp16 with the definition in the same type, for each
 * instruction set up to the process's, which limits the library. The `either` tensors are all real,
 * all wide, or in turns. `tolerance` is for results before they are rounded, `rounded` for results
 * of rounded intermediate values, or of a set that multiplies pairs. */
static inline void trial_run_halves(const trial *t, double tolerance, double rounded)
{
    static const unsigned masks[] = {0, ~0u, 0xaaaaaaaau};
    static int turn;
    int own = turn++ % 3;
    ech_isa most;
    assert_int_equal(ech_isa_decide(&most), ECH_OK);
    for (int c = 0; c < 6; c++) {
        if (TRIAL_IN_TURNS && c / 2 != own) continue;
        ech_dtype dtype = c % 2 ? ECH_F16 : ECH_BF16;
        trial_way way = {.threads = 1, .wide = masks[c / 2]};
        trial_run exact = trial_execute(t, ech_kernels_ref(dtype), way);
        for (ech_isa isa = 0; isa <= most; isa++) {
            char what[80];
            if (!ech_kernels_of(isa, dtype)) continue; /* not built */
            snprintf(what, sizeof what, "%s (%s) and definition, case %d", ech_dtype_name(dtype),
                     ech_isa_name(isa), c);
            bool pairs = strcmp(ech_kernels_of(isa, dtype)->name, "cuda") == 0 ||
                         (isa == ECH_ISA_AVX512BF16 && dtype == ECH_BF16);
            bool exactly = way.wide == ~0u && !pairs;
            double most_apart = trial_tolerance(exactly ? tolerance : rounded);
            way.threads = 1;
            trial_run one = trial_execute(t, ech_kernels_of(isa, dtype), way);
            trial_compare_halves(t, what, &one, &exact, most_apart);
            way.threads = TRIAL_THREADS;
            way.is_odd = true;
            trial_run other = trial_execute(t, ech_kernels_of(isa, dtype), way);
            trial_compare_halves(t, what, &other, &exact, most_apart);
            if (!t->depends_on_threads && !t->depends_on_address)
                trial_compare(t, what, &other, &one, 0);
            way.is_odd = false;
            trial_free(&one);
            trial_free(&other);
        }
        trial_free(&exact);
    }
}

static inline void trial_check_halves(const trial *t, double tolerance, double rounded)
{
    if (share_takes()) trial_run_halves(t, tolerance, rounded);
}

/* With values of every kind that is not ordinary; where sanitizers look, of one kind. */
static inline void trial_check_kinds(const trial *t)
{
    static int turn;
    int own = turn++ % TRIAL_KINDS;
    for (int kind = 0; kind < TRIAL_KINDS; kind++) {
        if (TRIAL_IN_TURNS && kind != own) continue;
        trial_check_odd_values(t, (trial_kind)kind, ECH_F32, 0);
        if (!t->halves) continue;
        trial_check_odd_values(t, (trial_kind)kind, ECH_BF16, 0x5);
        trial_check_odd_values(t, (trial_kind)kind, ECH_F16, 0x5);
    }
}

/* Compares the definition in fp32, and the fast rows in fp32 and fp64 of each instruction set that
 * works here, with the definition in fp64. The fast rows run again at other addresses, with other
 * numbers of threads, with odd values, and in 16-bit types. */
static inline void trial_check(const trial *t)
{
    if (!share_takes()) return;
    trial_run exact = trial_execute(t, ech_kernels_ref(ECH_F64), (trial_way){.threads = 1});
    trial_run ref = trial_execute(t, ech_kernels_ref(ECH_F32), (trial_way){.threads = 1});
    trial_compare(t, "fp32 and fp64 of the definition", &ref, &exact, t->tolerance);
    trial_free(&ref);
    const ech_kernels *exactly = trial_set_of(ECH_ISA_PORTABLE, ECH_F64, t->op);
    if (exactly) {
        trial_run same = trial_execute(t, exactly, (trial_way){.threads = 1});
        trial_compare(t, "fast and definition in fp64", &same, &exact,
                      t->tolerance_f64 > 0 ? t->tolerance_f64 : 1e-12);
        trial_free(&same);
    }
    const int sets = t->is_library ? 1 : ECH_ISAS;
    for (int isa = 0; isa < sets; isa++) trial_check_set(t, (ech_isa)isa, &exact);
    trial_free(&exact);
    if (t->halves) trial_run_halves(t, t->tolerance, t->tolerance);
    trial_check_kinds(t);
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
