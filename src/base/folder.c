/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders: making, syncing and removing them, and names of files in them.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/tick.h"

ech_status ech_file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open the folder: %s", path, strerror(errno));
    int why = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    /* Some network file systems lack fsync for folders and keep renames in order themselves. */
    if (why && why != EINVAL && why != ENOTSUP)
        ECH_FAIL(ECH_EIO, "%s: cannot bring the folder to disk: %s", path, strerror(why));
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
    if (why == EEXIST) ECH_FAIL(ECH_EIO, "%s: cannot be a folder: a file has that name", path);
    ECH_FAIL(ECH_EIO, "%s: cannot make the folder: %s", path, strerror(why));
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
        ECH_FAIL(ECH_EIO, "%s: cannot write into the folder: %s", path, strerror(errno));
    return ECH_OK;
}

ech_status ech_file_lock_folder(const char *path, double seconds, int *out)
{
    const struct timespec between = {.tv_nsec = 20 * 1000 * 1000};
    double end = ech_clock_now() + seconds;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open the folder: %s", path, strerror(errno));
    bool told = false;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
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
        told = true;
        nanosleep(&between, NULL);
    }
    *out = fd;
    return ECH_OK;
}

bool ech_file_is_same(const char *path, int fd)
{
    struct stat there, here;
    return stat(path, &there) == 0 && fstat(fd, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    ech_tick();
    if (remove(path) == 0 || errno == ENOENT) return 0;
    ECH_FAIL(ECH_EIO, "%s: cannot remove: %s", path, strerror(errno));
}

ech_status ech_file_remove_all(const char *path)
{
    enum { OPEN_FOLDERS = 16 };
    struct stat info;
    if (lstat(path, &info) != 0 && errno == ENOENT) return ECH_OK;
    int st = nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    if (st == -1) ECH_FAIL(ECH_EIO, "%s: cannot remove: %s", path, strerror(errno));
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
