/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the struct behind a channel, and batches of messages, of which the
 * collectives are made.
 */
#ifndef ECH_COMM_GROUP_H
#define ECH_COMM_GROUP_H

#include "comm/backend.h"
#include "kernel/kernel.h"

/* Every collective has a tag of its own: members that wrongly call different ones do not mix
 * data. */
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
    int n, put;      /* entered; the first ones of them were put */
} ech_comm_batch;

enum {
    ECH_FOLD_VALUES = 64, /* values per message of ech_group_fold */
    /* Segments of a sum in flight at once, since a link between machines idles during the handshake
     * of a message if nothing else is in flight. */
    ECH_UNDER_WAY = 4,
    /* Two sets: what a sum begins is in one while messages of that before it end in the other. */
    ECH_BATCHES = 2 * ECH_UNDER_WAY
};

/* A group: common to its channels. */
typedef struct ech_members {
    char *name;
    int *ranks;     /* [size], ascending */
    int *tags;      /* [size]: first tag of messages with each member; lane l adds ECH_CALLS l */
    int machines;   /* of ech_group_set_machines; 0: not divided */
    int *first;     /* [machines + 1]; NULL where there are none */
    int stores;     /* of ech_group_set_stores */
    unsigned lanes; /* bit l: lane l has been opened; it stays so without its channel */
    int channels;   /* open ones; under the endpoint's lock */
} ech_members;

struct ech_group {
    ech_comm *comm;
    ech_members *of;
    int lane;
    ech_comm_queue on;       /* where the data of collectives are; the host's: no queue */
    ech_kernel_context host; /* of sums in host memory */
    double *folds;           /* member 0: [size][ECH_FOLD_VALUES] received values; others: NULL */
    void *library;           /* allreduce_start's handle, for LIBRARY */
    ech_board_thread thread; /* which of the rank's threads uses the channel */
    int size, index;         /* number of members, and this rank among them */
    ech_comm_call call;      /* the collective under way, or the last one */
    ech_comm_count *count;   /* the one of counts[] that `call` adds to */
    ech_comm_count counts[ECH_COMM_COUNTS];
    bool lost;    /* ech_group_take_loss */
    int free_set; /* of batches: 0 or 1, for the next sum */
    ech_comm_batch batch[ECH_BATCHES];
};

/* Every collective starts with this: sets group->call and counts it. */
void ech_group_begin(ech_group *group, ech_comm_call call);

/* Enter a message to or from a member (its index). bytes 0: do nothing, on both sides. A batch has
 * room for one send and one receive per member. */
void ech_comm_batch_send(ech_group *group, ech_comm_batch *batch, int member, const void *data,
                         size_t bytes);
void ech_comm_batch_receive(ech_group *group, ech_comm_batch *batch, int member, void *data,
                            size_t bytes);
/* Enters a send or receive. With bytes 0 an empty message is sent, too. */
void ech_comm_batch_enter(ech_group *group, ech_comm_batch *batch, int member, bool sends,
                          void *data, size_t bytes);
/* Starts what was entered since the last put, together. Errors: as ech_comm_put. */
ech_status ech_comm_batch_put(ech_group *group, ech_comm_batch *batch);

/* Copies within the channel's data. */
void ech_group_copy(const ech_group *group, void *to, const void *from, size_t bytes);

/* Puts what was not put yet, waits for all messages of the batch and empties it. Errors: as
 * ech_wait_all. */
ech_status ech_comm_batch_wait(ech_group *group, ech_comm_batch *batch);

/* ech_group_broadcast within another collective: does not count as a call. Collective. */
ech_status ech_group_spread(ech_group *group, int root, void *data, size_t bytes);

#endif
