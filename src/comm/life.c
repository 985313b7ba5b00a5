/* SPDX-License-Identifier: Apache-2.0
 *
 * pidfd_open, what its errors mean, and states of processes out of /proc and control groups.
 */
#include "comm/life.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
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
    if (errno == ESRCH) return ECH_LIFE_OVER;
    /* EPERM: a container's filter */
    return errno == ENOSYS || errno == EPERM ? ECH_LIFE_HIDDEN : ECH_LIFE_LATER;
}

/* A file of /proc or of control groups, as far as it fits; "" without it. */
static void read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    text[n] = '\0';
    if (file) fclose(file);
}

/* Of /proc/PID/cgroup: the line of that hierarchy, up to its path, which begins with a slash; NULL:
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
    char path[64], lines[2048], copy[2048];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)process);
    read_text(path, lines, sizeof lines);
    memcpy(copy, lines, sizeof lines);
    const char *second = find_group(lines, "0::"), *first = find_group(copy, "freezer:");
    return (second && (says("/sys/fs/cgroup", second, "cgroup.events", "frozen 1") ||
                       says("/sys/fs/cgroup/unified", second, "cgroup.events", "frozen 1"))) ||
           (first && says("/sys/fs/cgroup/freezer", first, "freezer.state", "FROZEN"));
}

void ech_life_look(pid_t process, ech_life_signs *out)
{
    char path[64], text[1024];
    uint64_t user = 0, kernel = 0;
    *out = (ech_life_signs){0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    read_text(path, text, sizeof text);
    const char *at = strrchr(text, ')'); /* the name may hold anything */
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
                      &out->state, &user, &kernel) != 3)
        return;
    out->ticks = user + kernel;
    out->is_frozen = is_frozen(process);
    const char *last = strrchr(at, ' '); /* field 52 is the last */
    if (out->state == 'Z' && last) sscanf(last, "%d", &out->end);
}
