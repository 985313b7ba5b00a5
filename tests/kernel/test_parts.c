/* SPDX-License-Identifier: Apache-2.0
 *
 * What reductions over ranks compute, by the tables of all types and by deferred ones: parts added
 * in order, the sum where the own addend was; changes of type in place.
 */
#include <string.h>

#include "base/memory.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "unit.h"

enum { N = 2500, MEMBERS = 4 }; /* more than a block of each type */
static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16, ECH_E6M9};
enum { TYPES = sizeof types / sizeof *types };

/* Of a type in which numbers only travel fp32's table has them. */
static ech_dtype table_of(ech_dtype dtype)
{
    return ech_dtype_is_real(dtype) ? dtype : ECH_F32;
}

static double element(int member, int i)
{
    return (double)((i * 7919 + member * 104729) % 2003) / 97 - 10;
}

static void fill(void *x, ech_dtype dtype, int member)
{
    double values[N];
    for (int i = 0; i < N; i++) values[i] = element(member, i);
    ech_convert(values, ECH_F64, x, dtype, N);
}

/* Each addition rounded to the type that is added in; the sum once more. */
static void expect(ech_dtype dtype, double out[N])
{
    double memory[N], next[N];
    ech_dtype added = ech_dtype_wide(dtype);
    for (int m = 0; m < MEMBERS; m++) {
        fill(memory, dtype, m);
        ech_convert(memory, dtype, next, ECH_F64, N);
        for (int i = 0; i < N; i++) out[i] = m == 0 ? next[i] : out[i] + next[i];
        ech_convert(out, ECH_F64, memory, added, N);
        ech_convert(memory, added, out, ECH_F64, N);
    }
    ech_convert(out, ECH_F64, memory, dtype, N);
    memcpy(out, memory, N * ech_dtype_bytes(dtype));
}

static void check(const ech_device *device, ech_dtype dtype)
{
    const ech_kernels *kernels = ech_kernels_on(device->name, table_of(dtype));
    size_t bytes = N * ech_dtype_bytes(dtype);
    ech_kernel_context *context;
    ech_queue *queue;
    void *memory;
    double expected[N];
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    assert_int_equal(device->queue_create(&queue), ECH_OK);
    ech_kernel_context_defer(context, device, queue);
    assert_int_equal(device->alloc(MEMBERS * bytes, &memory), ECH_OK);
    char *at = memory, *there = ech_device_reach(device, memory);
    ech_tensor own = ech_tensor_1d(at, dtype, N), first = ech_tensor_1d(at + bytes, dtype, N);
    ech_tensor parts = ech_tensor_2d(at + bytes, dtype, MEMBERS - 1, N);
    expect(dtype, expected);
    for (int round = 0; round < 2 * MEMBERS; round++) {
        int index = round / 2;
        const ech_tensor *sum = round % 2 ? &first : &own; /* in place of either */
        fill(there, dtype, index);
        for (int m = 0, p = 1; m < MEMBERS; m++)
            if (m != index) fill(there + (size_t)p++ * bytes, dtype, m);
        kernels->add_parts(context, &own, &parts, index, sum);
        device->queue_destroy(queue); /* waits for its work */
        assert_memory_equal(ech_device_reach(device, sum->data), expected, bytes);
        assert_int_equal(device->queue_create(&queue), ECH_OK);
        context->queue = queue;
    }
    device->queue_destroy(queue);
    device->release(memory, MEMBERS * bytes);
    ech_kernel_context_destroy(context);
}

TEST(parts_are_added_in_order)
{
    static const char *const devices[] = {"cpu", "walled", "queued"};
    for (int d = 0; d < 3; d++)
        for (int t = 0; t < TYPES; t++) check(ech_device_find(devices[d]), types[t]);
}

TEST(types_change_in_place)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int a = 0; a < TYPES; a++)
        for (int b = 0; b < TYPES; b++) {
            double x[N], from[N], expected[N];
            ech_tensor before = ech_tensor_1d(x, types[a], N);
            ech_tensor after = ech_tensor_1d(x, types[b], N);
            fill(x, types[a], 0);
            memcpy(from, x, sizeof x);
            ech_convert(from, types[a], expected, types[b], N);
            ech_kernels_fast(table_of(types[a]))->convert(context, &before, &after);
            assert_memory_equal(x, expected, N * ech_dtype_bytes(types[b]));
        }
    ech_kernel_context_destroy(context);
}
