/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the struct of a channel, and batches of messages, from which collectives are
 * built.
 */
#ifndef ECH_COMM_GROUP_H
#define ECH_COMM_GROUP_H

#include "comm/backend.h"
#include "kernel/kernel.h"

/* Every collective has its own tag, so that data do not mix if members wrongly call different
 * ones. */
typedef enum ech_comm_call {
    ECH_CALL_REDUCE,
    ECH_CALL_FOLD,
    ECH_CALL_GATHER,
    ECH_CALL_BARRIER,
    ECH_CALL_BROADCAST,
    ECH_CALL_SCATTER,
    ECH_CALL_GATHER_SHARDS,
#define X(name, text, help) ECH_CALL_##name,
#include "comm/collective.def"
#undef X
    ECH_CALLS = 16 /* tags reserved per channel */
} ech_comm_call;

const char *ech_comm_call_name(ech_comm_call call);

/* Requests that are put and waited for together. */
typedef struct ech_comm_batch {
    ech_request *at; /* [2 x members] */
    int n, put;      /* number of requests entered, and of those put */
} ech_comm_batch;

enum {
    ECH_FOLD_VALUES = 64, /* values per message of ech_group_fold */
    /* Segments of a sum in flight at the same time, since a link between machines idles during the
     * handshake of a message if nothing else is in flight. */
    ECH_UNDER_WAY = 4,
    /* Two sets: a sum begins in one while messages of the previous sum end in the other. */
    ECH_BATCHES = 2 * ECH_UNDER_WAY
};

/* A group: common to its channels. */
typedef struct ech_members {
    char *name;
    int *ranks;     /* [size], ascending */
    int *tags;      /* [size]: first tag of messages with each member; lane l adds ECH_CALLS l */
    int machines;   /* of ech_group_set_machines; 0: not divided */
    int *first;     /* [machines + 1]; NULL if machines is 0 */
    int stores;     /* of ech_group_set_stores */
    unsigned lanes; /* bit l: lane l has been opened; it stays set without its channel */
    int channels;   /* open ones; under the endpoint's lock */
} ech_members;

struct ech_group {
    ech_comm *comm;
    ech_members *of;
    int lane;
    ech_comm_queue on;       /* location of the collectives' data; the host: no queue */
    ech_kernel_context host; /* for sums in host memory */
    double *folds;           /* member 0: [size][ECH_FOLD_VALUES] received values; others: NULL */
    void *library;           /* library_start's handle, for LIBRARY */
    /* by kind: on a GPU it goes by the library (ech_group_prepare, ech_group_prepare_gathers) */
    bool by_library[ECH_LIBRARY_KINDS];
    ech_board_thread thread; /* which of the rank's threads uses the channel */
    int size, index;         /* number of members, and this rank among them */
    int64_t segment;         /* ech_lineup.segment, of the device of `on` */
    ech_comm_call call;      /* the current or last collective */
    ech_comm_count *count;   /* the entry of counts[] to which `call` adds */
    ech_comm_count counts[ECH_COMM_COUNTS];
    bool lost;    /* ech_group_take_loss */
    int free_set; /* of batches: 0 or 1, for the next sum */
    ech_comm_batch batch[ECH_BATCHES];
};

/* Begins every collective: sets group->call and counts it. */
void ech_group_begin(ech_group *group, ech_comm_call call);

/* Enter a message to or from a member (its index). bytes 0: do nothing, on both sides. A batch has
 * room for one send and one receive per member. */
void ech_comm_batch_send(ech_group *group, ech_comm_batch *batch, int member, const void *data,
                         size_t bytes);
void ech_comm_batch_receive(ech_group *group, ech_comm_batch *batch, int member, void *data,
                            size_t bytes);
/* Enters a send or receive. With bytes 0 it sends an empty message. */
void ech_comm_batch_enter(ech_group *group, ech_comm_batch *batch, int member, bool sends,
                          void *data, size_t bytes);
/* Starts the requests entered since the last put, together. Errors: as ech_comm_put. */
ech_status ech_comm_batch_put(ech_group *group, ech_comm_batch *batch);

/* Copies within the channel's data. */
void ech_group_copy(const ech_group *group, void *to, const void *from, size_t bytes);

/* Puts the remaining requests, waits for all messages of the batch and empties it. Errors: as
 * ech_wait_all. */
ech_status ech_comm_batch_wait(ech_group *group, ech_comm_batch *batch);

/* ech_group_broadcast within another collective: not counted as a call. Collective. */
ech_status ech_group_spread(ech_group *group, int root, void *data, size_t bytes);

#endif
