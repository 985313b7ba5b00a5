/* SPDX-License-Identifier: Apache-2.0
 *
 * An ORDER lists one rank's forwards (F), backwards of the input (B) and backwards of the weights
 * (W), one of each for every model chunk ("chunk" below) and micro-batch. Pipeline schedules differ
 * only in their orders; passes add everything else. An order comes from a generator (a row of
 * schedules.def, in generate_*.c) or from a file written by hand. Nothing here communicates. The
 * caller frees the items of orders (order.at).
 *
 * In every order, F of a chunk and micro-batch comes before its B, and B before its W; F, B and W
 * of a chunk are each in ascending order of micro-batches.
 */
#ifndef ECH_SCHEDULE_ORDER_ORDER_H
#define ECH_SCHEDULE_ORDER_ORDER_H

#include <echelon_plugin.h>
#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "layout/layout.h"

typedef enum ech_action { ECH_F, ECH_B, ECH_W } ech_action;

typedef struct ech_order_item {
    ech_action action;
    int chunk, micro; /* the rank's own chunk and micro-batch, from 0 */
} ech_order_item;
typedef ECH_LIST(ech_order_item) ech_order;

/* The pipeline as a generator sees it, for one rank. */
typedef struct ech_pipe {
    int stages, stage; /* p, r */
    int chunks;        /* v */
    int micro_batches; /* m: this rank's own; for an asynchronous schedule, of a whole span */
    /* Micro-batches that this rank must have begun so that it and all later stages have work. If
     * every stage has the same number of replicas it is p - r. Otherwise it is the replicas of
     * stages r .. p - 1 divided by stage r's replicas, rounded up (PipeDream's NOAM). */
    int depth;
} ech_pipe;

/* Which version of the weights forwards and backwards read, and when updates come. */
typedef enum ech_weights {
    /* Synchronous: one version for all micro-batches of a training step, then the update (gradient
     * accumulation). */
    ECH_WEIGHTS_FLUSHED,
    /* PipeDream: update right after a training step's last backward; each forward reads the newest
     * version. */
    ECH_WEIGHTS_STASHED,
    /* PipeDream-2BW: updates as in PipeDream; training step t reads version t - 1, the one before
     * the newest. */
    ECH_WEIGHTS_BUFFERED,
    /* A synchronous order in spans whose updates run during the compute of the next training step
     * (ZeRO-Offload): training step t reads version t - 1. */
    ECH_WEIGHTS_DELAYED,
    /* A synchronous order in spans of training steps. Each step uses the weights returned by this
     * rank's previous push (asp, ssp), or read after its previous update (hogwild). */
    ECH_WEIGHTS_PULLED,
} ech_weights;

/* True if losses, flags and squares of all ranks are folded before a training step's update. */
static inline bool ech_weights_are_synchronous(ech_weights weights)
{
    return weights == ECH_WEIGHTS_FLUSHED || weights == ECH_WEIGHTS_DELAYED ||
           weights == ECH_WEIGHTS_PULLED;
}

/* True if a list reads the version before the newest at its beginning, so that checkpoints save
 * both. */
static inline bool ech_weights_keep_previous(ech_weights weights)
{
    return weights == ECH_WEIGHTS_BUFFERED || weights == ECH_WEIGHTS_DELAYED;
}

/* The properties of a run that decide whether a generator accepts it. */
typedef struct ech_pipeline_shape {
    int stages;
    int micro_batches; /* of a rank in a training step; the fewest of any rank */
} ech_pipeline_shape;

typedef struct ech_generator {
    const char *name;
    ech_weights weights;
    ech_placement placement; /* the placement of virtual stages that the order needs */
    int chunks;              /* virtual stages of a rank if only this number is possible; else 0 */
    /* True: a B sends its gradients before its W begins, even if W is the next item. False: such a
     * B and W are one backward, block by block. */
    bool splits;
    /* Returns false if the number of micro-batches cannot be scheduled; `why` then says what is
     * wrong with training.global_batch_size and what would work. NULL accepts all. Features that a
     * schedule never supports are rows of config/rules.def. */
    bool (*accepts)(const ech_pipeline_shape *shape, ech_text *why);
    void (*generate)(const ech_pipe *pipe, ech_order *order);
} ech_generator;

const ech_generator *ech_generator_find(const char *name); /* NULL: none of that name */
const char *ech_generator_names(void);                     /* blank-separated */
/* Calls generator->accepts; true if that is NULL. */
bool ech_generator_accepts(const ech_generator *generator, const ech_pipeline_shape *shape,
                           ech_text *why);

/* Appends only forwards, for evaluation, in the order of the interleaved schedule: the first p
 * micro-batches of chunk 0, then of chunk 1 and so on, then the next p; with one chunk 0 .. m-1. */
void ech_order_forwards(const ech_pipe *pipe, ech_order *order);

/* ---- written by hand ---- */

/* Parses the orders of all stages from a text: one line per stage, stage 0 first, of words
 * F<chunk>.<micro>, B..., W...; "#" begins a comment, and empty lines are ignored. If a stage's
 * line has no W, each B is followed by its W. Sets orders[stages]. Errors name name:line:column and
 * the word: a number of lines other than `stages`, a bad word, a chunk or micro-batch out of range,
 * an item twice, missing, or out of order. */
ech_status ech_order_parse(const char *text, size_t n, const char *name, int stages, int chunks,
                           int micro_batches, ech_order *orders);
/* Reads such a file into new memory. */
ech_status ech_order_read(const char *path, char **text, size_t *n);
/* Returns the numbers of stages and micro-batches of such a text. Errors: it is not an order. */
ech_status ech_order_measure(const char *text, size_t n, const char *name, int chunks, int *stages,
                             int *micro_batches);

/* ---- of plugins ---- */

/* Adds a plugin's row. Errors: ECH_EUSAGE, logged: its name is taken, or a function is missing. */
ech_status ech_order_plug(const char *plugin, const echelon_order *row);
const echelon_order *ech_order_find_plugged(const char *name); /* NULL: none of that name */
/* Names of all generators and of plugins' orders, separated by blanks. */
const char *ech_order_names(void);
/* Writes the text of a plugin's order into new memory. Errors: ECH_EUSAGE, logged: the plugin has
 * no order for such a pipeline. */
ech_status ech_order_write(const echelon_order *row, const echelon_pipe *pipe, char **text,
                           size_t *n);

/* The most pairs (chunk, micro) at the same time whose F has run and whose W has not. */
int ech_order_in_flight(const ech_order *order);

#endif
