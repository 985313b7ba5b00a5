/* SPDX-License-Identifier: Apache-2.0
 *
 * A device to test with: the processor, but its memory cannot be read or written at its addresses.
 * What lies there is at a constant distance, where queued copies and fills, called functions and
 * transports reach it. Any other code that touches device memory ends the process.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"
#include "device/walled.h"

/* The addresses of this device's memory begin at `first`. The same number of addresses follows, at
 * which the memory is mapped. */
enum { PAGE = 4096 };
static const size_t room = (size_t)1 << 36;
static char *first;
static size_t taken; /* of `room`, by what was allocated since there was nothing */
static int alive;    /* allocations */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *ech_device_walled_reach(const void *address)
{
    uintptr_t at = (uintptr_t)address, from = (uintptr_t)first;
    bool is_mine = first && at >= from && at < from + room;
    return (void *)(at + (is_mine ? room : 0)); // NOLINT(performance-no-int-to-ptr)
}

static ech_status reserve(void)
{
    if (first) return ECH_OK;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(NULL, 2 * room, PROT_NONE, flags, -1, 0);
    if (start == MAP_FAILED)
        ECH_FAIL(ECH_ENOMEM,
                 "parallel.device = walled cannot reserve address space: %s; raise ulimit -v",
                 strerror(errno));
    first = start;
    return ECH_OK;
}

static ech_status take(size_t bytes, void **out)
{
    char wanted[32];
    ECH_TRY(reserve());
    if (bytes > room - taken || mprotect(first + taken + room, bytes, PROT_READ | PROT_WRITE) != 0)
        ECH_FAIL(ECH_ENOMEM,
                 "parallel.device = walled has no %s of memory left; set parallel.device = cpu",
                 ech_text_from_bytes((int64_t)bytes, wanted, sizeof wanted));
    *out = first + taken;
    taken += bytes;
    alive++;
    return ECH_OK;
}

/* At least a page, so that every allocation has an address of its own. */
static size_t whole_pages(size_t bytes)
{
    return (bytes / PAGE + 1) * PAGE;
}

ech_status ech_device_walled_alloc(size_t bytes, void **out)
{
    pthread_mutex_lock(&lock);
    ech_status status = take(whole_pages(bytes < room ? bytes : room), out);
    pthread_mutex_unlock(&lock);
    return status;
}

void ech_device_walled_release(void *memory, size_t bytes)
{
    if (!memory) return;
    pthread_mutex_lock(&lock);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    void *guard = mmap((char *)memory + room, whole_pages(bytes), PROT_NONE, flags, -1, 0);
    ECH_ASSERT(guard != MAP_FAILED);
    if (--alive == 0) taken = 0;
    pthread_mutex_unlock(&lock);
}

static void walled_copy(ech_queue *queue, void *to, const void *from, size_t bytes)
{
    ech_device_cpu_copy(queue, ech_device_walled_reach(to), ech_device_walled_reach(from), bytes);
}

static void walled_fill(ech_queue *queue, void *to, unsigned char byte, size_t bytes)
{
    ech_device_cpu_fill(queue, ech_device_walled_reach(to), byte, bytes);
}

const ech_device ech_device_walled = {
    .name = "walled",
    .is_immediate = true,
    .guards = true,
    .alloc = ech_device_walled_alloc,
    .release = ech_device_walled_release,
    .alloc_host = ech_device_cpu_alloc,
    .release_host = ech_device_cpu_release,
    .memory_bytes = ech_device_cpu_memory_bytes,
    .cores = ech_device_cpu_cores,
    .reach = ech_device_walled_reach,
    .queue_create = ech_device_cpu_queue_create,
    .queue_destroy = ech_device_cpu_queue_destroy,
    .event_create = ech_device_cpu_event_create,
    .event_destroy = ech_device_cpu_event_destroy,
    .copy = walled_copy,
    .fill = walled_fill,
    .call = ech_device_cpu_call,
    .record = ech_device_cpu_record,
    .wait = ech_device_cpu_wait,
    .query = ech_device_cpu_query,
    .synchronize = ech_device_cpu_synchronize,
    .elapsed = ech_device_cpu_elapsed,
};
