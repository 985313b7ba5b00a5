/* SPDX-License-Identifier: Apache-2.0
 *
 * The step profile: where the time of training steps goes (`echelon train --profile`). How long every kind of
 * call and step of every lane takes, how long it would take at this machine's own rates, and what the
 * compute lane waits for. (A profile without more words is what blocks cost: layout/profile.h.)
 *
 * There is one clock, and every moment of it is in one row: the rows of the compute lane, with its waits,
 * add up to the time of the lists that ran, and with those outside of lists to the whole. Other lanes work
 * beside it. Sums over the lists behind the first, which pays for pages and caches.
 */
#ifndef ECH_APP_STEP_PROFILE_STEP_PROFILE_H
#define ECH_APP_STEP_PROFILE_STEP_PROFILE_H

#include "base/text.h"
#include "comm/comm.h"
#include "exec/exec.h"

/* What this machine does in a second, measured; 0: not known. */
typedef struct ech_rates {
    double flops; /* of matrix products */
    double bytes; /* of memory (app/bench/stream.h) */
} ech_rates;

/* What a rank does between training lists. */
typedef enum ech_activity {
    ECH_ACTIVITY_STEPS, /* none: it trains */
    ECH_ACTIVITY_METRICS,
    ECH_ACTIVITY_CHECK,
    ECH_ACTIVITY_VALIDATION,
    ECH_ACTIVITY_SAVING,
    ECH_ACTIVITY_OTHER,
    ECH_ACTIVITIES
} ech_activity;

typedef enum ech_row_group {
    ECH_ROWS_COMPUTE, /* the compute lane's calls, steps and waits */
    ECH_ROWS_BESIDE,  /* other lanes */
    ECH_ROWS_OUTSIDE, /* activities */
    ECH_ROW_GROUPS
} ech_row_group;

/* Of all measured steps together. Plain bytes: ranks send them to each other. */
typedef struct ech_step_profile_row {
    char name[72]; /* "linear F 768x2304" */
    ech_row_group group;
    ech_lane lane; /* of COMPUTE and BESIDE */
    bool waits;    /* nothing is done meanwhile */
    double calls, seconds, flops, bytes;
    /* Seconds: the larger of FLOPs and bytes at the rates, call by call; 0: none is known. */
    double bound;
} ech_step_profile_row;

/* A rank's rows. */
typedef struct ech_step_profile_table {
    int rank, threads;
    int64_t steps; /* measured */
    /* Of these, from the beginning of the first to the end of what follows the last. */
    double seconds;
    ech_rates rates;
    ECH_LIST(ech_step_profile_row) row;
} ech_step_profile_table;
void ech_step_profile_table_free(ech_step_profile_table *table);

/* What ech_exec_record kept of a train list, in seconds on the clock: see ech_exec_begins and its
 * neighbours. Borrowed. */
typedef struct ech_step_profile_times {
    double began, ended;
    const double *begins, *ends, *marks;
} ech_step_profile_times;

typedef struct ech_step_profile ech_step_profile;

/* Of this rank's train list, before the first one runs. The plan is borrowed. */
ech_step_profile *ech_step_profile_create(const ech_plan *plan, ech_rates rates);
void ech_step_profile_destroy(ech_step_profile *profile); /* accepts NULL */

/* All that follow accept NULL, and do nothing then. */

/* From `now` on, seconds on the clock, the rank is about that. */
void ech_step_profile_switch_to(ech_step_profile *profile, ech_activity activity, double now);
/* A train list has ended; the first one begins the measurement, at `now`. */
void ech_step_profile_take(ech_step_profile *profile, const ech_step_profile_times *times,
                           double now);
/* What was measured until `now`; free with ech_step_profile_table_free. */
ech_step_profile_table ech_step_profile_end(ech_step_profile *profile, double now);

/* Every rank's table to rank 0, `all` [ranks], each to be freed there; elsewhere they are left as they are.
 * Collective. */
ech_status ech_step_profile_gather(ech_group *world, const ech_step_profile_table *mine,
                                   ech_step_profile_table *all);

/* For people: rank 0's table, where the most is to be gained first, and what takes much longer on others. */
void ech_step_profile_print(const ech_step_profile_table *all, int ranks, ech_text *out);
/* For programs: a JSON object a line, of each rank one with its steps and rates, then its rows. */
void ech_step_profile_print_json(const ech_step_profile_table *all, int ranks, ech_text *out);

/* ---- the rows of a plan, for step_profile.c ---- */

typedef struct ech_step_profile_rows {
    ECH_LIST(ech_step_profile_row) row; /* calls, flops, bytes, bound of one run of the list */
    int *of_tick;                       /* [ticks of the train list]: the row of a call or step */
    int waits_for[ECH_STEPS];           /* by what is waited for; -1: never */
    int data, between;                  /* waiting for the batch; between steps: the interpreter */
    int outside[ECH_ACTIVITIES];
} ech_step_profile_rows;
ech_step_profile_rows ech_step_profile_rows_of(const ech_plan *plan, ech_rates rates);
void ech_step_profile_rows_free(ech_step_profile_rows *rows);

#endif
