/* SPDX-License-Identifier: Apache-2.0
 *
 * pidfd_open and its errors, states of processes from /proc and control groups, and polling for the
 * ends of several.
 */
#include "comm/life.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t ech_life_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

ech_life ech_life_open(pid_t process, uint64_t space, int *fd)
{
    if (space != ech_life_space()) return ECH_LIFE_HIDDEN;
    int life = (int)syscall(SYS_pidfd_open, process, 0);
    if (life >= 0) {
        *fd = life;
        return ECH_LIFE_SHOWN;
    }
    if (errno == ESRCH)
        return (*fd = eventfd(1, EFD_CLOEXEC)) >= 0 ? ECH_LIFE_OVER : ECH_LIFE_LATER;
    /* EPERM: a container's filter */
    return errno == ENOSYS || errno == EPERM ? ECH_LIFE_HIDDEN : ECH_LIFE_LATER;
}

/* A file of /proc or of control groups, as far as it fits; "" without it. */
static size_t read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    text[n] = '\0';
    if (file) fclose(file);
    return n;
}

size_t ech_life_read(pid_t process, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, file);
    return read_text(path, text, size);
}

static void add_children(const char *path, ech_process_ids *out)
{
    int child;
    FILE *file = fopen(path, "re");
    if (!file) return; /* it has ended */
    while (fscanf(file, "%d", &child) == 1) ECH_PUSH(*out, (pid_t)child);
    fclose(file);
}

/* Each thread has a list: Open MPI's launcher starts many processes from several. */
void ech_life_children(pid_t parent, ech_process_ids *out)
{
    char path[64 + sizeof(((struct dirent *)0)->d_name)];
    int n = snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *threads = opendir(path);
    for (const struct dirent *at; threads && (at = readdir(threads));) {
        if (at->d_name[0] == '.') continue;
        snprintf(path + n, sizeof path - (size_t)n, "/%s/children", at->d_name);
        add_children(path, out);
    }
    if (threads) closedir(threads);
}

/* The line of that hierarchy in /proc/PID/cgroup, from its path, which begins with a slash; NULL:
 * there is none. */
static const char *find_group(char *lines, const char *hierarchy)
{
    char *at = strstr(lines, hierarchy);
    if (!at || (at != lines && strchr("\n:,", at[-1]) == NULL)) return NULL;
    at += strlen(hierarchy);
    at[strcspn(at, "\n")] = '\0';
    return at;
}

static bool says(const char *mount, const char *group, const char *file, const char *what)
{
    char path[1024], text[256];
    if (snprintf(path, sizeof path, "%s%s/%s", mount, group, file) >= (int)sizeof path)
        return false;
    read_text(path, text, sizeof text);
    return strstr(text, what) != NULL;
}

static bool is_frozen(pid_t process)
{
    char lines[2048], copy[2048];
    ech_life_read(process, "cgroup", lines, sizeof lines);
    memcpy(copy, lines, sizeof lines);
    const char *second = find_group(lines, "0::"), *first = find_group(copy, "freezer:");
    return (second && (says("/sys/fs/cgroup", second, "cgroup.events", "frozen 1") ||
                       says("/sys/fs/cgroup/unified", second, "cgroup.events", "frozen 1"))) ||
           (first && says("/sys/fs/cgroup/freezer", first, "freezer.state", "FROZEN"));
}

void ech_life_look(pid_t process, ech_life_signs *out)
{
    char text[1024];
    uint64_t user = 0, kernel = 0;
    *out = (ech_life_signs){0};
    ech_life_read(process, "stat", text, sizeof text);
    const char *at = strrchr(text, ')'); /* the name may contain anything */
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
                      &out->state, &user, &kernel) != 3)
        return;
    out->ticks = user + kernel;
    out->is_frozen = is_frozen(process);
    const char *last = strrchr(at, ' '); /* field 52 is the last */
    if (out->state == 'Z' && last) sscanf(last, "%d", &out->end);
}

/* ---- the processes of a board ---- */

void ech_watch_begin(ech_watch *watch, ech_board *board, int slots)
{
    *watch = (ech_watch){.board = board,
                         .slots = slots,
                         .process = ech_calloc((size_t)slots, sizeof *watch->process),
                         .polled = ech_calloc((size_t)slots + 1, sizeof *watch->polled)};
    for (int i = 0; i <= slots; i++) watch->polled[i] = (struct pollfd){.fd = -1, .events = POLLIN};
}

void ech_watch_end(ech_watch *watch)
{
    for (int i = 0; i < watch->slots; i++) ech_watch_forget(watch, i);
    free(watch->process);
    free(watch->polled);
}

bool ech_watch_update(ech_watch *watch, bool (*is_ours)(pid_t process))
{
    int known = 0, members = atomic_load(&watch->board->members);
    for (int i = 0; i < watch->slots; i++) {
        const ech_board_slot *at = &watch->board->slot[i];
        pid_t process = atomic_load(&at->process);
        if (!watch->process[i] && process > 0) {
            ech_life life =
                ech_life_open(process, atomic_load(&at->space), &watch->polled[i + 1].fd);
            if (life != ECH_LIFE_LATER) watch->process[i] = process;
            if (life == ECH_LIFE_SHOWN && is_ours && !is_ours(process)) ech_watch_forget(watch, i);
        }
        known += watch->process[i] != 0;
    }
    return members > 0 && known >= members;
}

void ech_watch_forget(ech_watch *watch, int slot)
{
    int *fd = &watch->polled[slot + 1].fd;
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

bool ech_watch_poll(ech_watch *watch, int ms)
{
    return poll(watch->polled, (nfds_t)watch->slots + 1, ms) > 0;
}

int ech_watch_next_end(ech_watch *watch, int slot)
{
    for (; slot < watch->slots; slot++) {
        const struct pollfd *life = &watch->polled[slot + 1];
        if (life->fd < 0 || !life->revents) continue;
        ech_watch_forget(watch, slot);
        return slot;
    }
    return -1;
}
