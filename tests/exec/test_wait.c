/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of lanes that wait for steps: a step wakes only the threads that wait for it, and each of
 * those. A wake-up that is lost leaves a thread asleep, so the test does not end.
 */

#include <sched.h>
#include <stdlib.h>

#include "exec/state.h"
#include "unit.h"

enum { ROUNDS = 5000, STEPS = 2 * ROUNDS };

/* A run of a list in which step 2 comes after steps 0 and 1, and step 4 after step 3. */
static ech_exec *create(void)
{
    static const ech_device device = {.is_immediate = true};
    static int afters[] = {0, 1, 3};
    ech_exec *exec = calloc(1, sizeof *exec);
    ech_list *list = calloc(1, sizeof *list);
    list->step.at = calloc(STEPS, sizeof *list->step.at);
    list->step.n = STEPS;
    list->after.at = afters;
    list->after.n = 3;
    for (int s = 0; s < STEPS; s++) list->step.at[s].lane = ECH_LANE_COMPUTE;
    list->step.at[2].afters = 2;
    list->step.at[4].first_after = 2;
    list->step.at[4].afters = 1;
    exec->list = list;
    exec->device = &device;
    exec->done = calloc(STEPS, sizeof *exec->done);
    exec->run = 1;
    exec->awaited = -1;
    ech_waits_create(exec);
    assert_int_equal(ech_comm_open(ech_comm_find("local"), 1, 60, &exec->comm), ECH_OK);
    return exec;
}

static void destroy(ech_exec *exec)
{
    ech_list *list = (ech_list *)exec->list;
    ech_comm_close(exec->comm);
    ech_waits_destroy(exec);
    free(list->step.at);
    free(list);
    free((void *)exec->done);
    free(exec);
}

typedef struct waiter {
    ech_exec *exec;
    pthread_t thread;
    ech_lane lane;
    int step;
    bool result;
} waiter;

static void start(waiter *w, void *(*body)(void *))
{
    assert_int_equal(pthread_create(&w->thread, NULL, body, w), 0);
}

static void join(const waiter *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
}

static void *wait_for_one(void *argument)
{
    waiter *w = argument;
    w->result = ech_exec_wait_for(w->exec, w->step, w->lane);
    return NULL;
}

static void *wait_for_any(void *argument)
{
    waiter *w = argument;
    ech_exec_wait_for_any(w->exec, (int[]){-1, 2, 4}, 3);
    return NULL;
}

/* A nap; `result`: a wake-up has ended it. */
static void *nap(void *argument)
{
    enum { SECONDS = 30 };
    waiter *w = argument;
    ech_exec *exec = w->exec;
    unsigned heard = ech_comm_heard(exec->comm);
    if (atomic_load(&exec->awaited) < 0 && !ech_exec_has_failed(exec))
        ech_exec_nap(exec, (int[]){-1, 2, 4}, 3, heard, SECONDS * 1000000000L);
    w->result = ech_comm_heard(exec->comm) != heard;
    if (!ech_exec_is_complete(exec, 1)) ech_exec_complete(exec, 1);
    return NULL;
}

static void await_bit(ech_exec *exec, int step, ech_lane lane)
{
    while (!(atomic_load(&exec->done[step]) & 1u << lane)) sched_yield();
}

TEST(wakes_only_who_waits)
{
    ech_exec *exec = create();
    waiter a = {.exec = exec, .lane = ECH_LANE_REDUCE, .step = 5};
    waiter b = {.exec = exec, .lane = ECH_LANE_GATHER, .step = 6};
    waiter c = {.exec = exec, .lane = ECH_LANE_HOST, .step = 6};
    start(&a, wait_for_one);
    start(&b, wait_for_one);
    start(&c, wait_for_one);
    await_bit(exec, 5, a.lane);
    await_bit(exec, 6, b.lane);
    await_bit(exec, 6, c.lane);
    ech_exec_complete(exec, 7);
    assert_int_equal(exec->signals, 0);
    ech_exec_complete(exec, 5);
    assert_int_equal(exec->signals, 1);
    join(&a);
    ech_exec_complete(exec, 6);
    assert_int_equal(exec->signals, 3);
    join(&b);
    join(&c);
    assert_true(a.result && b.result && c.result);
    assert_true(ech_exec_wait_for(exec, 5, ECH_LANE_REDUCE));
    /* No bit is left for the next run, nor is a step of this run complete in it. */
    exec->run++;
    assert_false(ech_exec_is_complete(exec, 6));
    ech_exec_complete(exec, 6);
    assert_int_equal(exec->signals, 3);
    destroy(exec);
}

TEST(link_waits_for_any)
{
    ech_exec *exec = create();
    waiter link = {.exec = exec};
    start(&link, wait_for_any);
    await_bit(exec, 0, ECH_LANE_SEND);
    await_bit(exec, 3, ECH_LANE_SEND);
    ech_exec_complete(exec, 5);
    assert_int_equal(exec->signals, 0);
    ech_exec_complete(exec, 0);
    assert_int_equal(exec->signals, 1);
    await_bit(exec, 1, ECH_LANE_SEND);
    ech_exec_complete(exec, 1);
    assert_int_equal(exec->signals, 2);
    join(&link);
    assert_true(ech_exec_may_begin(exec, &exec->list->step.at[2]));
    assert_false(ech_exec_may_begin(exec, &exec->list->step.at[4]));
    destroy(exec);
}

TEST(step_ends_nap)
{
    ech_exec *exec = create();
    waiter link = {.exec = exec};
    start(&link, nap);
    await_bit(exec, 3, ECH_LANE_SEND);
    ech_exec_complete(exec, 5);
    assert_int_equal(exec->signals, 0);
    ech_exec_complete(exec, 0);
    join(&link);
    assert_true(link.result);
    destroy(exec);
}

TEST(compute_ends_nap)
{
    ech_exec *exec = create();
    waiter link = {.exec = exec};
    start(&link, nap);
    await_bit(exec, 3, ECH_LANE_SEND);
    assert_true(ech_exec_wait_for(exec, 1, ECH_LANE_COMPUTE));
    join(&link);
    assert_true(link.result);
    assert_int_equal(atomic_load(&exec->awaited), -1);
    destroy(exec);
}

TEST(failure_wakes_all)
{
    for (int naps = 0; naps < 2; naps++) {
        ech_exec *exec = create();
        waiter a = {.exec = exec, .lane = ECH_LANE_COMPUTE, .step = 5, .result = true};
        waiter b = {.exec = exec, .lane = ECH_LANE_DISK, .step = 6, .result = true};
        waiter link = {.exec = exec};
        start(&link, naps ? nap : wait_for_any);
        if (naps)
            await_bit(exec, 3, ECH_LANE_SEND);
        else
            start(&a, wait_for_one);
        start(&b, wait_for_one);
        if (!naps) await_bit(exec, 3, ECH_LANE_SEND);
        if (!naps) await_bit(exec, 5, a.lane);
        await_bit(exec, 6, b.lane);
        ech_exec_fail(exec, ECH_EIO);
        join(&link);
        if (!naps) join(&a);
        join(&b);
        assert_false(b.result);
        assert_int_equal(a.result, naps);
        assert_int_equal(link.result, naps);
        destroy(exec);
    }
}

static void *answer(void *argument)
{
    const waiter *w = argument;
    for (int s = 0; s < STEPS; s += 2) {
        if (!ech_exec_wait_for(w->exec, s, w->lane)) return NULL;
        ech_exec_complete(w->exec, s + 1);
    }
    return NULL;
}

/* Two threads wait for each other's steps in turn, so that ends of steps meet threads about to
 * sleep. */
TEST(loses_no_wake_up)
{
    ech_exec *exec = create();
    waiter peer = {.exec = exec, .lane = ECH_LANE_REDUCE};
    start(&peer, answer);
    for (int s = 0; s < STEPS; s += 2) {
        ech_exec_complete(exec, s);
        assert_true(ech_exec_wait_for(exec, s + 1, ECH_LANE_COMPUTE));
    }
    join(&peer);
    assert_true(exec->signals <= STEPS);
    destroy(exec);
}
