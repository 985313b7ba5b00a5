/* SPDX-License-Identifier: Apache-2.0
 *
 * Deferred tables, for devices that are the processor with queues: a row puts its call on its
 * context's queue, which runs the fast row.
 */
#include <pthread.h>

#include "device/device.h"
#include "kernel/call.h"

static void *find(const void *device, const void *address, size_t bytes)
{
    (void)bytes;
    return ech_device_reach(device, address);
}

/* On the queue. */
static void do_call(void *argument)
{
    ech_deferred_call *call = argument;
    const ech_device *device = call->context->device;
    ech_kernel_context *inner = call->context->inner;
    inner->scratch = ech_device_reach(device, call->scratch);
    inner->scratch_bytes = call->scratch_bytes;
    reach(call, &(ech_call_memory){find, device});
    pass(call, ech_kernels_fast(call->dtype), inner);
}

static void (*_Atomic watcher)(ech_op op, ech_dtype dtype);

void ech_kernels_watch(void (*before)(ech_op op, ech_dtype dtype))
{
    watcher = before;
}

static void put(ech_deferred_call *call)
{
    void (*before)(ech_op, ech_dtype) = watcher;
    if (before) before(call->op, call->dtype);
    const ech_kernel_context *context = call->context;
    ECH_ASSERT(context->inner);
    context->device->call(context->queue, do_call, call, call->bytes);
}

static ech_kernels tables[ECH_DTYPES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(void)
{
    make_tables(tables, ech_kernels_fast);
    for (ech_dtype dtype = 0; dtype < ECH_DTYPES; dtype++) {
        if (!tables[dtype].name) continue;
        tables[dtype].name = "deferred";
        tables[dtype].library_product = NULL; /* it is not a row, and is called directly */
    }
}

const ech_kernels *ech_kernels_deferred(ech_dtype dtype)
{
    pthread_once(&once, make);
    return tables[dtype].name ? &tables[dtype] : NULL;
}
