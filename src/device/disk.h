/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk arena: one rank's part of the space disk, a file FOLDER/rank-R.offload of fixed size. Its
 * bytes are reserved when it is made, so that a full disk is found then. Its maker holds a lock
 * (flock) on it and removes it at the end; one without a lock is left over from a killed run, and
 * the next run that has that folder removes it.
 */
#ifndef ECH_DEVICE_DISK_H
#define ECH_DEVICE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_disk ech_disk;

/* Of offsets, sizes and addresses in memory, in bytes: what direct I/O asks for. */
enum { ECH_DISK_ALIGNMENT = 4096 };

/* Makes the folder and the file, bytes > 0. Not collective. Errors (ECH_EIO) name
 * memory.offload_directory: the folder cannot be made or written; too little space; another run has
 * the file. */
ech_status ech_disk_create(const char *folder, int rank, int64_t bytes, ech_disk **out);
/* Removes what killed runs have left over in the folder, if it is there: for a run that makes no
 * arena. */
void ech_disk_sweep(const char *folder);
void ech_disk_destroy(ech_disk *disk); /* accepts NULL */

const char *ech_disk_path(const ech_disk *disk);
/* An address that stands for the disk's first byte, so that a place there is told from one in
 * memory. It is reserved, and cannot be read or written. */
char *ech_disk_addresses(const ech_disk *disk);
/* Whether an address stands for a byte of the disk; *offset: which. disk NULL: none. */
bool ech_disk_has(const ech_disk *disk, const void *address, int64_t *offset);
/* Whether it reads and writes past the page cache. */
bool ech_disk_is_direct(const ech_disk *disk);

/* Offset, size and address are multiples of ECH_DISK_ALIGNMENT; the range is in the file. Several
 * threads may call at once, for ranges that do not overlap. Errors name the file: ECH_EIO;
 * ECH_EINPUT, it has been truncated. */
ech_status ech_disk_write(const ech_disk *disk, int64_t offset, const void *data, size_t bytes);
ech_status ech_disk_read(const ech_disk *disk, int64_t offset, void *data, size_t bytes);

/* The same of any range and address, by way of a buffer: for what is done seldom. */
ech_status ech_disk_put(const ech_disk *disk, int64_t offset, const void *data, size_t bytes);
ech_status ech_disk_get(const ech_disk *disk, int64_t offset, void *data, size_t bytes);

#endif
