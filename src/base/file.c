/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing whole files and exact ranges; making, syncing and removing folders; names of
 * files.
 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/tick.h"
#include "base/writing.h"

enum { BLOCK = 64 << 20 }; /* bytes at most between two ticks */

ech_status ech_file_check_pointer(const char *path, const char *bytes, size_t n)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    ECH_FREED char *folder = ech_file_parent(path);
    if (n < sizeof begin - 1 || memcmp(bytes, begin, sizeof begin - 1) != 0) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: a Git LFS pointer: the file itself was not downloaded; run: git lfs install && "
             "git -C '%s' lfs pull",
             path, folder);
}

static ech_status read_open_file(int fd, const char *path, int64_t bytes_now, size_t limit,
                                 char **out, size_t *n)
{
    size_t expected = bytes_now > 0 ? (size_t)bytes_now : 0;
    /* The size is a hint (/proc says none, a file may grow): one byte past the limit decides. */
    size_t capacity = 0, used = 0;
    ECH_FREED char *bytes = ech_grow(NULL, &capacity, (expected < limit ? expected : limit) + 2, 1);
    for (;;) {
        size_t room = capacity - used - 1;
        if (used <= limit && room > limit + 1 - used) room = limit + 1 - used;
        ssize_t got = read(fd, bytes + used, room);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) ECH_FAIL(ECH_EIO, "%s: cannot read: %s", path, ech_system_error(errno));
        if (got == 0) break;
        used += (size_t)got;
        if (used > limit)
            ECH_FAIL(ECH_EINPUT, "%s: larger than the %zu bytes that are read; name the right file",
                     path, limit);
        bytes = ech_grow(bytes, &capacity, used + 2, 1);
    }
    bytes[used] = '\0';
    ECH_TRY(ech_file_check_pointer(path, bytes, used));
    *out = bytes;
    bytes = NULL;
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
    /* Not blocking, or a pipe of that name would wait for a writer; and a terminal is not to become
     * ours. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", path, ech_system_error(errno));
    struct stat info;
    bool known = fstat(fd, &info) == 0;
    int why = errno;
    if (!known || !S_ISREG(info.st_mode)) close(fd);
    if (!known) ECH_FAIL(ECH_EIO, "%s: cannot be examined: %s", path, ech_system_error(why));
    if (!S_ISREG(info.st_mode))
        ECH_FAIL(ECH_EINPUT, "%s: is %s, not a regular file%s", path, kind_of(info.st_mode),
                 S_ISDIR(info.st_mode) ? "" : "; write its output to a file first");
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
    ECH_FAIL(ECH_EIO, "%s: cannot create a file beside it: %s", path, ech_system_error(why));
}

static ech_status fill_and_rename(int fd, const char *temporary, const char *path,
                                  const void *bytes, size_t n)
{
    ech_status st = ech_file_write_at(fd, temporary, bytes, n, 0);
    int why = 0;
    if (st == ECH_OK && fsync(fd) != 0) why = errno;
    if (close(fd) != 0 && !why) why = errno;
    ECH_TRY(st);
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot flush it to disk: %s", temporary, ech_system_error(why));
    if (rename(temporary, path) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot rename %s to it: %s", path, temporary,
                 ech_system_error(errno));
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
    if (!file) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", path, ech_system_error(errno));
    int why = fwrite(bytes, 1, n, file) == n ? 0 : errno;
    if (fclose(file) != 0 && !why) why = errno;
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot write: %s", path, ech_system_error(why));
    return ECH_OK;
}

static ech_status replace(const char *path, const void *bytes, size_t n)
{
    ECH_FREED char *temporary = NULL;
    int fd;
    ECH_TRY(ech_file_create_beside(path, &temporary, &fd));
    ech_status st = fill_and_rename(fd, temporary, path, bytes, n);
    if (st != ECH_OK) unlink(temporary);
    ECH_TRY(st);
    return ech_file_sync_parent(path);
}

ech_status ech_file_write(const char *path, const void *bytes, size_t n)
{
    return is_special(path) ? write_special(path, bytes, n) : replace(path, bytes, n);
}

ech_status ech_file_check_place(const char *path)
{
    ECH_FREED char *folder = ech_file_parent(path), *inside = ech_file_join(folder, ".");
    if (is_special(path) || access(inside, W_OK | X_OK) == 0) return ECH_OK;
    ECH_FAIL(ECH_EIO, "%s: cannot be written: %s", path, ech_system_error(errno));
}

/* ---- inside of folders that may come from a stranger ---- */

static ech_status refuse_kind(const char *path, mode_t mode)
{
    ECH_FAIL(ECH_EIO, "%s: cannot be written: it is %s, not a regular file; remove or rename it",
             path, S_ISLNK(mode) ? "a link" : kind_of(mode));
}

ech_status ech_file_open_to_write(const char *path, int flags, int *out)
{
    /* Not blocking: a pipe that nobody reads would keep open() waiting. Truncated once it is known
     * to be a file. */
    int opening = (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode)) return refuse_kind(path, info.st_mode);
    int fd = open(path, opening, 0666);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot be written: %s", path, ech_system_error(errno));
    int why = fstat(fd, &info) == 0 ? 0 : errno;
    bool is_file = !why && S_ISREG(info.st_mode);
    if (is_file && (flags & O_TRUNC) && ftruncate(fd, 0) != 0) why = errno;
    if (is_file && !why) {
        *out = fd;
        return ECH_OK;
    }
    close(fd);
    if (!why) return refuse_kind(path, info.st_mode);
    ECH_FAIL(ECH_EIO, "%s: cannot be written: %s", path, ech_system_error(why));
}

ech_status ech_file_write_inside(const char *path, const void *bytes, size_t n)
{
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode)) return refuse_kind(path, info.st_mode);
    return replace(path, bytes, n);
}

ech_status ech_file_read_at(int fd, const char *path, void *bytes, size_t n, int64_t offset)
{
    char *to = bytes;
    while (n > 0) {
        ssize_t got = pread(fd, to, n < BLOCK ? n : BLOCK, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            ECH_FAIL(ECH_EIO, "%s: cannot read %zu bytes at %lld: %s", path, n, (long long)offset,
                     ech_system_error(errno));
        if (got == 0)
            ECH_FAIL(ECH_EINPUT,
                     "%s: ends at byte %lld, %zu bytes short: truncated; copy or download it again",
                     path, (long long)offset, n);
        ech_tick();
        to += got;
        n -= (size_t)got;
        offset += got;
    }
    return ECH_OK;
}

int ech_file_put_at(int fd, const void *bytes, size_t n, int64_t offset)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t put = pwrite(fd, from, n < BLOCK ? n : BLOCK, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : EIO;
        ech_tick();
        from += put;
        n -= (size_t)put;
        offset += put;
    }
    return 0;
}

ech_status ech_file_write_at(int fd, const char *path, const void *bytes, size_t n, int64_t offset)
{
    int why = ech_file_put_at(fd, bytes, n, offset);
    if (why)
        ECH_FAIL(ECH_EIO, "%s: cannot write %zu bytes at %lld: %s", path, n, (long long)offset,
                 ech_system_error(why));
    return ECH_OK;
}

/* ---- folders ---- */

ech_status ech_file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open the folder: %s", path, ech_system_error(errno));
    int why = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    /* Some network file systems lack fsync for folders and keep renames in order themselves. */
    if (why && why != EINVAL && why != ENOTSUP)
        ECH_FAIL(ECH_EIO, "%s: cannot flush the folder to disk: %s", path, ech_system_error(why));
    return ECH_OK;
}

ech_status ech_file_sync_parent(const char *path)
{
    ECH_FREED char *folder = ech_file_parent(path);
    return ech_file_sync_folder(folder);
}

static ech_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0) return ECH_OK;
    int why = errno;
    /* Other errors than EEXIST also come for folders that are there (a read-only file system). */
    if (ech_file_is_folder(path)) return ECH_OK;
    if (why == EEXIST)
        ECH_FAIL(
            ECH_EIO,
            "%s: cannot be a folder: a file has that name; remove the file, or name another folder",
            path);
    ECH_FAIL(ECH_EIO, "%s: cannot make the folder: %s", path, ech_system_error(why));
}

ech_status ech_file_make_folder(const char *path)
{
    ECH_FREED char *part = ech_strdup(path);
    for (char *at = strchr(part, '/'); at; at = strchr(at + 1, '/')) {
        if (at == part) continue;
        *at = '\0';
        ECH_TRY(make_one(part));
        *at = '/';
    }
    ECH_TRY(make_one(part));
    if (access(path, W_OK | X_OK) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot write into the folder: %s", path, ech_system_error(errno));
    return ECH_OK;
}

void ech_file_unlock_folder(int descriptor)
{
    if (descriptor < 0) return;
    flock(descriptor, LOCK_UN);
    close(descriptor);
}

ech_status ech_file_lock_folder(const char *path, double seconds, int *out)
{
    const struct timespec between = {.tv_nsec = 20 * 1000 * 1000};
    double end = ech_clock_now() + seconds;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open the folder: %s", path, ech_system_error(errno));
    for (bool told = false; flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
         told = true) {
        if (ech_clock_now() >= end) {
            close(fd);
            ECH_FAIL(ECH_EIO,
                     "%s: another run writes into this folder; let it end, or choose another",
                     path);
        }
        if (!told)
            ech_log_info("%s: another run writes into this folder; waiting for its end, at most %g "
                         "s",
                         path, seconds);
        nanosleep(&between, NULL);
    }
    *out = fd;
    return ECH_OK;
}

bool ech_file_is_same(const char *path, int fd)
{
    struct stat there, here;
    if (stat(path, &there) != 0) return errno != ENOENT && errno != ENOTDIR;
    return fstat(fd, &here) == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

bool ech_file_are_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    bool exist = stat(a, &of_a) == 0 && stat(b, &of_b) == 0;
    return exist && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    ech_tick();
    if (remove(path) == 0 || errno == ENOENT) return 0;
    ECH_FAIL(ECH_EIO, "%s: cannot remove: %s", path, ech_system_error(errno));
}

ech_status ech_file_remove_all(const char *path)
{
    enum { OPEN_FOLDERS = 16 };
    struct stat info;
    if (lstat(path, &info) != 0 && errno == ENOENT) return ECH_OK;
    int st = nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    if (st == -1) ECH_FAIL(ECH_EIO, "%s: cannot remove: %s", path, ech_system_error(errno));
    return (ech_status)st;
}

bool ech_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool ech_file_is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

bool ech_file_has(const char *folder, const char *name)
{
    ECH_FREED char *path = ech_file_join(folder, name);
    bool is_there = ech_file_exists(path);
    return is_there;
}

bool ech_file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

void ech_file_names_free(ech_file_names *names)
{
    for (size_t i = 0; i < names->n; i++) free(names->at[i]);
    free(names->at);
}

void ech_file_list(const char *folder, bool (*wants)(const char *name), ech_file_names *out)
{
    DIR *listing = opendir(folder);
    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        if (wants(entry->d_name)) ECH_PUSH(*out, ech_strdup(entry->d_name));
    if (listing) closedir(listing);
    if (out->n) qsort(out->at, out->n, sizeof *out->at, ech_text_compare);
}

char *ech_file_join(const char *folder, const char *name)
{
    size_t n = strlen(folder), room = n + strlen(name) + 2;
    bool open_end = n > 0 && folder[n - 1] != '/';
    char *path = ech_calloc(room, 1);
    snprintf(path, room, "%s%s%s", folder, open_end ? "/" : "", name);
    return path;
}

char *ech_file_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = ech_strdup(slash ? path : ".");
    if (slash) folder[slash == path ? 1 : slash - path] = '\0';
    return folder;
}
