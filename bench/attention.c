/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention against the machine: GFLOP/s of forward and backward over lengths and widths of heads,
 * one thread and two, counting what the causal mask leaves (2 products forward, 5 backward, of T (T
 * + 1) / 2 scores a head), beside what a core reaches with fused multiply-adds that never leave its
 * registers. How time grows (ns a head and score: flat, if time grows as T²) and how scratch does
 * (bytes a token: flat, if memory grows as T). fp32, one sample, 8 heads; best of several rounds.
 *
 *     cmake --build build/release --target bench_attention && build/release/bench/bench_attention
 *     [T [W]]
 *
 * With T that length alone, with rotary's rate beside a copy's of the same bytes. With W: what
 * forward and backward with a window of W tokens cost over those without, in processor time, as
 * the median, least and most of paired rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/memory.h"
#include "kernel/kernel.h"

enum { H = 8, ROUNDS = 7, LONGEST = 8192 };
typedef enum operand { Q, K, V, OUT, DOUT, DQ, DK, DV, OPERANDS } operand;

typedef struct problem {
    int64_t T, D, window;
    int threads;
    ech_tensor x[OPERANDS], lse;
    ech_kernel_context *context;
} problem;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* GFLOP/s of a core: 12 chains of fused multiply-adds, as many as hide their latency. */
#define PEAK(name, machine, lanes)                                                                 \
    machine static double name(void)                                                               \
    {                                                                                              \
        typedef float vector __attribute__((vector_size(4 * (lanes))));                            \
        enum { CHAINS = 12, TURNS = 1 << 22 };                                                     \
        vector x[CHAINS] = {{0}}, a = {0};                                                         \
        for (int i = 0; i < (lanes); i++) a[i] = 0.5F;                                             \
        double begin = now();                                                                      \
        for (int turn = 0; turn < TURNS; turn++) {                                                 \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++)                              \
            {                                                                                      \
                x[i] = x[i] * a + a;                                                               \
                __asm__ volatile("" : "+x"(x[i]));                                                 \
            }                                                                                      \
        }                                                                                          \
        double seconds = now() - begin;                                                            \
        return 2.0 * (lanes)*CHAINS * TURNS / seconds / 1e9;                                       \
    }

#if defined(__x86_64__)
PEAK(peak_avx512, __attribute__((target("avx512f,fma"))), 16)
PEAK(peak_avx2, __attribute__((target("avx2,fma"))), 8)
PEAK(peak_portable, , 4)

static double peak(void)
{
    if (__builtin_cpu_supports("avx512f")) return peak_avx512();
    return __builtin_cpu_supports("avx2") ? peak_avx2() : peak_portable();
}
#else
static double peak(void)
{
    return 0; /* unknown */
}
#endif

/* In huge pages, as a run's memory is. */
static void *room(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, bytes);
    if (!memory) exit(1);
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

static ech_tensor make(int64_t T, int64_t D)
{
    const int64_t shape[] = {1, T, H, D};
    float *data = room((size_t)(T * H * D) * sizeof *data);
    for (int64_t i = 0; i < T * H * D; i++)
        data[i] = (float)ech_random_unit(ech_random_word((ech_random_key){.seed = 1}, (uint64_t)i));
    return ech_tensor_view(data, ECH_F32, 4, shape);
}

static size_t scratch_of(ech_op op, const problem *p)
{
    const int64_t dims[] = {1, p->T, p->T, H, H, p->D, p->D};
    return ech_kernel_scratch(ech_kernels_fast(ECH_F32), op, p->threads, dims);
}

static problem open_problem(int64_t T, int64_t D, int threads)
{
    problem p = {.T = T, .D = D, .threads = threads};
    for (operand i = Q; i < OPERANDS; i++) p.x[i] = make(T, D);
    p.lse = ech_tensor_view(ech_calloc((size_t)(H * T), sizeof(float)), ECH_F32, 3,
                            (const int64_t[]){1, H, T});
    if (ech_kernel_context_create(threads, &p.context) != ECH_OK) exit(1);
    size_t forward = scratch_of(ECH_OP_attention_forward, &p);
    size_t bytes = scratch_of(ECH_OP_attention_backward, &p);
    p.context->scratch_bytes = bytes > forward ? bytes : forward;
    p.context->scratch = room(p.context->scratch_bytes);
    return p;
}

static void close_problem(problem *p)
{
    free(p->context->scratch);
    ech_kernel_context_destroy(p->context);
    for (operand i = Q; i < OPERANDS; i++) free(p->x[i].data);
    free(p->lse.data);
}

static void run(const problem *p, bool backward)
{
    const ech_kernels *k = ech_kernels_fast(ECH_F32);
    const ech_tensor *x = p->x;
    ech_rows rows = {.whole = p->T, .tokens = p->T, .split = p->T};
    const ech_attention_rule rule = {.scale = 0.125, .window = p->window};
    ech_attention_shard at = {.query = rows, .key = rows, .heads = H};
    ech_dropout dropout = {.p = 0};
    if (backward)
        k->attention_backward(p->context, &x[DOUT], &x[Q], &x[K], &x[V], &x[OUT], &p->lse, &rule,
                              &at, NULL, &dropout, false, false, &x[DQ], &x[DK], &x[DV]);
    else
        k->attention_forward(p->context, &x[Q], &x[K], &x[V], &rule, &at, NULL, &dropout, false,
                             &x[OUT], &p->lse);
}

/* Best seconds of a call; short calls are repeated. */
static double measure(const problem *p, bool backward)
{
    int calls = p->T < 1024 ? 8 : 1, rounds = p->T > 2048 ? 2 : ROUNDS;
    double best = 1e9;
    for (int round = 0; round < rounds; round++) {
        double begin = now();
        for (int i = 0; i < calls; i++) run(p, backward);
        double seconds = (now() - begin) / calls;
        if (seconds < best) best = seconds;
    }
    return best;
}

static void print_line(const problem *p, double core_peak)
{
    double scores = H * (double)p->T * ((double)p->T + 1) / 2;
    printf("%5lld %4lld %7d ", (long long)p->T, (long long)p->D, p->threads);
    for (int backward = 0; backward < 2; backward++) {
        ech_op op = backward ? ECH_OP_attention_backward : ECH_OP_attention_forward;
        double seconds = measure(p, backward);
        double rate = (backward ? 10 : 4) * (double)p->D * scores / seconds / 1e9;
        printf(" | %8.2f ms %6.1f GFLOP/s %3.0f%% %7.3f ns %7.0f B", 1e3 * seconds, rate,
               core_peak > 0 ? 100 * rate / core_peak / p->threads : 0,
               1e9 * seconds * p->threads / scores, (double)scratch_of(op, p) / (double)p->T);
    }
    printf("\n");
}

/* Rotary in place of fused projections' queries, beside a copy of the same bytes. */
static void rotary_rate(const problem *p)
{
    const ech_kernels *k = ech_kernels_fast(ECH_F32);
    double frequency[512], best[2] = {1e9, 1e9};
    for (int64_t i = 0; i < p->D / 2; i++) frequency[i] = 1.0 / (double)(1 + i);
    ech_rows rows = {.whole = p->T, .tokens = p->T, .split = p->T};
    for (int round = 0; round < 2 * 50; round++) {
        double begin = now();
        if (round % 2)
            k->rotary(p->context, &p->x[Q], frequency, p->D, false, 1, &rows, NULL, false,
                      &p->x[DQ]);
        else
            k->copy(p->context, &p->x[Q], &p->x[DQ]);
        double seconds = now() - begin;
        if (seconds < best[round % 2]) best[round % 2] = seconds;
    }
    double bytes = 8.0 * H * (double)(p->T * p->D);
    printf("%5lld %4lld %7d  | rotary %7.3f ms %5.1f GB/s, copy %7.3f ms %5.1f GB/s\n",
           (long long)p->T, (long long)p->D, p->threads, 1e3 * best[1], bytes / best[1] / 1e9,
           1e3 * best[0], bytes / best[0] / 1e9);
}

/* ---- windows ---- */

static double processor_seconds(problem *p, int64_t window, bool backward)
{
    struct timespec t[2];
    p->window = window;
    if (backward) run(p, false); /* the output and log sum exp that the backward reads */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[0]);
    run(p, backward);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[1]);
    return (double)(t[1].tv_sec - t[0].tv_sec) + 1e-9 * (double)(t[1].tv_nsec - t[0].tv_nsec);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_ratios(const char *what, double ratio[ROUNDS])
{
    qsort(ratio, ROUNDS, sizeof *ratio, ascending);
    printf(" %s %.3f (%.3f to %.3f)", what, ratio[ROUNDS / 2], ratio[0], ratio[ROUNDS - 1]);
}

static void compare_windows(int64_t T, int64_t D, int64_t window)
{
    enum { BOTH = 2 };
    problem p = open_problem(T, D, 1);
    double ratio[3][ROUNDS], ms[2] = {0, 0};
    for (int round = 0; round < ROUNDS; round++) {
        double full[3] = {0}, part[3] = {0};
        for (int backward = 0; backward < BOTH; backward++) {
            full[backward] = processor_seconds(&p, 0, backward);
            part[backward] = processor_seconds(&p, window, backward);
            full[BOTH] += full[backward];
            part[BOTH] += part[backward];
        }
        for (int i = 0; i <= BOTH; i++) ratio[i][round] = part[i] / full[i];
        ms[0] += 1e3 * full[BOTH] / ROUNDS;
        ms[1] += 1e3 * part[BOTH] / ROUNDS;
    }
    printf("T %lld, D %lld, window %lld:", (long long)T, (long long)D, (long long)window);
    print_ratios("forward", ratio[0]);
    print_ratios("backward", ratio[1]);
    print_ratios("both", ratio[BOTH]);
    printf(" of full causal attention; mean of both: %.0f and %.0f ms\n", ms[1], ms[0]);
    close_problem(&p);
}

int main(int argc, char **argv)
{
    int64_t only = argc > 1 ? atoll(argv[1]) : 0;
    for (int64_t D = 64; argc > 2 && D <= 128; D *= 2) compare_windows(only, D, atoll(argv[2]));
    if (argc > 2) return 0;
    double core_peak = peak();
    printf(
        "FMA peak of a core: %.1f GFLOP/s. Forward | backward: time, rate, share of the threads' "
        "peak, ns a score and thread, scratch a token\n    T    D threads\n",
        core_peak);
    for (int64_t D = 64; D <= 128; D *= 2)
        for (int threads = 1; threads <= 2; threads++)
            for (int64_t T = only ? only : 256; T <= (only ? only : LONGEST); T *= 2) {
                problem p = open_problem(T, D, threads);
                print_line(&p, core_peak);
                if (only) rotary_rate(&p);
                close_problem(&p);
            }
    return 0;
}
