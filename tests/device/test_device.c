/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor as a device, and the one whose queues are threads: aligned zeroed memory, queues
 * and events, plausible facts about the machine.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pthread.h>

#include "base/log.h"
#include "device/device.h"
#include "unit.h"

TEST(test_find)
{
    assert_non_null(ech_device_find("cpu"));
    assert_null(ech_device_find("abacus"));
    assert_string_equal(ech_device_names(), "cpu cuda queued walled auto");
}

static const char *const names[] = {"cpu", "queued", "walled"};
enum { DEVICES = sizeof names / sizeof *names };

static void check_memory(const ech_device *device)
{
    const size_t sizes[] = {0, 1, 4096, 4097, (2 << 20) - 1, (5 << 20) + 3};
    ech_queue *queue;
    ech_event *event;
    assert_int_equal(device->queue_create(&queue), ECH_OK);
    assert_int_equal(device->event_create(&event), ECH_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *memory = NULL;
        assert_int_equal(device->alloc(sizes[i], &memory), ECH_OK);
        assert_int_equal((uintptr_t)memory % 4096, 0);
        assert_int_equal(4096 % ech_device_row_find(device->name)->alignment, 0);
        unsigned char *bytes = memory, *there = ech_device_reach(device, memory);
        for (size_t b = 0; b < sizes[i]; b++) assert_int_equal(there[b], 0);
        const unsigned char seven = 7;
        device->fill(queue, bytes, 0xab, sizes[i]);
        if (sizes[i] > 1) {
            device->copy(queue, bytes, &seven, 1);
            device->copy(queue, bytes + sizes[i] - 1, bytes, 1);
        }
        device->record(event, queue);
        assert_int_equal(device->synchronize(event), ECH_OK);
        for (size_t b = 0; b < sizes[i]; b++)
            assert_int_equal(there[b], sizes[i] > 1 && (b == 0 || b == sizes[i] - 1) ? 7 : 0xab);
        device->release(memory, sizes[i]);
    }
    device->release(NULL, 100);
    device->queue_destroy(queue);
    device->event_destroy(event);
}

TEST(test_memory)
{
    for (int d = 0; d < DEVICES; d++) check_memory(ech_device_find(names[d]));
}

TEST(test_too_much_memory)
{
    const ech_device *cpu = ech_device_find("cpu");
    void *memory = &memory;
    assert_int_equal(cpu->alloc(SIZE_MAX, &memory), ECH_ENOMEM);
    assert_int_equal(cpu->alloc((size_t)1 << 60, &memory), ECH_ENOMEM);
    assert_non_null(strstr(ech_last_error(), "1.0 EiB"));
    assert_non_null(strstr(ech_last_error(), "memory.device_limit"));
    assert_ptr_equal(memory, &memory);
}

static void add_one(void *argument)
{
    **(int **)argument += 1;
}

/* Work of two queues, each of which waits for the other; events are recorded again. */
static void check_queues(const ech_device *device)
{
    ech_queue *queue[2];
    ech_event *event[2];
    int calls = 0, *counted = &calls, seen[20] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device->queue_create(&queue[i]), ECH_OK);
        assert_int_equal(device->event_create(&event[i]), ECH_OK);
    }
    device->wait(queue[0], event[1]); /* never recorded: not waited for */
    for (int round = 0; round < 20; round++) {
        device->call(queue[0], add_one, &counted, sizeof counted);
        device->record(event[0], queue[0]);
        device->wait(queue[1], event[0]);
        device->copy(queue[1], &seen[round], &calls, sizeof calls);
        device->record(event[1], queue[1]);
        device->wait(queue[0], event[1]);
    }
    assert_int_equal(device->synchronize(event[1]), ECH_OK);
    bool reached = false;
    assert_int_equal(device->query(event[0], &reached), ECH_OK);
    assert_true(reached);
    for (int round = 0; round < 20; round++) assert_int_equal(seen[round], round + 1);
    assert_true(device->elapsed(event[0], event[1]) >= 0);
    for (int i = 0; i < 2; i++) {
        device->queue_destroy(queue[i]);
        device->event_destroy(event[i]);
    }
    device->queue_destroy(NULL);
    device->event_destroy(NULL);
}

TEST(test_queues)
{
    for (int d = 0; d < DEVICES; d++) check_queues(ech_device_find(names[d]));
}

/* A queue that another one's work holds up. */
typedef struct hold {
    const ech_device *device;
    ech_event *until;
} hold;

static void pass_gate(void *argument)
{
    pthread_mutex_t *gate = *(pthread_mutex_t **)argument;
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
}

static void wait_until(void *argument)
{
    const hold *h = argument;
    (void)h->device->synchronize(h->until);
}

/* Work that is put on the queue of threads returns without waiting: an event after work that is
 * held up is reached only when that work ends. */
TEST(test_queued_work_is_not_waited_for)
{
    const ech_device *device = ech_device_find("queued");
    ech_queue *queue[2];
    ech_event *released, *behind;
    int calls = 0, *counted = &calls;
    bool reached = true;
    for (int i = 0; i < 2; i++) assert_int_equal(device->queue_create(&queue[i]), ECH_OK);
    assert_int_equal(device->event_create(&released), ECH_OK);
    assert_int_equal(device->event_create(&behind), ECH_OK);
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER, *held = &gate;
    pthread_mutex_lock(&gate);
    device->call(queue[1], pass_gate, &held, sizeof held);
    device->record(released, queue[1]);
    hold h = {device, released};
    device->call(queue[0], wait_until, &h, sizeof h);
    device->call(queue[0], add_one, &counted, sizeof counted);
    device->record(behind, queue[0]);
    assert_int_equal(device->query(behind, &reached), ECH_OK);
    assert_false(reached);
    pthread_mutex_unlock(&gate);
    assert_int_equal(device->synchronize(behind), ECH_OK);
    assert_int_equal(calls, 1);
    for (int i = 0; i < 2; i++) device->queue_destroy(queue[i]);
    device->event_destroy(released);
    device->event_destroy(behind);
    pthread_mutex_destroy(&gate);
}

/* ---- several threads record one event on one queue ---- */

enum { RECORDERS = 8, TIMES = 400, WORK_NS = 20000 };

/* A thread that waits, on a queue of its own, for each piece that it puts on the common one. */
typedef struct recorder {
    const ech_device *device;
    ech_queue *common, *own;
    ech_event *event;
    atomic_int ended; /* pieces of this thread */
    int seen, early;  /* on its own queue */
} recorder;

static void end_piece(void *argument)
{
    recorder *r = *(recorder **)argument;
    nanosleep(&(struct timespec){.tv_nsec = WORK_NS}, NULL);
    atomic_fetch_add(&r->ended, 1);
}

static void see_piece(void *argument)
{
    recorder *r = *(recorder **)argument;
    if (atomic_load(&r->ended) < ++r->seen) r->early++;
}

static void *record_and_wait(void *argument)
{
    recorder *r = argument;
    for (int i = 0; i < TIMES; i++) {
        r->device->call(r->common, end_piece, &r, sizeof r);
        r->device->record(r->event, r->common);
        r->device->wait(r->own, r->event);
        r->device->call(r->own, see_piece, &r, sizeof r);
    }
    return NULL;
}

/* Who has recorded it, and then waits for it, waits for its own mark at least. */
TEST(test_threads_record_one_event)
{
    const ech_device *device = ech_device_find("queued");
    recorder all[RECORDERS];
    pthread_t thread[RECORDERS];
    ech_queue *common;
    ech_event *event;
    assert_int_equal(device->queue_create(&common), ECH_OK);
    assert_int_equal(device->event_create(&event), ECH_OK);
    for (int i = 0; i < RECORDERS; i++) {
        all[i] = (recorder){.device = device, .common = common, .event = event};
        assert_int_equal(device->queue_create(&all[i].own), ECH_OK);
    }
    for (int i = 0; i < RECORDERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, record_and_wait, &all[i]), 0);
    for (int i = 0; i < RECORDERS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < RECORDERS; i++) {
        assert_int_equal(ech_device_settle(device, all[i].own), ECH_OK);
        device->queue_destroy(all[i].own);
        assert_int_equal(all[i].seen, TIMES);
        assert_int_equal(all[i].early, 0);
    }
    device->queue_destroy(common);
    device->event_destroy(event);
}

TEST(test_machine)
{
    const ech_device *cpu = ech_device_find("cpu");
    assert_in_range(cpu->cores(), 1, sysconf(_SC_NPROCESSORS_CONF));
    size_t physical = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    assert_in_range(cpu->memory_bytes(), 1, physical);
}
