/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication between ranks: one endpoint per rank, groups of ranks, point-to-point messages,
 * collectives, and counters of calls, messages and bytes. A backend (`local`: ranks are threads of
 * one process; `mpi`: ranks are processes; `nccl`: either, and NCCL moves the memory of their GPUs)
 * moves point-to-point messages. The collectives are written once on top of those, so every backend
 * gives the same bits. The one exception is ECH_REDUCTION_LIBRARY, the all-reduce of MPI's or
 * NCCL's library itself, for comparison.
 *
 * Every wait polls with backoff, under a deadline, and watches the job's abort flag: when one rank
 * fails, the calls of the others return ECH_EABORTED instead of hanging. The deadline counts
 * seconds in which none of the requests that are waited for completes.
 *
 * Threads: several threads of a rank may use its endpoint at once. A channel is a group of ranks on
 * a lane, with tags of its own, like a communicator of NCCL: channels do not interfere with each
 * other or with point-to-point messages, even between the same ranks. Only one thread at a time may
 * use a channel or a request. All members create their groups in the same order, so best before
 * further threads start.
 *
 * The sections "endpoints", "point to point" and "groups" have no collective calls but
 * ech_comm_open and ech_comm_close. Buffers, and what is passed by pointer, stay the caller's.
 */
#ifndef ECH_COMM_COMM_H
#define ECH_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/collective.h"
#include "device/device.h"
#include "tensor/tensor.h"

typedef struct ech_comm ech_comm;

/* ---- endpoints ---- */

/* Backends: rows of comm.def. */
typedef enum ech_comm_kind {
#define X(name, ...) ECH_COMM_##name,
#include "comm/comm.def"
#undef X
    ECH_COMM_KINDS
} ech_comm_kind;

typedef struct ech_comm_backend ech_comm_backend;
/* NULL: this build lacks it. */
const ech_comm_backend *ech_comm_of_kind(ech_comm_kind kind);
/* Whether its ranks are threads of this process: `local`'s are, and `nccl`'s where no launcher has
 * started the process. */
bool ech_comm_has_threads(ech_comm_kind kind);
/* NULL: it lacks it, or there is none of that name. */
const ech_comm_backend *ech_comm_find(const char *name);
/* Why this build cannot join ranks by it, and what to do; NULL: it can. */
const char *ech_comm_lacks(ech_comm_kind kind);
/* Of a backend that this build has: its library's version ("Open MPI 4.1.4"), and the path of the
 * program that starts its ranks as processes; NULL: none, they are threads. */
const char *ech_comm_version(ech_comm_kind kind);
const char *ech_comm_launcher(ech_comm_kind kind);
/* Space-separated names of all backends. */
const char *ech_comm_names(void);

/* `local`: makes `size` endpoints in this process; endpoints[r] is for rank r's thread. `nccl`: as
 * one of the other two. `mpi`: joins MPI_COMM_WORLD, which must have `size` processes (0: any
 * number), and sets endpoints[0] to this process's endpoint. Ranks are ordered by machine, then by
 * rank in MPI_COMM_WORLD. Errors: ECH_EUSAGE if `size` is not the number of processes, or if a
 * launcher has started several processes and this one sees no other: each would then train alone
 * (ech_launched_check). Collective under mpi and ucx. */
ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints);
/* Closes this rank's endpoint. Before it, end the rank's other threads and destroy its channels.
 * Accepts NULL. Collective, but after an abort it waits for nobody: under mpi it then ends the job
 * and this process, and does not return. */
void ech_comm_close(ech_comm *comm);

/* Before ech_comm_open, over `ucx` and for good: a rank that dies, or does nothing for the
 * deadline, ends the messages with it by errors that name it, and not the job. */
void ech_comm_outlive(bool outlives);
/* Of an endpoint that outlives ranks, once an error has shown that one was lost: leaves the group
 * without a word, so that all ranks learn of it by errors of their own (ECH_ECOMM; on this machine
 * ECH_EABORTED), and meets again, under a new generation, with all that do the same and with the
 * processes that have taken the place of the lost. Nothing of the old group is received, nor of a
 * rank that was stopped and wakes. End the rank's other threads and destroy its channels before.
 * *comm: the new endpoint; NULL after an error, which is one of ech_comm_open. Collective over
 * those who are in the new group. */
ech_status ech_comm_remake(ech_comm **comm);

int ech_comm_rank(const ech_comm *comm);
int ech_comm_size(const ech_comm *comm);
const char *ech_comm_name(const ech_comm *comm); /* "local", "mpi" or "nccl" */
int ech_comm_local_size(const ech_comm *comm);   /* ranks on this machine; they share its cores */
int ech_comm_local_rank(const ech_comm *comm);   /* this one's number among them */
/* Whether all of ranks[n] are on this rank's machine. The ranks of a machine are consecutive. */
bool ech_comm_is_near(const ech_comm *comm, const int *ranks, int n);

/* From now on ranks first .. end - 1 are spared: over `ucx` the death of one of them does not end
 * the job. Messages with it then are done (ech_request.lost): what is sent goes nowhere, and what
 * would be received leaves its memory as it is, or partly written. Of a send that ended before its
 * rank has noticed the death nothing is said. Gathers and folds of groups leave it out, if its part
 * has not come; member 0 of such a group must not be spared. Broadcasts and folds go from their
 * root to all. A spared rank that comes to a stop is held to the deadline as others are. To be
 * called alike on all ranks; those of other backends end with any rank. */
void ech_comm_spare(ech_comm *comm, int first, int end);
/* Whether this rank has noticed that a spared rank has died. */
bool ech_comm_is_lost(const ech_comm *comm, int rank);

/* Raises this machine's abort flag and returns at once: waits of this rank's other threads and of
 * the machine's other ranks end with ECH_EABORTED. For any thread that fails; other machines learn
 * of it when the rank calls ech_comm_abort. */
void ech_comm_raise(ech_comm *comm);

/* Aborts the job, in which this rank has ended with `status`: raises the abort flag and cancels
 * this rank's transfers. Under local, and if this is the only rank, it then returns. Otherwise it
 * sleeps for 0.3 s, in which other ranks can print their errors, and ends the job and this process,
 * with the exit code of the status of the machine's first rank that failed. Under mpi, if that is
 * ECH_EUSAGE, it waits up to 2 s for all ranks to come here, which then end without MPI_Abort. */
void ech_comm_abort(ech_comm *comm, ech_status status);

/* Puts a mark on the board (comm/board.h): this rank waits for rank `peer` (-1: for none). Reports
 * of a passed deadline follow marks. Only for callers that poll with ech_comm_test: ech_comm_wait
 * and collectives set the mark themselves, and restore this one when they end. A rank's threads
 * share one mark, which another thread may overwrite: so call this again every few milliseconds
 * while polling. It is also the rank's heartbeat, which shows that the rank has not been suspended.
 * */
void ech_comm_set_wait(ech_comm *comm, int peer);

/* Puts this rank's position on the board, for the same reports: the training step (-1: outside of
 * any) and a copy of the first 39 bytes of `what`. */
void ech_comm_set_position(ech_comm *comm, int64_t step, const char *what);
/* Puts on the board that a thread of this rank writes the checkpoint of training step `step`; -1:
 * it has ended. */
void ech_comm_set_saving(ech_comm *comm, int64_t step);
/* Adds a training step to the board's count, which the job monitor reads. Every rank calls it. */
void ech_comm_count_step(ech_comm *comm);
/* Tells the job monitor not to restart the job. For failures after which a restart would not find
 * the run's newest checkpoint. */
void ech_comm_forbid_restart(ech_comm *comm);

/* ---- where data are ----
 *
 * Control messages (flags, checkpoints) are in host memory. Data are a device's, and transfers and
 * collectives of them are put on a queue: they begin when the queue gets there, and what is put
 * there later comes after them. On a device that is immediate nothing is put: a transfer begins at
 * once. */
typedef struct ech_comm_queue {
    const ech_device *device;
    ech_queue *queue;
    ech_event *mark; /* the comm's, of that device */
    void *joined;    /* by ech_comm_join; of a channel its own */
    struct ech_kernel_context *context; /* by which a channel's sums are put on the queue */
} ech_comm_queue;

/* ---- windows ----
 *
 * A window is memory of a device that all ranks share: there is one copy of it, at one address. It
 * sends nothing, and orders nothing: who reads what another rank writes there must have heard from
 * it since. */

/* Ranks that are threads of one process have one; each takes it with the same number of bytes, > 0,
 * and gives it back. The first one allocates it, zeroed, and the last one frees it, so between a
 * window and the next one all ranks must have given it back. At most one at a time. Not collective.
 * Errors: ECH_ENOMEM; ECH_EUNSUPPORTED: the ranks are processes. */
ech_status ech_comm_take_window(ech_comm *comm, const ech_device *device, size_t bytes, void **out);
void ech_comm_give_window(ech_comm *comm);

/* ---- point to point ---- */

typedef struct ech_request {
    const ech_comm_queue *on; /* on which it is put; NULL: the data are in host memory */
    uint64_t id;              /* the backend's */
    void *handle;             /* the backend's */
    void *data;               /* where they are, or go */
    size_t bytes;
    int peer, tag; /* peer: a rank */
    bool sends;    /* false: receives */
    bool done;
    bool lost; /* since the peer is spared and has died: nothing has come of it for sure */
} ech_request;

/* Start a send or receive, like MPI_Isend and MPI_Irecv: the buffer belongs to the transfer until
 * ech_comm_wait or ech_comm_test says that it is done. Messages between two ranks with one tag
 * arrive in order. Nothing is buffered for sure: a send may stay incomplete until its receive is
 * started. The receive must have exactly as many bytes as the send. 0 <= tag < 2^20. Errors:
 * ECH_EABORTED. */
ech_status ech_comm_send_start(ech_comm *comm, int peer, int tag, const void *data, size_t bytes,
                               ech_request *request);
ech_status ech_comm_receive_start(ech_comm *comm, int peer, int tag, void *data, size_t bytes,
                                  ech_request *request);
/* Whether that many ranks can send each other a device's memory. Errors: ECH_EUNSUPPORTED: the
 * backend puts nothing on queues, and the memory has no addresses of the processor; it lacks a
 * library that it puts transfers there by; or the device has no streams, by which that knows
 * queues. Not collective. */
ech_status ech_comm_check_device(const ech_comm_backend *backend, const ech_device *device,
                                 int ranks);
/* Makes ready what transfers between ranks[n] need on `on`: under nccl on a device that is not
 * immediate a communicator, since NCCL's messages have no tags; otherwise nothing. ranks:
 * ascending, this rank among them. `name` ("activations at block 3") is for errors. All ranks join
 * in an order that they have in common. Errors: as ech_comm_wait; ECH_ECOMM, the library's.
 * Collective over these ranks. */
ech_status ech_comm_join(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                         int n);
/* Ends what `on` has joined, which has no work under way. Collective over the same ranks, but after
 * an abort. */
void ech_comm_part(ech_comm *comm, ech_comm_queue *on);
/* Starts n transfers, which on (of all the same), data, peer, tag, bytes and sends of the requests
 * describe, together: none waits for the end of another. On a device that is not immediate they are
 * done as soon as both sides have put them on their queues (under nccl: this side): ech_comm_wait
 * then waits for the peer's host, not for the data. The queue must live, and no later transfer of
 * it may start on another thread, until then. */
ech_status ech_comm_put(ech_comm *comm, ech_request *requests, int n);
/* Sets *done without waiting. Errors: ECH_EABORTED if the request is not done and the abort flag is
 * raised. On any error all transfers of this endpoint are cancelled: none touches a buffer any
 * more. */
ech_status ech_comm_test(ech_comm *comm, ech_request *request, bool *done);
/* Checks the deadline for callers that poll with ech_comm_test; `seconds`: for how long nothing has
 * completed that they poll. Errors: those of ech_comm_wait, once `seconds` exceeds the deadline and
 * the request is not done. */
ech_status ech_comm_overdue(ech_comm *comm, const ech_request *request, double seconds);
/* For callers that poll a device: checks the deadline; `seconds`: for how long nothing has ended
 * there. peers[n]: the ranks of which one has not sent what it waits for; 0: it waits for none.
 * Puts the mark of ech_comm_set_wait. Errors: ECH_ECOMM past the deadline, with a report;
 * ECH_EABORTED once the job is over and the device has waited for peers for 4 s. All transfers of
 * this endpoint are cancelled then. */
ech_status ech_comm_stalled(ech_comm *comm, const int *peers, int n, double seconds);
/* For callers that have waited for a device. Errors: ECH_EABORTED once the job is over: what waited
 * there for other ranks may have been ended then (under nccl), so its data are not to be used. */
ech_status ech_comm_check(const ech_comm *comm);
/* Waits for all n requests. Errors: ECH_ECOMM past the deadline, with a report of all ranks'
 * positions; ECH_EABORTED. On any error, also in another thread, all transfers of this endpoint are
 * cancelled. */
ech_status ech_comm_wait(ech_comm *comm, ech_request *requests, int n);

/* ---- groups ---- */

/* A channel: a group, which is a set of ranks, on one of its lanes 0 .. ECH_GROUP_LANES - 1. The
 * caller decides which thread uses which lane: the executor gives lane l of plans the channel on l
 * + 1. */
typedef struct ech_group ech_group;
enum { ECH_GROUP_LANES = 16 };

/* Counts of a channel. Messages and what they carry are those that this rank sent. */
typedef struct ech_comm_count {
    int64_t calls;
    int64_t messages;
    int64_t bytes;    /* of payload */
    int64_t elements; /* of sums and of shards that are gathered; else 0 */
} ech_comm_count;

/* Creates a group of ranks[n] and opens its channel on lane 0. ranks: ascending, this rank among
 * them. `name` ("data", "world") is for errors; both are copied. Sends no message, but all members
 * must create the same groups in the same order, since tags follow from it. Errors: ECH_EINTERNAL.
 * */
ech_status ech_group_create(ech_comm *comm, const char *name, const int *ranks, int n,
                            ech_group **out);
/* Opens another channel of the group of `group`, on a lane on which this rank has opened none
 * before. */
ech_group *ech_group_open(const ech_group *group, int lane);
/* Destroys a channel. The channels of a group may be destroyed in any order; the group ends with
 * the last one. Accepts NULL. */
void ech_group_destroy(ech_group *group);
ECH_DESTROY_AT(ech_group, ech_group_destroy)
/* The channel's collectives work on data there from now on; before, on host memory. `on` is copied.
 * Joins (ech_comm_join), so it is collective; errors likewise. */
ech_status ech_group_set_queue(ech_group *group, const ech_comm_queue *on);
/* Says which members are on one machine (ech_lineup), alike on all members; copied. Of all channels
 * of the group, once, before any sum. A group that is not told has all on one. The machines may be
 * pretended: nothing else goes by them. */
void ech_group_set_machines(ech_group *group, const int *first, int machines);
/* Says that the last members are stores (ech_lineup.stores); likewise, before any half of a sum. */
void ech_group_set_stores(ech_group *group, int stores);
ech_lineup ech_group_lineup(const ech_group *group); /* lives as long as the group */
/* Whether a message of this channel was lost with a spared rank since this was last asked. */
bool ech_group_take_loss(ech_group *group);
/* On member 0, behind ech_group_gather: whether nothing has come of a member, since it is lost. */
bool ech_group_has_missed(const ech_group *group, int member);
/* Says that this rank's saver uses the channel: the thread that writes the rank's part of a
 * checkpoint while training goes on. Its waits are shown on the board apart from those of the
 * rank's other threads (ech_board_thread). */
void ech_group_set_saves(ech_group *group);
/* Sets the saver's heartbeat between two collectives. Does nothing for other channels. */
void ech_group_show_life(ech_group *group);
/* The deadline of waits, in seconds. */
double ech_group_deadline(const ech_group *group);
int ech_group_size(const ech_group *group);
int ech_group_index(const ech_group *group); /* of this rank among the members */

/* ---- collectives ----
 *
 * All members call them in the same order. Members are named by their index in the group (`root`,
 * shard i), N is their number. Errors: ECH_ECOMM, ECH_EABORTED as of ech_comm_wait; sums of other
 * types than fp32, fp64, bf16 and fp16 are ECH_EUNSUPPORTED.
 *
 * A sum of bf16 or fp16 is made in fp32, in member order, and rounded once. */

/* Whether the backend has this reduction; false for LIBRARY on `local`. Not collective. */
bool ech_reduction_supported(const ech_comm_backend *backend, ech_reduction reduction);

/* Does the setup that a channel's first ech_group_reduce would do: for LIBRARY it makes an MPI
 * communicator. Until all members have called, no other thread of the rank can send or receive. So
 * one thread of a rank should prepare all channels for LIBRARY, in an order that all ranks have in
 * common. */
ech_status ech_group_prepare(ech_group *group, ech_reduction reduction);
/* All-reduce of gradients: x (n, contiguous) of every member becomes the sum over the members, with
 * the same bits on all of them. `wire`: the type in which it travels, x's own or a narrower one;
 * DIRECT alone takes a narrower one, and bf16 and fp16. Then every addend, this member's own
 * included, is rounded to `wire`; those are summed, in fp32 if `wire` is narrower than fp64; the
 * sum is rounded once to `wire`, and all members hold it widened to x's type. So for N members
 * there are two roundings to `wire` on an element's way, and one of N - 1 fp32 additions each
 * between; a group of one rounds nothing. DIRECT adds each element in member order, so its bits do
 * not depend on n or on the element's position. With bytes those of n elements of `wire`, DIRECT,
 * RING and TORUS send 2(N-1)/N·bytes per member, NAIVE (N-1)·bytes, HIERARCHICAL bytes, but the
 * first member of each of M machines, which has L, 2(M-1)/M·bytes + (L-1)·bytes; for LIBRARY the
 * bytes of x are counted, since what the library sends is not known. `scratch`:
 * ech_reduction_scratch bytes. */
ech_status ech_group_reduce(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                            ech_dtype wire, void *scratch);

/* ech_group_reduce in three parts, to overlap sums A and B, over the same group or different ones:
 * begin A, run A, begin B, end A, run B, end B. B's first messages then follow A's last ones
 * without a gap on a slow link. After an error of one part the next ones are not called. The fields
 * are private to src/comm. */
typedef struct ech_reduction_row ech_reduction_row;
/* What a scatter does with the sum of a member's shard. */
typedef enum ech_delivery {
    ECH_DELIVER_OVER,   /* it takes the place of what is there */
    ECH_DELIVER_ADDED,  /* it is added to that */
    ECH_DELIVER_DROPPED /* it is thrown away */
} ech_delivery;
typedef struct ech_sum {
    ech_group *group;
    const ech_reduction_row *row;
    char *x, *scratch;
    int64_t n;                             /* elements of x */
    int64_t segment;                       /* elements of a message, at most */
    const struct ech_row_windows *windows; /* of which shards consist; NULL: even ones */
    size_t item;                           /* bytes of an element of x */
    ech_dtype dtype;
    size_t wire_item; /* bytes of an element in messages and scratch */
    ech_dtype wire;
    ech_reduction_part part;
    char *shard;           /* of a half: this member's, in x or elsewhere */
    ech_delivery delivery; /* to it, of a scatter's sum */
    int scatters, gathers; /* which set of the channel's batches its messages are in */
} ech_sum;
/* Starts the first messages and does not wait, except in a channel's first LIBRARY
 * (ech_group_prepare). */
ech_status ech_sum_begin(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                         ech_dtype wire, void *scratch, ech_sum *out);
/* Adds. Afterwards messages may still read and write x and scratch. */
ech_status ech_sum_run(const ech_sum *sum);
/* Waits for the last messages. Afterwards x is the sum. */
ech_status ech_sum_end(const ech_sum *sum);

/* The halves of ech_group_reduce, each in the same three parts. Errors: ECH_EUNSUPPORTED for
 * reductions without halves.
 *
 * Scatter: this member's shard of the sum is written to `shard`, in x's type, added to what is
 * there (one more addition in that type, of bf16 and fp16 in fp32, rounded once), or thrown away.
 * The sum has the bits of the whole reduction's. x is used up: afterwards its elements are
 * undefined, but for `shard`, which may be this member's shard of x unless that is added to.
 * `scratch`: ech_reduction_part_scratch bytes. A store (ech_group_set_stores) has nothing to add:
 * its x has no data, and what travels narrowed it takes over the place of what is there alone. */
ech_status ech_sum_begin_scatter(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                                 ech_dtype wire, void *shard, ech_delivery delivery, void *scratch,
                                 ech_sum *out);
/* Gather: shard i of x (n, contiguous, of any type) becomes the one of member i: copies, bit for
 * bit. `shard`: this member's, which may be its place in x. Needs no scratch. Stores send theirs to
 * the others, and have no x. */
ech_status ech_sum_begin_gather(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                                void *shard, ech_sum *out);

typedef enum ech_fold { ECH_FOLD_SUM, ECH_FOLD_MAX } ech_fold;
/* All-reduce of a few scalars (counts, norms, flags): values[n], fp64, become the sum or maximum
 * over the members, taken in member order. A NaN on any member gives NaN on all, for MAX too. Any
 * n; 64 values a message. */
ech_status ech_group_fold(ech_group *group, ech_fold fold, double *values, int n);
/* Member 0's whole[N][bytes] becomes the `bytes` bytes at `mine` of all members, in member order.
 * Others' `whole` may be NULL. */
ech_status ech_group_gather(ech_group *group, void *whole, const void *mine, size_t bytes);
ech_status ech_group_barrier(ech_group *group);
/* Copies member `root`'s data to all members. */
ech_status ech_group_broadcast(ech_group *group, int root, void *data, size_t bytes);

/* ---- collectives of tensor, sequence, context and expert parallelism (comm/collective.h) ----
 *
 * Shards are those of ech_collective_shard_first; they may be uneven or empty. Buffers must not
 * overlap unless said. `scratch`: ech_collective_scratch bytes. */

/* x (n, contiguous) of every member becomes the sum over the members, added in member order. All
 * members have the same bits: those of DIRECT, and of a reduce-scatter followed by an all-gather.
 * */
ech_status ech_group_all_reduce(ech_group *group, const ech_tensor *x, void *scratch);
/* whole (n elements of `item` bytes): its shard i becomes member i's `mine`. In place: `mine` may
 * point to this member's shard of `whole`. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n);
/* `mine` becomes this member's shard of the sum of all members' x (n, contiguous), added in member
 * order. In place: `mine` may point to that shard of x. The rest of x is not changed. */
ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch);
/* Windows of rows, as many of each member, one member's behind the other's; of each so many rows
 * are in use. */
typedef struct ech_row_windows {
    const int64_t *counts; /* [N][windows], in host memory: the same on all members */
    int64_t windows, rows; /* of a member; of a window */
} ech_row_windows;
/* ech_group_all_gather and ech_group_reduce_scatter of such windows, to the same bits; only of rows
 * in use: others are neither read nor written, and a window without any is no message. Elements of
 * `whole` and x: N windows rows times those of a row; `scratch`: as of ech_group_reduce_scatter.
 * Errors: a count that is none of 0 .. rows: ECH_EINTERNAL, which names both ranks. */
ech_status ech_group_gather_rows(ech_group *group, const ech_tensor *whole, const void *mine,
                                 const ech_row_windows *of);
ech_status ech_group_scatter_rows(ech_group *group, const ech_tensor *x, void *mine, void *scratch,
                                  const ech_row_windows *of);
/* Both buffers hold N blocks of `bytes` bytes: block i of `to` goes to member i, block i of `from`
 * comes from member i. */
ech_status ech_group_all_to_all(ech_group *group, const void *to, void *from, size_t bytes);
/* Rows by counts. Of what members have for each other a piece each goes in windows: rows [first,
 * first + rows) of each piece in one call. One buffer is *packed*: the pieces, whole, one behind
 * the other. The other one has N windows of `rows` rows. */
typedef struct ech_row_exchange {
    /* [N], in host memory: rows of whole pieces to and from each member, which have told each
     * other: receives[i] is what member i sends here. */
    const int64_t *sends, *receives;
    int64_t room; /* rows of the packed buffer; no member has one with more */
    int64_t first, rows;
    size_t bytes; /* of a row */
    bool packs;   /* `from` is packed, `to` has windows; otherwise the other way around */
} ech_row_exchange;
/* What a table of so many pieces, of `each` numbers, says: rows [pieces], the sums; of a piece with
 * a number below 0 that number, which no exchange takes, so that no sum hides it. */
void ech_row_sums(const int32_t *table, int64_t pieces, int64_t each, int64_t *rows);
/* Of a piece of `count` rows those in a window of `rows` from row `first` on. */
static inline int64_t ech_row_part(int64_t count, int64_t first, int64_t rows)
{
    int64_t left = count - first;
    return left < 0 ? 0 : left < rows ? left : rows;
}
/* How many of a piece of so many rows are in the window; -1: the piece is no message, since it has
 * ended in one before. */
static inline int64_t ech_row_window(const ech_row_exchange *x, int64_t count)
{
    int64_t left = count - x->first;
    return left < 0 ? -1 : left < x->rows ? left : x->rows;
}
/* Rows behind those in use are neither read nor written. A piece that ends with its window before,
 * or has no rows at all, is an empty message: so a rank whose peer expects other rows is found out.
 * Errors: a count that is none of 0 .. room, where nothing is sent, or another one than the peer's:
 * ECH_EINTERNAL, which names both ranks. */
ech_status ech_group_exchange_rows(ech_group *group, const void *to, void *from,
                                   const ech_row_exchange *what);
/* Ring shift: sends `bytes` bytes to member (index + distance) mod N and receives as many from
 * member (index - distance) mod N. If distance is a multiple of N, copies. */
ech_status ech_group_shift(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes);

/* ---- not collective ---- */

/* Kinds of collectives that are counted apart. */
typedef enum ech_comm_counted {
    ECH_COMM_REDUCES,     /* ech_group_reduce, ech_sum_begin */
    ECH_COMM_SCATTERS,    /* ech_sum_begin_scatter */
    ECH_COMM_GATHERS,     /* ech_sum_begin_gather */
    ECH_COMM_COLLECTIVES, /* those of ech_collective */
    ECH_COMM_OTHERS,      /* fold, gather, barrier, broadcast */
    ECH_COMM_COUNTS       /* the number of kinds */
} ech_comm_counted;
/* What this channel has counted since it was opened. */
ech_comm_count ech_group_count(const ech_group *group, ech_comm_counted kind);

/* For tests of `mpi`: sends complete only when received (MPI_Issend), and messages are sent in
 * parts of part_bytes. To be called with the same values on all ranks, before any message. */
void ech_mpi_tune(ech_comm *comm, bool synchronous, size_t part_bytes);

#endif
