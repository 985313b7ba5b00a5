/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing files under temporary names.
 */
#include "data/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/writing.h"

enum { BUFFER_BYTES = 256 << 10 };

/* Takes over the name and the descriptor. */
static ech_sink begin(char *temporary, int fd)
{
    return (ech_sink){.temporary = temporary, .fd = fd, .buffer = ech_calloc(BUFFER_BYTES, 1)};
}

ech_status ech_sink_open(const char *path, ech_sink *out)
{
    char *temporary;
    int fd;
    ECH_TRY(ech_file_create_beside(path, &temporary, &fd));
    *out = begin(temporary, fd);
    return ECH_OK;
}

ech_status ech_sink_resume(const char *temporary, int64_t bytes, ech_sink *out)
{
    struct stat info;
    int fd;
    ECH_TRY(ech_file_open_to_write(temporary, O_RDWR | O_CREAT, &fd));
    *out = begin(ech_strdup(temporary), fd);
    out->persists = true;
    out->written = bytes;
    ech_status st = ECH_OK;
    if (fstat(out->fd, &info) != 0 || info.st_size < bytes)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                         "%s: has less than the %lld bytes that were written to it: truncated; run "
                         "the command again when nothing else writes to it",
                         temporary, (long long)bytes);
    else if (ftruncate(out->fd, (off_t)bytes) != 0)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EIO, "%s: cannot truncate it: %s", temporary,
                         ech_system_error(errno));
    if (st != ECH_OK) ech_sink_close(out);
    return st;
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
        ECH_FAIL(ECH_EIO, "%s: cannot flush it to disk: %s", sink->temporary,
                 ech_system_error(errno));
    return ECH_OK;
}

ech_status ech_sink_rename(ech_sink *sink, const char *path)
{
    if (rename(sink->temporary, path) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot rename %s to it: %s", path, sink->temporary,
                 ech_system_error(errno));
    sink->persists = true;
    return ECH_OK;
}

void ech_sink_close(ech_sink *sink)
{
    if (!sink->temporary) return;
    close(sink->fd);
    if (!sink->persists) unlink(sink->temporary);
    free(sink->temporary);
    free(sink->buffer);
    *sink = (ech_sink){0};
}
