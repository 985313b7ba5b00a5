/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the files of control groups.
 */
#include "device/control_group.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

const ech_control_groups ech_control_groups_here = {"/proc/self/cgroup", "/sys/fs/cgroup"};

/* The limit that a group sets, whose folder that is; not positive: it sets none. */
typedef double (*limit_of)(const char *group, int version);

/* Word `i` of a file as a number; -1: no such file or word, or no number ("max"). */
static double read_number(const char *group, const char *name, int i)
{
    char path[4608], word[32] = "";
    int64_t value;
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    for (; i >= 0; i--)
        if (fscanf(file, "%31s", word) != 1) word[0] = '\0';
    fclose(file);
    return ech_text_to_int(word, &value) ? (double)value : -1;
}

/* The smallest positive limit from the group at `path` below `root` up to the root itself, at most
 * `least`. */
static double smallest(const char *root, const char *path, limit_of limit, int version,
                       double least)
{
    char group[4400];
    snprintf(group, sizeof group, "%s%s", root, path);
    size_t end = strlen(root);
    for (;;) {
        double found = limit(group, version);
        if (found > 0 && found < least) least = found;
        char *slash = strrchr(group + end, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* Whether a list ("cpu,cpuacct") names a controller. */
static bool names(const char *list, const char *controller)
{
    size_t n = strlen(controller);
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, controller, n) == 0 && (at[n] == '\0' || at[n] == ',')) return true;
    }
    return false;
}

/* Lines are "0::/path" (version 2) and "4:memory:/path" (version 1, with a folder for each
 * controller). Where both versions are mounted, version 2 is in the folder "unified". */
static double find(const ech_control_groups *of, const char *controller, limit_of limit,
                   double least)
{
    char line[4096], root[256];
    FILE *file = fopen(of->list, "re");
    if (!file) return least;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *kinds = strchr(line, ':');
        char *path = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!path) continue;
        *kinds++ = '\0';
        *path++ = '\0';
        bool is_second = strcmp(line, "0") == 0 && *kinds == '\0';
        if (is_second) {
            least = smallest(of->folder, path, limit, 2, least);
            snprintf(root, sizeof root, "%s/unified", of->folder);
        } else {
            snprintf(root, sizeof root, "%s/%s", of->folder, controller);
        }
        if (is_second || names(kinds, controller))
            least = smallest(root, path, limit, is_second ? 2 : 1, least);
    }
    fclose(file);
    return least;
}

static double limit_memory(const char *group, int version)
{
    return read_number(group, version == 2 ? "memory.max" : "memory.limit_in_bytes", 0);
}

/* In cores. */
static double limit_time(const char *group, int version)
{
    double quota = version == 2 ? read_number(group, "cpu.max", 0)
                                : read_number(group, "cpu.cfs_quota_us", 0);
    double period = version == 2 ? read_number(group, "cpu.max", 1)
                                 : read_number(group, "cpu.cfs_period_us", 0);
    return quota > 0 && period > 0 ? quota / period : -1;
}

size_t ech_control_memory(const ech_control_groups *of, size_t bytes)
{
    double least = find(of, "memory", limit_memory, (double)bytes);
    return least < (double)bytes ? (size_t)least : bytes;
}

int ech_control_cores(const ech_control_groups *of, int cores)
{
    int whole = (int)find(of, "cpu", limit_time, cores);
    return whole > 1 ? whole : 1;
}
