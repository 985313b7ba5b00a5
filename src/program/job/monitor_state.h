/* SPDX-License-Identifier: Apache-2.0
 *
 * The job monitor's state. Private to monitor.c, stall.c and blame.c.
 */
#ifndef ECH_PROGRAM_JOB_MONITOR_STATE_H
#define ECH_PROGRAM_JOB_MONITOR_STATE_H

#include "program/job/monitor.h"
#include "program/job/rank_process.h"
#include "program/job/stall.h"
#include "comm/board.h"
#include "comm/life.h"

/* Measures taken so far to end the job. */
typedef enum ech_monitor_phase {
    ECH_WATCHING, /* none */
    ECH_RANKS_KILLED,
    ECH_CHILD_HANGS,     /* the child did not end after its ranks were killed */
    ECH_CHILD_UNKILLABLE /* it did not end after it was killed itself, either */
} ech_monitor_phase;

struct ech_monitor {
    ech_board *board;
    ech_transient file;           /* of the board */
    ech_transient folder;         /* for MPI's files of the job; folder.hold -1: there is none */
    ech_watch watch;              /* of the rank processes that have joined the board */
    ech_rank_processes processes; /* of a launcher; cleared once all ranks joined the board */
    bool any;                     /* `processes` has had a process: the launcher started ranks */
    ech_monitor_phase phase;
    pid_t child;         /* the launcher, or the process of all ranks; 0: unknown */
    bool asked;          /* the job was told to stop */
    int first_evaluator; /* ranks from here on are evaluators */
    ech_stall stall;
    double observed_at; /* time of the stall's last observation, seconds on the clock; 0: never */
    ech_stall_kind halted; /* the stall for which the monitor ends the job; NONE: it has not */
    ech_text how;          /* then the state of the first rank: "rank 0 (process 12) is asleep" */
    double ended_at; /* when a rank died or the job's end began, seconds on the clock; 0: not yet */
    int first_dead;  /* the rank that died first; -1: none, or several at the same time */
    int killed_by;   /* the signal that ended the process that died first; 0: none, or unknown */
    bool has_dead;   /* a rank died before the abort flag was raised */
    /* a process that died before it joined the board; 0: none, or several at the same time */
    pid_t early;
};

/* Observes the ranks if that is due. True: the job has stalled, and what each rank waits for was
 * printed. */
bool ech_monitor_check_stall(ech_monitor *monitor);

/* Appends the reason why a stalled job was ended, for the error. */
void ech_monitor_describe_halt(const ech_monitor *monitor, ech_text *out);

/* The process id that a rank has put into a slot of the board and not removed; 0: none. */
static inline int32_t ech_monitor_present(const ech_monitor *monitor, int slot)
{
    return atomic_load(&monitor->board->slot[slot].process);
}

/* After the child's end: gives the ranks 2 s to end, then kills the remaining ones. */
void ech_monitor_end_ranks(ech_monitor *monitor);

/* The process of the rank that uses a slot of the board. 0: no rank has joined there, it has both
 * left the board and ended, or this process cannot see it. */
pid_t ech_monitor_process(const ech_monitor *monitor, int slot);

#endif
