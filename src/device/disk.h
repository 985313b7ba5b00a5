/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk arena: one rank's part of the space disk, a file FOLDER/rank-R.offload of fixed size. Its
 * bytes are reserved when it is made, so that a full disk is detected then. Its maker holds a lock
 * (flock) on it and removes it at the end. A file without a lock is left over from a killed run,
 * and the next run with that folder removes it.
 */
#ifndef ECH_DEVICE_DISK_H
#define ECH_DEVICE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_disk ech_disk;

/* Alignment in bytes of offsets, sizes and addresses in memory, which direct I/O requires. */
enum { ECH_DISK_ALIGNMENT = 4096 };

/* Makes the folder and the file, bytes > 0. Not collective. `option`: the key or option that names
 * the folder, in errors. Errors (ECH_EIO): the folder cannot be made or written; too little space;
 * another run has the file. */
ech_status ech_disk_create(const char *folder, const char *option, int rank, int64_t bytes,
                           ech_disk **out);
/* Removes files of killed runs in the folder, if it exists: for a run that makes no arena. */
void ech_disk_sweep(const char *folder);
void ech_disk_destroy(ech_disk *disk); /* accepts NULL */

const char *ech_disk_path(const ech_disk *disk);
/* An address that stands for the disk's first byte, so that disk places can be told from memory. It
 * is reserved, and cannot be read or written. */
char *ech_disk_addresses(const ech_disk *disk);
/* True if an address stands for a byte of the disk; *offset: its offset. disk NULL: false. */
bool ech_disk_has(const ech_disk *disk, const void *address, int64_t *offset);
/* True if it reads and writes without the page cache. */
bool ech_disk_is_direct(const ech_disk *disk);

/* Offset, size and address must be multiples of ECH_DISK_ALIGNMENT; the range must be in the file.
 * Several threads may call at the same time, for ranges that do not overlap. Errors name the file:
 * ECH_EIO; ECH_EINPUT, it has been truncated. */
ech_status ech_disk_write(const ech_disk *disk, int64_t offset, const void *data, size_t bytes);
ech_status ech_disk_read(const ech_disk *disk, int64_t offset, void *data, size_t bytes);

/* The same for any range and address, through a buffer: for infrequent use. */
ech_status ech_disk_put(const ech_disk *disk, int64_t offset, const void *data, size_t bytes);
ech_status ech_disk_get(const ech_disk *disk, int64_t offset, void *data, size_t bytes);

#endif
