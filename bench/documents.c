/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the time that attention saves within documents and windows: processor time of one call
 * over samples of one document, over shorter documents, and under a window. Forward and backward
 * run in turns. One thread, fp32, 8 heads of width 64.
 *
 *     cmake --build build/release --target bench_documents && build/release/bench/bench_documents
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "kernel/kernel.h"

enum { H = 8, D = 64, ROUNDS = 9, PARTS = 8, WINDOW = 1024, WAYS = 4 };
typedef enum operand { Q, K, V, OUT, DOUT, DQ, DK, DV, OPERANDS } operand;

typedef struct problem {
    int64_t T;
    ech_tensor x[OPERANDS], lse, starts[2]; /* of documents of T / PARTS tokens, and of T / 64 */
    ech_kernel_context *context;
} problem;

static ech_tensor make(int64_t T)
{
    const int64_t shape[] = {1, T, H, D};
    float *data = ech_calloc((size_t)(T * H * D), sizeof *data);
    for (int64_t i = 0; i < T * H * D; i++)
        data[i] = (float)ech_random_unit(ech_random_word((ech_random_key){.seed = 1}, (uint64_t)i));
    return ech_tensor_view(data, ECH_F32, 4, shape);
}

static ech_tensor make_starts(int64_t T, int64_t length)
{
    const int64_t shape[] = {1, T};
    int32_t *starts = ech_calloc((size_t)T, sizeof *starts);
    for (int64_t t = 0; t < T; t++) starts[t] = (int32_t)(t / length * length);
    return ech_tensor_view(starts, ECH_I32, 2, shape);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the processor, so that what else runs on the machine counts less. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double run(const problem *p, bool backward, const ech_tensor *starts, int64_t window)
{
    const ech_kernels *k = ech_kernels_fast(ECH_F32);
    const ech_tensor *x = p->x;
    ech_rows rows = {.whole = p->T, .tokens = p->T, .split = p->T};
    const ech_attention_rule rule = {.scale = 0.125, .window = window};
    ech_attention_shard at = {.query = rows, .key = rows, .heads = H};
    ech_dropout dropout = {.p = 0};
    double begin = now();
    if (backward)
        k->attention_backward(p->context, &x[DOUT], &x[Q], &x[K], &x[V], &x[OUT], &p->lse, &rule,
                              &at, starts, &dropout, false, false, &x[DQ], &x[DK], &x[DV]);
    else
        k->attention_forward(p->context, &x[Q], &x[K], &x[V], &rule, &at, starts, &dropout, false,
                             &x[OUT], &p->lse);
    return now() - begin;
}

static void measure(problem *p, bool backward)
{
    const ech_tensor *const starts[WAYS] = {NULL, &p->starts[0], &p->starts[1]};
    double seconds[WAYS][ROUNDS], share[ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < WAYS; i++)
            seconds[i][round] = run(p, backward, starts[i], i == WAYS - 1 ? WINDOW : 0);
    for (int round = 0; round < ROUNDS; round++)
        share[round] = seconds[WAYS - 1][round] / seconds[0][round];
    qsort(share, ROUNDS, sizeof(double), by_value);
    for (int i = 0; i < WAYS; i++) qsort(seconds[i], ROUNDS, sizeof(double), by_value);
    double one = seconds[0][ROUNDS / 2];
    printf("T = %5lld %-8s  one document %7.1f ms", (long long)p->T,
           backward ? "backward" : "forward", 1e3 * one);
    for (int i = 1; i < 3; i++)
        printf("   of T/%-2d %6.1f ms, 1/%.1f", i == 1 ? PARTS : 64, 1e3 * seconds[i][ROUNDS / 2],
               one / seconds[i][ROUNDS / 2]);
    printf("   window %d %6.1f ms, %.3f (%.3f to %.3f)\n", WINDOW,
           1e3 * seconds[WAYS - 1][ROUNDS / 2], share[ROUNDS / 2], share[0], share[ROUNDS - 1]);
}

int main(void)
{
    for (int64_t T = 1024; T <= 8192; T *= 2) {
        const int64_t dims[] = {1, T, T, H, H, D};
        problem p = {.T = T, .starts = {make_starts(T, T / PARTS), make_starts(T, T / 64)}};
        for (operand i = Q; i < OPERANDS; i++) p.x[i] = make(T);
        p.lse = ech_tensor_view(ech_calloc((size_t)(H * T), sizeof(float)), ECH_F32, 3,
                                (const int64_t[]){1, H, T});
        if (ech_kernel_context_create(1, &p.context) != ECH_OK) return 1;
        p.context->scratch_bytes =
            ech_kernel_scratch(ech_kernels_fast(ECH_F32), ECH_OP_attention_backward, 1, dims);
        size_t forward =
            ech_kernel_scratch(ech_kernels_fast(ECH_F32), ECH_OP_attention_forward, 1, dims);
        if (forward > p.context->scratch_bytes) p.context->scratch_bytes = forward;
        p.context->scratch = ech_calloc(p.context->scratch_bytes, 1);
        measure(&p, false);
        measure(&p, true);
        free(p.context->scratch);
        ech_kernel_context_destroy(p.context);
        for (operand i = Q; i < OPERANDS; i++) free(p.x[i].data);
        for (int i = 0; i < 2; i++) free(p.starts[i].data);
        free(p.lse.data);
    }
    return 0;
}
