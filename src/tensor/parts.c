/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of parts in order, and changes of type in place: what reductions over ranks compute.
 */
#include <string.h>

#include "tensor/tensor.h"

enum {
    BLOCK_BYTES = 8192, /* of each addend: what is added up stays in the fastest cache */
    HALVES = 1024       /* elements of a block on the stack */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- fp32 and fp64 ---- */

#define X(name, type)                                                                              \
    static void add_to_##name(type *restrict to, const type *restrict from, int64_t n)             \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) to[i] += from[i];                                          \
    }                                                                                              \
    static void add_two_##name(type *restrict to, const type *restrict a, const type *restrict b,  \
                               int64_t n)                                                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];                                       \
    }
X(f32, float)
X(f64, double)
#undef X

static void add_to(ech_dtype dtype, void *to, const void *from, int64_t n)
{
    if (dtype == ECH_F32)
        add_to_f32(to, from, n);
    else
        add_to_f64(to, from, n);
}

/* to = a + b; `to` may be a or b. */
static void add_two(ech_dtype dtype, char *to, const char *a, const char *b, int64_t n)
{
    if (to == a)
        add_to(dtype, to, b, n);
    else if (to == b)
        add_to(dtype, to, a, n);
    else if (dtype == ECH_F32)
        add_two_f32((float *)to, (const float *)a, (const float *)b, n);
    else
        add_two_f64((double *)to, (const double *)a, (const double *)b, n);
}

/* A block of all addends. */
typedef struct addends {
    ech_dtype dtype;
    int members, index;
    const char *own;
    char *parts, *to;
    size_t stride; /* bytes from one part to the next */
} addends;

/* Until own has been added the sum lies in the first part, since `to` may be own. */
static void add_block(const addends *a, int64_t n)
{
    char *parts = a->parts;
    const char *total = a->index == 0 ? a->own : parts;
    const char *next = a->index == 0 ? parts : parts + a->stride;
    for (int i = 1; i < a->members; i++) {
        char *into = i < a->index ? parts : a->to;
        add_two(a->dtype, into, total, i == a->index ? a->own : next, n);
        total = into;
        if (i != a->index) next += a->stride;
    }
}

/* ---- halves: in fp32, and rounded once ---- */

static void add_halves(const addends *a, int64_t n)
{
    float total[HALVES], next[HALVES];
    const char *part = a->parts;
    for (int i = 0; i < a->members; i++) {
        const char *addend = i == a->index ? a->own : part;
        if (i != a->index) part += a->stride;
        ech_convert(addend, a->dtype, i == 0 ? total : next, ECH_F32, n);
        if (i > 0) add_to_f32(total, next, n);
    }
    ech_convert(total, ECH_F32, a->to, a->dtype, n);
}

void ech_tensor_add_parts(const ech_tensor *own, const ech_tensor *parts, int64_t index,
                          const ech_tensor *sum)
{
    size_t item = ech_dtype_bytes(own->dtype);
    bool halves = item == sizeof(uint16_t);
    int64_t n = own->shape[0], block = halves ? HALVES : BLOCK_BYTES / (int64_t)item;
    for (int64_t at = 0; at < n; at += block) {
        size_t offset = (size_t)at * item;
        const addends a = {.dtype = own->dtype,
                           .members = (int)parts->shape[0] + 1,
                           .index = (int)index,
                           .own = (const char *)own->data + offset,
                           .parts = (char *)parts->data + offset,
                           .to = (char *)sum->data + offset,
                           .stride = (size_t)n * item};
        (halves ? add_halves : add_block)(&a, smaller(block, n - at));
    }
}

/* ---- changes of type ---- */

/* By the stack, since both overlap. */
static void convert_block(const ech_tensor *x, const ech_tensor *y, int64_t at, int64_t n)
{
    double block[HALVES];
    size_t from = ech_dtype_bytes(x->dtype), to = ech_dtype_bytes(y->dtype);
    memcpy(block, (const char *)x->data + (size_t)at * from, (size_t)n * from);
    ech_convert(block, x->dtype, (char *)y->data + (size_t)at * to, y->dtype, n);
}

/* Forwards to narrow and backwards to widen, so that no element is written over before it has been
 * read. */
void ech_tensor_convert(const ech_tensor *x, const ech_tensor *y)
{
    int64_t n = x->shape[0], blocks = (n + HALVES - 1) / HALVES;
    bool widens = ech_dtype_bytes(x->dtype) < ech_dtype_bytes(y->dtype);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t at = (widens ? blocks - 1 - b : b) * HALVES;
        convert_block(x, y, at, smaller(HALVES, n - at));
    }
}
