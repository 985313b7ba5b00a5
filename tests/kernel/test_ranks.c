/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads of one process each have a context of their own: what they compute side by
 * side is, bit for bit, what each computes alone.
 */
#include <pthread.h>

#include "kernel/places.h"
#include "kernel/trial.h"

enum { RANKS = 3, ROUNDS = 8, N = 96, T = 60 };

/* One rank: products in its table's type, attention, a norm; results at the end. */
typedef struct rank {
    const ech_kernels *kernels;
    int threads;
    uint32_t series;
    double product[N * N], attended[T * 2 * 8];
} rank;

static void compute(rank *r)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(r->threads, &context), ECH_OK);
    const int64_t product[] = {N, N, N, false, true, false, false}, head[] = {1, T, T, 2, 2, 8, 8};
    const ech_kernels *k = r->kernels;
    size_t bytes = ech_kernel_scratch(k, ECH_OP_matmul, context->threads, product);
    size_t other = ech_kernel_scratch(k, ECH_OP_attention_forward, context->threads, head);
    context->scratch_bytes = bytes > other ? bytes : other;
    context->scratch = ech_calloc(context->scratch_bytes, 1);
    double *memory = ech_calloc((size_t)(2 * N * N + 2 * T), sizeof *memory);
    ech_tensor a = ech_tensor_2d(memory, k->dtype, N, N), c = a;
    c.data = r->product;
    for (int64_t i = 0; i < N * N; i++) trial_set(&a, i, value_at(r->series, i, -1, 1));
    ech_tensor q = ech_tensor_view(memory, k->dtype, 4, (const int64_t[]){1, T, 2, 8}), y = q;
    ech_tensor lse = ech_tensor_view(memory + N * N, k->dtype, 3, (const int64_t[]){1, 2, T});
    y.data = r->attended;
    ech_dropout dropout = {.p = 0.1, .key = {1, 2, 3}};
    ech_attention_shard at = place_uncut(0, T, 2);
    for (int round = 0; round < ROUNDS; round++) {
        k->matmul(context, &a, false, &a, true, NULL, NULL, &c);
        k->attention_forward(context, &q, &q, &q, &place_rule, &at, NULL, &dropout, false, &y,
                             &lse);
    }
    free(memory);
    free(context->scratch);
    ech_kernel_context_destroy(context);
}

static void *run_rank(void *argument)
{
    compute(argument);
    return NULL;
}

static void check_ranks(const ech_kernels *kernels, int threads)
{
    static rank alone[RANKS], together[RANKS];
    pthread_t thread[RANKS];
    for (int i = 0; i < RANKS; i++) {
        alone[i] = (rank){.kernels = kernels, .threads = threads, .series = (uint32_t)i};
        together[i] = alone[i];
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &alone[i]), 0);
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &together[i]), 0);
    for (int i = 0; i < RANKS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        assert_memory_equal(alone[i].product, together[i].product, sizeof alone[i].product);
        assert_memory_equal(alone[i].attended, together[i].attended, sizeof alone[i].attended);
        assert_true(i == 0 || memcmp(alone[0].product, alone[i].product, N) != 0);
    }
}

TEST(one_thread_each)
{
    check_ranks(ech_kernels_fast(ECH_F32), 1);
    check_ranks(ech_kernels_ref(ECH_F64), 1);
}

TEST(two_threads_each)
{
    check_ranks(ech_kernels_fast(ECH_F32), 2);
    check_ranks(ech_kernels_ref(ECH_F64), 2);
}
