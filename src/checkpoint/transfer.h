/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes between a file, where the whole tensor lies row-major, and strided memory.
 */
#ifndef ECH_CHECKPOINT_TRANSFER_H
#define ECH_CHECKPOINT_TRANSFER_H

#include "checkpoint/checkpoint.h"

/* ECH_EINTERNAL, with the tensor's name, unless every box lies inside the tensor and has memory in
 * which no two elements share a place. To be asked before the others. */
ech_status ech_transfer_check(const ech_saved_tensor *tensor);

/* Box b of the tensor, which begins at byte `offset` of the file. Others may write beside it at the
 * same time: no byte outside of the box is touched. sums: as ech_safetensors_write. */
ech_status ech_transfer_write(int fd, const char *path, const ech_saved_tensor *tensor, int b,
                              int64_t offset, uint64_t *sums);
/* Likewise; in the file the elements are of dtype `stored`, which is the tensor's unless both are
 * floating-point types. Reads through a buffer of bounded size. */
ech_status ech_transfer_read(int fd, const char *path, ech_dtype stored,
                             const ech_saved_tensor *tensor, int b, int64_t offset);

#endif
