/* SPDX-License-Identifier: Apache-2.0
 *
 * A device's kernels on host memory, for tests that know no device. A row copies the memory that
 * its arguments reach to the device, computes there, and copies it back. Memory of the device
 * begins at the same remainder of 256 bytes as the host's does, between guards that must not
 * change. Scratch is as long as the host's and full of NaN.
 */
#include "kernel/mirrored.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/device.h"
#include "kernel/call.h"

enum { MOST_SPANS = 32, GUARD = 256 };

/* Bytes of the host, and their copy on the device during a call. */
typedef struct span {
    char *from, *end, *block, *there; /* there: in the block, after a guard */
} span;

static const ech_device *device;
static ech_queue *queue;
static const ech_kernels *(*tables_of)(ech_dtype dtype);
/* Each span has an allocation of its own, whose end checkers see, so no guard follows it. */
static bool is_exact;
static size_t guard_behind;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static span spans[MOST_SPANS];
static int count;
/* Memory that is kept from call to call, as allocations take longer than rows: of each span, and of
 * scratch. */
static struct {
    void *block;
    size_t bytes;
} kept[MOST_SPANS + 1];

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
    is_exact = getenv("ECHELON_EXACT_MEMORY");
    guard_behind = is_exact ? 0 : GUARD;
    must(device && device->queue_create(&queue) == ECH_OK, "no queue");
}

/* ---- what a call reaches ---- */

static void *note(const void *none, const void *address, size_t bytes)
{
    char *at = (char *)(uintptr_t)address;
    (void)none;
    if (bytes == 0) return at;
    must(count < MOST_SPANS, "too many arguments");
    spans[count++] = (span){.from = at, .end = at + bytes};
    return at;
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

static void *block_of(const span *s, int place)
{
    void *block = NULL;
    size_t bytes = block_bytes(s);
    if (!is_exact && bytes <= kept[place].bytes) return kept[place].block;
    if (!is_exact) device->release(kept[place].block, kept[place].bytes);
    must(device->alloc(bytes, &block) == ECH_OK, "no memory");
    if (is_exact) return block;
    kept[place].block = block;
    kept[place].bytes = bytes;
    return block;
}

static void take(span *s, int place)
{
    void *block = s->block = block_of(s, place);
    s->there = s->block + GUARD + (uintptr_t)s->from % GUARD;
    must((uintptr_t)s->block % GUARD == 0, "memory is not aligned");
    device->fill(queue, block, 0x7f, block_bytes(s));
}

static void bring(void *to, const char *from, size_t bytes)
{
    must(ech_device_copy_now(device, queue, to, from, bytes) == ECH_OK, "a fault");
}

static void check_guard(const char *from, size_t bytes, const char *what)
{
    char guard[2 * GUARD];
    bring(guard, from, bytes);
    for (size_t b = 0; b < bytes; b++) must(guard[b] == 0x7f, what);
}

/* The host's memory is written only where it differs: an input may be constant. Nobody looks at
 * what is left in scratch. */
static void give_back(const span *s, bool is_scratch)
{
    ECH_FREED char *now = is_scratch ? NULL : ech_calloc(length(s), 1);
    check_guard(s->block, (size_t)(s->there - s->block), "it writes before a tensor");
    check_guard(s->there + length(s), guard_behind, "it writes after a tensor");
    if (now) bring(now, s->there, length(s));
    if (now && memcmp(s->from, now, length(s)) != 0) memcpy(s->from, now, length(s));
    if (is_exact) device->release(s->block, block_bytes(s));
}

static void *find(const void *none, const void *address, size_t bytes)
{
    const char *at = address;
    (void)none, (void)bytes;
    for (int s = 0; s < count; s++)
        if (at >= spans[s].from && at < spans[s].end) return spans[s].there + (at - spans[s].from);
    return (void *)(uintptr_t)address; /* of no elements */
}

/* ---- a call ---- */

/* The context to do it with. */
static ech_kernel_context begin(const ech_deferred_call *call, span *scratch)
{
    join();
    for (int s = 0; s < count; s++) {
        take(&spans[s], s);
        device->copy(queue, spans[s].there, spans[s].from, length(&spans[s]));
    }
    char *from = call->scratch;
    *scratch = (span){.from = from, .end = from + call->scratch_bytes};
    scratch->from -= (uintptr_t)from % GUARD; /* a plan's scratch is aligned */
    scratch->end -= (uintptr_t)from % GUARD;
    take(scratch, MOST_SPANS);
    device->fill(queue, scratch->there, 0xff, length(scratch));
    return (ech_kernel_context){.threads = call->context->threads,
                                .tf32 = call->context->tf32,
                                .device = device,
                                .queue = queue,
                                .scratch = scratch->there,
                                .scratch_bytes = call->scratch_bytes};
}

static void end(span *scratch)
{
    for (int s = 0; s < count; s++) give_back(&spans[s], false);
    give_back(scratch, true);
    count = 0;
}

static void put(ech_deferred_call *call)
{
    span scratch;
    pthread_mutex_lock(&lock);
    reach(call, &(ech_call_memory){note, NULL});
    ech_kernel_context inner = begin(call, &scratch);
    reach(call, &(ech_call_memory){find, NULL});
    pass(call, tables_of(call->dtype), &inner);
    end(&scratch);
    pthread_mutex_unlock(&lock);
}

/* ---- tables ---- */

static ech_kernels tables[ECH_DTYPES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(void)
{
    make_tables(tables, tables_of);
}

const ech_kernels *ech_kernels_mirrored_fast(ech_dtype dtype)
{
    pthread_once(&once, make);
    return tables[dtype].name ? &tables[dtype] : NULL;
}

const ech_kernels *ech_kernels_mirrored_of(ech_isa isa, ech_dtype dtype)
{
    (void)isa;
    return ech_kernels_mirrored_fast(dtype);
}
