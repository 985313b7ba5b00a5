/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog rule of the job monitor: whether a job has stalled. A rank that waits too long for
 * another fails by itself. But if no rank makes progress, only the monitor can tell: all may be
 * suspended by SIGSTOP, frozen by their control group, or in a system call that does not return.
 * The rule is a state machine without input or output. Its `deadline` is a number of seconds
 * (parallel.deadline). Time in which the monitor itself was suspended does not count.
 */
#ifndef ECH_PROGRAM_JOB_STALL_H
#define ECH_PROGRAM_JOB_STALL_H

#include <stdbool.h>
#include <stdint.h>

/* The state of all ranks at one time. */
typedef struct ech_observation {
    uint64_t pulse; /* ech_board_pulse: changes when a rank writes to the board */
    uint64_t ticks; /* processor time that all ranks have used, in clock ticks of /proc */
    int shown; /* rank processes; 0: /proc does not show all, and ticks and suspended are void */
    int suspended; /* number of these that are suspended or frozen */
    bool asked;    /* the job was told to stop */
} ech_observation;

typedef enum ech_stall_kind {
    ECH_STALL_NONE,
    /* For 10 s (or `deadline`, if shorter) all ranks have been suspended or frozen while asked.
     * Needs shown > 0. */
    ECH_STALL_SUSPENDED,
    /* For `deadline` seconds no rank has changed the board or used the processor, asked or not.
     * Needs shown > 0. */
    ECH_STALL_IDLE,
    ECH_STALL_UNRESPONSIVE /* for `deadline` seconds the board has not changed while asked */
} ech_stall_kind;

/* Begins as {.deadline = seconds}. */
typedef struct ech_stall {
    double deadline;
    double idle, suspended, unresponsive; /* seconds that each has lasted */
    ech_observation last;                 /* before the first one: zeros */
} ech_stall;

/* Adds an observation made `seconds` after the last one (first: 0; at most 2 s count). Returns the
 * first kind of stall, in the order above, that has lasted long enough; the job must then be
 * ended. */
ech_stall_kind ech_stall_update(ech_stall *stall, const ech_observation *seen, double seconds);

/* Seconds between observations: 1, or a quarter of the deadline if that is less. */
double ech_stall_interval(const ech_stall *stall);

#endif
