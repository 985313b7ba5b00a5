/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls themselves. Each asks `meet` what becomes of it.
 */
#include "checkpoint/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, PAGE = 4096 };

static char folder[PATH_BYTES];
static faults_kind armed_kind;
static int64_t armed_at;
static const char *holder;
static atomic_llong count;
static bool skips_fsync, counts_reads;
static void (*watcher)(int64_t number, const char *call, const char *path);
static void (*reader)(const char *path);

void faults_arm(const char *below, faults_kind kind, int64_t at)
{
    snprintf(folder, sizeof folder, "%s", below);
    armed_kind = kind;
    armed_at = at;
    atomic_store(&count, 0);
}

int64_t faults_count(void)
{
    return atomic_load(&count);
}

void faults_skip_fsync(void)
{
    skips_fsync = true;
}

void faults_count_reads(void)
{
    counts_reads = true;
}

void faults_watch(void (*watch)(int64_t number, const char *call, const char *path))
{
    watcher = watch;
}

void faults_watch_reads(void (*watch)(const char *path))
{
    reader = watch;
}

__attribute__((constructor)) static void arm_from_environment(void)
{
    static const char *const names[] = {
        [FAULTS_KILL] = "kill", [FAULTS_EIO] = "eio",     [FAULTS_ENOSPC] = "enospc",
        [FAULTS_FULL] = "full", [FAULTS_SHORT] = "short", [FAULTS_HOLD] = "hold",
        [FAULTS_FLIP] = "flip"};
    const char *text = getenv("ECH_FAULTS");
    char below[PATH_BYTES], name[16];
    long long at;
    holder = getenv("ECH_FAULTS_HOLD");
    if (!text || sscanf(text, "%1023s %15s %lld", below, name, &at) != 3) return;
    for (int kind = FAULTS_KILL; kind <= FAULTS_FLIP; kind++)
        if (strcmp(name, names[kind]) == 0) faults_arm(below, (faults_kind)kind, at);
}

/* What becomes of a call. */
typedef enum fate { PASSES, FAILS, DIES, FALLS_SHORT, FLIPS } fate;

static bool is_below(const char *path)
{
    size_t n = strlen(folder);
    return n > 0 && strncmp(path, folder, n) == 0;
}

/* Who waits leaves a byte in the file. */
static void wait_for_holder(void)
{
    int file = holder ? open(holder, O_WRONLY | O_APPEND) : -1;
    if (file >= 0) (void)!write(file, "w", 1);
    if (file >= 0) close(file);
    while (holder && access(holder, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static fate fate_of(int64_t number, bool takes_space)
{
    switch (armed_kind) {
    case FAULTS_KILL:
        return number == armed_at ? DIES : PASSES;
    case FAULTS_EIO:
        errno = EIO;
        return number == armed_at ? FAILS : PASSES;
    case FAULTS_ENOSPC:
        errno = ENOSPC;
        return number == armed_at ? FAILS : PASSES;
    case FAULTS_FULL:
        errno = ENOSPC;
        return number >= armed_at && takes_space ? FAILS : PASSES;
    case FAULTS_SHORT:
        return number >= armed_at ? FALLS_SHORT : PASSES;
    case FAULTS_HOLD:
        if (number >= armed_at) wait_for_holder();
        return PASSES;
    case FAULTS_FLIP:
        return number == armed_at ? FLIPS : PASSES;
    case FAULTS_NONE:
        break;
    }
    return PASSES;
}

static fate meet(const char *call, const char *path, bool takes_space)
{
    if (!is_below(path)) return PASSES;
    int64_t number = (int64_t)atomic_fetch_add(&count, 1) + 1;
    if (watcher) watcher(number, call, path);
    return fate_of(number, takes_space);
}

/* The path of an open file; false: it has none. */
static bool find_path(int fd, char path[PATH_BYTES])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_BYTES - 1);
    path[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

static fate meet_open(const char *call, int fd, bool takes_space)
{
    char path[PATH_BYTES];
    return find_path(fd, path) ? meet(call, path, takes_space) : PASSES;
}

static void watch_read(int fd)
{
    char path[PATH_BYTES];
    if (reader && find_path(fd, path) && is_below(path)) reader(path);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Finds the C library's function that this one replaces. */
#define NEXT(name)                                                                                 \
    __typeof__(&name) next;                                                                        \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

/* A call that passes, fails or dies as a whole. */
#define WHOLE(fate_met)                                                                            \
    do {                                                                                           \
        fate met = (fate_met);                                                                     \
        if (met == DIES) die();                                                                    \
        if (met == FAILS) return -1;                                                               \
    } while (0)

/* Whole pages stay whole: direct I/O moves no part of one. */
static size_t shortened(fate met, size_t n)
{
    size_t part = met == DIES ? n / 2 : met == FALLS_SHORT ? n / 3 : n;
    if (n % PAGE == 0) part = part / PAGE * PAGE;
    return part || met == DIES ? part : n;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    NEXT(write);
    fate met = meet_open("write", fd, true);
    if (met == FAILS) return -1;
    ssize_t done = next(fd, bytes, shortened(met, n));
    if (met == DIES) die();
    return done;
}

/* The middle bit of the bytes is another. */
static ssize_t write_flipped(ssize_t (*next)(int, const void *, size_t, off_t), int fd,
                             const void *bytes, size_t n, off_t offset)
{
    char *others = malloc(n + 1);
    if (!others) abort();
    memcpy(others, bytes, n);
    others[n / 2] ^= 1;
    ssize_t done = next(fd, others, n, offset);
    free(others);
    return done;
}

static ssize_t write_at(ssize_t (*next)(int, const void *, size_t, off_t), int fd,
                        const void *bytes, size_t n, off_t offset)
{
    fate met = meet_open("pwrite", fd, true);
    if (met == FAILS) return -1;
    if (met == FLIPS) return write_flipped(next, fd, bytes, n, offset);
    ssize_t done = next(fd, bytes, shortened(met, n), offset);
    if (met == DIES) die();
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    NEXT(pwrite);
    return write_at(next, fd, bytes, n, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t offset)
{
    NEXT(pwrite64);
    return write_at(next, fd, bytes, n, offset);
}

static ssize_t read_at(ssize_t (*next)(int, void *, size_t, off_t), int fd, void *bytes, size_t n,
                       off_t offset)
{
    watch_read(fd);
    fate met = counts_reads ? meet_open("pread", fd, false) : PASSES;
    if (met == DIES) die();
    if (met == FAILS) return -1;
    return next(fd, bytes, shortened(met, n), offset);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset)
{
    NEXT(pread);
    return read_at(next, fd, bytes, n, offset);
}

ssize_t pread64(int fd, void *bytes, size_t n, off64_t offset)
{
    NEXT(pread64);
    return read_at(next, fd, bytes, n, offset);
}

int fsync(int fd)
{
    NEXT(fsync);
    WHOLE(meet_open("fsync", fd, false));
    return skips_fsync ? 0 : next(fd);
}

int ftruncate(int fd, off_t size)
{
    NEXT(ftruncate);
    WHOLE(meet_open("ftruncate", fd, true));
    return next(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    NEXT(fallocate);
    WHOLE(meet_open("fallocate", fd, true));
    return next(fd, mode, offset, size);
}

int open(const char *path, int flags, ...)
{
    NEXT(open);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (flags & O_CREAT) WHOLE(meet("open", path, true));
    return next(path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    WHOLE(meet("mkdir", path, true));
    return next(path, mode);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    WHOLE(meet("rename", from, false));
    return next(from, to);
}

int unlink(const char *path)
{
    NEXT(unlink);
    WHOLE(meet("unlink", path, false));
    return next(path);
}

int remove(const char *path)
{
    NEXT(remove);
    WHOLE(meet("remove", path, false));
    return next(path);
}
