/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: a buffered file that is written under a temporary name.
 */
#ifndef ECH_DATA_SINK_H
#define ECH_DATA_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_sink {
    char *temporary; /* the file's path until it is renamed; NULL: closed */
    int fd;
    bool persists;         /* ech_sink_close does not remove the file */
    int64_t written;       /* bytes in the file, without the buffer's */
    unsigned char *buffer; /* bytes to be written */
    size_t used;           /* bytes in the buffer */
} ech_sink;

/* Creates a file with a unique name in the folder of `path`. ech_sink_close removes it unless it
 * was renamed. */
ech_status ech_sink_open(const char *path, ech_sink *out);
/* Opens or creates the file `temporary`, truncated to `bytes`, to append. ech_sink_close does not
 * remove it. */
ech_status ech_sink_resume(const char *temporary, int64_t bytes, ech_sink *out);
/* Appends n bytes. */
ech_status ech_sink_put(ech_sink *sink, const void *bytes, size_t n);
/* Writes the buffer and syncs the file, under the temporary name. */
ech_status ech_sink_flush(ech_sink *sink);
/* Renames the file to `path`. Flush it first. */
ech_status ech_sink_rename(ech_sink *sink, const char *path);
/* Releases the sink, and removes the file unless it persists. Accepts {0}. */
void ech_sink_close(ech_sink *sink);

#endif
