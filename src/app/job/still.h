/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a job stands still as a whole. As long as one rank waits, it knows the deadline itself; when
 * none does anything any more (all are stopped, or frozen with their control group, or in calls of the
 * system that do not come back), only who watches from outside can tell.
 *
 * Time counts only while the watcher itself looks: who was stopped together with the ranks begins anew.
 */
#ifndef ECH_APP_JOB_STILL_H
#define ECH_APP_JOB_STILL_H

#include <stdbool.h>
#include <stdint.h>

/* What one look has shown of all ranks. */
typedef struct ech_sight {
    uint64_t pulse; /* another one whenever a rank has changed something on the board */
    uint64_t ticks; /* of processor time, of all of them */
    int shown;      /* their processes; 0: the system shows none, or not all */
    int held;       /* of these, how many are stopped or frozen */
    bool asked;     /* the job was told to stop */
} ech_sight;

typedef enum ech_still_why {
    ECH_STILL_NOT,
    ECH_STILL_IDLE, /* no rank has done anything for the deadline, nor used the processor */
    ECH_STILL_HELD, /* told to stop, but all ranks are stopped or frozen, and remain so */
    ECH_STILL_DEAF  /* told to stop, and the board has not changed for the deadline */
} ech_still_why;

/* Starts with {.deadline = seconds}. */
typedef struct ech_still {
    double deadline;
    double idle, held, deaf; /* seconds so far */
    ech_sight last;
} ech_still;

/* `seconds`: since the look before. */
ech_still_why ech_still_note(ech_still *still, const ech_sight *sight, double seconds);

/* Seconds until a look is due behind another. */
double ech_still_pace(const ech_still *still);

#endif
