/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: a file that grows under a temporary name. Buffered, since documents may be a few
 * bytes each.
 */
#ifndef ECH_DATA_SINK_H
#define ECH_DATA_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_sink {
    char *temporary;
    int fd;
    bool keeps;      /* the file outlives the sink */
    int64_t written; /* bytes in the file, without the buffer's */
    unsigned char *buffer;
    size_t used;
} ech_sink;

/* A new file beside `path`, under a name of its own that goes with the sink. */
ech_status ech_sink_open(const char *path, ech_sink *out);
/* The file `temporary`, of which the first `bytes` stay; it also stays when the sink is closed. */
ech_status ech_sink_resume(const char *temporary, int64_t bytes, ech_sink *out);
ech_status ech_sink_put(ech_sink *sink, const void *bytes, size_t n);
/* Brings all to disk, still under the temporary name. */
ech_status ech_sink_flush(ech_sink *sink);
/* Gives it its final name. */
ech_status ech_sink_rename(ech_sink *sink, const char *path);
/* Releases the sink; removes a file that should not stay. Accepts {0}. */
void ech_sink_close(ech_sink *sink);

#endif
