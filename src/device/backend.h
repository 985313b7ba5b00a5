/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to device: declares the ech_device of each row of device.def.
 */
#ifndef ECH_DEVICE_BACKEND_H
#define ECH_DEVICE_BACKEND_H

#include "device/device.h"

#define X(name, file) extern const ech_device ech_device_##name;
#include "device/device.def"
#undef X

#endif
