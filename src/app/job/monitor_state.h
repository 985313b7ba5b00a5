/* SPDX-License-Identifier: Apache-2.0
 *
 * What a monitor knows, shared by the files that watch. Private to them.
 */
#ifndef ECH_APP_JOB_MONITOR_STATE_H
#define ECH_APP_JOB_MONITOR_STATE_H

#include <poll.h>

#include "app/job/folder.h"
#include "app/job/rank_process.h"
#include "app/job/stall.h"
#include "app/job/monitor.h"
#include "comm/board.h"

enum { ECH_MONITOR_PATH = 256 };

/* What has been done so far because patience ended. */
typedef enum ech_monitor_phase {
    ECH_WATCHING,
    ECH_RANKS_KILLED,
    ECH_CHILD_HANGS,     /* who was started hangs */
    ECH_CHILD_UNKILLABLE /* nor does it end when it is killed */
} ech_monitor_phase;

struct ech_monitor {
    ech_board *board;
    char path[ECH_MONITOR_PATH];
    int hold; /* on its file */
    ech_job_folder *folder;
    int slots;
    int32_t *known; /* process of each slot, once seen; 0: none yet */
    int *life;      /* a descriptor that can be read when it has ended; -1: none */
    struct pollfd *polled;
    ech_rank_processs processes; /* until all have come */
    bool any;                    /* a rank's process was seen, at least at its beginning */
    ech_monitor_phase phase;
    pid_t child;           /* the launcher, or the process of all ranks; 0: not known */
    bool asked;            /* the job was told to stop */
    ech_stall stall;       /* and when it was looked at last: */
    double looked_at;      /* seconds on the clock; 0: never */
    ech_stall_kind halted; /* why the ranks were killed */
    ech_text how;          /* and how they were found then */
    double ended_at; /* seconds on the clock: a rank's process ended that had not left; 0: none */
    int first_dead;  /* the rank that died first; -1: none, or several at once */
    int killed_by; /* the signal that has ended it; 0: none, or the launcher has not left it to be seen */
    bool has_dead; /* before anybody raised the abort flag */
    pid_t early;   /* the process that died before any had come; 0: none, or several at once */
};

/* Looks at the ranks when that is due. True, once, when they stand still for too long: all positions
 * were printed then. */
bool ech_monitor_check_stall(ech_monitor *monitor);

/* The same as an error message. */
void ech_monitor_describe_halt(const ech_monitor *monitor, ech_text *out);

/* The process that slot i names: its rank has come to the board and not left it; 0: none. */
static inline int32_t ech_monitor_present(const ech_monitor *monitor, int slot)
{
    return atomic_load(&monitor->board->slot[slot].process);
}

/* Behind the child's end: waits a moment for the ranks', then kills who is left. */
void ech_monitor_end_ranks(ech_monitor *monitor);

/* The process of slot i if it has come and not ended; 0: none, or not known. */
pid_t ech_monitor_process(const ech_monitor *monitor, int slot);

#endif
