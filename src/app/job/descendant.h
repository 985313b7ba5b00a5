/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a rank among what a launcher has started on this machine.
 */
#ifndef ECH_APP_JOB_DESCENDANT_H
#define ECH_APP_JOB_DESCENDANT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/memory.h"

typedef ECH_LIST(pid_t) ech_processes;

/* Appends every process below `root` (not root itself) that runs the same program as this one, or did so until
 * it ended. */
void ech_descendant_list(pid_t root, ech_processes *out);

/* One of them that awaits the signal; 0 if there is none, or none that the system shows. */
pid_t ech_descendant_find(pid_t root, int signal);

/* Whether a process has come so far that it catches the signal. */
bool ech_descendant_awaits(pid_t process, int signal);

/* Whether a process runs the same program as this one. */
bool ech_descendant_is_ours(pid_t process);

/* ---- newcomers ----
 *
 * Ranks' processes from their start on, as the system shows them below a launcher: who dies before it
 * has come to the board is not seen there. */

typedef struct ech_newcomer {
    pid_t process;
    int life; /* a descriptor that can be read when it has ended */
} ech_newcomer;

typedef struct ech_newcomers {
    pid_t launcher; /* 0: none */
    ECH_LIST(ech_newcomer) seen;
} ech_newcomers;

/* Looks below the launcher for further ones. */
void ech_newcomers_find(ech_newcomers *list);

/* One that has ended, which is forgotten then; 0: none. */
pid_t ech_newcomers_next_end(ech_newcomers *list);

void ech_newcomers_kill(const ech_newcomers *list);
void ech_newcomers_forget(ech_newcomers *list); /* all of them */

#endif
