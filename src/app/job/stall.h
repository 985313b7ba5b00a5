/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a job stands still as a whole. As long as one rank waits, it knows the deadline itself; when
 * none does anything any more (all are stopped, or frozen with their control group, or in calls of the
 * system that do not come back), only who watches from outside can tell.
 *
 * Time counts only while the watcher itself looks: who was stopped together with the ranks begins anew.
 */
#ifndef ECH_APP_JOB_STALL_H
#define ECH_APP_JOB_STALL_H

#include <stdbool.h>
#include <stdint.h>

/* What one look has shown of all ranks. */
typedef struct ech_observation {
    uint64_t pulse; /* another one whenever a rank has changed something on the board */
    uint64_t ticks; /* of processor time, of all of them */
    int shown;      /* their processes; 0: the system shows none, or not all */
    int suspended;  /* of these, how many are stopped or frozen */
    bool asked;     /* the job was told to stop */
} ech_observation;

typedef enum ech_stall_kind {
    ECH_STALL_NONE,
    ECH_STALL_IDLE,        /* no rank has done anything for the deadline, nor used the processor */
    ECH_STALL_SUSPENDED,   /* told to stop, but all ranks are stopped or frozen, and remain so */
    ECH_STALL_UNRESPONSIVE /* told to stop, and the board has not changed for the deadline */
} ech_stall_kind;

/* Starts with {.deadline = seconds}. */
typedef struct ech_stall {
    double deadline;
    double idle, suspended, unresponsive; /* seconds so far */
    ech_observation last;
} ech_stall;

/* `seconds`: since the look before. */
ech_stall_kind ech_stall_update(ech_stall *stall, const ech_observation *seen, double seconds);

/* Seconds until a look is due behind another. */
double ech_stall_interval(const ech_stall *stall);

#endif
