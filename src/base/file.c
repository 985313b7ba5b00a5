/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing whole files and exact ranges.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/tick.h"

enum { PIECE = 64 << 20 }; /* bytes at most between two ticks */

static ech_status read_open_file(int fd, const char *path, int64_t bytes_now, size_t limit,
                                 char **out, size_t *n)
{
    size_t expected = bytes_now > 0 ? (size_t)bytes_now : 0;
    /* The size is a hint (/proc says none, a file may grow): one byte past the limit decides. */
    size_t capacity = 0, used = 0;
    char *bytes = ech_grow(NULL, &capacity, (expected < limit ? expected : limit) + 2, 1);
    for (;;) {
        size_t room = capacity - used - 1;
        if (used <= limit && room > limit + 1 - used) room = limit + 1 - used;
        ssize_t got = read(fd, bytes + used, room);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int why = errno;
            free(bytes);
            ECH_FAIL(ECH_EIO, "%s: cannot read: %s", path, strerror(why));
        }
        if (got == 0) break;
        used += (size_t)got;
        if (used > limit) {
            free(bytes);
            ECH_FAIL(ECH_EINPUT, "%s: larger than the %zu bytes such a file may have", path, limit);
        }
        bytes = ech_grow(bytes, &capacity, used + 2, 1);
    }
    bytes[used] = '\0';
    *out = bytes;
    *n = used;
    return ECH_OK;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

ech_status ech_file_open(const char *path, int *out, int64_t *bytes)
{
    /* Not blocking, or a pipe of that name would wait for a writer; and a terminal is not to become ours. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        ECH_FAIL(ECH_EIO, "%s: cannot open: %s%s", path, strerror(errno),
                 errno == EMFILE ? "; `ulimit -n` may raise the limit" : "");
    struct stat info;
    bool known = fstat(fd, &info) == 0;
    int why = errno;
    if (!known || !S_ISREG(info.st_mode)) close(fd);
    if (!known) ECH_FAIL(ECH_EIO, "%s: cannot look at it: %s", path, strerror(why));
    if (!S_ISREG(info.st_mode))
        ECH_FAIL(ECH_EINPUT, "%s: is %s, not a regular file%s", path, kind_of(info.st_mode),
                 S_ISDIR(info.st_mode) ? "" : "; what comes out of it goes into a file first");
    *out = fd;
    *bytes = info.st_size;
    return ECH_OK;
}

ech_status ech_file_read(const char *path, size_t limit, char **out, size_t *n)
{
    int fd;
    int64_t bytes;
    ECH_TRY(ech_file_open(path, &fd, &bytes));
    ech_status st = read_open_file(fd, path, bytes, limit, out, n);
    close(fd);
    return st;
}

ech_status ech_file_create_beside(const char *path, char **temporary, int *out)
{
    static atomic_uint counter;
    size_t room = strlen(path) + 48;
    char *name = ech_calloc(room, 1);
    for (int attempt = 0; attempt < 100; attempt++) {
        snprintf(name, room, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&counter, 1));
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            *temporary = name;
            *out = fd;
            return ECH_OK;
        }
        if (errno != EEXIST) break;
    }
    int why = errno;
    free(name);
    ECH_FAIL(ECH_EIO, "%s: cannot create a file beside it: %s", path, strerror(why));
}

static ech_status fill_and_rename(int fd, const char *temporary, const char *path,
                                  const void *bytes, size_t n)
{
    ech_status st = ech_file_write_at(fd, temporary, bytes, n, 0);
    int why = 0;
    if (st == ECH_OK && fsync(fd) != 0) why = errno;
    if (close(fd) != 0 && !why) why = errno;
    ECH_TRY(st);
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot bring it to disk: %s", temporary, strerror(why));
    if (rename(temporary, path) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot rename %s to it: %s", path, temporary, strerror(errno));
    return ECH_OK;
}

/* A device or a pipe is written into, never replaced. */
static bool is_special(const char *path)
{
    struct stat is;
    return stat(path, &is) == 0 && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode);
}

static ech_status write_special(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "we");
    if (!file) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", path, strerror(errno));
    int why = fwrite(bytes, 1, n, file) == n ? 0 : errno;
    if (fclose(file) != 0 && !why) why = errno;
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot write: %s", path, strerror(why));
    return ECH_OK;
}

ech_status ech_file_write(const char *path, const void *bytes, size_t n)
{
    ECH_FREED char *temporary = NULL;
    int fd;
    if (is_special(path)) return write_special(path, bytes, n);
    ECH_TRY(ech_file_create_beside(path, &temporary, &fd));
    ech_status st = fill_and_rename(fd, temporary, path, bytes, n);
    if (st != ECH_OK) unlink(temporary);
    ECH_TRY(st);
    return ech_file_sync_parent(path);
}

ech_status ech_file_read_at(int fd, const char *path, void *bytes, size_t n, int64_t offset)
{
    char *to = bytes;
    while (n > 0) {
        ssize_t got = pread(fd, to, n < PIECE ? n : PIECE, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            ECH_FAIL(ECH_EIO, "%s: cannot read %zu bytes at %lld: %s", path, n, (long long)offset,
                     strerror(errno));
        if (got == 0)
            ECH_FAIL(ECH_EINPUT, "%s: ends at byte %lld, %zu bytes short: truncated?", path,
                     (long long)offset, n);
        ech_tick();
        to += got;
        n -= (size_t)got;
        offset += got;
    }
    return ECH_OK;
}

ech_status ech_file_write_at(int fd, const char *path, const void *bytes, size_t n, int64_t offset)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t put = pwrite(fd, from, n < PIECE ? n : PIECE, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            ECH_FAIL(ECH_EIO, "%s: cannot write %zu bytes at %lld: %s", path, n, (long long)offset,
                     put < 0 ? strerror(errno) : "nothing was taken");
        ech_tick();
        from += put;
        n -= (size_t)put;
        offset += put;
    }
    return ECH_OK;
}
