/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: a group's insides, and batches of its messages, of which the collectives are
 * made.
 */
#ifndef ECH_COMM_GROUP_H
#define ECH_COMM_GROUP_H

#include "comm/backend.h"

/* Every collective has its own tag, so that members which call different ones never mix data. */
typedef enum ech_comm_call {
    ECH_CALL_REDUCE,
    ECH_CALL_FOLD,
    ECH_CALL_BARRIER,
    ECH_CALL_BROADCAST,
    ECH_CALL_ALL_REDUCE, /* from here on: those of collective.h */
    ECH_CALL_ALL_GATHER,
    ECH_CALL_REDUCE_SCATTER,
    ECH_CALL_ALL_TO_ALL,
    ECH_CALL_SHIFT,
    ECH_CALLS = 16 /* tags kept for each channel */
} ech_comm_call;

const char *ech_comm_call_name(ech_comm_call call);

/* Messages that are waited for together. */
typedef struct ech_comm_batch {
    ech_request *at; /* [2 x members] */
    int n;
} ech_comm_batch;

enum {
    ECH_FOLD_VALUES = 64, /* values folded at once */
    /* Segments of a sum under way at once. A link between machines idles while two sides agree on a
     * message, and that agreement queues up behind what is on its way already. */
    ECH_UNDER_WAY = 4,
    ECH_BATCHES = 2 * ECH_UNDER_WAY
};

/* What the channels of a group share. */
typedef struct ech_members {
    char *name;
    int *ranks;     /* [size], ascending */
    int *tags;      /* [size]: first tag of the messages between this rank and that member */
    unsigned lanes; /* bit i: lane i has been opened */
    int channels;   /* how many are open: under the endpoint's lock */
} ech_members;

struct ech_group {
    ech_comm *comm;
    ech_members *of;
    int lane;
    double *folds; /* member 0: [size][ECH_FOLD_VALUES] received values; others: NULL */
    void *library; /* the backend's, for LIBRARY */
    bool saves;    /* its members write a checkpoint */
    int size, index;
    ech_comm_call call; /* the collective that runs, and where its messages are counted */
    ech_comm_count *count;
    ech_comm_count reduce_count, collective_count, other_count;
    ech_comm_batch batch[ECH_BATCHES];
};

/* Names the collective that starts and counts it. */
void ech_group_begin(ech_group *group, ech_comm_call call);

/* Start a message to or from a member. Nothing is sent, counted or waited for when bytes is 0,
 * which both sides know. A batch has room for one send and one receive per member. */
ech_status ech_comm_batch_send(ech_group *group, ech_comm_batch *batch, int member,
                               const void *data, size_t bytes);
ech_status ech_comm_batch_receive(ech_group *group, ech_comm_batch *batch, int member, void *data,
                                  size_t bytes);
/* The same with an empty message: a signal. */
ech_status ech_comm_batch_send_signal(ech_group *group, ech_comm_batch *batch, int member);
ech_status ech_comm_batch_receive_signal(ech_group *group, ech_comm_batch *batch, int member);

/* Waits for all messages of the batch, which is empty then. */
ech_status ech_comm_batch_wait(ech_group *group, ech_comm_batch *batch);

/* ech_group_broadcast as a part of another collective, which has begun. */
ech_status ech_group_spread(ech_group *group, int root, void *data, size_t bytes);

#endif
