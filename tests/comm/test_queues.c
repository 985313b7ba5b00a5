/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers and collectives put on queues: the bits and counts of those in host memory; and without one of the waits by
 * which two queues meet, other data, whichever side comes first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <time.h>

#include "comm/checks.h"

/* ---- arithmetic on the queue ---- */

typedef struct arithmetic {
    ech_tensor own, parts, sum;
    int64_t index;
} arithmetic;

static void reach(ech_tensor *x)
{
    x->data = ech_device_reach(ech_device_find("queued"), x->data);
}

static void do_add_parts(void *argument)
{
    arithmetic *a = argument;
    reach(&a->own), reach(&a->parts), reach(&a->sum);
    ech_tensor_add_parts(&a->own, &a->parts, a->index, &a->sum);
}

static void do_convert(void *argument)
{
    arithmetic *a = argument;
    reach(&a->own), reach(&a->sum);
    ech_tensor_convert(&a->own, &a->sum);
}

static void put_add_parts(void *context, const ech_tensor *own, const ech_tensor *parts,
                          int64_t index, const ech_tensor *sum)
{
    const ech_comm_queue *on = context;
    arithmetic a = {*own, *parts, *sum, index};
    on->device->call(on->queue, do_add_parts, &a, sizeof a);
}

static void put_convert(void *context, const ech_tensor *x, const ech_tensor *y)
{
    const ech_comm_queue *on = context;
    arithmetic a = {.own = *x, .sum = *y};
    on->device->call(on->queue, do_convert, &a, sizeof a);
}

static ech_status open_queue(const ech_device *device, ech_comm_queue *on)
{
    *on = (ech_comm_queue){
        .device = device, .context = on, .add_parts = put_add_parts, .convert = put_convert};
    ECH_TRY(device->queue_create(&on->queue));
    return device->event_create(&on->mark);
}

static void close_queue(ech_comm_queue *on)
{
    on->device->queue_destroy(on->queue);
    on->device->event_destroy(on->mark);
}

/* ---- reductions ---- */

/* Of n elements that travel as `wire`: the same bits and counts there as here. */
static ech_status check_reduction(ech_group *here, ech_group *there, const ech_comm_queue *on,
                                  const checks_case *c)
{
    size_t bytes = (size_t)c->n * ech_dtype_bytes(c->dtype);
    size_t scratch_bytes = ech_reduction_scratch(c->reduction, c->wire, c->n, ech_group_size(here));
    void *memory, *there_scratch;
    ECH_FREED char *x = malloc(bytes + 1);
    ECH_FREED char *y = malloc(bytes + 1);
    ECH_FREED char *scratch = malloc(scratch_bytes + 1);
    ECH_TRY(on->device->alloc(bytes, &memory));
    ECH_TRY(on->device->alloc(scratch_bytes, &there_scratch));
    checks_fill(x, c->dtype, c->n, ech_group_index(here), c->whole);
    ECH_TRY(ech_device_copy_now(on->device, on->queue, memory, x, bytes));
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n), far = view;
    far.data = memory;
    ECH_TRY(ech_group_reduce(here, c->reduction, &view, c->wire, scratch));
    ECH_TRY(ech_group_reduce(there, c->reduction, &far, c->wire, there_scratch));
    ECH_TRY(ech_device_copy_now(on->device, on->queue, y, memory, bytes));
    RANKS_CHECK(memcmp(x, y, bytes) == 0);
    ech_comm_count a = ech_group_count(here, ECH_COMM_REDUCES),
                   b = ech_group_count(there, ECH_COMM_REDUCES);
    RANKS_CHECK(memcmp(&a, &b, sizeof a) == 0);
    on->device->release(memory, bytes);
    on->device->release(there_scratch, scratch_bytes);
    return ECH_OK;
}

/* A scatter that adds, then a gather: likewise. */
static ech_status run_halves(ech_group *group, const checks_case *c, void *x, void *shard,
                             void *scratch)
{
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n);
    ech_sum scatter, gather;
    ECH_TRY(
        ech_sum_begin_scatter(group, c->reduction, &view, c->wire, shard, true, scratch, &scatter));
    ECH_TRY(ech_sum_run(&scatter));
    ECH_TRY(ech_sum_end(&scatter));
    ECH_TRY(ech_sum_begin_gather(group, c->reduction, &view, shard, &gather));
    ECH_TRY(ech_sum_run(&gather));
    return ech_sum_end(&gather);
}

static ech_status check_halves(ech_group *here, ech_group *there, const ech_comm_queue *on,
                               const checks_case *c)
{
    int N = ech_group_size(here), index = ech_group_index(here);
    size_t item = ech_dtype_bytes(c->dtype), bytes = (size_t)c->n * item;
    size_t own = (size_t)ech_collective_shard_count(c->n, N, index) * item;
    size_t scratch_bytes =
        ech_reduction_part_scratch(c->reduction, ECH_REDUCTION_SCATTER, c->wire, c->n, N);
    size_t all = bytes + own + scratch_bytes;
    void *memory;
    ECH_FREED char *x = malloc(all + 1);
    ECH_FREED char *y = malloc(bytes + 1);
    ECH_TRY(on->device->alloc(all, &memory));
    checks_fill(x, c->dtype, c->n, index, c->whole);
    checks_fill(x + bytes, c->dtype, (int64_t)(own / item), index + 20, c->whole);
    ECH_TRY(ech_device_copy_now(on->device, on->queue, memory, x, bytes + own));
    ECH_TRY(run_halves(here, c, x, x + bytes, x + bytes + own));
    char *far = memory;
    ECH_TRY(run_halves(there, c, far, far + bytes, far + bytes + own));
    ECH_TRY(ech_device_copy_now(on->device, on->queue, y, memory, bytes));
    RANKS_CHECK(memcmp(x, y, bytes) == 0);
    for (ech_comm_counted kind = ECH_COMM_SCATTERS; kind <= ECH_COMM_GATHERS; kind++) {
        ech_comm_count a = ech_group_count(here, kind), b = ech_group_count(there, kind);
        RANKS_CHECK(memcmp(&a, &b, sizeof a) == 0);
    }
    ECH_TRY(ech_group_barrier(here)); /* others' queues may still read it */
    on->device->release(memory, all);
    return ECH_OK;
}

static ech_status reduce_there(ech_comm *comm, void *context)
{
    (void)context;
    static const checks_case cases[] = {{ECH_REDUCTION_DIRECT, ECH_F32, ECH_F32, 100003, false},
                                        {ECH_REDUCTION_DIRECT, ECH_F64, ECH_F64, 2, false},
                                        {ECH_REDUCTION_DIRECT, ECH_F32, ECH_BF16, 70001, false},
                                        {ECH_REDUCTION_DIRECT, ECH_BF16, ECH_BF16, 1000, false},
                                        {ECH_REDUCTION_RING, ECH_F32, ECH_F32, 100003, false},
                                        {ECH_REDUCTION_NAIVE, ECH_F32, ECH_F32, 1000, false}};
    ech_group *here, *there;
    ech_comm_queue on;
    ECH_TRY(open_queue(ech_device_find("queued"), &on));
    ECH_TRY(checks_world(comm, &here));
    there = ech_group_open(here, 1);
    ech_group_set_queue(there, &on);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ECH_TRY(check_reduction(here, there, &on, &cases[i]));
    for (size_t i = 0; i + 1 < sizeof cases / sizeof *cases; i++) /* the last one has no halves */
        ECH_TRY(check_halves(here, there, &on, &cases[i]));
    ECH_TRY(ech_group_barrier(here)); /* other queues may still copy from this one's memory */
    close_queue(&on);
    ech_group_destroy(there);
    ech_group_destroy(here);
    return ECH_OK;
}

static void reductions_on_queues_have_the_same_bits(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        assert_int_equal(ranks_run(n, 60, reduce_there, NULL, NULL), ECH_OK);
}

/* ---- a wait is left out ---- */

enum { SENDER, RECEIVER, HOLD_MS = 400 };

/* What a queue waits at; not for longer than HOLD_MS. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
} gate;

static void set_gate(gate *g, bool open)
{
    pthread_mutex_lock(&g->lock);
    g->open = open;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void open_gate(void *argument)
{
    set_gate(*(gate **)argument, true);
}

static void pass_gate(void *argument)
{
    gate *g = *(gate **)argument;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += HOLD_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&g->lock);
    while (!g->open && pthread_cond_timedwait(&g->changed, &g->lock, &end) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&g->lock);
}

/* The side `first` comes first. The queue of `held` stands still at its beginning until the other's is done with what it puts
 * there: so a wait of the other's that is left out shows. */
typedef struct meeting {
    int first, held;
    bool
        leaks; /* the first comer's queue waits for none, or the second one's: the one that is not held */
    gate came, hold;
    ech_device device;
    int64_t seen; /* what came */
    int64_t kept; /* what the receiver's queue read of its memory before the transfer */
} meeting;

static const ech_device *queued;
static _Atomic(ech_queue *) waits_for_none;

static void leaky_wait(ech_queue *queue, ech_event *event)
{
    if (queue != waits_for_none) queued->wait(queue, event);
}

/* The sender's memory is 1, from its queue's first work on, and 2 behind the transfer. The receiver's is 10 before. */
static ech_status meet(ech_comm *comm, void *context)
{
    meeting *m = context;
    int me = ech_comm_rank(comm);
    void *memory;
    int64_t numbers[] = {1, 2, 10};
    gate *hold = &m->hold;
    ech_comm_queue on;
    ECH_TRY(open_queue(&m->device, &on));
    ECH_TRY(queued->alloc(sizeof(int64_t), &memory));
    if (me == RECEIVER)
        ECH_TRY(ech_device_copy_now(queued, on.queue, memory, &numbers[2], sizeof(int64_t)));
    if (m->leaks && me != m->held) waits_for_none = on.queue;
    if (me == m->held) queued->call(on.queue, pass_gate, &hold, sizeof hold);
    if (me == SENDER) queued->copy(on.queue, memory, &numbers[0], sizeof(int64_t));
    if (me == RECEIVER) queued->copy(on.queue, &m->kept, memory, sizeof(int64_t));

    ech_request request = {
        .peer = 1 - me, .tag = 0, .bytes = sizeof(int64_t), .sends = me == SENDER};
    gate *came = &m->came;
    if (me != m->first) pass_gate(&came);
    ECH_TRY(ech_comm_put(comm, &on, &request, memory));
    if (me == m->first) open_gate(&came);
    ECH_TRY(ech_comm_wait(comm, &request, 1));

    if (me == SENDER) queued->copy(on.queue, memory, &numbers[1], sizeof(int64_t));
    if (me == RECEIVER) queued->copy(on.queue, &m->seen, memory, sizeof(int64_t));
    if (me != m->held) queued->call(on.queue, open_gate, &hold, sizeof hold);
    queued->record(on.mark, on.queue);
    ECH_TRY(queued->synchronize(on.mark));
    /* Both queues have done all. */
    ech_group *world;
    ECH_TRY(checks_world(comm, &world));
    ECH_TRY(ech_group_barrier(world));
    ech_group_destroy(world);
    close_queue(&on);
    queued->release(memory, sizeof(int64_t));
    return ECH_OK;
}

static bool goes_wrong(int first, int held, bool leaks)
{
    meeting m = {.first = first, .held = held, .leaks = leaks, .device = *queued};
    gate *gates[] = {&m.came, &m.hold};
    for (int i = 0; i < 2; i++) {
        pthread_mutex_init(&gates[i]->lock, NULL);
        pthread_cond_init(&gates[i]->changed, NULL);
    }
    m.device.wait = leaky_wait;
    waits_for_none = NULL;
    assert_int_equal(ranks_run(2, 60, meet, &m, NULL), ECH_OK);
    for (int i = 0; i < 2; i++) {
        pthread_mutex_destroy(&gates[i]->lock);
        pthread_cond_destroy(&gates[i]->changed);
    }
    return m.kept != 10 || m.seen != 1;
}

/* The copy is on the first comer's queue, which waits for the second's; then the second waits for it. */
static void each_side_waits_for_the_other(void **state)
{
    (void)state;
    for (int first = SENDER; first <= RECEIVER; first++)
        for (int held = SENDER; held <= RECEIVER; held++) {
            assert_false(goes_wrong(first, held, false));
#ifndef __SANITIZE_THREAD__ /* it would find what this is to show */
            assert_true(goes_wrong(first, held, true));
#endif
        }
}

/* A device whose memory the processor does not see: ranks that are processes do not send it. */
static void who_sends_what(void **state)
{
    (void)state;
    ech_device far = *queued;
    far.reach = NULL;
    far.name = "cuda";
    const ech_comm_backend *mpi = ech_comm_find("mpi"), *local = ech_comm_find("local");
    assert_int_equal(ech_comm_check_device(local, &far, 2), ECH_OK);
    assert_int_equal(ech_comm_check_device(mpi, &far, 1), ECH_OK);
    assert_int_equal(ech_comm_check_device(mpi, queued, 2), ECH_OK);
    assert_int_equal(ech_comm_check_device(mpi, ech_device_find("cpu"), 2), ECH_OK);
    ech_log_set_quiet(true);
    assert_int_equal(ech_comm_check_device(mpi, &far, 2), ECH_EUNSUPPORTED);
    ech_log_set_quiet(false);
    assert_non_null(strstr(ech_last_error(), "set parallel.comm = local"));
}

int main(void)
{
    queued = ech_device_find("queued");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_on_queues_have_the_same_bits),
        cmocka_unit_test(each_side_waits_for_the_other),
        cmocka_unit_test(who_sends_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
