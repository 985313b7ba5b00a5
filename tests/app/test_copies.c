/* SPDX-License-Identifier: Apache-2.0
 *
 * FETCH and OFFLOAD, on every device of the processor: weights go to the host, from there to disk,
 * back to the host, and come to where the optimizer's first moments were. The bytes are the same,
 * counters and the ledger have each of them once, and with memory.offload_bandwidth no copy is
 * faster, nor slower than the deadline, nor slow once the run is to end.
 */

#include "app/fixture.h"
#include "base/clock.h"
#include "base/log.h"
#include "schedule/operands.h"
#include "unit.h"

enum { PAGE = 4096, HOPS = 4, SLICES = 20 };

static const struct hop {
    ech_step_kind kind;
    ech_space from, to;
} hops[HOPS] = {{ECH_STEP_OFFLOAD, ECH_SPACE_DEVICE, ECH_SPACE_HOST},
                {ECH_STEP_OFFLOAD, ECH_SPACE_HOST, ECH_SPACE_DISK},
                {ECH_STEP_FETCH, ECH_SPACE_DISK, ECH_SPACE_HOST},
                {ECH_STEP_FETCH, ECH_SPACE_HOST, ECH_SPACE_DEVICE}};

typedef struct trial {
    const char *device;
    int64_t bytes, padded; /* of the weights, and as they are placed away from the device */
    double seconds;
    const atomic_bool *is_urgent;
    ech_status made; /* of ech_exec_create */
} trial;

static int moments_of(const ech_plan *plan, int bucket)
{
    return plan->bucket.at[bucket].state[0].value;
}

/* Adds a step after all others, which waits for the last of them. */
static ech_step *add_step(ech_list *list, ech_step_kind kind, ech_lane lane)
{
    int last = (int)list->step.n - 1;
    ECH_PUSH(list->after, last);
    ECH_PUSH(list->step, (ech_step){.kind = kind,
                                    .lane = lane,
                                    .chunk = -1,
                                    .micro = -1,
                                    .block = -1,
                                    .peer = -1,
                                    .index = -1,
                                    .scratch = -1,
                                    .tick = list->ticks++,
                                    .first_after = (int)list->after.n - 1,
                                    .afters = 1,
                                    .first_access = (int)list->access.n});
    return &list->step.at[last + 1];
}

/* Adds a value as large as another one. Its memory follows all others of its space, and it lives
 * until the end. */
static int add_value(ech_plan *plan, ech_list *list, ech_memory_kind kind, int like)
{
    ech_value value = *ech_plan_value(plan, list, like);
    ech_space space = ech_memory_space(kind);
    value.kind = kind;
    value.successor = -1;
    value.offset = plan->persistent_bytes[space] + list->bytes[space];
    list->bytes[space] += ech_plan_align(plan, kind, value.bytes);
    list->peak[kind] += ech_plan_align(plan, kind, value.bytes);
    ECH_PUSH(list->value, value);
    return (int)(plan->persistent.n + list->value.n) - 1;
}

static void add_access(ech_list *list, int value, bool write)
{
    ech_step *step = &list->step.at[list->step.n - 1];
    ECH_PUSH(list->access, (ech_access){.value = value, .tick = step->tick, .write = write});
    step->accesses++;
}

/* Adds copies after the list's own steps; the list then waits for the last copy. */
static void add_copies(ech_plan *plan, ech_list *list, trial *t)
{
    static const ech_memory_kind kinds[] = {ECH_MEMORY_PARAMETERS_ON_HOST,
                                            ECH_MEMORY_PARAMETERS_ON_DISK,
                                            ECH_MEMORY_PARAMETERS_ON_HOST};
    int n = (int)plan->bucket.n, first = list->ticks;
    ECH_FREED int *at = ech_calloc((size_t)n, sizeof *at);
    assert_true(n > 1 && list->value.n == 0);
    for (int b = 0; b < n; b++) at[b] = plan->bucket.at[b].weights;
    for (int h = 0; h < HOPS; h++) {
        ech_lane lane = hops[h].kind == ECH_STEP_FETCH ? ECH_LANE_COPY_IN : ECH_LANE_COPY_OUT;
        ech_step *step = add_step(list, hops[h].kind, lane);
        step->from = hops[h].from;
        step->to = hops[h].to;
        for (int b = 0; b < n; b++) {
            int to = h + 1 < HOPS ? add_value(plan, list, kinds[h], at[b]) : moments_of(plan, b);
            add_access(list, at[b], false);
            add_access(list, to, true);
            at[b] = to;
            int64_t bytes = ech_plan_value(plan, list, to)->bytes;
            t->bytes += h == 0 ? bytes : 0;
            t->padded += h == 0 ? ech_align(bytes, PAGE) : 0;
        }
    }
    add_step(list, ECH_STEP_READ, ECH_LANE_COMPUTE);
    for (size_t v = 0; v < list->value.n; v++) {
        list->value.at[v].born = first;
        list->value.at[v].dies = list->ticks - 1;
    }
}

/* The list with the host's values where files can be read and written. */
static void change(ech_plan *plan, trial *t)
{
    ech_list *list = &plan->list[ECH_LIST_CHECK];
    int64_t *host = &plan->persistent_bytes[ECH_SPACE_HOST];
    plan->alignment[ECH_SPACE_HOST] = PAGE;
    *host = ech_align(*host, PAGE);
    add_copies(plan, list, t);
    for (int space = 0; space < ECH_SPACES; space++) {
        int64_t bytes = plan->persistent_bytes[space] + list->bytes[space];
        if (bytes > plan->arena_bytes[space]) plan->arena_bytes[space] = bytes;
    }
}

static void compare(const ech_exec *exec, const ech_plan *plan, const ech_device *device,
                    const trial *t)
{
    int64_t peak[ECH_MEMORY_KINDS];
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        ech_tensor from = ech_exec_param(exec, p), to = ech_exec_state(exec, p, 0);
        assert_memory_equal(ech_device_reach(device, from.data), ech_device_reach(device, to.data),
                            ech_tensor_bytes(&from));
    }
    for (int h = 0; h < HOPS; h++)
        assert_int_equal(ech_exec_counted(exec)->copied[hops[h].from][hops[h].to], t->bytes);
    ech_exec_peaks(exec, peak);
    assert_int_equal(peak[ECH_MEMORY_PARAMETERS_ON_DISK], t->padded);
    assert_int_equal(peak[ECH_MEMORY_PARAMETERS_ON_HOST], 2 * t->padded);
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    ech_session s = {0};
    ECH_TRY(ech_design_plan(design, ech_comm_rank(comm), false, &s.plan));
    change(s.plan, t);
    ech_exec_setup setup = {.config = design->config,
                            .plan = s.plan,
                            .device = ech_device_find(t->device),
                            .comm = comm};
    ech_status status = t->made = ech_exec_create(&setup, &s.exec);
    if (status == ECH_OK) ech_exec_hurry_on(s.exec, t->is_urgent);
    if (status == ECH_OK) status = ech_exec_run(s.exec, ECH_LIST_INIT, 0);
    double began = ech_clock_now();
    if (status == ECH_OK) status = ech_exec_run(s.exec, ECH_LIST_CHECK, 0);
    t->seconds = ech_clock_now() - began;
    if (status == ECH_OK) compare(s.exec, s.plan, setup.device, t);
    ech_session_destroy(&s);
    return status;
}

static void run(const char *words, trial *t)
{
    char all[300];
    snprintf(all, sizeof all, "parallel.device=%s %s", t->device, words);
    assert_true(fixture_runs("gpt2", all, 1, run_rank, t));
}

TEST(bytes_come_back)
{
    static const char *const devices[] = {"cpu", "walled", "queued"};
    for (int d = 0; d < 3; d++) {
        trial t = {.device = devices[d]};
        run("", &t);
        assert_true(t.bytes > 0 && t.padded > t.bytes);
    }
}

TEST(no_copy_is_faster)
{
    static const char *const devices[] = {"cpu", "queued"};
    for (int d = 0; d < 2; d++) {
        char words[100];
        trial t = {.device = devices[d]}, slow = t;
        run("", &t);
        snprintf(words, sizeof words, "memory.offload_bandwidth=%lld",
                 (long long)(t.bytes * SLICES));
        run(words, &slow);
        assert_true(slow.seconds >= (double)HOPS / SLICES);
    }
}

/* Of copies that would take 300 s each: without the flag that stands for a signal the test would,
 * too. */
TEST(a_stop_ends_the_pace)
{
    static const char *const devices[] = {"cpu", "queued"};
    for (int d = 0; d < 2; d++) {
        atomic_bool is_urgent = true;
        char words[100];
        trial t = {.device = devices[d]}, slow = {.device = devices[d], .is_urgent = &is_urgent};
        run("", &t);
        snprintf(words, sizeof words, "memory.offload_bandwidth=%lld", (long long)(t.bytes / 300));
        run(words, &slow);
        assert_int_equal(slow.bytes, t.bytes);
    }
}

/* A copy that would take longer than the deadline is refused before anything is copied. */
TEST(no_copy_outlasts_the_deadline)
{
    trial t = {.device = "cpu"};
    assert_false(fixture_runs("gpt2", "memory.offload_bandwidth=1 parallel.deadline=5", 1, run_rank,
                              &t));
    assert_int_equal(t.made, ECH_EUSAGE);
}

ALL_TESTS(fixture_setup, fixture_teardown)
