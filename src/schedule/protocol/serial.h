/* SPDX-License-Identifier: Apache-2.0
 *
 * A SERIAL PROGRAM: the operations by which a single rank would train exactly as all ranks of a
 * protocol do together. It states the protocol's equation and is derived from the papers, not from
 * plans. `echelon verify` interprets it (app/verify/serial.c) and compares the results.
 *
 * The rank has weights, optimizer states and a gradient, and stores named copies of them. A second
 * rank, the twin, runs the same program on copies whose last bits were changed.
 */
#ifndef ECH_SCHEDULE_PROTOCOL_SERIAL_H
#define ECH_SCHEDULE_PROTOCOL_SERIAL_H

#include <stdbool.h>

#include "config/config.h"

/* Operands of an operation. A worker is a rank or replica whose gradients the layout does not sum
 * with others; if it sums all gradients, one worker has all samples. */
typedef enum ech_serial_copy {
    ECH_COPY_NEWEST, /* the rank's weights and states */
    /* past weights: for each micro-batch and stage the version of the schedule */
    ECH_COPY_VERSIONS,
    ECH_COPY_OWN,   /* each worker's weights and states */
    ECH_COPY_BEGUN, /* weights and states at the beginning of a span or step */
    ECH_COPY_READ,  /* from here on only weights: those that the layout's worker had read */
    ECH_COPY_SUM,   /* of each cluster, or of the only one */
    ECH_COPY_GIVEN, /* a gradient: the layout's or a mean */
    ECH_COPIES
} ech_serial_copy;

typedef enum ech_serial_op {
    ECH_DO_END, /* ends a loop's body, or the program */

    /* ---- loops over the operations up to their END ---- */
    ECH_DO_EACH_STEP,   /* training steps of the span */
    ECH_DO_EACH_WORKER, /* workers, in order */
    /* as many pushes as there are workers, in the order in which servers applied them */
    ECH_DO_EACH_PUSH,
    ECH_DO_EACH_SUMMAND, /* pushes of the training step that servers did not drop */

    /* ---- queries of the layout; collective ---- */
    ECH_DO_CHECK,  /* fails if replicas differ in any bit */
    ECH_DO_SERVES, /* gets the pushes that servers applied in the span */
    ECH_DO_GATHER, /* gets the gradients (the worker's own if replicas differ) for RUN */
    ECH_DO_READ,   /* READ = the weights from which the worker computed its gradients */
    /* compares the newest weights, or SUM, with the layout's, which become the newest */
    ECH_DO_COMPARE,

    /* ---- comparisons ---- */
    ECH_DO_ORDER,     /* fails if a worker cannot have pushed when servers applied the push */
    ECH_DO_SUM_ORDER, /* the same where servers update by the sum of a step's first pushes */
    ECH_DO_GRADIENTS, /* RUN's gradients with the layout's */
    ECH_DO_LOSS,      /* the loss that RUN computed in the training step so far */
    ECH_DO_REPORTS,   /* the reports of its layers */

    /* ---- the rank and its twin ---- */
    /* the twin becomes a copy of the rank with the last bits of its weights changed */
    ECH_DO_CHANGE,
    ECH_DO_LOAD,   /* the newest = the copy */
    ECH_DO_STORE,  /* the copy = the newest */
    ECH_DO_STATES, /* the newest layer states = the copy's */
    /* The newest = its update by the gradient of the samples at the copy's weights, or by the
     * gradient from GATHER or MEAN. Adds its loss and tokens. With VERSIONS, the newest is one of
     * them. */
    ECH_DO_RUN,
    ECH_DO_CLEAR,      /* sum = 0 */
    ECH_DO_ADD,        /* sum = sum + gradient of RUN times its tokens */
    ECH_DO_MEAN,       /* RUN uses sum / tokens of the training step so far */
    ECH_DO_MOVE,       /* sum = sum + (newest - newest before RUN) / workers */
    ECH_DO_RING_TOKEN, /* sum = begun + sum; of several clusters, as the ring token does */
    ECH_DO_MEET,       /* each own = the step's equation of all, element by element */
    ECH_DOES
} ech_serial_op;

/* One element of a worker's weights in full precision, of its anchor, and of the outer momentum if
 * the run has one. Layer states are weights that have neither; their fields are 0. */
typedef struct ech_serial_element {
    double weight, anchor, momentum;
} ech_serial_element;
/* What workers make of an element when they meet. of: [workers]. */
typedef void ech_serial_equation(const ech_config *config, ech_serial_element *of, int workers);

typedef struct ech_serial_step {
    ech_serial_op op;
    ech_serial_copy copy;
    ech_serial_equation *equation;        /* of MEET */
    ech_serial_equation *equation_states; /* of MEET, for layer states; NULL: they stay */
} ech_serial_step;

/* Rows of programs. */
#define ECH_OP(op)                                                                                 \
    {                                                                                              \
        ECH_DO_##op, ECH_COPY_NEWEST, NULL, NULL                                                   \
    }
#define ECH_WITH(op, copy)                                                                         \
    {                                                                                              \
        ECH_DO_##op, ECH_COPY_##copy, NULL, NULL                                                   \
    }
#define ECH_MEET(equation, states)                                                                 \
    {                                                                                              \
        ECH_DO_MEET, ECH_COPY_NEWEST, equation, states                                             \
    }

/* The program of protocols that sum all gradients before an update. */
extern const ech_serial_step ech_serial_synchronous[];

/* Which ranks hold the weights and states to compare. */
typedef enum ech_serial_keeper {
    ECH_KEPT_BY_RANKS,    /* each rank, as it stores them */
    ECH_KEPT_BY_ALL,      /* all ranks together, one shard each */
    ECH_KEPT_BY_SERVERS,  /* servers together, one shard each */
    ECH_KEPT_BY_REPLICAS, /* each replica has its own */
} ech_serial_keeper;

/* When the program's results must equal the layout's bit by bit. */
typedef enum ech_serial_equality {
    ECH_EQUAL_NEVER,
    ECH_EQUAL_ALONE, /* if no sum runs over several ranks */
    ECH_EQUAL_ALWAYS,
} ech_serial_equality;

typedef struct ech_serial {
    /* the order in which workers add is not fixed: the program uses the weights that each had
     * read */
    bool open;
    ech_serial_keeper keeper;
    ech_serial_equality equal;
    /* Programs: at the beginning, and after each list of this name that the layout runs; NULL:
     * none. */
    const ech_serial_step *begin, *train, *gossip, *sync, *returns;
} ech_serial;

/* True for a loop over the operations up to its END. */
static inline bool ech_serial_loops(ech_serial_op op)
{
    return op >= ECH_DO_EACH_STEP && op <= ECH_DO_EACH_SUMMAND;
}

/* True if the program of training steps contains the operation. */
static inline bool ech_serial_does(const ech_serial *serial, ech_serial_op op)
{
    int loops = 0;
    for (const ech_serial_step *at = serial->train; at->op != ECH_DO_END || loops > 0; at++) {
        if (at->op == op) return true;
        loops += ech_serial_loops(at->op) - (at->op == ECH_DO_END);
    }
    return false;
}

#endif
