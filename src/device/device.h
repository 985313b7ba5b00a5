/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: what plans know of each (device.def), and backends: a device's memory, and queues of
 * work on it. A backend is a file; a build may lack it, a machine what it needs.
 *
 * A queue is work that runs in the order in which it was put there (a stream of CUDA). An event is
 * a mark in a queue: it is reached when all work has ended that was put there before it was
 * recorded. Queues run beside each other; one waits for another by an event. What is put on a queue
 * returns at once and can fail later: query and synchronize then say so. Several threads may put
 * work on queues, also on the same one. Memory that queued work touches belongs to it until an
 * event behind it is reached.
 */
#ifndef ECH_DEVICE_DEVICE_H
#define ECH_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_queue ech_queue;
typedef struct ech_event ech_event;

typedef struct ech_device {
    const char *name;
    /* Why this machine cannot compute with it, and what to do: a text that stays; NULL if it can.
     * Itself NULL: all can. */
    const char *(*lacks)(void);
    const char *(*describe)(
        void); /* ech_device_describe, where nothing is lacking; NULL: by its name */
    /* How many this machine has. The calling thread's memory and queues are of that one from now
     * on, from 0. NULL: one. */
    int (*count)(void);
    void (*use)(int index);
    /* Whatever is put on a queue has ended when the call returns. Then queues do not wait for each
     * other: who puts work there waits first, on the host. */
    bool is_immediate;

    /* Zeroed memory, aligned to 4,096 bytes, of a GPU to its row's alignment. Errors:
     * ECH_ENOMEM. */
    ech_status (*alloc)(size_t bytes, void **out);
    void (*release)(void *memory, size_t bytes); /* `bytes` as in alloc; accepts NULL */
    /* The same of host memory that copies to and from the device can pass at full speed (pinned
     * where there is a GPU). */
    ech_status (*alloc_host)(size_t bytes, void **out);
    void (*release_host)(void *memory, size_t bytes);
    /* Bytes that all ranks have together that share it: the machine's memory, or the control
     * group's limit if that is less; of GPUs the smallest one's, less what the driver and libraries
     * take. */
    size_t (*memory_bytes)(void);
    int (*cores)(void); /* how many cores this process may run on */
    /* Where functions that are called on a queue, and transports, find this device's memory on the
     * processor; other addresses as they are. NULL: by the same address, and kernels are called
     * without a queue. */
    void *(*reach)(const void *address);

    /* Errors: ECH_EIO, the system starts no further thread. A queue that is destroyed has no work
     * left; an event may still be waited for. NULL is accepted. */
    ech_status (*queue_create)(ech_queue **out);
    void (*queue_destroy)(ech_queue *queue);
    /* By what libraries that put work on queues themselves know one, whose device becomes the
     * calling thread's: of a GPU its cudaStream_t. NULL: such libraries cannot be used. */
    void *(*stream)(const ech_queue *queue);
    ech_status (*event_create)(ech_event **out);
    void (*event_destroy)(ech_event *event);

    /* ---- put on a queue ---- */

    /* Copies within the device, or from or to the host; no overlap. */
    void (*copy)(ech_queue *queue, void *to, const void *from, size_t bytes);
    void (*fill)(ech_queue *queue, void *to, unsigned char byte, size_t bytes);
    /* Calls a function with a copy of its argument, which is `bytes` long. The function may touch
     * device memory where kernels run on the CPU; what it puts on its own queue is done at once,
     * and it puts nothing on others. Of other devices it asks nothing. */
    void (*call)(ech_queue *queue, void (*function)(void *argument), void *argument, size_t bytes);
    /* Anew, if it was recorded before: queues that wait for what it was keep to that. Of several
     * threads that record it on one queue the one whose mark lies behind the others' has recorded
     * last. */
    void (*record)(ech_event *event, ech_queue *queue);
    /* What is put on the queue from now on waits until the event, as recorded last before this
     * call, is reached. One that was never recorded is not waited for. */
    void (*wait)(ech_queue *queue, ech_event *event);

    /* ---- asked by the host; of an event as recorded last ---- */

    /* Whether it has been reached, without waiting. Errors: a fault on the device. */
    ech_status (*query)(ech_event *event, bool *reached);
    /* Waits until it is reached. Errors: a fault on the device. */
    ech_status (*synchronize)(ech_event *event);
    double (*elapsed)(const ech_event *from, const ech_event *to); /* seconds; both are reached */
} ech_device;

static inline void *ech_device_reach(const ech_device *device, const void *address)
{
    return device->reach ? device->reach(address) : (void *)(uintptr_t)address;
}

/* Whether the processor computes with it: then functions on queues, and transports, find its memory
 * by `reach`. */
static inline bool ech_device_is_processor(const ech_device *device)
{
    return device->is_immediate || device->reach;
}

/* Waits for what is on the queue. Errors: a fault on the device. */
ech_status ech_device_settle(const ech_device *device, ech_queue *queue);
/* Copies behind what is on the queue, and waits for it. */
ech_status ech_device_copy_now(const ech_device *device, ech_queue *queue, void *to,
                               const void *from, size_t bytes);

/* A device as plans know it, on whatever machine they are made: a row of device.def, which says
 * what the numbers are. */
typedef struct ech_device_row {
    const char *name;
    size_t alignment, part;
    int64_t loss_rows;
    const char *fused, *lacking;
} ech_device_row;
/* What parallel.device may say: a row, or auto: the first of cuda and cpu that is not lacking. */
typedef enum ech_device_choice {
#define X(name, ...) ECH_DEVICE_##name,
#include "device/device.def"
#undef X
    ECH_DEVICE_auto
} ech_device_choice;
/* NULL: no such row. */
const ech_device_row *ech_device_row_find(const char *name);
/* Space-separated names of all choices. */
const char *ech_device_names(void);

/* A row's backend; NULL: this build has none. */
const ech_device *ech_device_find(const char *name);
/* Why this build on this machine cannot compute with a row's device, and what to do; NULL: it
 * can. */
const char *ech_device_lacks(const char *name);
/* One line for logs: what is here of a row's device, or why there is none. Valid until this
 * thread's next call. */
const char *ech_device_describe(const char *name);
/* How many of so many ranks on a machine share one, at most: all, where there is one. */
int ech_device_sharers(const ech_device *device, int local_ranks);

#endif
