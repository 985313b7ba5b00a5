/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying boxes between strided memory and a file with the whole tensor in row-major order.
 */
#ifndef ECH_CHECKPOINT_TRANSFER_H
#define ECH_CHECKPOINT_TRANSFER_H

#include "checkpoint/checkpoint.h"

/* ECH_EINTERNAL, with the tensor's name, unless each box is inside the tensor and, if not empty,
 * has memory that is row-major without overlap (ech_box_is_apart). ech_transfer_read and
 * ech_safetensors_write check it, too. */
ech_status ech_transfer_check(const ech_saved_tensor *tensor);

/* Reads the tensor's boxes into their memory; the whole tensor begins at byte `offset` of the file.
 * `stored`: the dtype in the file, converted to tensor->dtype; unless both are floating-point types
 * they must be equal. */
ech_status ech_transfer_read(int fd, const char *path, ech_dtype stored,
                             const ech_saved_tensor *tensor, int64_t offset);

/* The same from a whole tensor of fp64 in memory. */
ech_status ech_transfer_take(const double *whole, const ech_saved_tensor *tensor);

#endif
