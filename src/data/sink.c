/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing files under temporary names.
 */
#include "data/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

enum { BUFFER_BYTES = 256 << 10 };

/* Several writers, of one process or of several, never share a temporary name. */
static int open_temporary(ech_sink *sink)
{
    static atomic_uint counter;
    size_t room = strlen(sink->path) + 48;
    sink->temporary = ech_calloc(room, 1);
    int fd;
    do {
        snprintf(sink->temporary, room, "%s.tmp-%ld-%u", sink->path, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        fd = open(sink->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    return fd;
}

ech_status ech_sink_open(const char *path, ech_sink *out)
{
    ech_sink sink = {.path = ech_strdup(path)};
    sink.fd = open_temporary(&sink);
    if (sink.fd < 0) {
        ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EIO, "%s: cannot create: %s",
                                    sink.temporary, strerror(errno));
        free(sink.path);
        free(sink.temporary);
        return st;
    }
    sink.buffer = ech_calloc(BUFFER_BYTES, 1);
    *out = sink;
    return ECH_OK;
}

static ech_status write_buffer(ech_sink *sink)
{
    ECH_TRY(ech_file_write_at(sink->fd, sink->temporary, sink->buffer, sink->used, sink->written));
    sink->written += (int64_t)sink->used;
    sink->used = 0;
    return ECH_OK;
}

ech_status ech_sink_put(ech_sink *sink, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    while (n > 0) {
        size_t room = BUFFER_BYTES - sink->used;
        size_t take = n < room ? n : room;
        memcpy(sink->buffer + sink->used, from, take);
        sink->used += take;
        from += take;
        n -= take;
        if (sink->used == BUFFER_BYTES) ECH_TRY(write_buffer(sink));
    }
    return ECH_OK;
}

ech_status ech_sink_flush(ech_sink *sink)
{
    ECH_TRY(write_buffer(sink));
    if (fsync(sink->fd) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot bring it to disk: %s", sink->temporary, strerror(errno));
    return ECH_OK;
}

ech_status ech_sink_rename(ech_sink *sink)
{
    if (rename(sink->temporary, sink->path) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot rename %s to it: %s", sink->path, sink->temporary,
                 strerror(errno));
    free(sink->temporary);
    sink->temporary = NULL;
    return ECH_OK;
}

void ech_sink_close(ech_sink *sink)
{
    if (!sink->path) return;
    close(sink->fd);
    if (sink->temporary) unlink(sink->temporary);
    free(sink->temporary);
    free(sink->path);
    free(sink->buffer);
    *sink = (ech_sink){0};
}
