/* SPDX-License-Identifier: Apache-2.0
 *
 * The device cuda where there is a GPU: zeroed memory, copies between it and pinned and other host
 * memory, order of queues by events, times, and the report of a fault. Without a GPU the tests are
 * skipped and say why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "device/device.h"
#include "unit.h"

static const ech_device *cuda;

enum { BYTES = 5 << 20, ROUNDS = 20 };

/* Host memory that is pinned, and memory of the device. */
typedef struct memory {
    unsigned char *host;
    void *device;
    ech_queue *queue;
} memory;

static void take(memory *m)
{
    void *host = NULL;
    assert_int_equal(cuda->alloc_host(BYTES, &host), ECH_OK);
    m->host = host;
    assert_int_equal(cuda->alloc(BYTES, &m->device), ECH_OK);
    assert_int_equal(cuda->queue_create(&m->queue), ECH_OK);
}

static void give(memory *m)
{
    cuda->queue_destroy(m->queue);
    cuda->release(m->device, BYTES);
    cuda->release_host(m->host, BYTES);
}

TEST(test_memory)
{
    memory m;
    take(&m);
    assert_int_equal((uintptr_t)m.device % ech_device_row_find("cuda")->alignment, 0);
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(m.host[b], 0);
    memset(m.host, 0xff, BYTES);
    assert_int_equal(ech_device_copy_now(cuda, m.queue, m.host, m.device, BYTES), ECH_OK);
    for (size_t b = 0; b < BYTES; b++) assert_int_equal(m.host[b], 0);
    give(&m);
    cuda->release(NULL, 100);
    cuda->release_host(NULL, 100);
    assert_true(cuda->memory_bytes() > (size_t)1 << 30);
    assert_true(cuda->count() >= 1);
}

/* To the device, within it, filled in part, and back into memory that is not pinned. */
TEST(test_copies)
{
    memory m;
    take(&m);
    ECH_FREED unsigned char *back = ech_calloc(BYTES, 1);
    char *at = m.device;
    const size_t half = BYTES / 2;
    for (size_t b = 0; b < BYTES; b++) m.host[b] = (unsigned char)(b * 31 >> 3);
    cuda->copy(m.queue, at, m.host, half);
    cuda->copy(m.queue, at + half, at, half);
    cuda->fill(m.queue, at + 1, 0xab, 1000);
    assert_int_equal(ech_device_copy_now(cuda, m.queue, back, at, BYTES), ECH_OK);
    for (size_t b = 0; b < BYTES; b++)
        assert_int_equal(back[b], b >= 1 && b < 1001 ? 0xab : m.host[b % half]);
    give(&m);
}

/* What one queue has copied the other copies on, and so back, in an order that events alone
 * make. */
TEST(test_order)
{
    memory m[2];
    ech_event *event[2];
    bool reached = false;
    for (int i = 0; i < 2; i++) {
        take(&m[i]);
        assert_int_equal(cuda->event_create(&event[i]), ECH_OK);
        assert_int_equal(cuda->query(event[i], &reached), ECH_OK); /* never recorded */
        assert_true(reached);
    }
    cuda->wait(m[0].queue, event[1]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            char *own = m[i].device, *other = m[1 - i].device;
            cuda->copy(m[i].queue, own + 1, other, BYTES - 1); /* moves everything on by one */
            cuda->fill(m[i].queue, own, (unsigned char)(2 * round + i + 1), 1);
            cuda->record(event[i], m[i].queue);
            cuda->wait(m[1 - i].queue, event[i]);
        }
    assert_int_equal(cuda->synchronize(event[1]), ECH_OK);
    assert_int_equal(cuda->query(event[0], &reached), ECH_OK);
    assert_true(reached);
    assert_true(cuda->elapsed(event[0], event[1]) > 0);
    assert_int_equal(ech_device_copy_now(cuda, m[0].queue, m[0].host, m[1].device, BYTES), ECH_OK);
    for (int b = 0; b < BYTES; b++)
        assert_int_equal(m[0].host[b], b < 2 * ROUNDS ? 2 * ROUNDS - b : 0);
    for (int i = 0; i < 2; i++) {
        cuda->event_destroy(event[i]);
        give(&m[i]);
    }
    cuda->event_destroy(NULL);
    cuda->queue_destroy(NULL);
}

/* Of a copy that has come: the first byte, plus one. */
static void take_first(void *argument)
{
    unsigned char **at = argument;
    at[1][0] = (unsigned char)(at[0][0] + 1);
}

/* The host's work is in the queue's order: between a copy that brings what it reads and one that
 * takes what it writes. */
TEST(test_calls)
{
    memory m;
    take(&m);
    char *device = m.device;
    unsigned char *argument[2] = {m.host, m.host + 4096};
    for (int round = 0; round < ROUNDS; round++) {
        cuda->copy(m.queue, m.host, device, 1);
        cuda->call(m.queue, take_first, argument, sizeof argument);
        cuda->copy(m.queue, device, m.host + 4096, 1);
    }
    assert_int_equal(ech_device_copy_now(cuda, m.queue, m.host, device, 1), ECH_OK);
    assert_int_equal(m.host[0], ROUNDS);
    give(&m);
}

TEST(test_too_much_memory)
{
    void *none = &none;
    assert_int_equal(cuda->alloc((size_t)1 << 50, &none), ECH_ENOMEM);
    assert_non_null(strstr(ech_last_error(), "1.0 PiB"));
    assert_non_null(strstr(ech_last_error(), "memory.device_limit"));
    assert_ptr_equal(none, &none);
}

/* Last, since a device that has failed stays so: bytes for an address that is nobody's. A copy from
 * there would be taken for one from the host, and end the process. */
TEST(test_fault)
{
    memory m;
    ech_event *event;
    take(&m);
    assert_int_equal(cuda->event_create(&event), ECH_OK);
    cuda->fill(m.queue, (char *)m.device + ((size_t)1 << 46), 1, BYTES);
    cuda->record(event, m.queue);
    assert_int_equal(cuda->synchronize(event), ECH_EIO);
    assert_non_null(strstr(ech_last_error(), "the GPU fails at"));
}

int main(void)
{
    const char *lacks = ech_device_lacks("cuda");
    if (lacks) printf("skipped: %s\n", lacks);
    if (lacks) return 77;
    cuda = ech_device_find("cuda");
    return unit_run(NULL);
}
