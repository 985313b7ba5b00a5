/* SPDX-License-Identifier: Apache-2.0
 *
 * A device's kernels behind the host's memory, for tests that know no device: a row copies what its arguments reach to memory of
 * the device, computes there, and copies it back. Memory of the device begins at the same remainder of 256 bytes as the host's
 * does; around it are guards, which must stay; scratch is as long as the host's and full of NaN.
 */
#include "kernel/mirrored.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

enum { MOST_SPANS = 32, GUARD = 256, NUMBER = 8 };

/* Bytes of the host, and where they are on the device meanwhile. */
typedef struct span {
    char *from, *end, *block, *there; /* there: in the block, behind a guard */
} span;

static const ech_device *device;
static ech_queue *queue;
static const ech_kernels *(*tables_of)(ech_dtype dtype);
static size_t guard_behind; /* none for checkers that see the end of an allocation */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static span spans[MOST_SPANS];
static int count;

static void must(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "mirrored row: %s\n", what);
    abort();
}

void mirrored_begin(const char *name, const ech_kernels *(*of)(ech_dtype dtype))
{
    device = ech_device_find(name);
    tables_of = of;
    guard_behind = getenv("ECHELON_EXACT_MEMORY") ? 0 : GUARD;
    must(device && device->queue_create(&queue) == ECH_OK, "no queue");
}

/* ---- what a call reaches ---- */

static void note(const void *data, size_t bytes)
{
    char *at = (char *)(uintptr_t)data;
    if (!data || bytes == 0) return;
    must(count < MOST_SPANS, "too many arguments");
    spans[count++] = (span){.from = at, .end = at + bytes};
}

static size_t bytes_of(const ech_tensor *x)
{
    int64_t last = 0;
    for (int d = 0; d < x->dims; d++) {
        if (x->shape[d] == 0) return 0;
        last += (x->shape[d] - 1) * x->stride[d];
    }
    return (size_t)(last + 1) * ech_dtype_bytes(x->dtype);
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* What overlaps becomes one. */
static void join(void)
{
    int n = 0;
    qsort(spans, (size_t)count, sizeof *spans, by_begin);
    for (int s = 0; s < count; s++) {
        if (n > 0 && spans[s].from < spans[n - 1].end) {
            if (spans[s].end > spans[n - 1].end) spans[n - 1].end = spans[s].end;
        } else {
            spans[n++] = spans[s];
        }
    }
    count = n;
}

static size_t length(const span *s)
{
    return (size_t)(s->end - s->from);
}

/* A guard, what is before the same remainder, the bytes, a guard: of all of it. */
static size_t block_bytes(const span *s)
{
    return GUARD + (uintptr_t)s->from % GUARD + length(s) + guard_behind;
}

static void take(span *s)
{
    void *block;
    must(device->alloc(block_bytes(s), &block) == ECH_OK, "no memory");
    s->block = block;
    s->there = s->block + GUARD + (uintptr_t)s->from % GUARD;
    must((uintptr_t)s->block % GUARD == 0, "memory is not aligned");
    device->fill(queue, block, 0x7f, block_bytes(s));
}

static void check_guards(const span *s, const char *block)
{
    size_t before = (size_t)(s->there - s->block);
    for (size_t b = 0; b < before; b++) must(block[b] == 0x7f, "it writes before a tensor");
    for (size_t b = before + length(s); b < block_bytes(s); b++)
        must(block[b] == 0x7f, "it writes behind a tensor");
}

/* The host's memory is written only where it differs: an input may be constant. */
static void give_back(span *s, bool is_scratch)
{
    ECH_FREED char *block = ech_calloc(block_bytes(s), 1);
    char *there = block + (s->there - s->block);
    must(ech_device_copy_now(device, queue, block, s->block, block_bytes(s)) == ECH_OK, "a fault");
    check_guards(s, block);
    if (!is_scratch && memcmp(s->from, there, length(s)) != 0) memcpy(s->from, there, length(s));
    device->release(s->block, block_bytes(s));
}

static void *reach(const void *data)
{
    const char *at = data;
    for (int s = 0; s < count; s++)
        if (at >= spans[s].from && at < spans[s].end) return spans[s].there + (at - spans[s].from);
    return (void *)(uintptr_t)data; /* of no elements */
}

/* ---- arguments ---- */

static void note_ech_tensor(const ech_tensor *x)
{
    note(x->data, bytes_of(x));
}

static void note_ech_rows(const ech_rows *x)
{
    note(x->position, NUMBER);
}

static void note_ech_attention_shard(const ech_attention_shard *x)
{
    note_ech_rows(&x->query);
    note_ech_rows(&x->key);
}

static void note_ech_dropout(const ech_dropout *x)
{
    note(x->step, NUMBER);
}

static void note_ech_update(const ech_update *x)
{
    const void *const numbers[] = {x->rate, x->clip, x->withheld, x->number};
    for (int i = 0; i < 4; i++) note(numbers[i], NUMBER);
}

static void reach_ech_tensor(ech_tensor *x)
{
    x->data = reach(x->data);
}

static void reach_ech_rows(ech_rows *x)
{
    x->position = reach(x->position);
}

static void reach_ech_attention_shard(ech_attention_shard *x)
{
    reach_ech_rows(&x->query);
    reach_ech_rows(&x->key);
}

static void reach_ech_dropout(ech_dropout *x)
{
    x->step = reach(x->step);
}

static void reach_ech_update(ech_update *x)
{
    x->rate = reach(x->rate);
    x->clip = reach(x->clip);
    x->withheld = reach(x->withheld);
    x->number = reach(x->number);
}

/* ---- a call ---- */

static ech_kernel_context begin(const ech_kernel_context *context, span *scratch)
{
    join();
    for (int s = 0; s < count; s++) {
        take(&spans[s]);
        device->copy(queue, spans[s].there, spans[s].from, length(&spans[s]));
    }
    char *from = context->scratch;
    *scratch = (span){.from = from, .end = from + context->scratch_bytes};
    scratch->from -= (uintptr_t)from % GUARD; /* a plan's scratch is aligned */
    scratch->end -= (uintptr_t)from % GUARD;
    take(scratch);
    device->fill(queue, scratch->there, 0xff, length(scratch));
    return (ech_kernel_context){.threads = context->threads,
                                 .tf32 = context->tf32,
                                .device = device,
                                .queue = queue,
                                .scratch = scratch->there,
                                .scratch_bytes = context->scratch_bytes};
}

static void end(span *scratch)
{
    for (int s = 0; s < count; s++) give_back(&spans[s], false);
    give_back(scratch, true);
    count = 0;
}

/* As in kernel/deferred.c. */
#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) FIELD_##kind(type, name)
#define FIELD_VALUE(type, name)        type name;
#define FIELD_ADDRESS(type, name)                                                                  \
    bool has_##name;                                                                               \
    type name;
#define FIELD_KEPT(type, name) const type *name;
#define X(op, arguments, ...)                                                                      \
    typedef struct op##_call {                                                                     \
        ECH_UNPACK arguments                                                                       \
    } op##_call;
#include "kernel/kernel.def"
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) NOTE_##kind(type, name)
#define NOTE_VALUE(type, name)
#define NOTE_ADDRESS(type, name)                                                                   \
    if (call->has_##name) note_##type(&call->name);
#define NOTE_KEPT NOTE_VALUE
#define X(op, arguments, ...)                                                                      \
    static void note_##op(op##_call *call)                                                         \
    {                                                                                              \
        ECH_UNPACK arguments                                                                       \
    }
#include "kernel/kernel.def"
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) REACH_##kind(type, name)
#define REACH_VALUE(type, name)
#define REACH_ADDRESS(type, name)                                                                  \
    if (call->has_##name) reach_##type(&call->name);
#define REACH_KEPT REACH_VALUE
#define X(op, arguments, ...)                                                                      \
    static void reach_##op(op##_call *call)                                                        \
    {                                                                                              \
        ECH_UNPACK arguments                                                                       \
    }
#include "kernel/kernel.def"
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) PASS_##kind(type, name)
#define PASS_VALUE(type, name)         , call->name
#define PASS_ADDRESS(type, name)       , call->has_##name ? &call->name : NULL
#define PASS_KEPT                      PASS_VALUE
#define X(op, arguments, ...)                                                                      \
    static void do_##op(const ech_kernel_context *context, ech_dtype dtype, op##_call *call)       \
    {                                                                                              \
        span scratch;                                                                              \
        pthread_mutex_lock(&lock);                                                                 \
        note_##op(call);                                                                           \
        ech_kernel_context inner = begin(context, &scratch);                                       \
        reach_##op(call);                                                                          \
        tables_of(dtype)->op(&inner ECH_UNPACK arguments);                                         \
        end(&scratch);                                                                             \
        pthread_mutex_unlock(&lock);                                                               \
    }
#include "kernel/kernel.def"
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) (kind, type, name)
#define TAKE_VALUE(type, name)         call.name = name;
#define TAKE_ADDRESS(type, name)                                                                   \
    if ((call.has_##name = name != NULL)) call.name = *name;
#define TAKE_KEPT                TAKE_VALUE
#define TAKE_A(kind, type, name) TAKE_##kind(type, name) TAKE_B
#define TAKE_B(kind, type, name) TAKE_##kind(type, name) TAKE_A
#define TAKE_A_END
#define TAKE_B_END
#define PARAMETER_A(kind, type, name) ECH_PARAMETER_##kind(type, name) PARAMETER_B
#define PARAMETER_B(kind, type, name) ECH_PARAMETER_##kind(type, name) PARAMETER_A
#define PARAMETER_A_END
#define PARAMETER_B_END
#define CLOSE(...)  __VA_ARGS__##_END
#define WALK(...)   CLOSE(__VA_ARGS__)
#define ALL_OF(...) WALK(__VA_ARGS__)
#define ROW(real, op, arguments)                                                                   \
    static void op##_##real(ech_kernel_context *context ALL_OF(PARAMETER_A ECH_UNPACK arguments))  \
    {                                                                                              \
        op##_call call = {0};                                                                      \
        ALL_OF(TAKE_A ECH_UNPACK arguments)                                                        \
        do_##op(context, ECH_##real, &call);                                                       \
    }
#define X(op, arguments, ...)                                                                      \
    ROW(F32, op, arguments)                                                                        \
    ROW(F64, op, arguments) ROW(BF16, op, arguments) ROW(F16, op, arguments)
#include "kernel/kernel.def"
#undef X

/* ---- tables ---- */

static ech_kernels tables[ECH_DTYPES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (ech_dtype dtype = 0; dtype < ECH_DTYPES; dtype++) {
        if (!tables_of(dtype)) continue;
        tables[dtype] = *tables_of(dtype);
        tables[dtype].wide = &tables[ech_dtype_wide(dtype)];
    }
#define X(op, ...)                                                                                 \
    tables[ECH_F32].op = op##_F32;                                                                 \
    tables[ECH_F64].op = op##_F64;                                                                 \
    tables[ECH_BF16].op = op##_BF16;                                                               \
    tables[ECH_F16].op = op##_F16;
#include "kernel/kernel.def"
#undef X
}

const ech_kernels *ech_kernels_mirrored_fast(ech_dtype dtype)
{
    pthread_once(&once, make_tables);
    return tables[dtype].name ? &tables[dtype] : NULL;
}

const ech_kernels *ech_kernels_mirrored_of(ech_isa isa, ech_dtype dtype)
{
    (void)isa;
    return ech_kernels_mirrored_fast(dtype);
}
