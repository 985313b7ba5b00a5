/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a device by name.
 */
#include "device/device.h"

#include <string.h>

#define X(name, help) extern const ech_device ech_device_##name;
#include "device/device.def"
#undef X

static const ech_device *const devices[] = {
#define X(name, help) &ech_device_##name,
#include "device/device.def"
#undef X
};

const char *ech_device_names(void)
{
    static const char names[] =
#define X(name, help) " " #name
#include "device/device.def"
#undef X
        ;
    return names + 1;
}

const ech_device *ech_device_find(const char *name)
{
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++)
        if (strcmp(devices[d]->name, name) == 0) return devices[d];
    return NULL;
}
