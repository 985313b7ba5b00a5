/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing files into untrusted folders: only regular files, never through links.
 * tools/check_rooms.sh refuses other calls that open files for writing.
 */
#ifndef ECH_BASE_WRITING_H
#define ECH_BASE_WRITING_H

#include <stddef.h>

#include "base/status.h"

/* Opens a regular file for writing. flags: O_WRONLY or O_RDWR, and O_CREAT, O_EXCL and O_TRUNC as
 * in open(2). Never waits. Errors, ECH_EIO: it is a link, a pipe, a device or a folder; the system
 * refuses. */
ech_status ech_file_open_to_write(const char *path, int flags, int *out);

/* Creates or replaces a regular file atomically, like ech_file_write. Errors, ECH_EIO: as above. */
ech_status ech_file_write_inside(const char *path, const void *bytes, size_t n);

#endif
