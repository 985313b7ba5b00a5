/* SPDX-License-Identifier: Apache-2.0
 *
 * A SERIAL PROGRAM says what one rank does, one operation after the other, to train as all ranks
 * of a protocol do together: it is the protocol's equation. `echelon verify` interprets it
 * (app/verify/serial.c) and compares. It follows from the papers, not from plans.
 *
 * The rank has weights, optimizer states and a gradient, and keeps copies of these by name. A
 * second rank, the twin, runs the same program on copies whose last bits were changed.
 */
#ifndef ECH_SCHEDULE_PROTOCOL_SERIAL_H
#define ECH_SCHEDULE_PROTOCOL_SERIAL_H

#include <stdbool.h>

/* What an operation reads or writes. A worker is a rank or replica whose gradients the layout does
 * not sum with others'; where it sums all, one worker has all samples. */
typedef enum ech_serial_copy {
    ECH_COPY_NEWEST,   /* the rank's weights and states */
    ECH_COPY_VERSIONS, /* past weights: of each micro-batch and stage what the schedule says */
    ECH_COPY_OWN,      /* each worker's weights and states */
    ECH_COPY_BEGUN,    /* weights and states with which a span or step began */
    ECH_COPY_READ,     /* from here on weights alone: what the layout's worker had read */
    ECH_COPY_SUM,      /* of each cluster, or the only one */
    ECH_COPY_GIVEN,    /* a gradient: the layout's or a mean */
    ECH_COPIES
} ech_serial_copy;

typedef enum ech_serial_op {
    ECH_DO_END, /* of a loop's body, or of the program */

    /* ---- loops over the operations up to their END ---- */
    ECH_DO_EACH_STEP,    /* training steps of the span */
    ECH_DO_EACH_WORKER,  /* workers, in order */
    ECH_DO_EACH_PUSH,    /* as many pushes as there are workers, as servers have served them */
    ECH_DO_EACH_SUMMAND, /* pushes of the training step that servers have not dropped */

    /* ---- what the layout has done; collective ---- */
    ECH_DO_CHECK,   /* fails if replicas differ in their bits */
    ECH_DO_SERVES,  /* gets what servers have served in the span */
    ECH_DO_GATHER,  /* gets the gradients, the worker's where replicas have others: RUN uses them */
    ECH_DO_READ,    /* READ = the weights that the worker had read for its gradient */
    ECH_DO_COMPARE, /* compares the newest, or SUM, with the layout's, which become the newest */

    /* ---- comparisons ---- */
    ECH_DO_ORDER,     /* fails if a worker cannot have pushed when servers served it */
    ECH_DO_SUM_ORDER, /* likewise where servers update by the sum of a step's first pushes */
    ECH_DO_GRADIENTS, /* of RUN with the layout's */
    ECH_DO_LOSS,      /* of what RUN computed in the training step so far */
    ECH_DO_REPORTS,   /* of its layers */

    /* ---- the rank and its twin ---- */
    ECH_DO_CHANGE, /* the twin becomes the rank, but for last bits of its weights */
    ECH_DO_LOAD,   /* the newest = the copy */
    ECH_DO_STORE,  /* the copy = the newest */
    /* The newest = the update by the gradient that the samples give with the copy's weights, or by
     * what GATHER or MEAN gave. Its loss and tokens count. With VERSIONS the newest are one. */
    ECH_DO_RUN,
    ECH_DO_CLEAR, /* sum = 0 */
    ECH_DO_ADD,   /* sum = sum + gradient of RUN times its tokens */
    ECH_DO_MEAN,  /* RUN uses sum / tokens of the training step so far */
    ECH_DO_MOVE,  /* sum = sum + (newest - newest before RUN) / workers */
    ECH_DO_TOKEN, /* sum = begun + sum; of several clusters, what the token makes of these */
    ECH_DO_MEET,  /* each own = the outer update by the mean of all (config: outer_...) */
    ECH_DO_MIX,   /* each own = the mean of itself and its neighbours in a ring */
    ECH_DOES
} ech_serial_op;

typedef struct ech_serial_step {
    ech_serial_op op;
    ech_serial_copy copy;
} ech_serial_step;

/* Rows of programs. */
#define ECH_OP(op)                                                                                 \
    {                                                                                              \
        ECH_DO_##op, ECH_COPY_NEWEST                                                               \
    }
#define ECH_WITH(op, copy)                                                                         \
    {                                                                                              \
        ECH_DO_##op, ECH_COPY_##copy                                                               \
    }

/* The program of protocols that sum all gradients before an update. */
extern const ech_serial_step ech_serial_synchronous[];

/* Who has the weights and states that are compared. */
typedef enum ech_serial_keeper {
    ECH_KEPT_BY_RANKS,    /* each rank what it holds */
    ECH_KEPT_BY_ALL,      /* all ranks together, a shard each */
    ECH_KEPT_BY_SERVERS,  /* likewise servers */
    ECH_KEPT_BY_REPLICAS, /* each replica others */
} ech_serial_keeper;

/* When the program must give the layout's bits. */
typedef enum ech_serial_equality {
    ECH_EQUAL_NEVER,
    ECH_EQUAL_ALONE, /* if no sum runs over several ranks */
    ECH_EQUAL_ALWAYS,
} ech_serial_equality;

typedef struct ech_serial {
    bool open; /* the order in which workers add is open: the program takes what each had read */
    ech_serial_keeper keeper;
    ech_serial_equality equal;
    /* Programs: at the beginning, and after each list of this name that the layout runs; NULL:
     * none. */
    const ech_serial_step *begin, *train, *gossip, *sync;
} ech_serial;

/* Whether it is a loop over the operations that follow, up to their END. */
static inline bool ech_serial_loops(ech_serial_op op)
{
    return op >= ECH_DO_EACH_STEP && op <= ECH_DO_EACH_SUMMAND;
}

/* Whether the program of training steps has that operation. */
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
