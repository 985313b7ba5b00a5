/* SPDX-License-Identifier: Apache-2.0
 *
 * The step profile (`echelon train --profile`): how long each kind of call and step takes, how long
 * it would take at the rates of this machine (a roofline), and what the compute lane waits for. (A
 * profile without "step" is the cost of blocks: layout/profile.h.) Only ech_step_profile_gather is
 * collective.
 *
 * The rows of a rank's compute lane, with its waits, add up to the time of its train lists; with
 * the activities outside lists they add up to the total. The other lanes' rows are concurrent with
 * these. The first execution of the train list is excluded, since it includes page faults and cold
 * caches.
 */
#ifndef ECH_APP_STEP_PROFILE_STEP_PROFILE_H
#define ECH_APP_STEP_PROFILE_STEP_PROFILE_H

#include "base/text.h"
#include "comm/comm.h"
#include "exec/exec.h"
#include "schedule/plan.h"

/* Measured rates of this machine, per second; 0: unknown. */
typedef struct ech_machine_rates {
    double flops; /* of matrix products */
    double bytes; /* of memory (app/machine.h) */
} ech_machine_rates;

/* What a rank does. */
typedef enum ech_activity {
    ECH_ACTIVITY_STEPS, /* it runs a train list */
    ECH_ACTIVITY_METRICS,
    ECH_ACTIVITY_CHECK, /* compares parameters across ranks */
    ECH_ACTIVITY_VALIDATION,
    ECH_ACTIVITY_SAVING,
    ECH_ACTIVITY_OTHER,
    ECH_ACTIVITIES
} ech_activity;

typedef enum ech_row_group {
    ECH_ROWS_COMPUTE, /* the compute lane's calls, steps and waits */
    ECH_ROWS_BESIDE,  /* the other lanes, concurrent with it */
    ECH_ROWS_OUTSIDE, /* activities */
    ECH_ROW_GROUPS
} ech_row_group;

/* A row: sums over all measured train lists. Plain data, sent between ranks. */
typedef struct ech_step_profile_row {
    char name[72]; /* "linear F 768x2304" */
    ech_row_group group;
    ech_lane lane; /* of COMPUTE and BESIDE */
    bool waits;    /* the row is time in which the lane waits */
    double calls;  /* number of calls, or of steps without calls */
    double seconds, flops, bytes;
    double bound; /* seconds: sum over calls of max(flops / rate, bytes / rate); 0: unknown */
} ech_step_profile_row;

/* A rank's rows. */
typedef struct ech_step_profile_table {
    int rank, threads;
    int64_t steps;  /* training steps measured */
    double seconds; /* from the end of the first train list to the end of the measurement */
    ech_machine_rates rates;
    ECH_LIST(ech_step_profile_row) row;
} ech_step_profile_table;
void ech_step_profile_table_free(ech_step_profile_table *table);

typedef struct ech_step_profile ech_step_profile;

/* A step profile of the plan's train list, to be made before the first execution. Borrows the
 * plan. */
ech_step_profile *ech_step_profile_create(const ech_plan *plan, ech_machine_rates rates);
void ech_step_profile_destroy(ech_step_profile *profile); /* accepts NULL */

/* The next two accept NULL and then do nothing. */

/* Attributes the rank's time from `now` on, in seconds on the clock, to `activity`. */
void ech_step_profile_switch_to(ech_step_profile *profile, ech_activity activity, double now);
/* Adds a train list that has ended, with its recorded times (ech_exec_record). The first call adds
 * nothing: it begins the measurement at `now`. */
void ech_step_profile_take(ech_step_profile *profile, const ech_exec_times *times, double now);
/* The table of all that was measured until `now`; release with ech_step_profile_table_free. */
ech_step_profile_table ech_step_profile_end(ech_step_profile *profile, double now);

/* Copies every rank's table to all[ranks] on rank 0, which releases them; on other ranks `all` is
 * not changed. Collective over `world`. */
ech_status ech_step_profile_gather(ech_group *world, const ech_step_profile_table *mine,
                                   ech_step_profile_table *all);

/* Appends text for people: rank 0's table, rows with the most time above their bound first, then
 * rows that take much longer on other ranks. */
void ech_step_profile_print(const ech_step_profile_table *all, int ranks, ech_text *out);
/* Appends JSON for programs, an object per line: for each rank one with its steps and rates, then
 * one per row. */
void ech_step_profile_print_json(const ech_step_profile_table *all, int ranks, ech_text *out);

/* ---- the rows of a plan, private ---- */

typedef struct ech_step_profile_rows {
    /* calls, flops, bytes and bound count one execution of the list */
    ECH_LIST(ech_step_profile_row) row;
    int *of_tick;                /* [ticks of the train list] row of a call or step */
    int waits_for[ECH_STEPS];    /* row in which the lane waits for a kind of step; -1: none */
    int data;                    /* row in which it waits for the batch */
    int between;                 /* row of the time between calls and steps */
    int outside[ECH_ACTIVITIES]; /* rows of activities */
} ech_step_profile_rows;
ech_step_profile_rows ech_step_profile_rows_of(const ech_plan *plan, ech_machine_rates rates);
void ech_step_profile_rows_free(ech_step_profile_rows *rows);
/* The row with the group, lane and name of `like`; NULL: there is none. */
ech_step_profile_row *ech_step_profile_find(const ech_step_profile_row *rows, size_t n,
                                            const ech_step_profile_row *like);

#endif
