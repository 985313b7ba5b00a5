/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's SCHEDULE: in which order ranks run the forwards and backwards of their micro-batches, by
 * a generator or written by hand (schedule/order), and which versions of the weights these read.
 * Plans are made of it (schedule/plan.h).
 *
 * Nothing here communicates.
 */
#ifndef ECH_SCHEDULE_SCHEDULE_H
#define ECH_SCHEDULE_SCHEDULE_H

#include "config/config.h"
#include "layout/layout.h"
#include "model/model.h"
#include "schedule/order/order.h"
#include "schedule/values.h"

/* A run's schedule: a generator, or orders written by hand. */
typedef struct ech_schedule {
    const ech_generator *generator; /* NULL: by hand */
    ech_order *written;             /* [stages] orders by hand; NULL: there is a generator */
    int stages;
    ech_weights weights;
    bool stashing;      /* ECH_WEIGHTS_STASHED: a backward reads the version of its forward */
    bool vertical_sync; /* ECH_WEIGHTS_STASHED: all stages read the version that the first read */
    int turns;          /* training steps of a span; 1: synchronous */
    int64_t
        staleness; /* ECH_WEIGHTS_PULLED: steps by which a worker may be ahead of the slowest one */
    /* ECH_WEIGHTS_DELAYED: the training step with which the first span begins; else 0 */
    int64_t delayed_from;
} ech_schedule;

/* What parallel.schedule names, looked up once, by ech_schedule_find. No errors:
 * ech_schedule_create has them. */
typedef struct ech_schedule_choice {
    const char *name; /* borrowed */
    const ech_generator
        *generator;            /* NULL: an order written by hand, or no schedule of that name */
    bool is_written;           /* an order written by hand */
    char *text;                /* of the order's file, read when first needed; owned */
    size_t n;                  /* bytes of `text` */
    bool is_measured;          /* the two numbers below are set */
    int stages, micro_batches; /* of the order written by hand; stages 0: it is invalid */
} ech_schedule_choice;
ech_schedule_choice ech_schedule_find(const ech_config *config);
void ech_schedule_choice_free(ech_schedule_choice *choice);

/* Whether ech_schedule_create would accept a mesh of that shape; for an ech_layout_filter.
 * `choice`: an ech_schedule_choice. Checks only what depends on the mesh. False if an order written
 * by hand cannot be read. */
bool ech_schedule_accepts(void *choice, const ech_layout_shape *shape);
/* The placement of virtual stages that the schedule needs. An order written by hand needs
 * ECH_PLACEMENT_LOOP. */
ech_placement ech_schedule_placement(const ech_schedule_choice *choice);
/* Fills parallel.virtual_stages if it is "auto": as many as the schedule needs, or 1. */
void ech_schedule_fill_chunks(ech_config *config, const ech_schedule_choice *choice);

/* Makes the schedule; the caller destroys it. Fills training.check_every, and for an asynchronous
 * schedule or delayed updates parallel.flush_every (the training steps of a span), where they are
 * "auto". The configuration must break no rule (config/rules.h). Errors: an unknown name; an order
 * file that does not fit; numbers of micro-batches that the generator refuses; training.steps,
 * validate_every, check_every, checkpoint.every or memory.offload_delayed_from that is no multiple
 * of a span, or of parallel.sync_every where replicas are apart. */
ech_status ech_schedule_create(ech_config *config, ech_schedule_choice *choice,
                               const ech_layout *layout, ech_schedule **out);
void ech_schedule_destroy(ech_schedule *schedule); /* accepts NULL */
/* The list that trains from a training step on, at which one begins. *turns: its training steps. */
ech_list_kind ech_schedule_list(const ech_schedule *schedule, int64_t step, int *turns);

/* Appends the order of a rank over `turns` training steps, of whole micro-batches (not of sequence
 * chunks). forwards: without backwards. */
void ech_schedule_order(const ech_schedule *schedule, const ech_layout *layout, int rank, int turns,
                        bool forwards, ech_order *order);
/* Writes the weight version (as ech_step.version) that each item of a rank's train order reads into
 * version[order->n]. Returns how many versions must be held at once. */
int ech_schedule_versions(const ech_schedule *schedule, const ech_layout *layout, int rank,
                          const ech_order *order, int *version);

/* Errors: memory.offload_activations is peer, and nobody has anything to hold. */
ech_status ech_balance_check(const ech_config *config, const ech_model *model,
                             const ech_layout *layout, const ech_schedule *schedule);

#endif
