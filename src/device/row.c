/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a row of device.def.
 */
#include "device/row.h"

#include <string.h>

static const ech_device_row rows[] = {
#define X(name, alignment, part, segment, loss_rows, loads, kernels, fused, lacking, help)         \
    {#name, alignment, part, segment, loss_rows, loads, fused, lacking},
#include "device/device.def"
#undef X
};

const char *ech_device_names(void)
{
    static const char names[] =
#define X(name, ...) " " #name
#include "device/device.def"
#undef X
        " auto";
    return names + 1;
}

const ech_device_row *ech_device_row_find(const char *name)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        if (strcmp(rows[r].name, name) == 0) return &rows[r];
    return NULL;
}

const ech_device_row *ech_device_row_of(const char *choice)
{
    const ech_device_row *row = ech_device_row_find(choice);
    return row ? row : ech_device_row_find("cpu");
}
