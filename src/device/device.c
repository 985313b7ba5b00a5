/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a device's backend by name.
 */
#include "device/device.h"

#include <string.h>

extern const ech_device ech_device_cpu, ech_device_queued, ech_device_walled, ech_device_cuda;
static const ech_device *const backends[] = {
    &ech_device_cpu,
    &ech_device_queued,
    &ech_device_walled,
#ifdef ECH_HAS_CUDA
    &ech_device_cuda,
#endif
};

const ech_device *ech_device_find(const char *name)
{
    for (size_t d = 0; d < sizeof backends / sizeof *backends; d++)
        if (strcmp(backends[d]->name, name) == 0) return backends[d];
    return NULL;
}

const char *ech_device_lacks(const char *name)
{
    const ech_device *device = ech_device_find(name);
    if (!device) return ech_device_row_find(name)->lacking;
    return device->lacks ? device->lacks() : NULL;
}

const char *ech_device_describe(const char *name)
{
    const char *lacks = ech_device_lacks(name);
    if (lacks) return lacks;
    const ech_device *device = ech_device_find(name);
    return device->describe ? device->describe() : name;
}

int ech_device_sharers(const ech_device *device, int local_ranks)
{
    int n = device->count ? device->count() : 1;
    return (local_ranks + n - 1) / n;
}

ech_status ech_device_settle(const ech_device *device, ech_queue *queue)
{
    ech_event *reached;
    if (device->is_immediate) return ECH_OK;
    ECH_TRY(device->event_create(&reached));
    device->record(reached, queue);
    ech_status status = device->synchronize(reached);
    device->event_destroy(reached);
    return status;
}

ech_status ech_device_copy_now(const ech_device *device, ech_queue *queue, void *to,
                               const void *from, size_t bytes)
{
    device->copy(queue, to, from, bytes);
    return ech_device_settle(device, queue);
}
