/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory at addresses that the host cannot access, for test devices (walled.c).
 */
#ifndef ECH_DEVICE_WALLED_H
#define ECH_DEVICE_WALLED_H

#include "device/cpu.h"

ech_status ech_device_walled_alloc(size_t bytes, void **out);
void ech_device_walled_release(void *memory, size_t bytes);
void *ech_device_walled_reach(const void *address);

#endif
