/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's SCHEDULE: the order in which ranks run the forwards and backwards of their micro-batches,
 * from a generator or written by hand (schedule/order), and which versions of the weights these
 * read. Plans are made from it (schedule/plan.h). Nothing here communicates.
 */
#ifndef ECH_SCHEDULE_SCHEDULE_H
#define ECH_SCHEDULE_SCHEDULE_H

#include "config/config.h"
#include "layout/layout.h"
#include "model/model.h"
#include "schedule/order/order.h"
#include "schedule/values.h"

/* Clusters of ranks that share weights in shared memory, and the ring token that goes around the
 * ring of clusters (parallel.strategy = hogwild_ring). Other strategies have one cluster of all
 * ranks. */
typedef struct ech_schedule_ring {
    int clusters; /* equal groups of successive ranks */
    int ranks;    /* ranks of a cluster */
    int turns; /* turns between two visits of the ring token to clusters (parallel.token_updates) */
} ech_schedule_ring;

/* The rank's cluster. */
static inline int ech_ring_cluster(const ech_schedule_ring *ring, int rank)
{
    return rank / ring->ranks;
}

/* The rank that holds the ring token for a cluster, its first. The ring token goes from the last
 * cluster to the first. */
static inline int ech_ring_leader(const ech_schedule_ring *ring, int cluster)
{
    return cluster % ring->clusters * ring->ranks;
}

/* A run's schedule: a generator, or orders written by hand. */
typedef struct ech_schedule {
    const ech_generator *generator; /* NULL: written by hand */
    ech_order *written; /* [stages] orders written by hand; NULL: there is a generator */
    int stages;
    ech_weights weights;
    bool stashing;      /* ECH_WEIGHTS_STASHED: a backward reads the version of its forward */
    /* ECH_WEIGHTS_STASHED: all stages read the version that the first stage reads */
    bool vertical_sync;
    int turns;          /* training steps of a span; 1: synchronous */
    /* ECH_WEIGHTS_PULLED: the most steps by which a worker may be ahead of the slowest */
    int64_t staleness;
    /* backup workers: the number of workers that servers do not wait for in a training step */
    int backups;
    ech_schedule_ring ring;
    /* ECH_WEIGHTS_DELAYED: training step at which the first span begins; else 0 */
    int64_t delayed_from;
} ech_schedule;

/* The result of looking up parallel.schedule (ech_schedule_find). Errors are reported by
 * ech_schedule_create. */
typedef struct ech_schedule_choice {
    const char *name; /* borrowed */
    /* NULL: an order written by hand, or no schedule of that name */
    const ech_generator *generator;
    bool is_written;              /* an order written by hand, or by a plugin */
    const echelon_order *plugged; /* the plugin's order; NULL: it is a file */
    char *text; /* of the order's file, read on first use, or of the plugin's order; owned */
    size_t n;                  /* bytes of `text` */
    bool is_measured;          /* the two numbers below are set */
    int stages, micro_batches; /* of the order written by hand; stages 0: it is invalid */
} ech_schedule_choice;
ech_schedule_choice ech_schedule_find(const ech_config *config);
void ech_schedule_choice_free(ech_schedule_choice *choice);

/* True if ech_schedule_create would accept a mesh of that shape; an ech_layout_filter. `choice`: an
 * ech_schedule_choice. Checks only what depends on the mesh. False if an order written by hand
 * cannot be read. */
bool ech_schedule_accepts(void *choice, const ech_layout_shape *shape);
/* The placement of virtual stages that the schedule needs. An order written by hand needs
 * ECH_PLACEMENT_LOOP. */
ech_placement ech_schedule_placement(const ech_schedule_choice *choice);
/* Sets parallel.virtual_stages if it is "auto": the number that the schedule needs, or 1. */
void ech_schedule_fill_chunks(ech_config *config, const ech_schedule_choice *choice);

/* Makes the schedule; the caller destroys it. Sets training.check_every if it is "auto", and
 * parallel.flush_every (the training steps of a span) for an asynchronous schedule or delayed
 * updates. The configuration must break no rule (config/rules.h). Errors: an unknown name; an order
 * file that does not fit; a number of micro-batches that the generator refuses; training.steps,
 * validate_every, check_every, checkpoint.every or memory.offload_delayed_from that is not a
 * multiple of a span, or of parallel.sync_every where replicas diverge. */
ech_status ech_schedule_create(ech_config *config, ech_schedule_choice *choice,
                               const ech_layout *layout, ech_schedule **out);
void ech_schedule_destroy(ech_schedule *schedule); /* accepts NULL */
ECH_DESTROY_AT(ech_schedule, ech_schedule_destroy)
/* The list that runs the training from a training step on, at which a list must begin. *turns: its
 * training steps. */
ech_list_kind ech_schedule_list(const ech_schedule *schedule, int64_t step, int *turns);

/* Appends the order of a rank over `turns` training steps, in whole micro-batches (not sequence
 * chunks). forwards: without backwards. */
void ech_schedule_order(const ech_schedule *schedule, const ech_layout *layout, int rank, int turns,
                        bool forwards, ech_order *order);
/* Sets version[order->n] to the weight version (as in ech_step.version) that each item of a rank's
 * train order reads. Returns how many versions must be stored at the same time. */
int ech_schedule_versions(const ech_schedule *schedule, const ech_layout *layout, int rank,
                          const ech_order *order, int *version);

/* Errors: memory.offload_activations is peer, and no rank has anything to hold. */
ech_status ech_balance_check(const ech_config *config, const ech_model *model,
                             const ech_layout *layout, const ech_schedule *schedule);

#endif
