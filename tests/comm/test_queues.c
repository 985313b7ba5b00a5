/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers and collectives put on queues: the bits and counts of those in host memory; and without
 * one of the waits by which two queues meet, other data, whichever side comes first.
 */

#include "comm/on_queue.h"
#include "gate.h"
#include "unit.h"

TEST(reductions_on_queues_have_the_same_bits)
{
    for (int n = 1; n <= 4; n++)
        assert_int_equal(ranks_run(n, 60, on_queue_reduce, NULL, NULL), ECH_OK);
}

/* ---- a wait is left out ---- */

enum { SENDER, RECEIVER };

/* The side `first` comes first. The queue of `held` stands still at its beginning until the other's
 * is done with what it puts there: so a wait of the other's that is left out shows. */
typedef struct meeting {
    int first, held;
    /* the first comer's queue waits for none, or the second one's: the one that is not held */
    bool leaks;
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

/* The sender's memory is 1 after its queue's first work, and 2 after the transfer. The receiver's
 * memory is 10 before the transfer. */
static ech_status meet(ech_comm *comm, void *context)
{
    meeting *m = context;
    int me = ech_comm_rank(comm);
    void *memory;
    int64_t numbers[] = {1, 2, 10};
    gate *hold = &m->hold;
    ech_comm_queue on;
    ECH_TRY(on_queue_open(&m->device, &on));
    ECH_TRY(queued->alloc(sizeof(int64_t), &memory));
    if (me == RECEIVER)
        ECH_TRY(ech_device_copy_now(queued, on.queue, memory, &numbers[2], sizeof(int64_t)));
    if (m->leaks && me != m->held) waits_for_none = on.queue;
    if (me == m->held) queued->call(on.queue, gate_pass, &hold, sizeof hold);
    if (me == SENDER) queued->copy(on.queue, memory, &numbers[0], sizeof(int64_t));
    if (me == RECEIVER) queued->copy(on.queue, &m->kept, memory, sizeof(int64_t));

    ech_request request = {.on = &on,
                           .data = memory,
                           .peer = 1 - me,
                           .tag = 0,
                           .bytes = sizeof(int64_t),
                           .sends = me == SENDER};
    gate *came = &m->came;
    if (me != m->first) gate_pass(&came);
    ECH_TRY(ech_comm_put(comm, &request, 1));
    if (me == m->first) gate_open(&came);
    ECH_TRY(ech_comm_wait(comm, &request, 1));

    if (me == SENDER) queued->copy(on.queue, memory, &numbers[1], sizeof(int64_t));
    if (me == RECEIVER) queued->copy(on.queue, &m->seen, memory, sizeof(int64_t));
    if (me != m->held) queued->call(on.queue, gate_open, &hold, sizeof hold);
    queued->record(on.mark, on.queue);
    ECH_TRY(queued->synchronize(on.mark));
    /* Both queues have done all. */
    ech_group *world;
    ECH_TRY(checks_world(comm, &world));
    ECH_TRY(ech_group_barrier(world));
    ech_group_destroy(world);
    on_queue_close(&on);
    queued->release(memory, sizeof(int64_t));
    return ECH_OK;
}

static bool goes_wrong(int first, int held, bool leaks)
{
    meeting m = {.first = first, .held = held, .leaks = leaks, .device = *queued};
    gate *gates[] = {&m.came, &m.hold};
    for (int i = 0; i < 2; i++) gate_create(gates[i]);
    m.device.wait = leaky_wait;
    waits_for_none = NULL;
    assert_int_equal(ranks_run(2, 60, meet, &m, NULL), ECH_OK);
    for (int i = 0; i < 2; i++) gate_destroy(gates[i]);
    return m.kept != 10 || m.seen != 1;
}

/* The copy is on the first comer's queue, which waits for the second's; then the second waits for
 * it. */
TEST(each_side_waits_for_the_other)
{
    for (int first = SENDER; first <= RECEIVER; first++)
        for (int held = SENDER; held <= RECEIVER; held++) {
            assert_false(goes_wrong(first, held, false));
#ifndef __SANITIZE_THREAD__ /* it would find what this is to show */
            assert_true(goes_wrong(first, held, true));
#endif
        }
}

/* A device whose memory the processor does not see: ranks that are processes do not send it. */
TEST(who_sends_what)
{
    ech_device far = *queued;
    far.reach = NULL;
    far.name = "cuda";
    const ech_comm_backend *mpi = ech_comm_find("mpi"), *local = ech_comm_find("local");
    assert_int_equal(ech_comm_check_device(local, &far, 2), ECH_OK);
    if (!mpi) return; /* this build lacks it */
    assert_int_equal(ech_comm_check_device(mpi, &far, 1), ECH_OK);
    assert_int_equal(ech_comm_check_device(mpi, queued, 2), ECH_OK);
    assert_int_equal(ech_comm_check_device(mpi, ech_device_find("cpu"), 2), ECH_OK);
    assert_int_equal(ech_comm_check_device(mpi, &far, 2), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "set parallel.comm = nccl, or local"));
}

int main(void)
{
    queued = ech_device_find("queued");
    return unit_run(NULL);
}
