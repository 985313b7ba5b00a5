/* SPDX-License-Identifier: Apache-2.0
 *
 * A kind of step: one row of steps.def and the methods that the row names. Code that depends on the
 * kind uses its row and never lists kinds. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_STEP_STEP_H
#define ECH_SCHEDULE_STEP_STEP_H

#include "schedule/access.h"
#include "schedule/costs.h"
#include "schedule/passes.h"
#include "schedule/traffic.h"
#include "schedule/work.h"

/* Accumulates the traffic of a rank's steps. */
typedef struct ech_traffic_count {
    const ech_plan *plan;
    const ech_list *list;
    ech_membership of[ECH_GROUPS]; /* the rank's */
    ech_traffic *traffic;          /* [ECH_TRAFFIC_AXES]; counts are added to it */
} ech_traffic_count;

/* Adds the bytes and messages of a collective of that kind over that group. */
void ech_traffic_add(ech_traffic *traffic, ech_collective kind, ech_layout_group group,
                     ech_flow flow);

/* Adds a copy from space to space. */
void ech_traffic_add_copy(ech_traffic_count *count, ech_space from, ech_space to, int64_t bytes);

/* The arguments of `work` and `seconds`. */
typedef struct ech_step_query {
    const ech_plan *plan;
    const ech_step *step;
    const ech_list *list;   /* set for `work` */
    const ech_costs *costs; /* set for `seconds` */
    ech_participants among; /* set for `seconds` */
} ech_step_query;

/* Methods, which several kinds may share. A NULL method means that the step touches no value,
 * prints nothing more, has no work, takes no time, or sends nothing. */
typedef struct ech_step_methods {
    /* Adds the values that the step touches, call by call; sets its scratch if it has any. */
    void (*touch)(ech_accessor *a);
    /* Appends to the kind's text: " bucket 3". */
    void (*print)(const ech_step *step, ech_text *out);
    /* The least work of the step. */
    ech_work (*work)(const ech_step_query *query);
    /* Its seconds according to a profile, without waits. */
    double (*seconds)(const ech_step_query *query);
    /* Adds the messages and bytes that this rank sends. */
    void (*count)(ech_traffic_count *count, const ech_step *step);
} ech_step_methods;

#define X(name, text, lane, methods, phase, params, bar, meaning)                                  \
    extern const ech_step_methods ech_##methods##_methods;
#include "schedule/steps.def"
#undef X

/* FETCH and OFFLOAD, by resource: record the pairs of values and copies (ech_access_pair). */
#define X(name, text, touch, meaning) void ech_touch_##touch(ech_accessor *a);
#include "schedule/resources.def"
#undef X

typedef struct ech_step_row {
    const char *text;
    ech_lane lane;
    const ech_step_methods *methods;
    int phase; /* ech_phase, or -1 */
    ech_params_use params;
    ech_bar_kind bar;
} ech_step_row;

const ech_step_row *ech_step_row_of(ech_step_kind kind);

/* Methods of steps of one bucket. They print " bucket 3", with the piece if there is one, and then
 * the round, or the group. The seconds: of one pass over the bytes of the step's work. */
void ech_step_print_bucket(const ech_step *step, ech_text *out);
void ech_step_print_round(const ech_step *step, ech_text *out);
void ech_step_print_over(const ech_step *step, ech_text *out);
double ech_step_pass_seconds(const ech_step_query *query);

/* Adds a value for the statistics of the step's bucket. */
int ech_access_new_statistics(ech_accessor *a, ech_memory_kind kind);
/* Records a read of a turn's row list, if the step's bucket has one (ech_bucket.rows). */
void ech_access_rows(ech_accessor *a, int turn);
/* The same for a call of a block's step that looks up rows by it. */
void ech_access_rows_of(ech_accessor *a, int call);
/* The most numbers in these rows. */
double ech_bucket_listed_numbers(const ech_plan *plan, const ech_bucket *bucket);
/* Scratch bytes of the optimizer's kernels, the most for any parameter of the bucket. */
size_t ech_update_scratch(const ech_plan *plan, const ech_bucket *bucket,
                          const ech_kernels *kernels, int threads);
/* Records the values of a message, or those that a COLLECTIVE gathers in place from shards. */
void ech_message_touch(ech_accessor *a);
/* Methods of all messages. */
void ech_message_print(const ech_step *step, ech_text *out);
ech_work ech_message_work(const ech_step_query *query);
double ech_message_seconds(const ech_step_query *query);
/* Calls `visit` (NULL: nothing) for each value that a block keeps, except values that all sequence
 * chunks share (a KV cache), which are a resource of their own. Returns their number. */
int ech_step_each_kept(const ech_plan *plan, int block, void (*visit)(ech_accessor *a, int local),
                       ech_accessor *a);
/* "[4-9]", "[4]". */
void ech_step_print_calls(const ech_step *step, ech_text *out);
/* The seconds of a step F, B, W or R on a device of the costs' cluster: of each call its products,
 * or what it reads and writes. products: only of calls with products. */
double ech_block_seconds(const ech_step_query *query, bool products);
/* The cost in units of a step F, B or W. */
double ech_block_units(const ech_plan *plan, const ech_step *step);
/* Bytes per second of a collective between the query's ranks, and seconds of one without bytes. */
double ech_step_bandwidth(const ech_step_query *query);
double ech_step_latency(const ech_step_query *query);

#endif
