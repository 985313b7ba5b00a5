/* SPDX-License-Identifier: Apache-2.0
 *
 * What devices whose kernels run on the processor have in common: memory, and facts about the machine.
 */
#ifndef ECH_DEVICE_CPU_H
#define ECH_DEVICE_CPU_H

#include "device/device.h"

enum { ECH_DEVICE_CPU_ALIGNMENT = 64 }; /* a cache line, and the widest vector */
ech_status ech_device_cpu_alloc(size_t bytes, void **out);
void ech_device_cpu_release(void *memory, size_t bytes);
size_t ech_device_cpu_memory_bytes(void);
int ech_device_cpu_cores(void);

#endif
