/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices as plans see them, on whatever machine they are made.
 */
#ifndef ECH_DEVICE_ROW_H
#define ECH_DEVICE_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A row of device.def, which explains the numbers. */
typedef struct ech_device_row {
    const char *name;
    size_t alignment, part, segment;
    int64_t loss_rows;
    bool loads;
    const char *fused, *lacking;
} ech_device_row;
/* The values of parallel.device: a row, or auto: the first of cuda and cpu that is available. */
typedef enum ech_device_choice {
#define X(name, ...) ECH_DEVICE_##name,
#include "device/device.def"
#undef X
    ECH_DEVICE_auto
} ech_device_choice;
/* NULL: no such row. */
const ech_device_row *ech_device_row_find(const char *name);
/* Of a resolved parallel.device; for auto, before it is resolved, the CPU's. */
const ech_device_row *ech_device_row_of(const char *choice);
/* Space-separated names of all choices. */
const char *ech_device_names(void);

#endif
