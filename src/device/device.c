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

ech_status ech_device_copy_now(const ech_device *device, ech_queue *queue, void *to,
                               const void *from, size_t bytes)
{
    ech_event *copied;
    device->copy(queue, to, from, bytes);
    if (device->is_immediate) return ECH_OK;
    ECH_TRY(device->event_create(&copied));
    device->record(copied, queue);
    ech_status status = device->synchronize(copied);
    device->event_destroy(copied);
    return status;
}

const ech_device *ech_device_find(const char *name)
{
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++)
        if (strcmp(devices[d]->name, name) == 0) return devices[d];
    return NULL;
}
