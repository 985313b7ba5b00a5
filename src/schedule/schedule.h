/* SPDX-License-Identifier: Apache-2.0
 *
 * A PLAN says what a rank runs, in which order, and where its values are in memory. It is a few named LISTS of STEPS,
 * plain data that can be printed, checked, simulated and drawn without running anything.
 *
 *     generator (order of F, B, W)  ->  version (of weights)
 *         ->  lower (per block, sends and receives)  ->  bucket  ->  frame (load, reduce, update)
 *         ->  access (which values each step touches)  ->  lifetime  ->  inherit  ->  place (offsets)
 *         ->  peaks  ->  check
 *
 * A step names what it works on, the values it touches, and the steps it comes after: it waits until these have ended.
 * A lane begins its steps in order. Compute, reduce and collective also end them in order; the send and receive lanes
 * may have many messages under way. A rank's plan is made without making those of other ranks.
 *
 * The train list is one training step or, with an asynchronous schedule, a SPAN of several: fill, steady state,
 * drain. Training steps within a list are called turns, 0 .. turns - 1.
 */
#ifndef ECH_SCHEDULE_SCHEDULE_H
#define ECH_SCHEDULE_SCHEDULE_H

#include "comm/collective.h"
#include "config/config.h"
#include "layout/layout.h"
#include "model/model.h"
#include "optim/optim.h"
#include "schedule/numbering.h"
#include "schedule/order/order.h"

/* ---- steps ---- */

typedef enum ech_lane {
#define X(name, text, meaning) ECH_LANE_##name,
#include "schedule/lanes.def"
#undef X
    ECH_LANES
} ech_lane;

typedef enum ech_step_kind {
#define X(name, ...) ECH_STEP_##name,
#include "schedule/steps.def"
#undef X
    ECH_STEPS
} ech_step_kind;

typedef enum ech_memory_kind {
#define X(name, text, working, meaning) ECH_MEMORY_##name,
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

/* Kinds of boxes in timelines, in colours that colour-blind readers can tell apart. */
typedef enum ech_bar_kind {
#define X(name, text, colour, meaning) ECH_BAR_##name,
#include "schedule/bars.def"
#undef X
    ECH_BAR_KINDS
} ech_bar_kind;

const char *ech_bar_kind_text(ech_bar_kind kind);    /* "F" */
const char *ech_bar_kind_colour(ech_bar_kind kind);  /* "#56b4e9" */
const char *ech_bar_kind_meaning(ech_bar_kind kind); /* "forward" */

const char *ech_lane_name(ech_lane lane);
const char *ech_step_name(ech_step_kind kind);
const char *ech_memory_name(ech_memory_kind kind);
/* Whether its size depends on the tokens under way: activations and their gradients, logits, scratch. */
bool ech_memory_is_working(ech_memory_kind kind);
const char *ech_list_name(ech_list_kind kind);
const char *ech_scalar_name(ech_scalar scalar);

typedef struct ech_step {
    ech_step_kind kind;
    ech_lane lane;
    int chunk, micro, block; /* F, B, W, messages; -1 elsewhere. micro: see ech_numbering */
    int turn;                /* training step within the list */
    int version;             /* of weights, in updates since the list began: read by F, B, W and
                                   STASH, written by UPDATE; -1: the one before the list */
    int peer;                /* rank at the other end of a message; -1 elsewhere */
    int64_t bytes;           /* of a message, all its tensors together; of COLLECTIVE, what this
                                rank sends */
    int index; /* bucket of REDUCE_GRADS, STASH, NORM, UPDATE; first scalar of REDUCE */
    int count; /* scalars of REDUCE */
    ech_layout_group group; /* of REDUCE, REDUCE_GRADS, COLLECTIVE */
    /* Calls of the block's program of that phase: F, B and W do those between two collectives. A
     * COLLECTIVE is one call; calls 0: it gathers a message's shards from another stage. */
    ech_phase phase;
    int first_call, calls;
    bool is_part;               /* of F, B, W: other steps run other calls of the program */
    ech_collective collective;  /* of COLLECTIVE */
    bool maximum;               /* REDUCE takes the maximum, not the sum */
    int first_after, afters;    /* in list.after: earlier steps that must be complete */
    int first_access, accesses; /* in list.access */
    int scratch;                /* value, or -1 */
    int tick, ticks; /* its first tick and how many: one for each call of a layer, at least one */
} ech_step;

/* A channel is a group on a lane: its collectives run one after the other; those of two channels may overlap. */
enum { ECH_CHANNELS = ECH_GROUPS * ECH_LANES };
static inline int ech_step_channel(const ech_step *step)
{
    return (int)step->group * ECH_LANES + (int)step->lane;
}
static inline ech_layout_group ech_channel_group(int channel)
{
    return (ech_layout_group)(channel / ECH_LANES);
}

/* A step's call touches a value. */
typedef struct ech_access {
    int value, tick;
    bool write;
} ech_access;

/* Bytes to which values' offsets and sizes are aligned. */
enum { ECH_ALIGNMENT = 64 };

static inline int64_t ech_align(int64_t bytes)
{
    return (bytes + ECH_ALIGNMENT - 1) / ECH_ALIGNMENT * ECH_ALIGNMENT;
}

/* Bytes of the arena with an offset and a life. Values below plan.persistent.n are the plan's and always live; number
 * plan.persistent.n + i is the list's value i. */
typedef struct ech_value {
    ech_memory_kind kind;
    int block, local, micro; /* which value of which block; -1 where it is none */
    int index;               /* parameter, state or bucket */
    int64_t bytes, offset;
    int born,
        dies; /* first and last tick; of steps on other lanes than compute, all ticks in which they may run */
    /* The list's value that takes over this one's offset in the tick after its last: the call of that tick reads
     * this value and writes the successor. -1: none. */
    int successor;
} ech_value;

/* The last tick in which it is read. */
static inline int ech_value_last(const ech_value *value)
{
    return value->dies + (value->successor >= 0);
}

/* One call of a step. */
typedef struct ech_writer {
    int step, call;
} ech_writer;

typedef struct ech_list {
    ech_list_kind kind;
    ech_purpose purpose;
    ech_extent extent; /* of a micro-batch */
    int turns;
    ech_numbering numbering; /* of its micro-batches */
    int micro_batches;       /* of this rank, over all turns; each sequence chunk counts as one */
    int updates;             /* versions that the list adds to the weights */
    ECH_LIST(ech_step) step;
    ECH_LIST(int) after;
    ECH_LIST(ech_access) access;
    ECH_LIST(ech_value) value;
    int *value_of;    /* [(first_local[block] + local) * micro_batches + micro], or -1;
                                   what all sequence chunks share is at the first */
    int *first_local; /* [blocks]; of the rank's own blocks */
    ech_writer
        *first_writer; /* [turns * params]: the call that writes a gradient; later calls add */
    int batch[ECH_BATCH_SLOTS];          /* first value (ech_list_batch), or -1: not loaded here */
    int logits;                          /* value, or -1 */
    int64_t bytes;                       /* of the transient part of the arena */
    int64_t lower_bound;                 /* the most that is ever live at once, */
    int64_t full_kind[ECH_MEMORY_KINDS]; /* and how much of each kind lives when it first is */
    int64_t peak[ECH_MEMORY_KINDS];      /* the most of each kind that is ever live at once */
    int64_t working;  /* the most of all working kinds that is ever live at once, */
    int working_tick; /* and when first, */
    int64_t working_kind[ECH_MEMORY_KINDS]; /* and how much of each kind lives then */
    int ticks;
} ech_list;

/* ---- schedules ---- */

/* A run's schedule: a generator, or orders written by hand. */
typedef struct ech_schedule {
    const ech_generator *generator; /* NULL: by hand */
    ech_order *written;             /* [stages], by hand */
    int stages;
    ech_weights weights;
    bool stashing;      /* STASHED: backwards see the weights of their forward */
    bool vertical_sync; /* STASHED: all stages see the version that the first one saw */
    int turns;          /* training steps of a span; 1: synchronous */
} ech_schedule;

/* What parallel.schedule names, looked up once, by ech_schedule_find. */
typedef struct ech_schedule_choice {
    const char *name; /* borrowed */
    const ech_generator
        *generator; /* NULL: an order written by hand, or no schedule of that name */
    bool is_written;
    char *text; /* of the order's file, read when first needed */
    size_t n;
    bool is_measured; /* the two numbers below are the written order's; 0: it is invalid */
    int stages, micro_batches;
} ech_schedule_choice;
ech_schedule_choice ech_schedule_find(const ech_config *config);
void ech_schedule_choice_free(ech_schedule_choice *choice);

/* Whether ech_schedule_create would accept such a grid; for an ech_layout_filter. `choice`: an ech_schedule_choice.
 * Only what depends on the grid is checked; an order that cannot be read accepts none. */
bool ech_schedule_accepts(void *choice, const ech_layout_shape *shape);
/* The placement of virtual stages that the schedule needs; of an order written by hand LOOP. */
ech_placement ech_schedule_placement(const ech_schedule_choice *choice);
/* Fills parallel.virtual_stages: as many as the schedule needs, or 1. */
void ech_schedule_fill_chunks(ech_config *config, const ech_schedule_choice *choice);

/* Fills parallel.flush_every and training.check_every. The configuration breaks no rule (config/rules.h). Errors: an
 * unknown name, an order file that does not fit, numbers of micro-batches that the generator refuses, steps that
 * spans do not divide. */
ech_status ech_schedule_create(ech_config *config, ech_schedule_choice *choice,
                               const ech_layout *layout, ech_schedule **out);
void ech_schedule_destroy(ech_schedule *schedule); /* accepts NULL */

/* The order of a rank over a list of `turns` training steps; forwards: without backwards. */
void ech_schedule_order(const ech_schedule *schedule, const ech_layout *layout, int rank, int turns,
                        bool forwards, ech_order *order);
/* Which weight version each item of a rank's train order reads, in updates since the list began, into
 * version[order->n]. Returns how many versions must be held at once. */
int ech_schedule_versions(const ech_schedule *schedule, const ech_layout *layout, int rank,
                          const ech_order *order, int *version);

/* ---- plans ---- */

/* Gradients that are reduced together; contiguous, in the order in which they become ready. */
typedef struct ech_bucket {
    int first_param, params; /* in plan.bucket_param */
    int64_t elements;
    ech_layout_group group;
    int value; /* of the train list */
} ech_bucket;

typedef struct ech_plan_param {
    int64_t elements;          /* 0: this rank does not hold it */
    int value;                 /* persistent: of weight version 0; the others' follow; or -1 */
    int state[ECH_MAX_STATES]; /* persistent */
    int snapshot; /* persistent: the first of the copies that SAVE writes (see plan.snapshots), which
                     follow each other; -1: none */
    int bucket;   /* -1: none */
    int64_t bucket_offset; /* elements */
    int64_t norm_first;    /* first of its partial sums */
} ech_plan_param;

typedef struct ech_plan {
    int rank;
    bool outline; /* as it was asked for */
    const ech_model *model;
    const ech_layout *layout;
    const ech_schedule *schedule;
    const ech_optimizer *optimizer;
    const ech_kernels *kernels;
    ech_dtype real;
    int threads;
    ech_reduction reduction;
    int states; /* of the optimizer */
    const char *state_name[ECH_MAX_STATES];
    ECH_LIST(ech_value) persistent;
    ech_plan_param *param; /* [model.param.n] */
    ECH_LIST(ech_bucket) bucket;
    ECH_LIST(int) bucket_param;
    int64_t norm_partials;
    int versions; /* of each weight that are held: version k of a run is in slot k mod versions */
    int snapshots; /* values copied for each parameter that this rank writes into checkpoints: the newest
                      weights, the states, and of buffered weights the version before; 0: no copies,
                      training waits for the write */
    int scalars;  /* persistent value: a row of ech_plan_row numbers for each turn */
    int partials; /* persistent value: norm_partials in fp64 */
    ech_list list[ECH_LIST_KINDS];
    int64_t persistent_bytes, arena_bytes;
} ech_plan;

typedef struct ech_plan_request {
    const ech_config *config; /* resolved */
    const ech_model *model;
    const ech_layout *layout;
    const ech_schedule *schedule;
    const ech_kernels *kernels; /* asked for scratch */
    int rank, threads;
    bool forward_only; /* evaluation and sampling: no gradients, no optimizer, no train list */
    bool outline;      /* only the steps of the train lists, without values and memory: to check,
                          simulate and draw thousands of ranks. Cannot be run */
} ech_plan_request;

/* Builds a rank's plan; check/check.h proves it. Model, layout and schedule are borrowed. */
ech_plan *ech_plan_create(const ech_plan_request *request);
void ech_plan_destroy(ech_plan *plan); /* accepts NULL */
ECH_DESTROY_AT(ech_plan, ech_plan_destroy)
/* Frees values and accesses, which only running the plan needs. Steps, buckets and sizes of memory stay. */
void ech_plan_forget_values(ech_plan *plan);
/* Bytes of the snapshot of `rank`, which has the stage of the plan's rank and equally many micro-batches. Memory of such
 * ranks differs in their snapshots alone, since they write different parameters into checkpoints. */
int64_t ech_plan_snapshot_bytes(const ech_plan *plan, int rank);

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value);
/* The list's value of a block's own value, which must not be a view; -1: the list has none. */
int ech_list_value_of(const ech_list *list, const ech_block *block, int local, int micro);

/* Whether that call is the first of its turn to write the parameter's gradient; later ones add to it. */
bool ech_list_writes_first(const ech_plan *plan, const ech_list *list, const ech_step *step,
                           int call, int param);

/* The step of a tick: ticks are numbered through the list's steps, in order. */
const ech_step *ech_list_step_at(const ech_list *list, int tick);

/* The value of a batch slot that this rank loads for `micro`: one for each sequence chunk, or for slots of whole
 * samples one for all chunks of a micro-batch. */
int ech_list_batch(const ech_list *list, ech_slot slot, int micro);

/* Numbers in a row of scalars: ECH_SCALARS, and after them one square for each parameter. */
int ech_plan_row(const ech_plan *plan);
/* Bytes of this rank's shard of a parameter, and of a bucket's gradients. */
int64_t ech_plan_param_bytes(const ech_plan *plan, int param);
int64_t ech_plan_bucket_bytes(const ech_plan *plan, int bucket);

/* ---- traffic: what a rank sends, by the axis that makes it necessary ---- */

typedef enum ech_traffic_axis {
#define X(name, text, what) ECH_TRAFFIC_##name,
#include "schedule/traffic.def"
#undef X
    ECH_TRAFFIC_AXES
} ech_traffic_axis;

const char *ech_traffic_axis_name(ech_traffic_axis axis);
typedef struct ech_traffic {
    int64_t bytes;
    int64_t messages; /* -1: not known, of reductions of gradients other than `direct` */
    int64_t calls[ECH_COLLECTIVES]; /* collectives by kind; reductions of gradients are ALL_REDUCE,
                                       messages between stages NONE */
    int64_t groups[ECH_GROUPS];     /* the same collectives by group */
} ech_traffic;

/* What this rank sends in one run of the train list, counted from its steps; of an outline, too. Scalars
 * that are folded over all ranks (REDUCE) are left out. */
void ech_plan_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
/* Along one axis. */
ech_traffic ech_plan_traffic_along(const ech_plan *plan, ech_traffic_axis axis);

/* The peak of each kind over all lists, persistent parts included. */
void ech_plan_peaks(const ech_plan *plan, int64_t peak[ECH_MEMORY_KINDS]);

/* Bytes in the arena by kind, when most is live in the list that needs the largest arena; and `between`, those of gaps
 * between values then. Their sum is arena_bytes. */
typedef struct ech_arena_use {
    int64_t kind[ECH_MEMORY_KINDS], between;
} ech_arena_use;
ech_arena_use ech_plan_arena_use(const ech_plan *plan);

/* The peak of working memory: bytes, by kind, and the step and list in which it is reached. */
typedef struct ech_working {
    int64_t bytes, kind[ECH_MEMORY_KINDS]; /* persistent parts included */
    const ech_list *list;
    const ech_step *step;
} ech_working;
ech_working ech_plan_working(const ech_plan *plan);

/* What a step does with parameters and their gradients. All but the first two kinds work on one bucket. */
typedef enum ech_params_use {
    ECH_PARAMS_NOTHING,
    ECH_PARAMS_READ,  /* computes with a version of the weights */
    ECH_PARAMS_SUM,   /* gradients, over ranks */
    ECH_PARAMS_NORM,  /* gradients */
    ECH_PARAMS_COPY,  /* the newest version to the slot of the next */
    ECH_PARAMS_UPDATE /* makes the next version */
} ech_params_use;

ech_params_use ech_step_params(const ech_step *step);
ech_bar_kind ech_step_bar(const ech_step *step); /* what it is drawn as */
/* The phase of a block that steps of this kind run; -1: they run none. */
int ech_step_kind_phase(ech_step_kind kind);

/* Messages: the block after the boundary that the step's message crosses, in either direction. Among messages of one
 * kind (activations or gradients) from one rank to another across one boundary, the n-th send meets the n-th receive. */
int ech_step_boundary(const ech_step *step);
bool ech_step_sends(const ech_step *step);
bool ech_step_receives(const ech_step *step);
/* The same for a kind of step. And of a kind of message: whether it has gradients, and whether its boundary is at its
 * block's outputs, not at its inputs. */
bool ech_step_kind_sends(ech_step_kind kind);
bool ech_step_kind_receives(ech_step_kind kind);
bool ech_step_kind_is_gradient(ech_step_kind kind);
bool ech_step_kind_is_at_output(ech_step_kind kind);
/* Whether the step needs all members of a group: those of the reduce and collective lanes. */
bool ech_step_gathers(const ech_step *step);
/* Whether the step works on one bucket, step->index. */
bool ech_step_has_bucket(const ech_step *step);

/* The values of `block` that the message has, or that a COLLECTIVE gathers from its shards; -1 where a port has none.
 * Returns how many. */
size_t ech_step_ports(const ech_step *step, const ech_block *block, const int **ports);

/* Bytes of a block's value in a message: all of it, or where messages are sharded (ech_plan_shards_messages) this
 * tensor rank's shard. *first (optional): the element at which the shard begins. */
int64_t ech_plan_message_shard(const ech_plan *plan, const ech_list *list, const ech_block *block,
                               int local, int64_t *first);
/* Into how many parts a block's work is divided: tensor ranks x context ranks x sequence chunks. */
int ech_plan_ways(const ech_plan *plan);
/* Elements of the whole tensor that a call's collective works on, and their type. */
int64_t ech_step_exchange_elements(const ech_block *block, const ech_block_call *call,
                                   ech_extent extent);
ech_dtype ech_step_exchange_dtype(const ech_block *block, const ech_block_call *call,
                                  ech_dtype real);

/* "F0.3/5", or "F0.3/5[4-9]" of a step that runs only calls 4 to 9 of the block's program. */
void ech_step_print(const ech_step *step, ech_text *out);
/* "model.layers.3: linear4.out, micro-batch 2". */
void ech_value_print(const ech_plan *plan, const ech_list *list, int value, ech_text *out);
/* Whether messages between stages are sharded over tensor ranks: where these hold the values at boundaries whole, each
 * sends a shard, and the receiving tensor ranks all-gather them. */
bool ech_plan_shards_messages(const ech_plan *plan);
/* The last step of every turn that adds to each parameter's gradient: last[turn * params + param],
 * -1 where none does. */
void ech_list_last_writers(const ech_plan *plan, const ech_list *list, int *last);
/* One line a step: number, lane, text, what it comes after. */
void ech_list_print(const ech_list *list, ech_text *out);
/* One line: the compute lane as the papers write it, F0.0 B0.0 W0.0 ..., blocks folded. */
void ech_list_print_row(const ech_list *list, ech_text *out);

/* ---- the calendar: which list runs after which training step ---- */

typedef struct ech_calendar {
    int64_t steps, validate_every, check_every, save_every;
    bool validates;
} ech_calendar;
ech_calendar ech_calendar_of(const ech_config *config);
/* Whether a checkpoint is due before the end of training, so that a snapshot pays. */
bool ech_calendar_saves_amid(const ech_calendar *calendar);
/* Whether the list runs when `step` training steps of the run are done. */
bool ech_calendar_due(const ech_calendar *calendar, ech_list_kind list, int64_t step);

/* ---- refusals ---- */

/* Fails: logs rank, step and why; prints the rows of the ranks around with the step marked. standing[n] (optional):
 * the step to mark on each other rank, or -1. */
ech_status ech_plans_reject(const ech_plan *const *plans, int n, ech_list_kind list, int rank,
                            int step, const int *standing, const char *why);

#endif
