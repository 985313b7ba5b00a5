/* SPDX-License-Identifier: Apache-2.0
 *
 * Common parts of devices whose kernels run on the processor: memory, and facts about the machine.
 */
#ifndef ECH_DEVICE_CPU_H
#define ECH_DEVICE_CPU_H

#include "device/device.h"

ech_status ech_device_cpu_alloc(size_t bytes, void **out);
void ech_device_cpu_release(void *memory, size_t bytes);
size_t ech_device_cpu_memory_bytes(void);
int ech_device_cpu_cores(void);

/* Immediate queues: the calling thread executes work when it is put there. */
ech_status ech_device_cpu_queue_create(ech_queue **out);
void ech_device_cpu_queue_destroy(ech_queue *queue);
ech_status ech_device_cpu_event_create(ech_event **out);
void ech_device_cpu_event_destroy(ech_event *event);
void ech_device_cpu_copy(ech_queue *queue, void *to, const void *from, size_t bytes);
void ech_device_cpu_fill(ech_queue *queue, void *to, unsigned char byte, size_t bytes);
void ech_device_cpu_call(ech_queue *queue, void (*function)(void *argument), void *argument,
                         size_t bytes);
void ech_device_cpu_record(ech_event *event, ech_queue *queue);
void ech_device_cpu_wait(ech_queue *queue, ech_event *event);
ech_status ech_device_cpu_query(ech_event *event, bool *reached);
ech_status ech_device_cpu_synchronize(ech_event *event);
double ech_device_cpu_elapsed(const ech_event *from, const ech_event *to);

#endif
