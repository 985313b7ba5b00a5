/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank processes of a launcher on this machine: its descendants whose program is this
 * program's, as /proc shows them.
 */
#ifndef ECH_PROGRAM_JOB_RANK_PROCESS_H
#define ECH_PROGRAM_JOB_RANK_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "comm/life.h"

/* Writes the path of a process's program; link is "/proc/PID/exe". If the file was replaced since,
 * it is still the original path, without " (deleted)". False: /proc does not show it. */
bool ech_rank_process_program(const char *link, char *path, size_t size);

/* A rank process below `root` that has a handler for the signal; 0: none. */
pid_t ech_rank_process_find(pid_t root, int signal);

/* True if a process has a handler for the signal. (Without one the signal would kill it.) */
bool ech_rank_process_catches(pid_t process, int signal);

/* True if a process has the same program as this process. */
bool ech_rank_process_is_ours(pid_t process);

/* ---- rank processes from their start on: one that dies before it joins the board shows only here
 * ---- */

typedef struct ech_rank_process {
    pid_t process;
    int life; /* a pidfd: readable when the process has ended */
} ech_rank_process;

typedef struct ech_rank_processes {
    pid_t launcher; /* 0: none; then the calls below do nothing */
    ECH_LIST(ech_rank_process) seen;
} ech_rank_processes;

/* Adds the rank processes that have started below the launcher since the last call. */
void ech_rank_processes_update(ech_rank_processes *list);

/* Removes a process that has ended from the list and returns its id; 0: none has ended. */
pid_t ech_rank_processes_next_end(ech_rank_processes *list);

void ech_rank_processes_kill(const ech_rank_processes *list); /* SIGKILL to all */
void ech_rank_processes_clear(ech_rank_processes *list); /* empties the list, frees its memory */

#endif
