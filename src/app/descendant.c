/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes and their children, out of /proc.
 */
#include "app/descendant.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

typedef ECH_LIST(pid_t) pid_list;

/* Launchers start processes from their first thread. */
static void add_children(pid_list *list, pid_t parent)
{
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "re");
    if (!file) return; /* it has ended */
    while (fscanf(file, "%d", &child) == 1) ECH_PUSH(*list, (pid_t)child);
    fclose(file);
}

/* A program that was replaced by a newer one while it runs is the same to us. */
static bool find_program(const char *process, char *program, size_t size)
{
    static const char replaced[] = " (deleted)";
    ssize_t n = readlink(process, program, size - 1);
    if (n < 0) return false;
    program[n] = '\0';
    size_t tail = sizeof replaced - 1;
    if ((size_t)n > tail && strcmp(program + (size_t)n - tail, replaced) == 0)
        program[(size_t)n - tail] = '\0';
    return true;
}

static bool runs(pid_t pid, const char *program)
{
    char path[64], found[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return find_program(path, found, sizeof found) && strcmp(found, program) == 0;
}

/* The program that this process runs. */
static bool find_own(char *program, size_t size)
{
    return find_program("/proc/self/exe", program, size);
}

bool ech_descendant_is_ours(pid_t process)
{
    char program[PATH_MAX];
    return find_own(program, sizeof program) && runs(process, program);
}

bool ech_descendant_awaits(pid_t process, int signal)
{
    char path[64], line[128];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "SigCgt: %llx", &caught) == 1) break;
    fclose(file);
    return caught >> (signal - 1) & 1;
}

pid_t ech_descendant_find(pid_t root, int signal)
{
    char program[PATH_MAX];
    pid_list list = {0};
    pid_t found = 0;
    if (!find_own(program, sizeof program)) return 0;
    add_children(&list, root);
    for (size_t i = 0; i < list.n && !found; i++) {
        if (runs(list.at[i], program) && ech_descendant_awaits(list.at[i], signal))
            found = list.at[i];
        add_children(&list, list.at[i]);
    }
    free(list.at);
    return found;
}
