/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor as a device: aligned zeroed memory, plausible facts about the machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "device/device.h"

static void test_find(void **state)
{
    (void)state;
    assert_non_null(ech_device_find("cpu"));
    assert_null(ech_device_find("abacus"));
}

static void test_memory(void **state)
{
    (void)state;
    const ech_device *cpu = ech_device_find("cpu");
    ech_queue *queue;
    assert_int_equal(cpu->queue_create(&queue), ECH_OK);
    const size_t sizes[] = {0, 1, 4096, 4097, (2 << 20) - 1, (5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *memory = NULL;
        assert_int_equal(cpu->alloc(sizes[i], &memory), ECH_OK);
        assert_int_equal((uintptr_t)memory % 4096, 0);
        unsigned char *bytes = memory;
        for (size_t b = 0; b < sizes[i]; b++) assert_int_equal(bytes[b], 0);
        cpu->fill(queue, bytes, 0xab, sizes[i]);
        if (sizes[i] > 1) {
            bytes[0] = 7;
            cpu->copy(queue, bytes + sizes[i] - 1, bytes, 1);
            assert_int_equal(bytes[sizes[i] - 1], 7);
            assert_int_equal(bytes[sizes[i] - 2], sizes[i] > 2 ? 0xab : 7);
        }
        cpu->release(memory, sizes[i]);
    }
    cpu->release(NULL, 100);
    cpu->queue_destroy(queue);
}

static void test_too_much_memory(void **state)
{
    (void)state;
    const ech_device *cpu = ech_device_find("cpu");
    ech_log_set_quiet(true);
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

/* Work of two queues, one of which waits for the other; and an event that is recorded again. */
static void test_queues(void **state)
{
    (void)state;
    const ech_device *cpu = ech_device_find("cpu");
    ech_queue *queue[2];
    ech_event *event[2];
    int calls = 0, *counted = &calls, seen = -1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cpu->queue_create(&queue[i]), ECH_OK);
        assert_int_equal(cpu->event_create(&event[i]), ECH_OK);
    }
    cpu->wait(queue[1], event[1]); /* never recorded: not waited for */
    for (int round = 1; round <= 2; round++) {
        cpu->record(event[0], queue[0]);
        cpu->call(queue[0], add_one, &counted, sizeof counted);
        cpu->record(event[1], queue[0]);
        cpu->wait(queue[1], event[1]);
        cpu->copy(queue[1], &seen, &calls, sizeof seen);
        cpu->record(event[1], queue[1]);
        assert_int_equal(cpu->synchronize(event[1]), ECH_OK);
        bool reached = false;
        assert_int_equal(cpu->query(event[0], &reached), ECH_OK);
        assert_true(reached);
        assert_int_equal(seen, round);
        assert_true(cpu->elapsed(event[0], event[1]) >= 0);
    }
    for (int i = 0; i < 2; i++) {
        cpu->queue_destroy(queue[i]);
        cpu->event_destroy(event[i]);
    }
    cpu->queue_destroy(NULL);
    cpu->event_destroy(NULL);
}

static void test_machine(void **state)
{
    (void)state;
    const ech_device *cpu = ech_device_find("cpu");
    assert_in_range(cpu->cores(), 1, sysconf(_SC_NPROCESSORS_CONF));
    size_t physical = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    assert_in_range(cpu->memory_bytes(), 1, physical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_too_much_memory),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
