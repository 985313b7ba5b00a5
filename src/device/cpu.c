/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor as a device: its memory is the machine's, its copies are memcpy, and queues are
 * immediate.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/control_group.h"
#include "device/cores.h"
#include "device/cpu.h"

enum { HUGE_PAGE = 2 << 20 };

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Maps a huge page more than asked and gives back the ends, so that the start is at a huge page's
 * start and the kernel can use huge pages throughout: fewer translations to miss in an arena. */
ech_status ech_device_cpu_alloc(size_t bytes, void **out)
{
    char wanted[32];
    if (bytes > SIZE_MAX / 2)
        ECH_FAIL(ECH_ENOMEM, "cannot map %zu bytes of memory: set memory.device_limit lower",
                 bytes);
    size_t size = whole_pages(bytes ? bytes : 1);
    size_t mapped = size + HUGE_PAGE;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        ECH_FAIL(ECH_ENOMEM, "cannot map %s of memory: %s; set memory.device_limit lower",
                 ech_text_from_bytes((int64_t)bytes, wanted, sizeof wanted), strerror(errno));
    size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(start, before);
    munmap(start + before + size, mapped - before - size);
    /* Advice only: a kernel without huge pages is slower, not wrong. */
    if (size >= HUGE_PAGE) madvise(start + before, size, MADV_HUGEPAGE);
    *out = start + before;
    return ECH_OK;
}

void ech_device_cpu_release(void *memory, size_t bytes)
{
    if (memory) munmap(memory, whole_pages(bytes ? bytes : 1));
}

/* ---- queues: the calling thread does at once what is put there ---- */

struct ech_queue {
    char none;
};
struct ech_event {
    double at; /* when it was recorded, in seconds of ech_clock_now */
};

ech_status ech_device_cpu_queue_create(ech_queue **out)
{
    *out = ech_calloc(1, sizeof **out);
    return ECH_OK;
}

void ech_device_cpu_queue_destroy(ech_queue *queue)
{
    free(queue);
}

ech_status ech_device_cpu_event_create(ech_event **out)
{
    *out = ech_calloc(1, sizeof **out);
    return ECH_OK;
}

void ech_device_cpu_event_destroy(ech_event *event)
{
    free(event);
}

void ech_device_cpu_copy(ech_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    if (bytes > 0) memcpy(to, from, bytes);
}

void ech_device_cpu_fill(ech_queue *queue, void *to, unsigned char byte, size_t bytes)
{
    (void)queue;
    if (bytes > 0) memset(to, byte, bytes);
}

void ech_device_cpu_call(ech_queue *queue, void (*function)(void *argument), void *argument,
                         size_t bytes)
{
    (void)queue, (void)bytes;
    function(argument);
}

void ech_device_cpu_record(ech_event *event, ech_queue *queue)
{
    (void)queue;
    event->at = ech_clock_now();
}

void ech_device_cpu_wait(ech_queue *queue, ech_event *event)
{
    (void)queue, (void)event; /* it was reached when it was recorded */
}

ech_status ech_device_cpu_query(ech_event *event, bool *reached)
{
    (void)event;
    *reached = true;
    return ECH_OK;
}

ech_status ech_device_cpu_synchronize(ech_event *event)
{
    (void)event;
    return ECH_OK;
}

double ech_device_cpu_elapsed(const ech_event *from, const ech_event *to)
{
    return to->at - from->at;
}

/* ---- facts about the machine ---- */

size_t ech_device_cpu_memory_bytes(void)
{
    size_t physical = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return ech_control_memory(&ech_control_groups_here, physical);
}

int ech_device_cpu_cores(void)
{
    const ech_core_set mine = ech_cores_mine();
    int n = ech_cores_count(&mine);
    return ech_control_cores(&ech_control_groups_here,
                             n > 0 ? n : (int)sysconf(_SC_NPROCESSORS_ONLN));
}

const ech_device ech_device_cpu = {
    .name = "cpu",
    .is_immediate = true,
    .alloc = ech_device_cpu_alloc,
    .release = ech_device_cpu_release,
    .alloc_host = ech_device_cpu_alloc,
    .release_host = ech_device_cpu_release,
    .memory_bytes = ech_device_cpu_memory_bytes,
    .cores = ech_device_cpu_cores,
    .queue_create = ech_device_cpu_queue_create,
    .queue_destroy = ech_device_cpu_queue_destroy,
    .event_create = ech_device_cpu_event_create,
    .event_destroy = ech_device_cpu_event_destroy,
    .copy = ech_device_cpu_copy,
    .fill = ech_device_cpu_fill,
    .call = ech_device_cpu_call,
    .record = ech_device_cpu_record,
    .wait = ech_device_cpu_wait,
    .query = ech_device_cpu_query,
    .synchronize = ech_device_cpu_synchronize,
    .elapsed = ech_device_cpu_elapsed,
};
