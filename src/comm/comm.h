/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication between ranks: one endpoint per rank, groups of ranks, point-to-point messages,
 * collectives, and counters of calls, messages and bytes. A backend (`local`: ranks are threads of one
 * process; `mpi`: ranks are processes) only moves point-to-point messages. The collectives are written once
 * on top of those, so every backend gives the same bits.
 *
 * Every wait polls with backoff, under a deadline, and watches the job's abort flag: when one rank fails,
 * the calls of the others return ECH_EABORTED instead of hanging.
 *
 * Threads: several threads of a rank may use its endpoint at once. A channel is a group of ranks on a lane,
 * with tags of its own, like a communicator of NCCL: channels do not interfere with each other or with
 * point-to-point messages, even between the same ranks. Only one thread at a time may use a channel or a
 * request. All members create their groups in the same order, so best before further threads start. A
 * channel's first ECH_REDUCTION_LIBRARY blocks the rank's other threads until all members have called it,
 * so only one thread of a rank should use that reduction.
 */
#ifndef ECH_COMM_COMM_H
#define ECH_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/collective.h"
#include "tensor/tensor.h"

typedef struct ech_comm ech_comm;

/* ---- endpoints ---- */

/* Backends: rows of comm.def. */
typedef enum ech_comm_kind {
#define X(name, help) ECH_COMM_##name,
#include "comm/comm.def"
#undef X
    ECH_COMM_KINDS
} ech_comm_kind;

/* A backend by its row, or by its name (NULL if this build has none of that name). */
typedef struct ech_comm_backend ech_comm_backend;
const ech_comm_backend *ech_comm_of_kind(ech_comm_kind kind);
const ech_comm_backend *ech_comm_find(const char *name);
/* Space-separated names of the backends in this build. */
const char *ech_comm_names(void);

/* `local`: makes `size` endpoints in this process; endpoints[r] is for rank r's thread.
 * `mpi`: joins MPI_COMM_WORLD, which must have `size` processes (0: any number), and sets endpoints[0] to
 * this process's endpoint. Ranks are ordered by machine, then by rank in MPI_COMM_WORLD. Errors: ECH_EUSAGE
 * when a launcher that this MPI does not know has started this process as one of several, each of which
 * would train alone. Collective under mpi. */
ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints);
/* Closes this rank's endpoint; destroy its groups and end its other threads before. Accepts NULL.
 * Collective, but after an abort it does not wait: under mpi it then ends the job and this process. */
void ech_comm_close(ech_comm *comm);

int ech_comm_rank(const ech_comm *comm);
int ech_comm_size(const ech_comm *comm);
const char *ech_comm_name(const ech_comm *comm); /* "local" or "mpi" */
int ech_comm_local_size(const ech_comm *comm);   /* ranks on this machine; they share its cores */
/* Whether all of ranks[n] are on this rank's machine. The ranks of a machine are consecutive. */
bool ech_comm_is_near(const ech_comm *comm, const int *ranks, int n);

/* Raises the abort flag and returns at once: waits of this rank's other threads and of the machine's other
 * ranks end with ECH_EABORTED. For a lane that fails; from any thread. */
void ech_comm_raise(ech_comm *comm);

/* Aborts the job: raises the abort flag and cancels this rank's transfers; under mpi calls MPI_Abort 0.3 s
 * later, when the other ranks have printed their errors. Not collective. */
void ech_comm_abort(ech_comm *comm);

/* Puts on the board that this rank waits for `peer` (-1: for none), for reports of a passed deadline.
 * Only for callers that poll with ech_comm_test: ech_comm_wait and collectives do it themselves, and restore
 * this mark when they end. All threads of a rank share one mark, the last one set; so call this every few
 * milliseconds while polling, which is also the heartbeat of a rank that has not been stopped. */
void ech_comm_set_wait(ech_comm *comm, int peer);

/* Puts this rank's position on the board, for the same reports. Copies the first 39 bytes of `what`.
 * step -1: outside of any training step. */
void ech_comm_set_position(ech_comm *comm, int64_t step, const char *what);
/* Puts on the board that a thread of this rank writes the checkpoint of `step`; -1: it has ended. */
void ech_comm_set_saving(ech_comm *comm, int64_t step);
/* Counts a training step on the board, where the job monitor reads it. */
void ech_comm_count_step(ech_comm *comm);
/* Tells the job monitor not to restart the job: a restart would not resume from its newest checkpoint. */
void ech_comm_forbid_restart(ech_comm *comm);

/* ---- point to point ---- */

typedef struct ech_request {
    uint64_t id;  /* the backend's */
    void *handle; /* the backend's */
    size_t bytes;
    int peer, tag;
    bool sends; /* or receives */
    bool done;
} ech_request;

/* Start a send or receive, like MPI_Isend and MPI_Irecv: the buffer belongs to the transfer until
 * ech_comm_wait or ech_comm_test says that it is done. Messages between two ranks with one tag arrive in
 * order. A send may not complete before its receive is started. The receive must have exactly as many bytes
 * as the send. 0 <= tag < 2^20. */
ech_status ech_comm_send_start(ech_comm *comm, int peer, int tag, const void *data, size_t bytes,
                               ech_request *request);
ech_status ech_comm_receive_start(ech_comm *comm, int peer, int tag, void *data, size_t bytes,
                                  ech_request *request);
/* Sets *done, without waiting. Errors: ECH_EABORTED if the request is not done and the job was aborted.
 * On any error all transfers of this endpoint are cancelled: none touches a buffer any more. */
ech_status ech_comm_test(ech_comm *comm, ech_request *request, bool *done);
/* Checks the deadline for callers that poll with ech_comm_test; `seconds`: how long the request has been
 * polled. Errors: as ech_comm_wait, with the same report, once `seconds` exceeds the deadline. */
ech_status ech_comm_overdue(ech_comm *comm, const ech_request *request, double seconds);
/* Waits for all n requests. Errors: ECH_ECOMM past the deadline, with a report of all ranks' positions;
 * ECH_EABORTED. On any error, also in another thread, all transfers of this endpoint are cancelled. */
ech_status ech_comm_wait(ech_comm *comm, ech_request *requests, int n);

/* ---- groups ---- */

/* A channel: a group, which is a set of ranks, on one of its lanes. */
typedef struct ech_group ech_group;
enum { ECH_GROUP_LANES = 8 };

/* Counts of a channel. Messages and payload bytes are those that this rank sent. */
typedef struct ech_comm_count {
    int64_t calls;
    int64_t messages;
    int64_t bytes;
} ech_comm_count;

/* Creates a group of ranks[n] and opens its channel on lane 0. ranks: ascending, with this rank. `name`
 * ("data", "world") is for counters and errors. Sends no message, but all members must create the same
 * groups in the same order, since tags follow from it. */
ech_status ech_group_create(ech_comm *comm, const char *name, const int *ranks, int n,
                            ech_group **out);
/* Opens the group's channel on another lane < ECH_GROUP_LANES; each lane once. Not collective. Destroy each
 * channel, in any order. */
ech_group *ech_group_open(const ech_group *group, int lane);
void ech_group_destroy(ech_group *group); /* accepts NULL */
ECH_DESTROY_AT(ech_group, ech_group_destroy)
/* Marks a channel as that of the threads that write a checkpoint while training goes on: its waits are
 * shown apart from the ranks' own on the board (ech_comm_set_saving). */
void ech_group_set_saves(ech_group *group);
/* Sets the heartbeat of such a thread, between two collectives; nothing for other channels. */
void ech_group_show_life(ech_group *group);
/* The deadline of waits, in seconds. */
double ech_group_deadline(const ech_group *group);
int ech_group_size(const ech_group *group);
int ech_group_index(const ech_group *group); /* of this rank among the members */

/* ---- collectives: every member calls, in the same order ---- */

/* Whether the backend has this reduction; false for LIBRARY on `local`. */
bool ech_reduction_supported(const ech_comm_backend *backend, ech_reduction reduction);

/* Does the setup that the first ech_group_reduce of that kind would do: for LIBRARY, makes the MPI
 * communicator, which blocks the rank's other threads until all members have called. Collective. */
ech_status ech_group_prepare(ech_group *group, ech_reduction reduction);
/* All-reduce of gradients: x (n, fp32 or fp64, contiguous) of every member becomes the sum over the
 * members, with the same bits on all of them. DIRECT adds each element in member order, so its bits do not
 * depend on n or on the element's position. DIRECT and RING send 2(N-1)/N·bytes per member, NAIVE
 * (N-1)·bytes; LIBRARY counts the bytes of x, not what the library sends. `scratch`:
 * ech_reduction_scratch bytes. */
ech_status ech_group_reduce(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                            void *scratch);

/* ech_group_reduce in three parts, to overlap consecutive sums: the next sum may begin, also over another
 * group, after this one's run and before its end. Its first messages then follow this one's last ones
 * without a gap on a slow link. */
typedef struct ech_reduction_row ech_reduction_row;
typedef struct ech_sum {
    ech_group *group;
    const ech_reduction_row *row;
    char *x, *scratch;  /* scratch may be reused after run */
    int64_t n, segment; /* elements in all, and of one message */
    size_t item;        /* bytes of an element */
    ech_dtype dtype;
} ech_sum;
/* Starts messages and does not wait, except in a group's first ECH_REDUCTION_LIBRARY (ech_group_prepare). */
ech_status ech_sum_begin(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                         void *scratch, ech_sum *out);
ech_status ech_sum_run(const ech_sum *sum);
ech_status ech_sum_end(const ech_sum *sum);

typedef enum ech_fold { ECH_FOLD_SUM, ECH_FOLD_MAX } ech_fold;
/* All-reduce of a few scalars (counts, norms, flags): values[n], fp64, become the sum or maximum over the
 * members, taken in member order. A NaN on any member gives NaN on all, for MAX too. */
ech_status ech_group_fold(ech_group *group, ech_fold fold, double *values, int n);
ech_status ech_group_barrier(ech_group *group);
/* Copies member `root`'s data to all members. */
ech_status ech_group_broadcast(ech_group *group, int root, void *data, size_t bytes);

/* ---- collectives of tensor, sequence and context parallelism (comm/collective.h) ----
 *
 * Shards are those of ech_collective_shard_first; they may be uneven or empty. Buffers must not overlap
 * unless said. */

/* x (n, fp32 or fp64, contiguous) of every member becomes the sum over the members, added in member order:
 * the bits of a reduce-scatter followed by an all-gather, and of DIRECT; the same on all members.
 * `scratch`: ech_collective_scratch bytes. Errors: ECH_EUNSUPPORTED for other dtypes. */
ech_status ech_group_all_reduce(ech_group *group, const ech_tensor *x, void *scratch);
/* whole (n elements of `item` bytes): its shard i becomes member i's `mine`. In place: `mine` may point to
 * this member's shard of `whole`. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n);
/* mine: this member's shard of the sum of all members' x (n, fp32 or fp64, contiguous), added in member
 * order. In place: `mine` may point to that shard of x; otherwise x is not changed. `scratch`:
 * ech_collective_scratch bytes. Errors: ECH_EUNSUPPORTED for other dtypes. */
ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch);
/* Both buffers hold N blocks of `bytes` bytes: block i of `to` goes to member i, block i of `from` comes
 * from member i. */
ech_status ech_group_all_to_all(ech_group *group, const void *to, void *from, size_t bytes);
/* Ring shift: sends `bytes` bytes to member (index + distance) mod N and receives as many from member
 * (index - distance) mod N. If distance is a multiple of N, copies. */
ech_status ech_group_shift(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes);

/* Kinds of call that are counted apart: gradient reductions (ech_group_reduce), the collectives of
 * collective.h, and all others. */
typedef enum ech_comm_counted {
    ECH_COMM_REDUCES,
    ECH_COMM_COLLECTIVES,
    ECH_COMM_OTHERS,
    ECH_COMM_COUNTS
} ech_comm_counted;
ech_comm_count ech_group_count(const ech_group *group, ech_comm_counted kind);

/* The version of this build's MPI, as "Open MPI 4.1.4", and the path of its launcher. */
const char *ech_mpi_version(void);
const char *ech_mpi_launcher(void);

/* For tests of `mpi`: sends complete only when received (MPI_Issend), and messages are sent in parts of
 * part_bytes. The same on all ranks, before any message. */
void ech_mpi_tune(ech_comm *comm, bool synchronous, size_t part_bytes);

#endif
