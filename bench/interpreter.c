/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cost of the interpreter itself: one rank runs a list of steps that do next to
 * nothing (NORM_SUM adds a few numbers). Prints ns per step, the median of many runs, for
 *
 *     alone     steps of the compute lane that wait for nothing
 *     waiting   every second one comes after the one before
 *     recorded  likewise, with the times of all steps kept, as for a trace
 *     handed    every second step is another lane's, and each comes after the one before: two
 *               threads that wake each other
 *
 * Then the train list of GPT-2 124M (its layers and blocks, at a small width) runs with kernels
 * that do nothing. The program prints ns per step and per call of a layer, with and without
 * records. A call then only finds tensors and passes them.
 *
 * Wanted: below 1,000 ns but for the third and fourth. `bench_interpreter [STEPS [RUNS]]`, on an
 * idle machine.
 */
#include <stdio.h>
#include <stdlib.h>

#include "app/setup/setup.h"
#include "base/clock.h"
#include "check/check.h"

/* Nothing of it is read or written: no list that does is run. */
static const char run_file[] = "model:\n"
                               "  architecture: gpt2\n"
                               "  vocab_size: 64\n"
                               "  hidden_size: 16\n"
                               "  num_hidden_layers: 1\n"
                               "  num_attention_heads: 2\n"
                               "data:\n"
                               "  train: none\n"
                               "  sequence_length: 8\n"
                               "training:\n"
                               "  steps: 1\n"
                               "  global_batch_size: 1\n"
                               "optimizer:\n"
                               "  learning_rate: 0.1\n"
                               "parallel:\n"
                               "  comm: local\n"
                               "  threads: 1\n"
                               "log:\n"
                               "  directory: none\n";

typedef struct variant {
    const char *name;
    bool waits, records, changes_lanes;
} variant;

static const variant variants[] = {{"alone", false, false, false},
                                   {"waiting", true, false, false},
                                   {"recorded", true, true, false},
                                   {"handed", true, false, true}};

typedef struct bench {
    ech_config *config;
    ech_design design;
    ech_comm *comm;
    int steps, runs;
} bench;

/* ---- the list ---- */

/* `check` of any plan is a list without values, so steps are all there is to write. */
static ech_status fill_list(const bench *b, const variant *how, ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_CHECK];
    list->step.n = list->after.n = list->access.n = 0;
    for (int s = 0; s < b->steps; s++) {
        bool waits = how->waits && s > 0 && (s % 2 == 1 || how->changes_lanes);
        bool other = how->changes_lanes && s % 2 == 1;
        ech_step step = {.kind = ECH_STEP_NORM_SUM,
                         .lane = other ? ECH_LANE_REDUCE : ECH_LANE_COMPUTE,
                         .chunk = -1,
                         .micro = -1,
                         .block = -1,
                         .peer = -1,
                         .index = -1,
                         .first_after = (int)list->after.n,
                         .afters = waits,
                         .scratch = -1,
                         .tick = s};
        ECH_PUSH(list->step, step);
        if (waits) ECH_PUSH(list->after, s - 1);
    }
    list->ticks = b->steps;
    return ech_check_list(plan, list);
}

/* ---- the clock ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void count_step(void *context, ech_exec *exec, const ech_step *step)
{
    (void)exec;
    *(int *)context += step->kind == ECH_STEP_NORM_SUM;
}

/* Whether the compute lane does run them all: what is timed is what is meant. */
static ech_status prove_list(const bench *b, const variant *how, ech_exec *exec)
{
    int ran = 0;
    ech_exec_observe(exec, count_step, &ran);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_CHECK, 0));
    ech_exec_observe(exec, NULL, NULL);
    ECH_ASSERT(ran == (how->changes_lanes ? (b->steps + 1) / 2 : b->steps));
    return ECH_OK;
}

static ech_status time_runs(const bench *b, const variant *how, ech_exec *exec)
{
    const int warmup = 5;
    double *ns = ech_calloc((size_t)b->runs, sizeof *ns);
    ech_status status = prove_list(b, how, exec);
    ech_exec_record(exec, how->records);
    for (int run = -warmup; run < b->runs && status == ECH_OK; run++) {
        double start = ech_clock_now();
        status = ech_exec_run(exec, ECH_LIST_CHECK, 0);
        if (run >= 0) ns[run] = 1e9 * (ech_clock_now() - start) / b->steps;
    }
    qsort(ns, (size_t)b->runs, sizeof *ns, by_value);
    if (status == ECH_OK)
        printf("%-10s %8.0f [%.0f %.0f]\n", how->name, ns[b->runs / 2], ns[b->runs / 4],
               ns[b->runs * 3 / 4]);
    free(ns);
    return status;
}

static ech_status run_variant(const bench *b, const variant *how)
{
    ech_plan *plan;
    ech_exec *exec = NULL;
    ECH_TRY(ech_design_plan(&b->design, 0, false, &plan));
    ech_exec_setup setup = {
        .config = b->config, .plan = plan, .device = ech_device_find("cpu"), .comm = b->comm};
    ech_status status = fill_list(b, how, plan);
    if (status == ECH_OK) status = ech_exec_create(&setup, &exec);
    if (status == ECH_OK) status = time_runs(b, how, exec);
    ech_exec_destroy(exec);
    ech_plan_destroy(plan);
    return status;
}

/* ---- a real list, of which only the interpreter's part is done ---- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define X(name, arguments, ...)                                                                    \
    static void idle_##name(ech_kernel_context *context ECH_UNPACK arguments)                      \
    {                                                                                              \
    }
#include "kernel/kernel.def"
#undef X
#pragma GCC diagnostic pop

static const ech_kernels idle_kernels = {
    .name = "idle",
    .dtype = ECH_F32,
#define X(op, ...) .op = idle_##op,
#include "kernel/kernel.def"
#undef X
};

/* No batches are read: COUNT and LOAD become one more NORM_SUM each. */
static int prepare_real(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int calls = 0;
    plan->kernels = &idle_kernels;
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        bool reads = step->kind == ECH_STEP_COUNT || step->kind == ECH_STEP_LOAD;
        if (reads) step->kind = ECH_STEP_NORM_SUM;
        if (ech_step_kind_phase(step->kind) >= 0) calls += step->calls;
    }
    return calls;
}

static ech_status time_real(const bench *b, ech_exec *exec, size_t steps, int calls, bool records)
{
    double *ns = ech_calloc((size_t)b->runs, sizeof *ns);
    ech_status status = ECH_OK;
    ech_exec_record(exec, records);
    for (int run = -5; run < b->runs && status == ECH_OK; run++) {
        double start = ech_clock_now();
        status = ech_exec_run(exec, ECH_LIST_TRAIN, 0);
        if (run >= 0) ns[run] = 1e9 * (ech_clock_now() - start);
    }
    qsort(ns, (size_t)b->runs, sizeof *ns, by_value);
    double middle = ns[b->runs / 2];
    if (status == ECH_OK)
        printf("%-10s %8.0f ns a step (%zu), %.0f a call (%d), %.1f us in all\n",
               records ? "recorded" : "gpt2", middle / (double)steps, steps, middle / calls, calls,
               1e-3 * middle);
    free(ns);
    return status;
}

static ech_status run_real(const bench *b)
{
    char *const words[] = {"model.hidden_size=48", "model.num_hidden_layers=12",
                           "model.num_attention_heads=12", "training.global_batch_size=4",
                           "training.micro_batch_size=1"};
    bench real = *b;
    ech_plan *plan = NULL;
    ech_exec *exec = NULL;
    ECH_TRY(ech_setup_config_text(run_file, "bench", words, 5, &real.config));
    real.design = (ech_design){0};
    ech_status status = ech_design_create(real.config, NULL, 1, 1, &real.design);
    if (status == ECH_OK) status = ech_design_plan(&real.design, 0, false, &plan);
    if (status == ECH_OK) {
        int calls = prepare_real(plan);
        size_t steps = plan->list[ECH_LIST_TRAIN].step.n;
        ech_exec_setup setup = {
            .config = real.config, .plan = plan, .device = ech_device_find("cpu"), .comm = b->comm};
        status = ech_exec_create(&setup, &exec);
        for (int records = 0; records < 2 && status == ECH_OK; records++)
            status = time_real(b, exec, steps, calls, records);
    }
    ech_exec_destroy(exec);
    ech_plan_destroy(plan);
    ech_design_destroy(&real.design);
    ech_config_destroy(real.config);
    return status;
}

/* ---- the whole ---- */

static ech_status open_bench(bench *b)
{
    ECH_TRY(ech_setup_config_text(run_file, "bench", NULL, 0, &b->config));
    ECH_TRY(ech_design_create(b->config, NULL, 1, 1, &b->design));
    return ech_comm_open(ech_comm_find("local"), 1, b->config->parallel.deadline, &b->comm);
}

static ech_status run_bench(bench *b)
{
    ECH_TRY(open_bench(b));
    printf("%d steps, %d runs; ns per step [quartiles]\n", b->steps, b->runs);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        ECH_TRY(run_variant(b, &variants[v]));
    return run_real(b);
}

static bool take_count(const char *word, int least, int *out)
{
    int64_t count;
    if (!ech_text_to_int(word, &count) || count < least || count > 1000000) return false;
    *out = (int)count;
    return true;
}

int main(int argc, char **argv)
{
    bench b = {.steps = 10000, .runs = 100};
    bool right = argc <= 3 && (argc < 2 || take_count(argv[1], 1, &b.steps)) &&
                 (argc < 3 || take_count(argv[2], 1, &b.runs));
    if (!right) {
        fprintf(stderr, "usage: %s [STEPS [RUNS]]\n", argv[0]);
        return 2;
    }
    ech_status status = run_bench(&b);
    ech_comm_close(b.comm);
    ech_design_destroy(&b.design);
    ech_config_destroy(b.config);
    return status == ECH_OK ? 0 : 1;
}
