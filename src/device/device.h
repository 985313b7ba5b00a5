/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: the properties that plans use (device.def), and backends: a device's memory, and queues
 * of work on it. A backend is a file; a build may lack it, and a machine may lack what it needs.
 *
 * A queue runs work in the order in which it was put there (a stream of CUDA). An event is a mark
 * in a queue: it is reached when all work that was put there before it was recorded has ended.
 * Queues run concurrently; one waits for another by an event. Calls that put work on a queue return
 * immediately, and the work can fail later: query and synchronize then report it. Several threads
 * may put work on queues, also on the same one. Memory that queued work touches belongs to the work
 * until an event recorded after it is reached.
 */
#ifndef ECH_DEVICE_DEVICE_H
#define ECH_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/cores.h"
#include "device/row.h"

typedef struct ech_queue ech_queue;
typedef struct ech_event ech_event;

typedef struct ech_device {
    const char *name;
    /* Why this machine cannot compute with it, and what to do: a text that remains valid; NULL if
     * it can. The function is NULL if every machine can. */
    const char *(*lacks)(void);
    const char *(*describe)(
        void); /* ech_device_describe, if nothing is lacking; NULL: by its name */
    /* How many this machine has; and selects device `index`, from 0, for the calling thread's
     * memory and queues from now on. NULL: one. */
    int (*count)(void);
    void (*use)(int index);
    /* Writes what tells device `index` from the machine's others, whatever its number: its PCI bus
     * ID. NULL: there are no numbers. */
    void (*identify)(int index, char *out, size_t n);
    /* Lets copies between the calling thread's device and device `index` go from one to the other.
     * False: this machine cannot, and they go through the host's memory. NULL: nothing to do. */
    bool (*meet)(int index);
    /* The cores next to the calling thread's device; none: unknown. NULL: all are. */
    ech_core_set (*near)(void);
    /* Work that is put on a queue has ended when the call returns. Queues then do not wait for each
     * other: the thread that puts work there must wait first, on the host. */
    bool is_immediate;
    /* Kernels give a plugin's functions copies of their tensors between guard pages. */
    bool guards;

    /* Zeroed memory, aligned to 4,096 bytes, on a GPU to its row's alignment. Errors:
     * ECH_ENOMEM. */
    ech_status (*alloc)(size_t bytes, void **out);
    void (*release)(void *memory, size_t bytes); /* `bytes` as in alloc; accepts NULL */
    /* The same for host memory that copies to and from the device can access at full speed (pinned
     * for a GPU). */
    ech_status (*alloc_host)(size_t bytes, void **out);
    void (*release_host)(void *memory, size_t bytes);
    /* Total bytes for the ranks that share the device: the machine's memory, or the control group's
     * limit if that is less; for GPUs the smallest one's memory, minus what the driver and
     * libraries take. */
    size_t (*memory_bytes)(void);
    /* Bytes of the calling thread's device that no program has taken. NULL: not known. */
    size_t (*left)(void);
    /* Of the smallest GPU: how many thread blocks can surely run at once. NULL: any number. */
    int (*multiprocessors)(void);
    int (*cores)(void); /* number of cores on which this process may run */
    /* The processor's address of this device's memory, for transports and functions that are called
     * on a queue; other addresses are unchanged. NULL: addresses are equal, and kernels are called
     * without a queue. */
    void *(*reach)(const void *address);

    /* Errors: ECH_EIO, the system starts no further thread. A queue to be destroyed must have no
     * pending work; an event may still be waited for. NULL is accepted. */
    ech_status (*queue_create)(ech_queue **out);
    void (*queue_destroy)(ech_queue *queue);
    /* Lets the queue's work go before other queues' work. Called before any work is put there.
     * NULL: no queue goes first. */
    void (*prefer)(ech_queue *queue);
    /* The handle of a queue for libraries that put work on queues themselves: a GPU's cudaStream_t.
     * The queue's device becomes the calling thread's. NULL: such libraries cannot be used. */
    void *(*stream)(const ech_queue *queue);
    ech_status (*event_create)(ech_event **out);
    void (*event_destroy)(ech_event *event);

    /* ---- put on a queue ---- */

    /* Copies within the device, or from or to the host; no overlap. */
    void (*copy)(ech_queue *queue, void *to, const void *from, size_t bytes);
    void (*fill)(ech_queue *queue, void *to, unsigned char byte, size_t bytes);
    /* Calls a function on the queue with a copy of its argument of `bytes` bytes. The function may
     * touch device memory if kernels run on the CPU; work that it puts on its own queue runs
     * immediately, and it must not use other queues. With other devices it must not use the device
     * at all. */
    void (*call)(ech_queue *queue, void (*function)(void *argument), void *argument, size_t bytes);
    /* Records the event, again if it was recorded before: queues that already wait for it keep
     * waiting for the earlier mark. If several threads record it on one queue, the last mark
     * counts. */
    void (*record)(ech_event *event, ech_queue *queue);
    /* Makes work put on the queue from now on wait until the event's last mark before this call is
     * reached. Does nothing if the event was never recorded. */
    void (*wait)(ech_queue *queue, ech_event *event);

    /* ---- called by the host; about an event's last mark ---- */

    /* Sets *reached without waiting. Errors: a fault on the device. */
    ech_status (*query)(ech_event *event, bool *reached);
    /* Waits until it is reached. Errors: a fault on the device. */
    ech_status (*synchronize)(ech_event *event);
    double (*elapsed)(const ech_event *from, const ech_event *to); /* seconds; both are reached */
} ech_device;

static inline void *ech_device_reach(const ech_device *device, const void *address)
{
    return device->reach ? device->reach(address) : (void *)(uintptr_t)address;
}

/* True if the processor computes with it: functions on queues, and transports, then access its
 * memory through `reach`. */
static inline bool ech_device_is_processor(const ech_device *device)
{
    return device->is_immediate || device->reach;
}

/* Waits for the work on the queue. Errors: a fault on the device. */
ech_status ech_device_settle(const ech_device *device, ech_queue *queue);
/* Copies after the work on the queue, and waits for the copy. */
ech_status ech_device_copy_now(const ech_device *device, ech_queue *queue, void *to,
                               const void *from, size_t bytes);

/* A row's backend; NULL: this build has none. */
const ech_device *ech_device_find(const char *name);
/* Why this build on this machine cannot compute with a row's device, and what to do; NULL: it
 * can. */
const char *ech_device_lacks(const char *name);
/* One line for logs: the devices of a row in this machine, or why there are none. Valid until this
 * thread's next call. */
const char *ech_device_describe(const char *name);
/* The most ranks of `local_ranks` on a machine that share one device: all, if there is one. */
int ech_device_sharers(const ech_device *device, int local_ranks);

#endif
