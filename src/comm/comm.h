/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication between ranks: one endpoint per rank, groups of ranks, point-to-point messages,
 * collectives, and counters of calls, messages and bytes. A backend (`local`: ranks are threads of
 * one process; `mpi`: ranks are processes; `nccl`: either, and NCCL moves the memory of their GPUs)
 * moves point-to-point messages. The collectives are written once on top of them, so every backend
 * gives the same bits. The one exception is ECH_REDUCTION_LIBRARY, the sums of MPI's or
 * NCCL's library itself, for comparison.
 *
 * Every wait polls with backoff, under a deadline, and watches the job's abort flag: when one rank
 * fails, the calls of the others return ECH_EABORTED instead of hanging. The deadline counts
 * seconds in which none of the awaited requests completes.
 *
 * Threads: several threads of a rank may use its endpoint at the same time. A channel is a group of
 * ranks on a lane, with tags of its own, like a communicator of NCCL: channels do not interfere
 * with each other or with point-to-point messages, even between the same ranks. Only one thread at
 * a time may use a channel or a request. All members create their groups in the same order,
 * preferably before further threads start.
 *
 * In the sections "endpoints", "point to point" and "groups" only ech_comm_open and ech_comm_close
 * are collective, unless stated otherwise. Buffers, and what is passed by pointer, remain the
 * caller's.
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
/* True if its ranks are threads of this process: for `local`, and for `nccl` if no launcher has
 * started the process. */
bool ech_comm_has_threads(ech_comm_kind kind);
/* NULL: no backend has that name, or this build lacks it. */
const ech_comm_backend *ech_comm_find(const char *name);
/* Why ranks cannot be joined with it, since this build lacks it or this machine lacks Open MPI, and
 * what to do; NULL: they can. */
const char *ech_comm_lacks(ech_comm_kind kind);
/* For a backend that lacks nothing: its library's version ("Open MPI 4.1.4"), and the program that
 * starts its ranks as processes; NULL: none. */
const char *ech_comm_version(ech_comm_kind kind);
const char *ech_comm_launcher(ech_comm_kind kind);
/* Space-separated names of all backends. */
const char *ech_comm_names(void);

/* `local`: makes `size` endpoints in this process; endpoints[r] is for rank r's thread. `nccl`:
 * like one of the other two. `mpi`: joins MPI_COMM_WORLD, which must have `size` processes (0: any
 * number), and sets endpoints[0] to this process's endpoint. Ranks are ordered by machine, then by
 * rank in MPI_COMM_WORLD. Errors: ECH_EUSAGE if `size` is not the number of processes, or if a
 * launcher has started several processes and this one sees no other: each would then train alone
 * (ech_launched_check). Collective under mpi and ucx. */
ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints);
/* Opens an endpoint of the same rank among as many, which meets nobody: its transfers are done when
 * they begin. Sends reach no rank; receives set host memory to zero, and leave a device's as it is.
 * ech_comm_close closes it. Not collective. */
ech_comm *ech_comm_open_silent(const ech_comm *like);
/* Closes this rank's endpoint. First end the rank's other threads and destroy its channels. Accepts
 * NULL. Collective, but after an abort it does not wait for other ranks: under mpi it then ends the
 * job and this process, and does not return. */
void ech_comm_close(ech_comm *comm);

/* Call it before ech_comm_open, with `ucx`. If true, a rank that dies, or is silent for the
 * deadline, fails the messages with it by errors that name it, instead of ending the job. Cannot be
 * undone. */
void ech_comm_outlive(bool outlives);
/* For an endpoint that outlives ranks (ech_comm_outlive), after an error has shown that a rank was
 * lost. Leaves the group without notice, so that all ranks get errors of their own (ECH_ECOMM; on
 * this machine ECH_EABORTED). Then forms a new group, with a new generation, with all ranks that do
 * the same and with the processes that replace the lost ones. Messages of the old group, or of a
 * suspended rank that wakes, are never received. First end the rank's other threads and destroy its
 * channels. *comm: the new endpoint; NULL after an error, which is one of ech_comm_open. Collective
 * over the members of the new group. */
ech_status ech_comm_remake(ech_comm **comm);

int ech_comm_rank(const ech_comm *comm);
int ech_comm_size(const ech_comm *comm);
const char *ech_comm_name(const ech_comm *comm); /* "local", "mpi" or "nccl" */
const ech_comm_backend *ech_comm_backend_of(const ech_comm *comm); /* its row */
int ech_comm_local_size(const ech_comm *comm);   /* ranks on this machine; they share its cores */
int ech_comm_local_rank(const ech_comm *comm);   /* this rank's number among them */
/* True if all of ranks[n] are on this rank's machine. The ranks of a machine are consecutive. */
bool ech_comm_is_near(const ech_comm *comm, const int *ranks, int n);

/* Spares ranks first .. end - 1 from now on: with `ucx` the death of one of them does not end the
 * job. Messages with a dead one complete (ech_request.lost): a send has no effect, and a receive
 * leaves its memory unchanged or partly written. A send that ended before the death was noticed
 * reports nothing. Gathers and folds of groups skip its part if that has not arrived; member 0 of
 * such a group must not be spared. Broadcasts and folds go from their root to all. The deadline
 * still applies to a spared rank that hangs. Call it in the same way on all ranks; with other
 * backends the job still ends with any rank. */
void ech_comm_spare(ech_comm *comm, int first, int end);
/* True if this rank has noticed the death of a spared rank. */
bool ech_comm_is_lost(const ech_comm *comm, int rank);

/* Raises this machine's abort flag and returns immediately: waits of this rank's other threads and
 * of the machine's other ranks end with ECH_EABORTED. For any thread that fails; other machines
 * learn of it when the rank calls ech_comm_abort. */
void ech_comm_raise(ech_comm *comm);

/* Aborts the job, in which this rank has ended with `status`: raises the abort flag and cancels
 * this rank's transfers. Under local, and if this is the only rank, it then returns. Otherwise it
 * sleeps for 0.3 s, in which other ranks can print their errors, and ends the job and this process,
 * with the exit code of the status of the machine's first rank that failed. Under mpi, if that is
 * ECH_EUSAGE, it waits up to 2 s for all ranks to call it, which then end without MPI_Abort. */
void ech_comm_abort(ech_comm *comm, ech_status status);

/* Puts a mark on the board (comm/board.h): this rank waits for rank `peer` (-1: for none). Reports
 * of a passed deadline follow marks. Only for callers that poll with ech_comm_test: ech_comm_wait
 * and collectives set the mark themselves, and restore this one when they end. A rank's threads
 * share one mark, which another thread may overwrite: so call this again every few milliseconds
 * while polling. It is also the rank's heartbeat, which shows that the rank has not been
 * suspended. */
void ech_comm_set_wait(ech_comm *comm, int peer);

/* Puts this rank's position on the board, for the same reports: the training step (-1: outside of
 * any) and a copy of the first 39 bytes of `what`. */
void ech_comm_set_position(ech_comm *comm, int64_t step, const char *what);
/* Notes on the board that a thread of this rank writes the checkpoint of training step `step`; -1:
 * it has ended. */
void ech_comm_set_saving(ech_comm *comm, int64_t step);
/* Adds a training step to the board's count, which the job monitor reads. Every rank calls it. */
void ech_comm_count_step(ech_comm *comm);
/* Tells the job monitor not to restart the job. For failures after which a restart would not find
 * the run's newest checkpoint. */
void ech_comm_forbid_restart(ech_comm *comm);

/* ---- location of data ---- Control messages (flags, checkpoints) are in host memory. Data are in
 * a device's memory, and their transfers and collectives are put on a queue: they begin when the
 * queue reaches them, and later work on the queue follows them. On an immediate device a transfer
 * begins immediately. */
typedef struct ech_comm_queue {
    const ech_device *device;
    ech_queue *queue;
    ech_event *mark;                    /* the endpoint's, of that device */
    void *joined;                       /* by ech_comm_join; a channel has its own */
    int blocks; /* most thread blocks that a transfer runs on a GPU; 0: the library chooses */
    struct ech_kernel_context *context; /* through which a channel's sums are put on the queue */
} ech_comm_queue;

/* ---- shared memory ---- It is device memory that all ranks share: a single copy, at one address.
 * It involves no messages and no ordering: a rank that reads what another rank wrote there must
 * have received a message from it since. */

/* Only for ranks that are threads of one process. Each rank maps it with the same number of
 * bytes, > 0, and unmaps it. The first allocates it, zeroed, and the last frees it, so all
 * ranks must have unmapped it before any maps the next. At most one at a time. Not collective.
 * Errors: ECH_ENOMEM; ECH_EUNSUPPORTED: the ranks are processes. */
ech_status ech_comm_map_shared(ech_comm *comm, const ech_device *device, size_t bytes, void **out);
void ech_comm_unmap_shared(ech_comm *comm);

/* ---- point to point ---- */

typedef struct ech_request {
    const ech_comm_queue *on; /* the queue of the transfer; NULL: the data are in host memory */
    uint64_t id;              /* the backend's */
    void *handle;             /* the backend's */
    void *data;               /* source or destination */
    size_t bytes;
    int peer, tag; /* peer: a rank */
    bool sends;    /* false: receives */
    bool done;
    bool lost; /* the peer is spared and has died: the data may not have arrived */
} ech_request;

/* Start a send or receive, like MPI_Isend and MPI_Irecv: the buffer belongs to the transfer until
 * ech_comm_wait or ech_comm_test reports that it is done. Messages between two ranks with one tag
 * arrive in order. Buffering is not guaranteed: a send may stay incomplete until its receive is
 * started. The receive must have exactly as many bytes as the send. 0 <= tag < 2^20. Errors:
 * ECH_EABORTED. */
ech_status ech_comm_send_start(ech_comm *comm, int peer, int tag, const void *data, size_t bytes,
                               ech_request *request);
ech_status ech_comm_receive_start(ech_comm *comm, int peer, int tag, void *data, size_t bytes,
                                  ech_request *request);
/* Checks that `ranks` ranks can send each other a device's memory. Errors: ECH_EUNSUPPORTED: the
 * backend does not use queues, and the processor cannot address the memory; a library for transfers
 * on queues is missing; or the device has no streams for it. Not collective. */
ech_status ech_comm_check_device(const ech_comm_backend *backend, const ech_device *device,
                                 int ranks);
/* Allows several of the ranks on one GPU. Errors: ECH_EUNSUPPORTED: the library for transfers on
 * queues is missing, or too old for that. Not collective; before the first ech_comm_join. */
ech_status ech_comm_share_device(const ech_comm_backend *backend, const ech_device *device);
/* An estimate of the most bytes of a rank's GPU that the backend's library takes for a communicator
 * (ech_comm_join) with so many thread blocks (ech_comm_queue.blocks). 0 members: for its code.
 * `rings`: the library's own collectives go over that communicator, too. */
int64_t ech_comm_library_bytes(const ech_comm_backend *backend, int members, int blocks,
                               bool rings);
/* Prepares transfers between ranks[n] on `on`: under nccl, on a device that is not immediate, makes
 * a communicator, since NCCL's messages have no tags; otherwise does nothing. ranks: ascending,
 * with this rank. `name` ("activations at block 3") is for errors. All ranks must join in the same
 * order. Errors: as ech_comm_wait; ECH_ECOMM, the library's. Collective over these ranks. */
ech_status ech_comm_join(ech_comm *comm, ech_comm_queue *on, const char *name, const int *ranks,
                         int n);
/* True if ech_comm_join makes communicators, on a device that is not immediate. */
bool ech_comm_joins(const ech_comm *comm);
/* Releases what `on` has joined; it must have no work in progress. Collective over the same ranks,
 * except after an abort. */
void ech_comm_disconnect(ech_comm *comm, ech_comm_queue *on);
/* Starts n transfers together; none waits for another's end. The requests' fields on (the same for
 * all), data, peer, tag, bytes and sends describe them. On a device that is not immediate they are
 * done as soon as both sides have put them on their queues (under nccl: this side): ech_comm_wait
 * then waits for the peer's host, not for the data. Until then the queue must exist, and no later
 * transfer of it may start on another thread. */
ech_status ech_comm_put(ech_comm *comm, ech_request *requests, int n);
/* Sets *done without waiting. Errors: ECH_EABORTED if the request is not done and the abort flag is
 * raised. On any error all transfers of this endpoint are cancelled: none touches a buffer any
 * more. */
ech_status ech_comm_test(ech_comm *comm, ech_request *request, bool *done);
/* For threads that poll with ech_comm_test: a count, to be read before the tests; it changes when
 * another rank has ended a transfer of this endpoint, if ech_comm_rings, and by ech_comm_ring. */
unsigned ech_comm_heard(const ech_comm *comm);
/* Sleeps until the count is not `heard`, at most `ns` nanoseconds. */
void ech_comm_listen(ech_comm *comm, unsigned heard, long ns);
/* True if the backend changes the count, so that polls need not be frequent. They must still watch
 * the abort flag and the deadline: ECH_COMM_LONG_NAP_NS. */
bool ech_comm_rings(const ech_comm *comm);
enum { ECH_COMM_LONG_NAP_NS = 10000000 };
void ech_comm_ring(ech_comm *comm);
/* Checks the deadline for callers that poll with ech_comm_test; `seconds`: time since one of the
 * polled requests last completed. Errors: as for ech_comm_wait, once `seconds` exceeds the deadline
 * and the request is not done. */
ech_status ech_comm_overdue(ech_comm *comm, const ech_request *request, double seconds);
/* Watchdog for callers that poll a device: checks the deadline; `seconds`: time since any work last
 * ended there. peers[n]: ranks, at least one has not sent what the device waits for; n 0: it waits
 * for no rank. Sets the mark of ech_comm_set_wait. Errors: ECH_ECOMM past the deadline, with a
 * report; ECH_EABORTED once the job is over and the device has waited for peers for 4 s. All
 * transfers of this endpoint are then cancelled. */
ech_status ech_comm_stalled(ech_comm *comm, const int *peers, int n, double seconds);
/* For callers that have waited for a device. Errors: ECH_EABORTED once the job is over: transfers
 * on the device may then have been ended early (under nccl), so the data must not be used. */
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

/* Counts of a channel: messages and bytes that this rank sent. */
typedef struct ech_comm_count {
    int64_t calls;
    int64_t messages;
    int64_t bytes;    /* of payload */
    int64_t elements; /* of sums and of gathered shards; else 0 */
} ech_comm_count;

/* Creates a group of ranks[n] and opens its channel on lane 0. ranks: ascending, this rank among
 * them. `name` ("data", "world") is for errors; both are copied. Sends no message, but all members
 * must create the same groups in the same order, since tags follow from it. Errors:
 * ECH_EINTERNAL. */
ech_status ech_group_create(ech_comm *comm, const char *name, const int *ranks, int n,
                            ech_group **out);
/* The same with all ranks. */
ech_status ech_group_create_world(ech_comm *comm, const char *name, ech_group **out);
/* Opens another channel of the group of `group`, on a lane that this rank has not opened before. */
ech_group *ech_group_open(const ech_group *group, int lane);
/* Destroys a channel. The channels of a group may be destroyed in any order; the group ends with
 * the last one. Accepts NULL. */
void ech_group_destroy(ech_group *group);
ECH_DESTROY_AT(ech_group, ech_group_destroy)
/* Makes the channel's collectives work on data on that queue; before, they work on host memory.
 * Copies `on`. Joins (ech_comm_join), so it is collective; errors likewise. */
ech_status ech_group_set_queue(ech_group *group, const ech_comm_queue *on);
/* Sets which members are on one machine (ech_lineup), in the same way on all members; copies it. It
 * applies to all channels of the group; call it once, before any sum. By default all members are on
 * one machine. Machines may be pretended: nothing else depends on them. */
void ech_group_set_machines(ech_group *group, const int *first, int machines);
/* Declares the last members to be stores (ech_lineup.stores); in the same way, before any half of a
 * sum. */
void ech_group_set_stores(ech_group *group, int stores);
ech_lineup ech_group_lineup(const ech_group *group); /* valid as long as the group */
/* True if a message of this channel was lost with a spared rank since the last call. */
bool ech_group_take_loss(ech_group *group);
/* On member 0, after ech_group_gather: true if a member's part is missing because the member is
 * lost. */
bool ech_group_has_missed(const ech_group *group, int member);
/* Declares that this rank's saver uses the channel: the thread that writes the rank's part of a
 * checkpoint while training continues. The board shows its waits separately from the rank's other
 * threads' (ech_board_thread). */
void ech_group_set_saves(ech_group *group);
/* Sets the saver's heartbeat between two collectives. Does nothing for other channels. */
void ech_group_show_life(ech_group *group);
/* The deadline of waits, in seconds. */
double ech_group_deadline(const ech_group *group);
int ech_group_size(const ech_group *group);
int ech_group_index(const ech_group *group); /* of this rank among the members */

/* ---- collectives ---- All members call them in the same order. Members are named by their index
 * in the group (`root`, shard i), N is their number. Errors: ECH_ECOMM, ECH_EABORTED as in
 * ech_comm_wait; ECH_EUNSUPPORTED for sums of types other than fp32, fp64, bf16 and fp16. A sum of
 * bf16 or fp16 is computed in fp32, in member order, and rounded once. */

/* True if the backend has this reduction; false for LIBRARY on `local`. Not collective. */
bool ech_reduction_supported(const ech_comm_backend *backend, ech_reduction reduction);

/* Does the setup of a channel's first ech_group_reduce in advance: for LIBRARY it makes an MPI
 * communicator. Until all members have called, no other thread of the rank can send or receive. So
 * one thread of a rank should prepare all channels for LIBRARY, in an order that all ranks have in
 * common. LIBRARY's halves need it. */
ech_status ech_group_prepare(ech_group *group, ech_reduction reduction);
/* Lets NCCL's all-gather move equal shards. A ring crosses from machine to machine once, messages
 * from each member to each other one would cross many times. Before ech_group_set_queue; the same
 * on all members. Other backends, and two members, whose messages are that ring: does nothing. */
void ech_group_prepare_gathers(ech_group *group);
static inline bool ech_group_gathers_by_ring(int members)
{
    return members > 2;
}
/* All-reduce of gradients: x (n, contiguous) of every member becomes the sum over the members, with
 * the same bits on all of them. `scratch`: ech_reduction_scratch bytes.
 *
 * `wire`: the type in which it is sent, x's own or a narrower one; only DIRECT supports a narrower
 * one, and bf16 and fp16. Then every addend, including this member's own, is rounded to `wire`; the
 * addends are summed, in fp32 if `wire` is narrower than fp64; the sum is rounded once to `wire`,
 * and all members hold it widened to x's type. So for N members an element is rounded to `wire`
 * twice, and once in each of the N - 1 fp32 additions between; a group of one rounds nothing.
 * DIRECT adds each element in member order, so its bits do not depend on n or on the element's
 * position.
 *
 * Bytes sent, where `bytes` is n elements of `wire`: DIRECT, RING and TORUS send 2(N-1)/N·bytes per
 * member, NAIVE (N-1)·bytes, HIERARCHICAL bytes, except that the first member of each of M
 * machines, which has L members, sends 2(M-1)/M·bytes + (L-1)·bytes. For LIBRARY the bytes of x are
 * counted, since the library's traffic is unknown. */
ech_status ech_group_reduce(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                            ech_dtype wire, void *scratch);

/* ech_group_reduce in three parts, to overlap sums A and B, over the same group or different ones:
 * begin A, run A, begin B, end A, run B, end B. B's first messages then follow A's last ones
 * without a gap on a slow link. After an error of one part the next ones are not called. The fields
 * are private to src/comm. */
typedef struct ech_reduction_row ech_reduction_row;
/* What a scatter does with the sum of a member's shard. */
typedef enum ech_delivery {
    ECH_DELIVER_OVER,   /* it replaces the content */
    ECH_DELIVER_ADDED,  /* it is added to the content */
    ECH_DELIVER_DROPPED /* it is discarded */
} ech_delivery;
typedef struct ech_sum {
    ech_group *group;
    const ech_reduction_row *row;
    char *x, *scratch;
    int64_t n;                             /* elements of x */
    int64_t segment;                       /* most elements of a message */
    const struct ech_row_slices *slices;   /* the slices that make up shards; NULL: even shards */
    size_t item;                           /* bytes of an element of x */
    ech_dtype dtype;
    size_t wire_item; /* bytes of an element in messages and scratch */
    ech_dtype wire;
    ech_reduction_part part;
    char *shard;           /* for a half: this member's shard, in x or elsewhere */
    ech_delivery delivery; /* for a scatter: what happens to the sum of `shard` */
    int scatters, gathers; /* which set of the channel's batches has its messages */
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
 * reductions without halves. Scatter: this member's shard of the sum is written to `shard`, in x's
 * type, added to its content (one more addition in that type; for bf16 and fp16 in fp32, rounded
 * once), or discarded. The sum has the bits of the whole reduction's. x is consumed: afterwards its
 * elements are undefined, except `shard`, which may be this member's shard of x unless the sum is
 * added to it. `scratch`: ech_reduction_part_scratch bytes. A store (ech_group_set_stores) has
 * nothing to add: its x has no data, and a narrowed sum can only replace the content. */
ech_status ech_sum_begin_scatter(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                                 ech_dtype wire, void *shard, ech_delivery delivery, void *scratch,
                                 ech_sum *out);
/* Gather: shard i of x (n, contiguous, of any type) becomes member i's shard, bit for bit. `shard`:
 * this member's, which may be its place in x. Needs no scratch. Stores send their shards to the
 * others, and have no x. */
ech_status ech_sum_begin_gather(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                                void *shard, ech_sum *out);

typedef enum ech_fold { ECH_FOLD_SUM, ECH_FOLD_MAX } ech_fold;
/* All-reduce of a few scalars (counts, norms, flags): values[n], fp64, become the sum or maximum
 * over the members, in member order. A NaN on any member gives NaN on all, for MAX too. Any n; 64
 * values per message. */
ech_status ech_group_fold(ech_group *group, ech_fold fold, double *values, int n);
/* Member 0's whole[N][bytes] becomes the `bytes` bytes at `mine` of all members, in member order.
 * Others' `whole` may be NULL. */
ech_status ech_group_gather(ech_group *group, void *whole, const void *mine, size_t bytes);
ech_status ech_group_barrier(ech_group *group);
/* Copies member `root`'s data to all members. */
ech_status ech_group_broadcast(ech_group *group, int root, void *data, size_t bytes);

/* ---- collectives of tensor, sequence, context and expert parallelism (comm/collective.h) ----
 * ech_collective_shard_first gives the shards; they may be uneven or empty. Buffers must not
 * overlap unless stated. `scratch`: ech_collective_scratch bytes. */

/* x (n, contiguous) of every member becomes the sum over the members, added in member order. All
 * members have the same bits as with DIRECT, and as with a reduce-scatter followed by an
 * all-gather. */
ech_status ech_group_all_reduce(ech_group *group, const ech_tensor *x, void *scratch);
/* whole (n elements of `item` bytes): its shard i becomes member i's `mine`. In place: `mine` may
 * point to this member's shard of `whole`. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n);
/* `mine` becomes this member's shard of the sum of all members' x (n, contiguous), added in member
 * order. In place: `mine` may point to that shard of x. The rest of x is not changed. */
ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch);
/* Slices of rows, the same number for each member, ordered by member; counts give the rows in
 * use. */
typedef struct ech_row_slices {
    const int64_t *counts; /* [N][slices], in host memory: the same on all members */
    int64_t slices, rows;  /* slices of a member; rows of a slice */
} ech_row_slices;
/* ech_group_all_gather and ech_group_reduce_scatter of such slices, with the same bits, for rows
 * in use only: other rows are neither read nor written, and an empty slice sends no message.
 * Elements of `whole` and x: N slices rows times the elements of a row; `scratch`: as for
 * ech_group_reduce_scatter. Errors: a count outside 0 .. rows: ECH_EINTERNAL, which names both
 * ranks. */
ech_status ech_group_gather_rows(ech_group *group, const ech_tensor *whole, const void *mine,
                                 const ech_row_slices *of);
ech_status ech_group_scatter_rows(ech_group *group, const ech_tensor *x, void *mine, void *scratch,
                                  const ech_row_slices *of);
/* Both buffers hold N blocks of `bytes` bytes: block i of `to` goes to member i, block i of `from`
 * comes from member i. */
ech_status ech_group_all_to_all(ech_group *group, const void *to, void *from, size_t bytes);
/* An exchange of counted rows. The rows that one member has for another are a split; splits are
 * sent in slices: rows [first, first + rows) of each split per call. One buffer is *packed*: it
 * has the whole splits one after the other. The other buffer has N slices of `rows` rows. */
typedef struct ech_row_exchange {
    /* [N], in host memory: rows of whole splits to and from each member. Members have exchanged
     * them before: receives[i] is what member i sends here. */
    const int64_t *sends, *receives;
    int64_t room; /* rows of the packed buffer; the largest of all members */
    int64_t most; /* rows of a split: the slices of all calls together have no room for more */
    int64_t first, rows;
    size_t bytes; /* of a row */
    bool packs;   /* `from` is packed, `to` has slices; otherwise the reverse */
} ech_row_exchange;
/* Sums a table of `splits` splits of `each` numbers into rows[splits]. A split with a negative
 * number gets that number, which every exchange rejects, so that no sum hides it. */
void ech_row_sums(const int32_t *table, int64_t splits, int64_t each, int64_t *rows);
/* How many rows of a split of `count` rows are in a slice of `rows` rows from row `first`. */
static inline int64_t ech_row_slice_rows(int64_t count, int64_t first, int64_t rows)
{
    int64_t left = count - first;
    return left < 0 ? 0 : left < rows ? left : rows;
}
/* How many rows of a split of `count` rows are in the slice; -1: the split sends no message, since
 * it ended in an earlier slice. */
static inline int64_t ech_row_slice(const ech_row_exchange *x, int64_t count)
{
    int64_t left = count - x->first;
    return left < 0 ? -1 : left < x->rows ? left : x->rows;
}
/* Rows that are not in use are neither read nor written. A split that ended exactly with the
 * previous slice, or has no rows at all, is an empty message, so that a peer that expects other
 * rows is detected. Errors: ECH_EINTERNAL, which names both ranks: a count outside 0 .. most
 * (nothing is sent), or a count that differs from the peer's. */
ech_status ech_group_exchange_rows(ech_group *group, const void *to, void *from,
                                   const ech_row_exchange *what);
/* Ring shift: sends `bytes` bytes to member (index + distance) mod N and receives as many from
 * member (index - distance) mod N. If distance is a multiple of N, copies. */
ech_status ech_group_shift(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes);
/* The same without a ring: it sends to member index + distance and receives from member index -
 * distance, if there are such members (ech_collective_slides). If nothing is received, `to_receive`
 * stays as it is. */
ech_status ech_group_slide(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes);

/* ---- not collective ---- */

/* Kinds of collectives that are counted separately. */
typedef enum ech_comm_counted {
    ECH_COMM_REDUCES,     /* ech_group_reduce, ech_sum_begin */
    ECH_COMM_SCATTERS,    /* ech_sum_begin_scatter */
    ECH_COMM_GATHERS,     /* ech_sum_begin_gather */
    ECH_COMM_COLLECTIVES, /* the collectives of ech_collective */
    ECH_COMM_OTHERS,      /* fold, gather, barrier, broadcast */
    ECH_COMM_COUNTS       /* the number of kinds */
} ech_comm_counted;
/* What this channel has counted since it was opened. */
ech_comm_count ech_group_count(const ech_group *group, ech_comm_counted kind);

/* For tests of `mpi`: sends complete only when received (MPI_Issend), and messages are sent in
 * parts of part_bytes. Call it with the same values on all ranks, before any message. */
void ech_mpi_tune(ech_comm *comm, bool synchronous, size_t part_bytes);

#endif
