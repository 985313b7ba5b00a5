/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: a file that grows under a temporary name beside its final one. Buffered, since
 * documents may be a few bytes each.
 */
#ifndef ECH_DATA_SINK_H
#define ECH_DATA_SINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_sink {
    char *path, *temporary;
    int fd;
    int64_t written; /* bytes in the file, without the buffer's */
    unsigned char *buffer;
    size_t used;
} ech_sink;

/* `path` is the final name. */
ech_status ech_sink_open(const char *path, ech_sink *out);
ech_status ech_sink_put(ech_sink *sink, const void *bytes, size_t n);
/* Brings all to disk, still under the temporary name. */
ech_status ech_sink_flush(ech_sink *sink);
ech_status ech_sink_rename(ech_sink *sink);
/* Removes the temporary file if it is still there, and releases the sink; accepts {0}. */
void ech_sink_close(ech_sink *sink);

#endif
