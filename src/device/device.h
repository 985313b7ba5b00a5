/* SPDX-License-Identifier: Apache-2.0
 *
 * One kind of device: its memory, and copies within it and to the host. A backend is a file and a
 * row in device.def; an absent backend is an absent row.
 */
#ifndef ECH_DEVICE_DEVICE_H
#define ECH_DEVICE_DEVICE_H

#include <stddef.h>

#include "base/status.h"

typedef struct ech_device {
    const char *name;
    /* Memory aligned to 4,096 bytes, readable as zero. */
    ech_status (*alloc)(size_t bytes, void **out);
    void (*release)(void *memory, size_t bytes); /* accepts NULL */
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*fill)(void *to, unsigned char byte, size_t bytes);
    /* Bytes of memory a rank may use on this machine when the run file sets no limit. */
    size_t (*memory_bytes)(void);
    int (*cores)(void); /* cores this process may run on */
} ech_device;

/* NULL if this build has no such device. */
const ech_device *ech_device_find(const char *name);

#endif
