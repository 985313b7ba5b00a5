/* SPDX-License-Identifier: Apache-2.0
 *
 * Deferred kernels: rows that copy their arguments into a call, which another table executes later,
 * where the memory is accessible. The including file defines `put`, which every row calls.
 */
#ifndef ECH_KERNEL_CALL_H
#define ECH_KERNEL_CALL_H

#include "kernel/kernel.h"

/* A row's call; its arguments follow. */
typedef struct ech_deferred_call {
    ech_op op;
    ech_dtype dtype; /* of the table */
    const ech_kernel_context *context;
    void *scratch;               /* the context's at the time of the call */
    size_t scratch_bytes, bytes; /* bytes: of the call, with its arguments */
} ech_deferred_call;

static void put(ech_deferred_call *call);

/* Translates an address for the executing side. */
typedef struct ech_call_memory {
    void *(*at)(const void *context, const void *address, size_t bytes);
    const void *context;
} ech_call_memory;

/* ---- structs that contain addresses of device memory ---- */

#define REACH(address, bytes)                                                                      \
    if (address) address = memory->at(memory->context, address, bytes)

static size_t bytes_of(const ech_tensor *x)
{
    int64_t last = 0;
    for (int d = 0; d < x->dims; d++) {
        if (x->shape[d] == 0) return 0;
        last += (x->shape[d] - 1) * x->stride[d];
    }
    return (size_t)(last + 1) * ech_dtype_bytes(x->dtype);
}

static void reach_ech_tensor(const ech_call_memory *memory, ech_tensor *x)
{
    REACH(x->data, bytes_of(x));
}

static void reach_ech_rows(const ech_call_memory *memory, ech_rows *x)
{
    REACH(x->position, sizeof *x->position);
}

static void reach_ech_attention_shard(const ech_call_memory *memory, ech_attention_shard *x)
{
    reach_ech_rows(memory, &x->query);
    reach_ech_rows(memory, &x->key);
}

static void reach_ech_attention_rule(const ech_call_memory *memory, ech_attention_rule *x)
{
    (void)memory, (void)x;
}

static void reach_ech_filter(const ech_call_memory *memory, ech_filter *x)
{
    (void)memory, (void)x;
}

static void reach_ech_dropout(const ech_call_memory *memory, ech_dropout *x)
{
    REACH(x->step, sizeof *x->step);
}

static void reach_ech_gate(const ech_call_memory *memory, ech_gate *x)
{
    REACH(x->step, sizeof *x->step);
}

static void reach_ech_update(const ech_call_memory *memory, ech_update *x)
{
    REACH(x->rate, sizeof *x->rate);
    REACH(x->clip, sizeof *x->clip);
    REACH(x->withheld, sizeof *x->withheld);
    REACH(x->number, sizeof *x->number);
}

static void reach_ech_user_call(const ech_call_memory *memory, ech_user_call *x)
{
    for (int i = 0; i < x->tensors; i++) reach_ech_tensor(memory, &x->tensor[i]);
    if (x->updates) reach_ech_update(memory, &x->update);
}
#undef REACH

/* ---- calls: their arguments, and how they are translated and passed on ---- */

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) FIELD_##kind(type, name)
#define FIELD_VALUE(type, name)        type name;
#define FIELD_ADDRESS(type, name)                                                                  \
    bool has_##name;                                                                               \
    type name;
#define FIELD_KEPT(type, name) const type *name;
#define X(op, arguments, ...)                                                                      \
    typedef struct op##_call {                                                                     \
        ech_deferred_call call;                                                                    \
        ECH_UNPACK arguments                                                                       \
    } op##_call;
#include "kernel/kernel.def"
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) REACH_##kind(type, name)
#define REACH_VALUE(type, name)
#define REACH_ADDRESS(type, name)                                                                  \
    if (of->has_##name) reach_##type(memory, &of->name);
#define REACH_KEPT REACH_VALUE
#define X(op, arguments, ...)                                                                      \
    case ECH_OP_##op: {                                                                            \
        op##_call *of = (op##_call *)call;                                                         \
        (void)of;                                                                                  \
        ECH_UNPACK arguments break;                                                                \
    }

/* Translates all addresses. */
static void reach(ech_deferred_call *call, const ech_call_memory *memory)
{
    switch (call->op) {
#include "kernel/kernel.def"
    case ECH_OPS:
        break;
    }
}
#undef X

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) PASS_##kind(type, name)
#define PASS_VALUE(type, name)         , of->name
#define PASS_ADDRESS(type, name)       , of->has_##name ? &of->name : NULL
#define PASS_KEPT                      PASS_VALUE
#define X(op, arguments, ...)                                                                      \
    case ECH_OP_##op: {                                                                            \
        op##_call *of = (op##_call *)call;                                                         \
        kernels->op(context ECH_UNPACK arguments);                                                 \
        break;                                                                                     \
    }

static void pass(ech_deferred_call *call, const ech_kernels *kernels, ech_kernel_context *context)
{
    switch (call->op) {
#include "kernel/kernel.def"
    case ECH_OPS:
        break;
    }
}
#undef X

static ech_deferred_call call_of(ech_op op, ech_dtype dtype, const ech_kernel_context *context,
                                 size_t bytes)
{
    return (ech_deferred_call){op, dtype, context, context->scratch, context->scratch_bytes, bytes};
}

/* ---- rows. A function both declares its arguments as parameters and stores them. So they are a
 * sequence, (kind, type, name)(...); each of two alternating macros consumes one element. ---- */

#undef ECH_ARGUMENT
#define ECH_ARGUMENT(kind, type, name) (kind, type, name)
#define TAKE_VALUE(type, name)         of.name = name;
#define TAKE_ADDRESS(type, name)                                                                   \
    if ((of.has_##name = name != NULL)) of.name = *name;
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
        op##_call of = {.call = call_of(ECH_OP_##op, ECH_##real, context, sizeof of)};             \
        ALL_OF(TAKE_A ECH_UNPACK arguments)                                                        \
        put(&of.call);                                                                             \
    }
#define X(op, arguments, ...)                                                                      \
    ROW(F32, op, arguments)                                                                        \
    ROW(F64, op, arguments) ROW(BF16, op, arguments) ROW(F16, op, arguments)
#include "kernel/kernel.def"
#undef X

/* tables[t]: the table of type t that `of` returns, or NULL, with these rows. */
static void make_tables(ech_kernels tables[ECH_DTYPES], const ech_kernels *(*of)(ech_dtype dtype))
{
    for (ech_dtype dtype = 0; dtype < ECH_DTYPES; dtype++) {
        if (!of(dtype)) continue;
        tables[dtype] = *of(dtype);
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

#endif
