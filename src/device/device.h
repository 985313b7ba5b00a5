/* SPDX-License-Identifier: Apache-2.0
 *
 * One kind of device: its memory, and copies within it and to the host. A backend is a file and a
 * row of device.def; a build without it lacks the row.
 */
#ifndef ECH_DEVICE_DEVICE_H
#define ECH_DEVICE_DEVICE_H

#include <stddef.h>

#include "base/status.h"

typedef struct ech_device {
    const char *name;
    /* Zeroed memory, aligned to 4,096 bytes. Errors: ECH_ENOMEM. */
    ech_status (*alloc)(size_t bytes, void **out);
    void (*release)(void *memory, size_t bytes); /* `bytes` as in alloc; accepts NULL */
    /* Copies within the device or from or to the host; no overlap. Complete on return, as fill is. */
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*fill)(void *to, unsigned char byte, size_t bytes);
    /* Bytes that all ranks of this machine have together: its memory, or the control group's limit if that is less. */
    size_t (*memory_bytes)(void);
    int (*cores)(void); /* how many cores this process may run on */
} ech_device;

/* NULL if this build has no such device. */
const ech_device *ech_device_find(const char *name);

#endif
