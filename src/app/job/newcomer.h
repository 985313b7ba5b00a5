/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks' processes from their start on, as the system shows them below a launcher: who dies before it
 * has come to the board is not seen there.
 */
#ifndef ECH_APP_JOB_NEWCOMER_H
#define ECH_APP_JOB_NEWCOMER_H

#include <sys/types.h>

#include "base/memory.h"

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
