/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of deferred tables compute what the fast ones do, from arguments as they were at the call:
 * on a queue that begins its work only when all of it is there. And hashes: they depend on each bit
 * and its place, and on no order.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "unit.h"

/* ---- a device whose queues begin late ---- */

enum { MOST_WORK = 8, N = 48 };

static struct {
    void (*function)(void *argument);
    void *argument;
} work[MOST_WORK];
static int works;

static void call_later(ech_queue *queue, void (*function)(void *argument), void *argument,
                       size_t bytes)
{
    (void)queue;
    assert_true(works < MOST_WORK);
    work[works].function = function;
    work[works].argument = ech_calloc(1, bytes);
    memcpy(work[works++].argument, argument, bytes);
}

static void begin_work(void)
{
    for (int i = 0; i < works; i++) {
        work[i].function(work[i].argument);
        free(work[i].argument);
    }
    works = 0;
}

/* Device memory is a part of this: the second half is what lies at addresses of the first. */
static double memory[2][4 * N];

static void *reach(const void *address)
{
    const char *first = (const char *)memory[0], *at = address;
    bool is_mine = at >= first && at < first + sizeof memory[0];
    return (void *)(uintptr_t)(is_mine ? at + sizeof memory[0] : at);
}

/* ---- tests ---- */

static void set(double *x, double seed)
{
    for (int i = 0; i < N; i++) x[i] = seed + (i * 37 % 23) / 7.0;
}

TEST(test_arguments_are_those_of_the_call)
{
    ech_device late = *ech_device_find("cpu");
    late.call = call_later;
    late.reach = reach;
    const ech_kernels *deferred = ech_kernels_deferred(ECH_F64), *fast = ech_kernels_fast(ECH_F64);
    assert_string_equal(deferred->name, "deferred");
    assert_int_equal(deferred->dtype, ECH_F64);
    assert_ptr_equal(deferred->wide, deferred);
    assert_ptr_equal(ech_kernels_deferred(ECH_BF16)->wide, ech_kernels_deferred(ECH_F32));
    assert_ptr_equal(ech_kernels_on("cpu", ECH_F64), fast);
    assert_ptr_equal(ech_kernels_on("queued", ECH_F64), deferred);
    assert_null(ech_kernels_deferred(ECH_I32));
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_kernel_context_defer(context, &late, NULL);

    double *x = memory[1], *y = x + N, *z = y + N, *expected = z + N;
    set(x, 1);
    set(y, 2);
    ech_tensor a = ech_tensor_2d(memory[0], ECH_F64, 6, N / 6), b = a, c = a;
    b.data = memory[0] + N;
    c.data = memory[0] + 2 * N;
    ech_rows rows = {.whole = 6, .tokens = 6, .split = 6};
    ech_dropout dropout = {.p = 0.5, .key = {.seed = 3}};
    deferred->add(context, &a, &b, &c);
    deferred->dropout(context, &c, &dropout, &rows, &c);
    assert_true(z[5] == 0); /* nothing has begun */
    memset(&a, 0xff, sizeof a);
    memset(&b, 0xff, sizeof b);
    memset(&c, 0xff, sizeof c);
    memset(&rows, 0xff, sizeof rows);
    memset(&dropout, 0xff, sizeof dropout);
    begin_work();

    ech_tensor own = ech_tensor_2d(x, ECH_F64, 6, N / 6), other = own, sum = own;
    other.data = y;
    sum.data = expected;
    rows = (ech_rows){.whole = 6, .tokens = 6, .split = 6};
    dropout = (ech_dropout){.p = 0.5, .key = {.seed = 3}};
    fast->add(context, &own, &other, &sum);
    fast->dropout(context, &sum, &dropout, &rows, &sum);
    assert_memory_equal(z, expected, N * sizeof *z);
    ech_kernel_context_destroy(context);
}

/* The definition's, which every instruction set's is. */
static int64_t hash_of(ech_dtype dtype, void *data, int64_t n, int64_t first)
{
    int64_t hash = 0, fast;
    ech_tensor x = ech_tensor_1d(data, dtype, n), sum = ech_tensor_view(&hash, ECH_I64, 0, NULL);
    ech_tensor to = ech_tensor_view(&fast, ECH_I64, 0, NULL);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    ech_kernels_ref(dtype)->hash(context, &x, first, &sum);
    for (ech_isa isa = 0; isa < ECH_ISAS; isa++) {
        if (!ech_kernels_of(isa, dtype)) continue;
        fast = 0;
        ech_kernels_of(isa, dtype)->hash(context, &x, first, &to);
        assert_true(fast == hash);
    }
    ech_kernel_context_destroy(context);
    return hash;
}

TEST(test_hashes)
{
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    double numbers[N];
    set(numbers, 0);
    for (int t = 0; t < 4; t++) {
        char *bytes = (char *)numbers;
        int64_t item = (int64_t)ech_dtype_bytes(types[t]), whole = hash_of(types[t], bytes, N, 7);
        int64_t first = hash_of(types[t], bytes, 10, 7);
        int64_t rest = hash_of(types[t], bytes + 10 * item, N - 10, 17);
        assert_true(whole == (int64_t)((uint64_t)first + (uint64_t)rest));
        assert_true(whole != hash_of(types[t], bytes, N, 8));
        for (int64_t bit = 0; bit < 8 * N * item; bit += 5) {
            bytes[bit / 8] ^= (char)(1 << bit % 8);
            assert_true(whole != hash_of(types[t], bytes, N, 7));
            bytes[bit / 8] ^= (char)(1 << bit % 8);
        }
        assert_true(whole == hash_of(types[t], bytes, N, 7));
    }
    enum { MANY = 100003 }; /* so that threads divide them */
    char *many = ech_calloc(MANY, sizeof(float));
    for (size_t i = 0; i < MANY * sizeof(float); i++) many[i] = (char)(i * i >> 3);
    assert_true(hash_of(ECH_F32, many, MANY, 3) != hash_of(ECH_BF16, many, MANY, 3));
    free(many);
    int64_t hash = 0x0123456789abcdef;
    double parts[8];
    ech_tensor sum = ech_tensor_view(&hash, ECH_I64, 0, NULL);
    ech_tensor to = ech_tensor_1d(parts, ECH_F64, 8);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_kernels_ref(ECH_F32)->hash_parts(context, &sum, &to);
    ech_kernel_context_destroy(context);
    static const int quarters[] = {0xcdef, 0x89ab, 0x4567, 0x0123};
    for (int i = 0; i < 4; i++) {
        assert_int_equal((int)parts[i], quarters[i]);
        assert_int_equal((int)parts[4 + i], -quarters[i]);
    }
}
