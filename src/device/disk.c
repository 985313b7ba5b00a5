/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of disk arenas: names, locks, reservation, direct I/O.
 */
#include "device/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

/* A start that removes what is left over holds a file's lock for a moment: only a lock that lasts
 * is another run's. */
enum { TRIES = 100, NAP_NS = 10 * 1000 * 1000 };

struct ech_disk {
    char *path;
    int fd;
    int64_t bytes;
    bool is_direct;
    char *addresses; /* MAP_FAILED: none */
};

/* ---- names and locks ---- */

static bool is_arena(const char *name)
{
    int end = 0;
    sscanf(name, "rank-%*[0-9].offload%n", &end);
    return end > 0 && name[end] == '\0';
}

/* Removes a file that no process has locked. */
static void sweep_one(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat info;
    bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (is_file && flock(fd, LOCK_EX | LOCK_NB) == 0 && ech_file_is_same(path, fd)) unlink(path);
    close(fd);
}

void ech_disk_sweep(const char *folder)
{
    DIR *listing = opendir(folder);
    if (!listing) return;
    for (const struct dirent *at = readdir(listing); at; at = readdir(listing)) {
        if (!is_arena(at->d_name)) continue;
        ECH_FREED char *path = ech_file_join(folder, at->d_name);
        sweep_one(path);
    }
    closedir(listing);
}

static ech_status open_file(const char *path, const char *option, int *out, bool *direct)
{
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags | O_DIRECT, 0600);
    *direct = fd >= 0;
    if (fd < 0 && errno == EINVAL) fd = open(path, flags, 0600);
    if (fd < 0)
        ECH_FAIL(ECH_EIO, "%s: cannot make the file: %s (%s)", path, ech_system_error(errno),
                 option);
    *out = fd;
    return ECH_OK;
}

/* On a file system without locks all get it. */
static ech_status lock_file(ech_disk *disk, const char *option)
{
    for (int i = 0; i < TRIES; i++) {
        ECH_TRY(open_file(disk->path, option, &disk->fd, &disk->is_direct));
        bool locked = flock(disk->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && ech_file_is_same(disk->path, disk->fd)) return ECH_OK;
        close(disk->fd);
        disk->fd = -1;
        if (!locked) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    ECH_FAIL(ECH_EIO, "%s: another run uses this folder: wait for its end, or name another %s",
             disk->path, option);
}

/* ---- bytes ---- */

/* What is not there is not even tried: file systems hand out all they have before they find out. */
static ech_status reserve(const ech_disk *disk, const char *option)
{
    int why = ENOSPC;
    char needs[32], left[32];
    struct statvfs info;
    bool known = fstatvfs(disk->fd, &info) == 0;
    int64_t is_free = known ? (int64_t)(info.f_bavail * info.f_frsize) : INT64_MAX;
    while (is_free >= disk->bytes &&
           (why = fallocate(disk->fd, 0, 0, disk->bytes) ? errno : 0) == EINTR)
        continue;
    /* the C library writes a byte to each block, for which it reads them: not past the page
     * cache */
    if (why == EOPNOTSUPP) {
        int plain = open(disk->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        why = plain < 0 ? errno : posix_fallocate(plain, 0, disk->bytes);
        if (plain >= 0) close(plain);
    }
    if (!why) return ECH_OK;
    ECH_FAIL(ECH_EIO, "%s: cannot reserve %s for the rank's offloaded tensors (%s free): %s (%s)",
             disk->path, ech_text_from_bytes(disk->bytes, needs, sizeof needs),
             known ? ech_text_from_bytes(is_free, left, sizeof left) : "unknown",
             ech_system_error(why), option);
}

static ech_status make(const char *folder, const char *option, ech_disk *disk)
{
    bool quiet = ech_log_set_quiet(true);
    ech_status made = ech_file_make_folder(folder);
    ech_log_set_quiet(quiet);
    if (made != ECH_OK) ECH_FAIL(ECH_EIO, "%s: name another %s", ech_last_error(), option);
    ech_disk_sweep(folder);
    ECH_TRY(lock_file(disk, option));
    ECH_TRY(reserve(disk, option));
    disk->addresses = mmap(NULL, (size_t)disk->bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (disk->addresses == MAP_FAILED)
        ECH_FAIL(ECH_EIO, "%s: the system reserves no addresses for it: %s; raise ulimit -v",
                 disk->path, strerror(errno));
    return ECH_OK;
}

ech_status ech_disk_create(const char *folder, const char *option, int rank, int64_t bytes,
                           ech_disk **out)
{
    ech_disk *disk = ech_calloc(1, sizeof *disk);
    char name[40];
    snprintf(name, sizeof name, "rank-%d.offload", rank);
    *disk = (ech_disk){
        .path = ech_file_join(folder, name), .fd = -1, .bytes = bytes, .addresses = MAP_FAILED};
    ech_status status = make(folder, option, disk);
    if (status == ECH_OK)
        *out = disk;
    else
        ech_disk_destroy(disk);
    return status;
}

void ech_disk_destroy(ech_disk *disk)
{
    if (!disk) return;
    if (disk->fd >= 0) {
        if (ech_file_is_same(disk->path, disk->fd)) unlink(disk->path);
        close(disk->fd);
    }
    if (disk->addresses != MAP_FAILED) munmap(disk->addresses, (size_t)disk->bytes);
    free(disk->path);
    free(disk);
}

char *ech_disk_addresses(const ech_disk *disk)
{
    return disk->addresses;
}

bool ech_disk_has(const ech_disk *disk, const void *address, int64_t *offset)
{
    if (!disk) return false;
    uintptr_t first = (uintptr_t)disk->addresses, at = (uintptr_t)address;
    *offset = (int64_t)(at - first);
    return at >= first && at - first < (uint64_t)disk->bytes;
}

const char *ech_disk_path(const ech_disk *disk)
{
    return disk->path;
}

bool ech_disk_is_direct(const ech_disk *disk)
{
    return disk->is_direct;
}

static void check(const ech_disk *disk, int64_t offset, const void *data, size_t bytes)
{
    ECH_ASSERT(((uint64_t)offset | (uintptr_t)data | bytes) % ECH_DISK_ALIGNMENT == 0);
    ECH_ASSERT(offset >= 0 && offset + (int64_t)bytes <= disk->bytes);
}

/* A write beyond the file's end would leave a hole that reads as zeros. */
static ech_status check_size(const ech_disk *disk)
{
    struct stat info;
    if (fstat(disk->fd, &info) == 0 && info.st_size >= disk->bytes) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: was truncated or cannot be examined; nothing else may write to it: start the run "
             "again",
             disk->path);
}

ech_status ech_disk_write(const ech_disk *disk, int64_t offset, const void *data, size_t bytes)
{
    check(disk, offset, data, bytes);
    ECH_TRY(check_size(disk));
    return ech_file_write_at(disk->fd, disk->path, data, bytes, offset);
}

ech_status ech_disk_read(const ech_disk *disk, int64_t offset, void *data, size_t bytes)
{
    check(disk, offset, data, bytes);
    return ech_file_read_at(disk->fd, disk->path, data, bytes, offset);
}

/* ---- any range ---- */

/* Direct I/O of small blocks is slow: a block costs a round trip. */
enum { MOST_AT_ONCE = 4 << 20 };

/* Bytes to move in one request, of a range that begins `skip` bytes into a block. In a write, a
 * block that also has bytes outside of the range is moved alone, because only such blocks are read
 * first. */
static size_t at_once(bool writes, size_t skip, size_t bytes, size_t room)
{
    size_t most = room - skip;
    if (writes && (skip || bytes < ECH_DISK_ALIGNMENT))
        most = ECH_DISK_ALIGNMENT - skip;
    else if (writes && bytes <= most)
        most = bytes / ECH_DISK_ALIGNMENT * ECH_DISK_ALIGNMENT;
    return most < bytes ? most : bytes;
}

/* Blocks of the disk, into which a range falls, are read; what is written there, if anything, is
 * written back. */
static ech_status move(const ech_disk *disk, int64_t offset, char *out, const char *in,
                       size_t bytes, char *buffer, size_t room)
{
    ech_status status = ECH_OK;
    while (bytes && status == ECH_OK) {
        int64_t first = offset / ECH_DISK_ALIGNMENT * ECH_DISK_ALIGNMENT;
        size_t skip = (size_t)(offset - first), n = at_once(in != NULL, skip, bytes, room);
        size_t blocks = (skip + n + ECH_DISK_ALIGNMENT - 1) / ECH_DISK_ALIGNMENT;
        size_t all = blocks * ECH_DISK_ALIGNMENT;
        bool whole = in && skip == 0 && n == all;
        if (!whole) status = ech_disk_read(disk, first, buffer, all);
        if (in) {
            memcpy(buffer + skip, in, n);
            if (status == ECH_OK) status = ech_disk_write(disk, first, buffer, all);
            in += n;
        } else {
            memcpy(out, buffer + skip, n);
            out += n;
        }
        offset += (int64_t)n;
        bytes -= n;
    }
    return status;
}

static ech_status move_by_buffer(const ech_disk *disk, int64_t offset, char *out, const char *in,
                                 size_t bytes)
{
    size_t room = bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE;
    room = (room / ECH_DISK_ALIGNMENT + 2) * ECH_DISK_ALIGNMENT; /* blocks that it may fall into */
    char *memory = ech_calloc(1, room + ECH_DISK_ALIGNMENT);
    char *buffer = memory + (-(uintptr_t)memory & (ECH_DISK_ALIGNMENT - 1));
    ech_status status = move(disk, offset, out, in, bytes, buffer, room);
    free(memory);
    return status;
}

ech_status ech_disk_put(const ech_disk *disk, int64_t offset, const void *data, size_t bytes)
{
    return move_by_buffer(disk, offset, NULL, data, bytes);
}

ech_status ech_disk_get(const ech_disk *disk, int64_t offset, void *data, size_t bytes)
{
    return move_by_buffer(disk, offset, data, NULL, bytes);
}
