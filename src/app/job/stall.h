/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a job has stalled. A rank that waits for another ends at its own deadline; but when no rank runs at
 * all (all are stopped, frozen by their control group, or in a system call that does not return), only the
 * job monitor can tell. This is its rule, fed with an observation every second or so. Pure.
 *
 * Time in which the monitor itself was stopped does not count.
 */
#ifndef ECH_APP_JOB_STALL_H
#define ECH_APP_JOB_STALL_H

#include <stdbool.h>
#include <stdint.h>

/* The state of all ranks at one time. */
typedef struct ech_observation {
    uint64_t pulse; /* ech_board_pulse: changes when a rank writes to the board */
    uint64_t ticks; /* of processor time used, over all ranks */
    int shown;      /* number of rank processes; 0: /proc does not show all of them */
    int suspended;  /* how many of these are stopped or frozen */
    bool asked;     /* the job was told to stop */
} ech_observation;

typedef enum ech_stall_kind {
    ECH_STALL_NONE,
    ECH_STALL_IDLE,      /* for the deadline no rank has changed the board or used the processor */
    ECH_STALL_SUSPENDED, /* told to stop, but all ranks have been stopped or frozen for 10 s since */
    ECH_STALL_UNRESPONSIVE /* told to stop, and the board has not changed for the deadline */
} ech_stall_kind;

/* Begins as {.deadline = seconds}. */
typedef struct ech_stall {
    double deadline;
    double idle, suspended, unresponsive; /* seconds so far */
    ech_observation last;
} ech_stall;

/* Adds an observation, `seconds` after the last one (at most 2 s count); returns whether the job has stalled. */
ech_stall_kind ech_stall_update(ech_stall *stall, const ech_observation *seen, double seconds);

/* Seconds between observations. */
double ech_stall_interval(const ech_stall *stall);

#endif
