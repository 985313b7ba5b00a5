/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that threads share without waiting for each other: sgd_shared against sgd, bit for bit; of
 * what threads add at once nothing is lost, where an update that is read, computed and stored is.
 */
#include "kernel/trial.h"

#include <pthread.h>

/* ---- one thread ---- */

enum { NUMBERS = 3000 };

static const ech_kernels *table_of(int k)
{
    return k == 0   ? ech_kernels_ref(ECH_F64)
           : k == 1 ? ech_kernels_ref(ECH_F32)
                    : ech_kernels_fast(ECH_F32);
}

/* A number of the table's type. */
static void put(const ech_kernels *kernels, void *x, int64_t i, double value)
{
    if (kernels->dtype == ECH_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

static double get(const ech_kernels *kernels, const void *x, int64_t i)
{
    return kernels->dtype == ECH_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

TEST(one_thread_has_the_bits_of_sgd)
{
    static double shared[NUMBERS], alone[NUMBERS], gradient[NUMBERS];
    ech_update update = {.learning_rate = 0.03, .grad_scale = 0.7};
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = table_of(k);
        ech_kernel_context *context;
        assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
        for (int64_t i = 0; i < NUMBERS; i++) {
            put(kernels, shared, i, sin((double)i));
            put(kernels, alone, i, sin((double)i));
            put(kernels, gradient, i, i % 3 ? cos((double)i * 7) : 0);
        }
        ech_tensor x = ech_tensor_1d(shared, kernels->dtype, NUMBERS);
        ech_tensor y = ech_tensor_1d(alone, kernels->dtype, NUMBERS);
        ech_tensor g = ech_tensor_1d(gradient, kernels->dtype, NUMBERS);
        for (int step = 0; step < 5; step++) {
            kernels->sgd_shared(context, &x, &g, &update);
            kernels->sgd(context, &y, &g, NULL, &update, NULL);
        }
        assert_memory_equal(shared, alone, ech_tensor_bytes(&x));
        double withheld = 1;
        update.withheld = &withheld;
        kernels->sgd_shared(context, &x, &g, &update);
        assert_memory_equal(shared, alone, ech_tensor_bytes(&x));
        update.withheld = NULL;
        ech_kernel_context_destroy(context);
    }
}

/* ---- several ---- */

enum { THREADS = 4, TIMES = 400, FEW = 8 };

typedef struct adder {
    const ech_kernels *kernels;
    void *shared;
    int number;
} adder;

/* Each adds whole numbers to the same few places. */
static void *add(void *argument)
{
    const adder *a = argument;
    double gradient[FEW];
    ech_kernel_context *context;
    ech_update update = {.learning_rate = 1, .grad_scale = -1};
    if (ech_kernel_context_create(1, &context) != ECH_OK) return NULL;
    for (int64_t i = 0; i < FEW; i++) put(a->kernels, gradient, i, (double)(a->number + i + 1));
    ech_tensor x = ech_tensor_1d(a->shared, a->kernels->dtype, FEW);
    ech_tensor g = ech_tensor_1d(gradient, a->kernels->dtype, FEW);
    for (int t = 0; t < TIMES; t++) a->kernels->sgd_shared(context, &x, &g, &update);
    ech_kernel_context_destroy(context);
    return argument;
}

TEST(nothing_that_threads_add_is_lost)
{
    for (int k = 0; k < 3; k++) {
        double shared[FEW] = {0};
        pthread_t thread[THREADS];
        adder adders[THREADS];
        for (int t = 0; t < THREADS; t++) {
            adders[t] = (adder){table_of(k), shared, t};
            assert_int_equal(pthread_create(&thread[t], NULL, add, &adders[t]), 0);
        }
        for (int t = 0; t < THREADS; t++) {
            void *ended;
            pthread_join(thread[t], &ended);
            assert_non_null(ended);
        }
        for (int64_t i = 0; i < FEW; i++) {
            double sum = 0;
            for (int t = 0; t < THREADS; t++) sum += (double)(TIMES * (t + i + 1));
            assert_true(get(table_of(k), shared, i) == sum);
        }
    }
}

/* Two threads by turns, as they may come: both read before either writes. What each has computed of
 * what it has read and stores is lost for the first; what is added is not. */
TEST(what_is_stored_is_lost)
{
    const ech_kernels *kernels = table_of(2);
    ech_kernel_context *context;
    float plain[FEW] = {0}, shared[FEW] = {0}, own[2][FEW], ones[FEW];
    ech_update update = {.learning_rate = 1, .grad_scale = -1};
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int i = 0; i < FEW; i++) ones[i] = 1;
    ech_tensor x = ech_tensor_1d(plain, ECH_F32, FEW), y = ech_tensor_1d(shared, ECH_F32, FEW);
    ech_tensor g = ech_tensor_1d(ones, ECH_F32, FEW);
    for (int t = 0; t < 2; t++) {
        ech_tensor read = ech_tensor_1d(own[t], ECH_F32, FEW);
        kernels->copy_shared(context, &x, &read);
    }
    for (int t = 0; t < 2; t++) {
        ech_tensor read = ech_tensor_1d(own[t], ECH_F32, FEW);
        kernels->sgd(context, &read, &g, NULL, &update, NULL);
        memcpy(plain, own[t], sizeof plain);
        kernels->sgd_shared(context, &y, &g, &update);
    }
    for (int i = 0; i < FEW; i++) assert_true(plain[i] == 1 && shared[i] == 2);
    ech_kernel_context_destroy(context);
}

/* ---- a ring ---- */

/* One relay after the other around the ring, while nobody adds: all come to the same numbers, which
 * have of what one cluster had added about all of it. */
TEST(clusters_agree_and_keep_what_is_added)
{
    for (int n = 2; n <= 4; n++) {
        const ech_kernels *kernels = table_of(0);
        ech_kernel_context *context;
        double own[4][FEW] = {{0}}, relayed[4][FEW] = {{0}}, low = 0, high = 1;
        assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
        for (int i = 0; i < 60; i++) {
            double beta = (low + high) / 2;
            *(pow(beta, n) + beta > 1 ? &high : &low) = beta;
        }
        for (int c = 0; c < n; c++) own[c][c] = 1; /* cluster c has added to number c */
        for (int visit = 0; visit < 60 * n; visit++) {
            ech_tensor here = ech_tensor_1d(own[visit % n], kernels->dtype, FEW);
            ech_tensor next = ech_tensor_1d(own[(visit + 1) % n], kernels->dtype, FEW);
            ech_tensor last = ech_tensor_1d(relayed[visit % n], kernels->dtype, FEW);
            kernels->relay_shared(context, &here, &next, &last, low, 1 - pow(low, n - 1), 1, 0,
                                  visit % 3);
        }
        for (int c = 0; c < n; c++)
            for (int i = 0; i < n; i++) {
                assert_true(fabs(own[c][i] - own[0][i]) < 1e-3);
                assert_true(own[c][i] > 0.75 && own[c][i] < 1.3);
            }
        ech_kernel_context_destroy(context);
    }
}

/* own is the relaying thread's alone, which adds one to each number; another adds to next. */
TEST(nothing_that_is_relayed_is_lost)
{
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = table_of(k);
        double memory[3][FEW] = {{0}};
        ech_tensor t[3];
        ech_kernel_context *context;
        pthread_t thread;
        adder other = {kernels, memory[1], 0};
        void *ended;
        for (int i = 0; i < 3; i++) t[i] = ech_tensor_1d(memory[i], kernels->dtype, FEW);
        assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
        assert_int_equal(pthread_create(&thread, NULL, add, &other), 0);
        for (int turn = 1; turn <= TIMES; turn++) {
            for (int64_t i = 0; i < FEW; i++) put(kernels, memory[0], i, turn);
            kernels->relay_shared(context, &t[0], &t[1], &t[2], 1, 0, 1, 0, 1);
        }
        pthread_join(thread, &ended);
        assert_non_null(ended);
        for (int64_t i = 0; i < FEW; i++) {
            assert_true(get(kernels, memory[0], i) == TIMES);
            assert_true(get(kernels, memory[1], i) == (double)(TIMES + TIMES * (i + 1)));
        }
        ech_kernel_context_destroy(context);
    }
}
