/* SPDX-License-Identifier: Apache-2.0
 *
 * Deferred tables, for devices that are the processor behind queues: a row copies its arguments into a call, and puts
 * that on its context's queue, where the fast row computes.
 */
#include <pthread.h>

#include "device/device.h"
#include "kernel/kernel.h"

/* What all calls have, first. */
typedef struct head {
    const ech_kernel_context *context;
    const ech_kernels *fast;
    void *scratch;
    size_t scratch_bytes;
} head;

/* A call begins on the queue. Returns the context to do it with. */
static ech_kernel_context *begin(const head *h)
{
    ech_kernel_context *inner = h->context->inner;
    inner->scratch = ech_device_reach(h->context->device, h->scratch);
    inner->scratch_bytes = h->scratch_bytes;
    return inner;
}

static head head_of(const ech_kernel_context *context, ech_dtype dtype)
{
    ECH_ASSERT(context->inner);
    return (head){context, ech_kernels_fast(dtype), context->scratch, context->scratch_bytes};
}

/* ---- where structs have addresses of device memory ---- */

static void reach_ech_tensor(const ech_device *device, ech_tensor *x)
{
    x->data = ech_device_reach(device, x->data);
}

static void reach_ech_rows(const ech_device *device, ech_rows *x)
{
    if (x->position) x->position = ech_device_reach(device, x->position);
}

static void reach_ech_attention_shard(const ech_device *device, ech_attention_shard *x)
{
    reach_ech_rows(device, &x->query);
    reach_ech_rows(device, &x->key);
}

static void reach_ech_dropout(const ech_device *device, ech_dropout *x)
{
    if (x->step) x->step = ech_device_reach(device, x->step);
}

static void reach_ech_update(const ech_device *device, ech_update *x)
{
    const double **numbers[] = {&x->rate, &x->clip, &x->withheld};
    for (int i = 0; i < 3; i++)
        if (*numbers[i]) *numbers[i] = ech_device_reach(device, *numbers[i]);
    if (x->number) x->number = ech_device_reach(device, x->number);
}

/* ---- a row's call: its arguments, and how they are reached and passed on ---- */

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) FIELD_##kind(type, name)
#define FIELD_VALUE(type, name)        type name;
#define FIELD_ADDRESS(type, name)                                                                  \
    bool has_##name;                                                                               \
    type name;
#define FIELD_KEPT(type, name) const type *name;
#define X(op, arguments, ...)                                                                      \
    typedef struct op##_call {                                                                     \
        head head;                                                                                 \
        ECH_UNPACK arguments                                                                       \
    } op##_call;
#include "kernel/kernel.def"
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) REACH_##kind(type, name)
#define REACH_VALUE(type, name)
#define REACH_ADDRESS(type, name) reach_##type(device, &call->name);
#define REACH_KEPT                REACH_VALUE
#define X(op, arguments, ...)                                                                      \
    static void reach_##op(const ech_device *device, op##_call *call)                              \
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
    static void do_##op(void *argument)                                                            \
    {                                                                                              \
        op##_call *call = argument;                                                                \
        reach_##op(call->head.context->device, call);                                              \
        call->head.fast->op(begin(&call->head) ECH_UNPACK arguments);                              \
    }
#include "kernel/kernel.def"
#undef X

/* ---- rows. A function has its arguments as parameters and takes them: so they are a sequence, (kind, type, name)(...),
 * of which each turn's macro leaves the other one for the next. ---- */

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
#define PUT(real, op, arguments)                                                                   \
    static void put_##op##_##real(                                                                 \
        ech_kernel_context *context ALL_OF(PARAMETER_A ECH_UNPACK arguments))                      \
    {                                                                                              \
        op##_call call = {.head = head_of(context, ECH_##real)};                                   \
        ALL_OF(TAKE_A ECH_UNPACK arguments)                                                        \
        context->device->call(context->queue, do_##op, &call, sizeof call);                        \
    }
#define X(op, arguments, ...)                                                                      \
    PUT(F32, op, arguments)                                                                        \
    PUT(F64, op, arguments) PUT(BF16, op, arguments) PUT(F16, op, arguments)
#include "kernel/kernel.def"
#undef X

/* ---- tables ---- */

static ech_kernels tables[ECH_DTYPES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (ech_dtype dtype = 0; dtype < ECH_DTYPES; dtype++) {
        if (!ech_kernels_fast(dtype)) continue;
        tables[dtype] = *ech_kernels_fast(dtype);
        tables[dtype].name = "deferred";
        tables[dtype].library_product = NULL; /* it is no row, and is called at once */
        tables[dtype].wide = &tables[ech_dtype_wide(dtype)];
    }
#define X(op, ...)                                                                                 \
    tables[ECH_F32].op = put_##op##_F32;                                                           \
    tables[ECH_F64].op = put_##op##_F64;                                                           \
    tables[ECH_BF16].op = put_##op##_BF16;                                                         \
    tables[ECH_F16].op = put_##op##_F16;
#include "kernel/kernel.def"
#undef X
}

const ech_kernels *ech_kernels_deferred(ech_dtype dtype)
{
    pthread_once(&once, make_tables);
    return tables[dtype].name ? &tables[dtype] : NULL;
}
