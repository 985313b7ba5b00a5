/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes and their children, by /proc.
 */
#include "program/job/rank_process.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/life.h"

bool ech_rank_process_program(const char *link, char *path, size_t size)
{
    static const char replaced[] = " (deleted)";
    ssize_t n = readlink(link, path, size - 1);
    if (n < 0) return false;
    path[n] = '\0';
    size_t tail = sizeof replaced - 1;
    if ((size_t)n > tail && strcmp(path + (size_t)n - tail, replaced) == 0)
        path[(size_t)n - tail] = '\0';
    return true;
}

/* For a process that has ended but was not waited for: only the beginning of its program's name is
 * left. */
static bool ran(pid_t pid, const char *program)
{
    char name[64];
    ech_life_signs signs;
    ech_life_look(pid, &signs);
    ech_life_read(pid, "comm", name, sizeof name);
    return signs.state == 'Z' && strncmp(strrchr(program, '/') + 1, name, strcspn(name, "\n")) == 0;
}

static bool runs(pid_t pid, const char *program)
{
    char path[64], found[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    if (ech_rank_process_program(path, found, sizeof found)) return strcmp(found, program) == 0;
    return ran(pid, program);
}

bool ech_rank_process_is_ours(pid_t process)
{
    char program[PATH_MAX];
    return ech_rank_process_program("/proc/self/exe", program, sizeof program) &&
           runs(process, program);
}

bool ech_rank_process_catches(pid_t process, int signal)
{
    char text[4096];
    unsigned long long caught = 0;
    ech_life_signs signs;
    ech_life_look(process, &signs);
    ech_life_read(process, "status", text, sizeof text);
    const char *line = strstr(text, "\nSigCgt:");
    if (line) sscanf(line, "\nSigCgt: %llx", &caught);
    return signs.state != 'Z' && (caught >> (signal - 1) & 1);
}

/* Appends every descendant of `root` that runs the same program as this process, or ran it until it
 * ended. */
static void list_below(pid_t root, ech_process_ids *out)
{
    char program[PATH_MAX];
    ech_process_ids below = {0};
    if (!ech_rank_process_program("/proc/self/exe", program, sizeof program)) return;
    ech_life_children(root, &below);
    for (size_t i = 0; i < below.n; i++) {
        if (runs(below.at[i], program)) ECH_PUSH(*out, below.at[i]);
        ech_life_children(below.at[i], &below);
    }
    free(below.at);
}

pid_t ech_rank_process_find(pid_t root, int signal)
{
    ech_process_ids ours = {0};
    pid_t found = 0;
    list_below(root, &ours);
    for (size_t i = 0; i < ours.n && !found; i++)
        if (ech_rank_process_catches(ours.at[i], signal)) found = ours.at[i];
    free(ours.at);
    return found;
}

/* ---- descriptors of processes below a launcher ---- */

static bool is_seen(const ech_rank_processes *list, pid_t process)
{
    for (size_t i = 0; i < list->seen.n; i++)
        if (list->seen.at[i].process == process) return true;
    return false;
}

/* One that cannot be followed now may be the next time. */
static void add(ech_rank_processes *list, pid_t process)
{
    int life = -1;
    if (is_seen(list, process)) return;
    if (ech_life_open(process, ech_life_space(), &life) != ECH_LIFE_SHOWN) return;
    ECH_PUSH(list->seen, (ech_rank_process){process, life});
}

void ech_rank_processes_update(ech_rank_processes *list)
{
    ech_process_ids found = {0};
    if (!list->launcher) return;
    list_below(list->launcher, &found);
    for (size_t i = 0; i < found.n; i++) add(list, found.at[i]);
    free(found.at);
}

static bool has_ended(const ech_rank_process *process)
{
    return poll(&(struct pollfd){.fd = process->life, .events = POLLIN}, 1, 0) > 0;
}

pid_t ech_rank_processes_next_end(ech_rank_processes *list)
{
    for (size_t i = 0; i < list->seen.n; i++) {
        ech_rank_process ended = list->seen.at[i];
        if (!has_ended(&ended)) continue;
        close(ended.life);
        list->seen.at[i] = list->seen.at[--list->seen.n];
        return ended.process;
    }
    return 0;
}

void ech_rank_processes_kill(const ech_rank_processes *list)
{
    for (size_t i = 0; i < list->seen.n; i++)
        syscall(SYS_pidfd_send_signal, list->seen.at[i].life, SIGKILL, NULL, 0);
}

void ech_rank_processes_clear(ech_rank_processes *list)
{
    for (size_t i = 0; i < list->seen.n; i++) close(list->seen.at[i].life);
    free(list->seen.at);
    memset(&list->seen, 0, sizeof list->seen);
}
