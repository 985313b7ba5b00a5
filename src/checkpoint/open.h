/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint: the structure of an open checkpoint.
 */
#ifndef ECH_CHECKPOINT_OPEN_H
#define ECH_CHECKPOINT_OPEN_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

#define ECH_MANIFEST_NAME "manifest.json"

struct ech_checkpoint {
    char *path;
    ech_manifest manifest;
    int64_t manifest_bytes;
    /* by ECH_FILE_MODEL and ECH_FILE_STATE; NULL: no such file */
    ech_safetensors *tensors[2];
};

#endif
