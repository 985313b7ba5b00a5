/* SPDX-License-Identifier: Apache-2.0
 *
 * When each rank does what, and where in memory: a PLAN is a few named LISTS of STEPS for one rank,
 * plain data that can be printed, checked and drawn without running anything.
 *
 *     generator (order of F, B, W)  ->  lower (per block)  ->  bucket, frame (communication, update)
 *         ->  access (which values each step touches)  ->  lifetime  ->  place (offsets)  ->  check
 *
 * A step names what it works on, the values it touches, and the steps it comes after; lanes run
 * their own steps in order, and `after` waits for completion across lanes. A rank's plan is made
 * without building the others'.
 */
#ifndef ECH_SCHEDULE_SCHEDULE_H
#define ECH_SCHEDULE_SCHEDULE_H

#include "comm/reduction.h"
#include "config/config.h"
#include "layout/layout.h"
#include "model/model.h"
#include "optim/optim.h"

/* ---- orders: what generators emit ---- */

typedef enum ech_action { ECH_F, ECH_B, ECH_W } ech_action;

typedef struct ech_order_item {
    ech_action action;
    int chunk, micro;
} ech_order_item;
typedef ECH_LIST(ech_order_item) ech_order;

/* A generator's file and row: the order of one stage's F, B and W. Backwards come in ascending
 * micro-batches. */
typedef struct ech_generator {
    const char *name;
    void (*generate)(int stages, int stage, int micro_batches, ech_order *order);
} ech_generator;
const ech_generator *ech_generator_find(const char *name); /* NULL: none of that name */
const char *ech_generator_names(void);                     /* blank-separated */

/* ---- steps ---- */

typedef enum ech_lane {
#define X(name, text, meaning) ECH_LANE_##name,
#include "schedule/lanes.def"
#undef X
    ECH_LANES
} ech_lane;

typedef enum ech_step_kind {
#define X(name, text, lane, meaning) ECH_STEP_##name,
#include "schedule/steps.def"
#undef X
    ECH_STEPS
} ech_step_kind;

typedef enum ech_memory_kind {
#define X(name, text, meaning) ECH_MEMORY_##name,
#include "schedule/memory.def"
#undef X
    ECH_MEMORY_KINDS
} ech_memory_kind;

typedef enum ech_list_kind {
#define X(name, text, meaning) ECH_LIST_##name,
#include "schedule/lists.def"
#undef X
    ECH_LIST_KINDS
} ech_list_kind;

typedef enum ech_scalar {
#define X(name, meaning) ECH_SCALAR_##name,
#include "schedule/scalars.def"
#undef X
    ECH_SCALARS
} ech_scalar;

const char *ech_lane_name(ech_lane lane);
const char *ech_step_name(ech_step_kind kind);
const char *ech_memory_name(ech_memory_kind kind);
const char *ech_list_name(ech_list_kind kind);
const char *ech_scalar_name(ech_scalar scalar);

typedef struct ech_step {
    ech_step_kind kind;
    ech_lane lane;
    int chunk, micro, block;    /* F, B, W; -1 elsewhere */
    int index;                  /* bucket of REDUCE_GRADS, NORM, UPDATE; first scalar of REDUCE */
    int count;                  /* scalars of REDUCE */
    ech_group_kind group;       /* of REDUCE, REDUCE_GRADS */
    bool maximum;               /* REDUCE takes the maximum, not the sum */
    int first_after, afters;    /* in list.after: earlier steps that must be complete */
    int first_access, accesses; /* in list.access */
    int scratch;                /* value, or -1 */
    int tick, ticks; /* its time in lifetimes: one tick a call of a layer, at least one */
} ech_step;

/* A step's call touches a value. */
typedef struct ech_access {
    int value, tick;
    bool write;
} ech_access;

/* Of every value's offset, in bytes: what a value takes is rounded up to it. */
enum { ECH_ALIGNMENT = 64 };

static inline int64_t ech_align(int64_t bytes)
{
    return (bytes + ECH_ALIGNMENT - 1) / ECH_ALIGNMENT * ECH_ALIGNMENT;
}

/* Bytes with a life and a place. Values below plan.persistent.n are the plan's and live always; value
 * plan.persistent.n + i is the list's value i. */
typedef struct ech_value {
    ech_memory_kind kind;
    int block, local, micro; /* which value of which block; -1 where it is none */
    int index;               /* parameter, state or bucket */
    int64_t bytes, offset;
    int born,
        dies; /* first and last tick; under asynchronous lanes, of all time it may be touched */
} ech_value;

typedef struct ech_list {
    ech_list_kind kind;
    ech_purpose purpose;
    ech_extent extent; /* of a micro-batch */
    int micro_batches;
    ECH_LIST(ech_step) step;
    ECH_LIST(int) after;
    ECH_LIST(ech_access) access;
    ECH_LIST(ech_value) value;
    int *value_of;              /* [(first_local[block] + local) * micro_batches + micro], or -1 */
    int *first_local;           /* [blocks + 1] */
    int batch[ECH_BATCH_SLOTS]; /* first of micro_batches values, or -1: not loaded here */
    int logits;                 /* value, or -1 */
    int64_t bytes;              /* of the transient part of the arena */
    int64_t lower_bound;        /* the most that is ever live at once */
    int64_t peak[ECH_MEMORY_KINDS]; /* the most of each kind that is ever live at once */
    int ticks;
} ech_list;

/* ---- plans ---- */

/* Gradients that are reduced together; contiguous, in the order in which they become ready. */
typedef struct ech_bucket {
    int first_param, params; /* in plan.bucket_param */
    int64_t elements;
    ech_group_kind group;
    int ready; /* step of the train list after which it is complete */
    int value; /* of the train list */
} ech_bucket;

typedef struct ech_param_plan {
    int64_t elements;
    int value;                 /* persistent */
    int state[ECH_MAX_STATES]; /* persistent */
    int bucket;
    int64_t bucket_offset;      /* elements */
    int64_t norm_first;         /* first of its partial sums */
    int first_step, first_call; /* who writes its gradient first; everyone else adds */
} ech_param_plan;

typedef struct ech_plan {
    int rank;
    const ech_model *model;
    const ech_layout *layout;
    const ech_optimizer *optimizer;
    const ech_kernels *kernels;
    ech_dtype real;
    int threads;
    ech_reduction reduction;
    int states; /* of the optimizer */
    const char *state_name[ECH_MAX_STATES];
    ECH_LIST(ech_value) persistent;
    ech_param_plan *param; /* [model.param.n] */
    ECH_LIST(ech_bucket) bucket;
    ECH_LIST(int) bucket_param;
    int64_t norm_partials;
    int scalars;  /* persistent value */
    int partials; /* persistent value: norm_partials in fp64 */
    ech_list list[ECH_LIST_KINDS];
    int64_t persistent_bytes, arena_bytes;
} ech_plan;

typedef struct ech_plan_request {
    const ech_config *config; /* resolved */
    const ech_model *model;
    const ech_layout *layout;
    const ech_kernels *kernels; /* asked for scratch */
    int rank, threads;
    bool forward_only; /* evaluation and sampling: no gradients, no optimizer, no train list */
} ech_plan_request;

/* Builds and checks rank's plan. The model and the layout are borrowed. */
ech_status ech_plan_create(const ech_plan_request *request, ech_plan **out);
void ech_plan_destroy(ech_plan *plan); /* accepts NULL */

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value);
/* The list's value of a block's own value. */
int ech_list_value_of(const ech_list *list, const ech_block *block, int local, int micro);

/* Bytes of gradients that this rank sends in one training step. */
int64_t ech_plan_reduced_bytes(const ech_plan *plan);
/* The peak of each kind over all lists, persistent parts included. */
void ech_plan_peaks(const ech_plan *plan, int64_t peak[ECH_MEMORY_KINDS]);

/* "F0.3/5". */
void ech_step_print(const ech_step *step, ech_text *out);
/* "model.layers.3: linear4.out, micro-batch 2". */
void ech_value_print(const ech_plan *plan, const ech_list *list, int value, ech_text *out);
/* One line a step: number, lane, text, what it comes after. */
void ech_list_print(const ech_list *list, ech_text *out);
/* One line: the compute lane as the papers write it, F0.0 B0.0 W0.0 ..., blocks folded. */
void ech_list_print_row(const ech_list *list, ech_text *out);

/* ---- the calendar: which list runs at which step ---- */

typedef struct ech_calendar {
    int64_t steps, validate_every, check_every, save_every;
    bool validates;
} ech_calendar;
ech_calendar ech_calendar_of(const ech_config *config);
/* Whether the list runs after `step` steps are done. */
bool ech_calendar_due(const ech_calendar *calendar, ech_list_kind list, int64_t step);

/* ---- the checker ---- */

/* One rank's list: `after` points back; every read has an earlier write; every gradient is reduced
 * once, after all its writers and before its use; no two live values overlap; all lies inside the
 * arena. On failure logs the step and prints the list with the step marked. */
ech_status ech_list_check(const ech_plan *plan, const ech_list *list);
/* All ranks' plans: the collectives of every group come in the same order on all its members. */
ech_status ech_plans_check(const ech_plan *const *plans, int n, ech_list_kind list);

#endif
