/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock of flock(2) belongs to the open file: children that inherit the descriptor hold it, too.
 */
#include "comm/transient.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

enum { FOLDERS = 3, TRIES = 8 };

/* NULL: not set. */
static const char *folder_at(int i)
{
    const char *const folders[FOLDERS] = {"/dev/shm", getenv("TMPDIR"), "/tmp"};
    return folders[i];
}

/* ---- files of others ---- */

/* Whether a name is one of this user's. */
static bool is_ours(const char *name)
{
    char mine[64];
    int end = 0, n = snprintf(mine, sizeof mine, "echelon-%u-", (unsigned)geteuid());
    if (strncmp(name, mine, (size_t)n) != 0) return false;
    sscanf(name + n, "%*[0-9]-%*[0-9]%n", &end);
    return end > 0 && name[n + end] == '\0';
}

static void sweep_one(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    bool mine = fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
                (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
    if (mine && flock(fd, LOCK_EX | LOCK_NB) == 0 && ech_file_is_same(path, fd))
        ech_file_remove_all(path);
    close(fd);
}

static void sweep_in(const char *folder)
{
    DIR *listing = opendir(folder);
    if (!listing) return;
    for (const struct dirent *at = readdir(listing); at; at = readdir(listing)) {
        if (!is_ours(at->d_name)) continue;
        ECH_FREED char *path = ech_file_join(folder, at->d_name);
        sweep_one(path);
    }
    closedir(listing);
}

void ech_transient_sweep(void)
{
    bool quiet = ech_log_set_quiet(true);
    for (int i = 0; i < FOLDERS; i++)
        if (folder_at(i)) sweep_in(folder_at(i));
    ech_log_set_quiet(quiet);
}

/* ---- files of this process ---- */

static int open_new(bool is_folder, const char *path)
{
    if (!is_folder) return open(path, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    return mkdir(path, 0700) == 0 ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) : -1;
}

/* A sweep of another process may come between the making and the lock: then another name is
 * tried. */
static int create_in(const char *folder, bool is_folder, ech_transient *out)
{
    for (int i = 0; i < TRIES; i++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        int n = snprintf(out->path, sizeof out->path, "%s/echelon-%u-%ld-%lld%09ld", folder,
                         (unsigned)geteuid(), (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
        if (n < 0 || (size_t)n >= sizeof out->path) return -1;
        int fd = open_new(is_folder, out->path);
        if (fd < 0 && errno == ENOENT && is_folder) continue;
        if (fd < 0) return -1;
        /* Files in a file system without locks are never swept. */
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && ech_file_is_same(out->path, fd)) return fd;
        close(fd);
    }
    return -1;
}

ech_status ech_transient_create(bool is_folder, ech_transient *out)
{
    ech_transient made = {.hold = -1};
    ech_transient_sweep();
    for (int i = 0; i < FOLDERS && made.hold < 0; i++)
        if (folder_at(i)) made.hold = create_in(folder_at(i), is_folder, &made);
    if (made.hold < 0)
        ECH_FAIL(ECH_EIO,
                 "cannot create a %s for the ranks in /dev/shm, $TMPDIR or /tmp: make one "
                 "of them writable",
                 is_folder ? "folder" : "file");
    *out = made;
    return ECH_OK;
}

void ech_transient_remove(const ech_transient *transient)
{
    bool quiet = ech_log_set_quiet(true);
    ech_file_remove_all(transient->path);
    ech_log_set_quiet(quiet);
    if (transient->hold >= 0) close(transient->hold);
}

bool ech_transient_is_tight(int ranks, char *room, size_t size)
{
    /* for Open MPI 4's launcher, and a little less for each rank */
    enum { NEEDED = 4 << 20 };
    struct statvfs info;
    if (statvfs(folder_at(0), &info) != 0) return false;
    int64_t bytes = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    ech_text_from_bytes(bytes, room, size);
    return bytes < (int64_t)NEEDED * (ranks + 1);
}
