/* SPDX-License-Identifier: Apache-2.0
 *
 * The walled device: queued copies and fills, and called functions, reach its memory; all else that
 * touches it ends the process.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "device/device.h"
#include "unit.h"

enum { BYTES = 10000 };

static const ech_device *walled;
static ech_queue *queue;

static int open_queue(void **state)
{
    (void)state;
    walled = ech_device_find("walled");
    return walled && walled->queue_create(&queue) == ECH_OK ? 0 : -1;
}

static int close_queue(void **state)
{
    (void)state;
    walled->queue_destroy(queue);
    return 0;
}

static void increment(void *argument)
{
    (*(unsigned char *)walled->reach(*(char **)argument))++;
}

TEST(test_queued_work_reaches_memory)
{
    unsigned char host[BYTES];
    void *memory, *other;
    assert_int_equal(walled->alloc(BYTES, &memory), ECH_OK);
    assert_int_equal(walled->alloc(BYTES, &other), ECH_OK);
    assert_int_equal(ech_device_copy_now(walled, queue, host, memory, BYTES), ECH_OK);
    for (int i = 0; i < BYTES; i++) assert_int_equal(host[i], 0);
    for (int i = 0; i < BYTES; i++) host[i] = (unsigned char)i;
    walled->copy(queue, memory, host, BYTES);
    walled->copy(queue, other, memory, BYTES);
    walled->fill(queue, memory, 0xab, BYTES);
    walled->call(queue, increment, &other, sizeof other);
    memset(host, 0, BYTES);
    assert_int_equal(ech_device_copy_now(walled, queue, host, other, BYTES), ECH_OK);
    assert_int_equal(host[0], 1);
    for (int i = 1; i < BYTES; i++) assert_int_equal(host[i], (unsigned char)i);
    assert_int_equal(ech_device_copy_now(walled, queue, host, memory, BYTES), ECH_OK);
    assert_int_equal(host[BYTES - 1], 0xab);
    walled->release(memory, BYTES);
    walled->release(other, BYTES);
    /* What was there before is gone. */
    assert_int_equal(walled->alloc(BYTES, &memory), ECH_OK);
    assert_int_equal(ech_device_copy_now(walled, queue, host, memory, BYTES), ECH_OK);
    assert_int_equal(host[1], 0);
    walled->release(memory, BYTES);
}

TEST(test_only_its_memory_is_elsewhere)
{
    int own = 0;
    char *memory;
    assert_int_equal(walled->alloc(BYTES, (void **)&memory), ECH_OK);
    assert_null(walled->reach(NULL));
    assert_ptr_equal(walled->reach(&own), &own);
    char *there = walled->reach(memory);
    assert_ptr_not_equal(there, memory);
    assert_ptr_equal(walled->reach(memory + 77), there + 77);
    assert_ptr_equal(walled->reach(there), there);
    walled->release(memory, BYTES);
    walled->release(NULL, BYTES);
}

/* The signal that ends a process which reads or writes the byte there. */
static int touch(volatile char *at, bool writes)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (writes)
            *at = 1;
        else
            (void)*at;
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

TEST(test_the_host_cannot_touch_it)
{
    char *memory;
    assert_int_equal(walled->alloc(BYTES, (void **)&memory), ECH_OK);
    for (int writes = 0; writes < 2; writes++) {
        assert_int_equal(touch(memory, writes), SIGSEGV);
        assert_int_equal(touch(memory + BYTES - 1, writes), SIGSEGV);
        assert_int_equal(touch(walled->reach(memory), writes), 0);
    }
    walled->release(memory, BYTES);
}

TEST(test_too_much_memory)
{
    void *memory = NULL;
    assert_int_equal(walled->alloc(SIZE_MAX, &memory), ECH_ENOMEM);
    assert_non_null(strstr(ech_last_error(), "parallel.device"));
    assert_null(memory);
}

ALL_TESTS(open_queue, close_queue)
