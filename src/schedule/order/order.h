/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders: in which order one rank does its forwards (F), backwards of the input (B) and backwards of
 * the weights (W), per chunk and micro-batch. That is all that tells one pipeline schedule from
 * another; everything else is added by passes. An order is made by a generator (a row of
 * schedules.def and a file generate_NAME.c) or written by hand in a file.
 *
 * In every order each F, B and W of every chunk and micro-batch comes once, F before B before W, and
 * F, B and W of a chunk come each in ascending micro-batches.
 */
#ifndef ECH_SCHEDULE_ORDER_ORDER_H
#define ECH_SCHEDULE_ORDER_ORDER_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "layout/layout.h"

typedef enum ech_action { ECH_F, ECH_B, ECH_W } ech_action;

typedef struct ech_order_item {
    ech_action action;
    int chunk, micro; /* the rank's own chunk and micro-batch */
} ech_order_item;
typedef ECH_LIST(ech_order_item) ech_order;

/* A rank's place in the pipeline. */
typedef struct ech_pipe {
    int stages, stage; /* p, r */
    int chunks;        /* v */
    int micro_batches; /* m: this rank's own; of an asynchronous schedule all of a span's */
    /* How many micro-batches this rank must have begun so that it and all stages behind it have
     * work: p - r where every stage has as many replicas, else the sum of replicas from r on over its
     * own, rounded up (PipeDream's NOAM). */
    int depth;
} ech_pipe;

/* Which weights forwards and backwards see, and when updates come. */
typedef enum ech_weights {
    ECH_WEIGHTS_FLUSHED,  /* all micro-batches of a step the same; then the update: synchronous */
    ECH_WEIGHTS_STASHED,  /* update right after a step's last backward; each forward the newest */
    ECH_WEIGHTS_BUFFERED, /* update likewise; forward and backward the version before the newest */
} ech_weights;

/* What a generator needs to know of a run to accept or refuse it. */
typedef struct ech_pipeline_shape {
    int stages;
    int micro_batches; /* of a rank and step; the fewest of any rank */
} ech_pipeline_shape;

typedef struct ech_generator {
    const char *name;
    ech_weights weights;
    ech_placement placement; /* of virtual stages: which one its order is for */
    int chunks;              /* virtual stages of a rank, if it needs a number of its own; else 0 */
    /* A B sends what it makes before its W begins, even where that comes next. Otherwise the two are one backward
     * then, block by block. */
    bool splits;
    /* False where so many micro-batches cannot be scheduled; `why` then says what is wrong with
     * training.global_batch_size and what would work. Optional: NULL accepts all. What a schedule does not go
     * with whatever the numbers are is rows of config/rules.def. */
    bool (*accepts)(const ech_pipeline_shape *shape, ech_text *why);
    void (*generate)(const ech_pipe *pipe, ech_order *order);
} ech_generator;

const ech_generator *ech_generator_find(const char *name); /* NULL: none of that name */
const char *ech_generator_names(void);                     /* blank-separated */
/* generator->accepts, or its default. */
bool ech_generator_accepts(const ech_generator *generator, const ech_pipeline_shape *shape,
                           ech_text *why);

/* F only, for evaluation: virtual stage by virtual stage in groups of p micro-batches (the order of
 * interleaved forwards); with one chunk simply 0 .. m-1. */
void ech_order_forwards(const ech_pipe *pipe, ech_order *order);

/* ---- written by hand ---- */

/* The orders of all stages from a text: one line a stage, stage 0 first, of words F<chunk>.<micro>,
 * B..., W...; "#" begins a comment, empty lines do not count. Where a stage's line has no W at all,
 * each B is followed by its W. Errors name name:line:column and the word: another number of lines
 * than `stages`, a bad word, a chunk or micro-batch out of range, an item twice, missing, or out of
 * order. orders[stages] are filled. */
ech_status ech_order_parse(const char *text, size_t n, const char *name, int stages, int chunks,
                           int micro_batches, ech_order *orders);
/* The text of such a file, in new memory. */
ech_status ech_order_read(const char *path, char **text, size_t *n);
/* The stages and micro-batches that such a text is for, if it is one. */
ech_status ech_order_measure(const char *text, size_t n, const char *name, int chunks, int *stages,
                             int *micro_batches);
/* What ech_order_parse checks of one order, for any order. Errors name `name` and the item. */
ech_status ech_order_check(const ech_order *order, int chunks, int micro_batches, const char *name);
/* "F0.0 F0.1 B0.0 W0.0": reads back to the same order. */
void ech_order_print(const ech_order *order, ech_text *out);
/* The most items (chunk, micro) whose F is done and whose last of B and W is not. */
int ech_order_in_flight(const ech_order *order);

#endif
