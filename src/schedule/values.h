/* SPDX-License-Identifier: Apache-2.0
 *
 * Values: bytes of an arena that steps touch. Also the kinds of memory they are used for, the kinds
 * of lists, and the scalars of a turn.
 */
#ifndef ECH_SCHEDULE_VALUES_H
#define ECH_SCHEDULE_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel.h"
#include "schedule/steps.h"

typedef enum ech_memory_kind {
#define X(name, ...) ECH_MEMORY_##name,
#include "schedule/memory.def"
#undef X
    ECH_MEMORY_KINDS
} ech_memory_kind;

/* The space that holds values of a kind. */
static inline ech_space ech_memory_space(ech_memory_kind kind)
{
    static const ech_space spaces[] = {
#define X(name, text, space, ...) ECH_SPACE_##space,
#include "schedule/memory.def"
#undef X
    };
    return spaces[kind];
}

/* True if values of a kind are weights that steps of blocks read. */
static inline bool ech_memory_is_weights(ech_memory_kind kind)
{
    return kind == ECH_MEMORY_PARAMETERS || kind == ECH_MEMORY_PARAMETERS_IN_SHARED;
}

typedef enum ech_list_kind {
#define X(name, text, meaning) ECH_LIST_##name,
#include "schedule/lists.def"
#undef X
    ECH_LIST_KINDS
} ech_list_kind;

/* Groups that ECH_LIST_CHECK compares, and numbers of a hash. */
enum { ECH_HASHES = 5, ECH_HASH_SCALARS = 8 };
/* A turn's scalars, on the device. All are of 8 bytes. */
typedef struct ech_scalar_row {
#define X(name, field, type, dimensions, meaning) type field dimensions;
#include "schedule/scalars.def"
#undef X
    /* [model.param.n] of each parameter's gradient, the part that this rank counts (ech_plan_own).
     * They are followed by the model's reports: this rank's, then the totals of all ranks. */
    double squares[];
} ech_scalar_row;

/* A scalar's offset in its row, in units of 8 bytes. */
typedef enum ech_scalar {
#define X(name, field, ...) ECH_SCALAR_##name = offsetof(ech_scalar_row, field) / sizeof(double),
#include "schedule/scalars.def"
#undef X
    ECH_SCALARS = offsetof(ech_scalar_row, squares) / sizeof(double)
} ech_scalar;

enum { ECH_BOUNCE_BYTES = 1 << 20 };

const char *ech_memory_name(ech_memory_kind kind);
/* True if its size depends on the tokens in flight: activations and their gradients, logits,
 * scratch. */
bool ech_memory_is_working(ech_memory_kind kind);
const char *ech_list_name(ech_list_kind kind);
/* True if such a list updates weights. */
static inline bool ech_list_kind_trains(ech_list_kind kind)
{
    return kind == ECH_LIST_TRAIN || kind == ECH_LIST_UNDELAYED;
}
/* True if replicas that diverge exchange weights in such a list. */
static inline bool ech_list_kind_meets(ech_list_kind kind)
{
    return kind == ECH_LIST_SYNC || kind == ECH_LIST_GOSSIP || kind == ECH_LIST_RETURN;
}
/* Name of the scalar or array at this offset of a row; "squares" from ECH_SCALARS on. */
const char *ech_scalar_name(int scalar);

/* The role of a persistent value of the kind STAGING (ech_value.index). */
typedef enum ech_staging {
    ECH_STAGING_ROWS,   /* rows of scalars */
    ECH_STAGING_BOUNCE, /* the host's view of device memory */
    ECH_STAGING_LOGITS,
    ECH_STAGING_DEVICE_LOGITS, /* in the device's type */
    ECH_STAGING_COUNTS,        /* count tables of an exchange of rows */
    ECH_STAGING_RING_TOKEN
} ech_staging;

/* How a bucket's step uses a value. */
typedef enum __attribute__((packed)) ech_used_as {
    ECH_USE_OTHER,
    ECH_USE_GRADIENTS,  /* one micro-batch's gradients, which the step adds to the sum */
    ECH_USE_SUM,        /* the turn's gradient sum so far, or this rank's shard of it */
    ECH_USE_WEIGHTS,    /* the step's version, as the rank stores or has fetched it */
    ECH_USE_NEXT,       /* the version after that */
    ECH_USE_INSTANCE,   /* weights that the step brings for a block */
    ECH_USE_STATE,      /* optimizer states, in the order of plan.state_value */
    ECH_USE_STATISTICS, /* of the turn */
    ECH_USE_FACTORS,    /* of the turn; or selections */
    ECH_USES
} ech_used_as;

/* One access of a call of a step to a value. */
typedef struct ech_access {
    int value, tick;
    bool write; /* overwrites it or adds to it; false: reads only */
    ech_used_as use;
} ech_access;

/* Bytes of its space's arena (ech_memory_space) with an offset and a life. Wherever a field or
 * argument is a value, it is a number: below plan.persistent.n an index into plan.persistent, whose
 * entries always live; from there on it means list.value.at[number - plan.persistent.n]. */
typedef struct ech_value {
    ech_memory_kind kind;
    int block, local,
        micro; /* value `local` of `block` for sequence chunk `micro`; -1: no block's */
    /* The bucket of parameters (weights), gradients, element-wise states and statistics; the
     * parameter of other states and of snapshots; otherwise -1. */
    int index;
    int64_t bytes;
    int64_t offset; /* bytes from the beginning of its space's arena */
    /* First and last tick of its life, inclusive. A step on a lane other than compute touches it in
     * all ticks in which that step may run. */
    int born, dies;
    /* The value that is born at this one's offset in tick dies + 1, an index into list.value; -1:
     * none. Either the call of that tick reads each element of this value before it overwrites it
     * with the successor's; or a step of another lane brings the successor, after the step that
     * removed this value has ended. */
    int successor;
    /* the value in the next space that holds it while it is offloaded; 0: it never leaves */
    int copy;
    int returned; /* the value as which it comes back for the backward; 0: it does not */
    /* it is a successor that another lane brings, which may begin before it is born */
    bool brought;
} ech_value;

/* The first tick in which a step of another lane may write it. */
static inline int ech_value_first(const ech_value *value)
{
    return value->brought ? 0 : value->born;
}

/* The last tick in which it is read: with a successor, the tick after `dies`. */
static inline int ech_value_last(const ech_value *value)
{
    return value->dies + (value->successor >= 0);
}

/* One call of a step. */
typedef struct ech_writer {
    int step, call; /* call: index in the block's program */
} ech_writer;

#endif
