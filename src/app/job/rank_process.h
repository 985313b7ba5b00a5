/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a rank among what a launcher has started on this machine.
 */
#ifndef ECH_APP_JOB_RANK_PROCESS_H
#define ECH_APP_JOB_RANK_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/memory.h"

typedef ECH_LIST(pid_t) ech_process_ids;

/* Appends every process below `root` (not root itself) that runs the same program as this one, or did so until
 * it ended. */
void ech_rank_process_list(pid_t root, ech_process_ids *out);

/* One of them that awaits the signal; 0 if there is none, or none that the system shows. */
pid_t ech_rank_process_find(pid_t root, int signal);

/* Whether a process has come so far that it catches the signal. */
bool ech_rank_process_catches(pid_t process, int signal);

/* Whether a process runs the same program as this one. */
bool ech_rank_process_is_ours(pid_t process);

/* ---- processes ----
 *
 * Ranks' processes from their start on, as the system shows them below a launcher: who dies before it
 * has come to the board is not seen there. */

typedef struct ech_rank_process {
    pid_t process;
    int life; /* a descriptor that can be read when it has ended */
} ech_rank_process;

typedef struct ech_rank_processs {
    pid_t launcher; /* 0: none */
    ECH_LIST(ech_rank_process) seen;
} ech_rank_processs;

/* Looks below the launcher for further ones. */
void ech_rank_processes_update(ech_rank_processs *list);

/* One that has ended, which is forgotten then; 0: none. */
pid_t ech_rank_processs_next_end(ech_rank_processs *list);

void ech_rank_processs_kill(const ech_rank_processs *list);
void ech_rank_processes_clear(ech_rank_processs *list); /* all of them */

#endif
