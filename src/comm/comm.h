/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that talk: an endpoint per rank, groups of ranks, point-to-point messages, collectives,
 * and counters of every byte. Backends (`local`: ranks as threads of one process; `mpi`) carry only
 * point-to-point messages; the collectives are ours, written once over those, so that every backend
 * gives the same bits.
 *
 * All waits are test loops with backoff under a deadline. They also watch the job's abort flag:
 * when one rank fails, the others return ECH_EABORTED instead of hanging.
 *
 * Several threads of a rank may use its endpoint at once, each with channels and requests of its own. A
 * channel is a set of ranks on a lane: two channels, also of the same ranks, or a channel and messages
 * never disturb each other. One thread at a time may use a channel or a request. Groups are created in the
 * same order on all members, hence best before the threads part. A channel's first ECH_REDUCTION_LIBRARY
 * keeps the rank's other threads out until all members have come, so such reductions belong to one thread of
 * a rank.
 */
#ifndef ECH_COMM_COMM_H
#define ECH_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/collective.h"
#include "comm/reduction.h"
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

/* A backend's row: how ranks find each other. */
typedef struct ech_comm_backend ech_comm_backend;
const ech_comm_backend *ech_comm_of_kind(ech_comm_kind kind);
/* NULL if this build has no such backend. */
const ech_comm_backend *ech_comm_find(const char *name);
/* Space-separated names of the backends in this build. */
const char *ech_comm_names(void);

/* `local`: makes `size` endpoints of one process, endpoints[r] for rank r's thread.
 * `mpi` (size 0: whatever the launcher started): joins MPI_COMM_WORLD and fills endpoints[0] with
 * this process's own. Ranks are those of MPI_COMM_WORLD if there the processes of each machine follow
 * each other, otherwise ordered by machine, then by those. Refused with a hint when this process was started as one of several by a
 * launcher that this MPI does not know, so that it would be a lone rank. Collective under mpi. */
ech_status ech_comm_open(const ech_comm_backend *backend, int size, double deadline_seconds,
                         ech_comm **endpoints);
/* Collective: every rank closes its own, groups destroyed before and no other thread in it any more.
 * Accepts NULL. After an abort it does not wait; under mpi it then ends the process with the job. */
void ech_comm_close(ech_comm *comm);

int ech_comm_rank(const ech_comm *comm);
int ech_comm_size(const ech_comm *comm);
const char *ech_comm_name(const ech_comm *comm); /* "local" or "mpi" */
int ech_comm_local_size(const ech_comm *comm);   /* ranks on this machine; they share its cores */
/* Whether all of ranks[n] are on this rank's machine. The ranks of a machine follow each other, under
 * mpi too, wherever the launcher put them. */
bool ech_comm_is_near(const ech_comm *comm, const int *ranks, int n);
const char *
ech_comm_launcher(const ech_comm_backend *backend);            /* "mpirun" of this build, or NULL */
const char *ech_comm_version(const ech_comm_backend *backend); /* "Open MPI 4.1.4", "threads" */

/* Raises the abort flag and nothing else. From any thread: what a failing lane does, so that its own
 * rank's other lanes and this machine's other ranks stop waiting. */
void ech_comm_raise(ech_comm *comm);

/* Raises the abort flag: every rank's waits end with ECH_EABORTED. Under mpi it also ends the job
 * (MPI_Abort) after the others had a moment to print. Not collective. */
void ech_comm_abort(ech_comm *comm);

/* Whom this rank waits for, shown by whoever reports a passed deadline; -1: nobody. For who polls
 * with ech_comm_test; waits mark themselves, and one that ends leaves this mark. A rank has one mark
 * for all of its threads: the last to set it wins, so who goes on waiting sets it again every few
 * milliseconds, which also shows that it has not been stopped. */
void ech_comm_set_wait(ech_comm *comm, int peer);

/* Where this rank is, shown by whoever reports a passed deadline. The first 39 bytes of `what` are
 * copied. step -1: outside of any step. */
void ech_comm_set_position(ech_comm *comm, int64_t step, const char *what);
/* This rank writes the checkpoint of a step, beside whatever else it does; -1: it no longer does. */
void ech_comm_set_saving(ech_comm *comm, int64_t step);
/* A training step is done: whoever watches over the job sees that it gets on. */
void ech_comm_count_step(ech_comm *comm);
/* Starting the job again would not go on from where it is: whoever watches over it is not to do so. */
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

/* Started, not finished: the buffer belongs to the transfer until ech_comm_wait. Messages between
 * two ranks with one tag arrive in order. Rendezvous semantics: a send may complete only when its
 * receive is posted. Receives must post exactly the sent number of bytes. tag < 2^20. */
ech_status ech_comm_send_start(ech_comm *comm, int peer, int tag, const void *data, size_t bytes,
                               ech_request *request);
ech_status ech_comm_receive_start(ech_comm *comm, int peer, int tag, void *data, size_t bytes,
                                  ech_request *request);
/* Never waits. After an abort, from whichever thread, a request that is not done is ECH_EABORTED.
 * After any error no transfer of this endpoint touches a buffer any more. */
ech_status ech_comm_test(ech_comm *comm, ech_request *request, bool *done);
/* The deadline of who polls: `seconds` is how long ech_comm_test has said that the request is not
 * done. Past the deadline everything ends as in ech_comm_wait, with ECH_ECOMM and its report. */
ech_status ech_comm_overdue(ech_comm *comm, const ech_request *request, double seconds);
/* Waits for all of them, under the deadline. On any error, also of another thread's wait, all
 * transfers of this endpoint are withdrawn. */
ech_status ech_comm_wait(ech_comm *comm, ech_request *requests, int n);

/* ---- groups ---- */

/* A channel: a set of ranks, the group, on one of its lanes. */
typedef struct ech_group ech_group;
enum { ECH_GROUP_LANES = 8 };

/* What is counted, per group. Bytes are payload bytes this rank sent. */
typedef struct ech_comm_count {
    int64_t calls;
    int64_t messages;
    int64_t bytes;
} ech_comm_count;

/* The members, ascending and the same on all of them; this rank is one. `name` ("data", "world")
 * labels counters and errors. Collective over the members by convention: same calls, same order,
 * which also gives each group its tag space. The channel is lane 0. */
ech_status ech_group_create(ech_comm *comm, const char *name, const int *ranks, int n,
                            ech_group **out);
/* The same members on another lane, below ECH_GROUP_LANES, each once. Not collective: the tags follow from
 * the group's and the lane. Each channel is destroyed by itself, in any order. */
ech_group *ech_group_open(const ech_group *group, int lane);
void ech_group_destroy(ech_group *group); /* accepts NULL */
/* The group is of those who write a checkpoint while their ranks go on with other things: the board
 * shows its waits beside those of the ranks (ech_comm_set_saving). */
void ech_group_set_saves(ech_group *group);
/* Says on the board that such work goes on between two collectives. */
void ech_group_show_life(ech_group *group);
/* Seconds that a wait for other members may last. */
double ech_group_deadline(const ech_group *group);
int ech_group_size(const ech_group *group);
int ech_group_index(const ech_group *group); /* this rank's place among the members */
const char *ech_group_name(const ech_group *group);

/* ---- collectives: every member calls, in the same order ---- */

/* False where the backend has no such reduction (`mpi`'s own on `local`). */
bool ech_reduction_supported(const ech_comm_backend *backend, ech_reduction reduction);

/* Does now what the first ech_group_reduce of that kind would do first, which may keep other threads of
 * a rank from sending until all members have come. Collective. */
ech_status ech_group_prepare(ech_group *group, ech_reduction reduction);
/* x (n, fp32 or fp64, contiguous): every member's x becomes the sum over the members. Bit-identical
 * on all members; under DIRECT each element is added in member order, whatever the cut.
 * DIRECT and RING send 2(N-1)/N·bytes per member; NAIVE (N-1)·bytes; of LIBRARY only the bytes
 * handed over are counted, since its messages are its own affair. `scratch`
 * holds ech_reduction_scratch bytes. */
ech_status ech_group_reduce(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                            void *scratch);

/* The same in three parts, begin, run, end, where sums follow each other: the next one's begin, also over
 * another group, may come before this one's end. Then its first messages are on their way behind the
 * last ones of this one, and a slow link does not idle in between. */
typedef struct ech_reduction_row ech_reduction_row;
typedef struct ech_sum {
    ech_group *group;
    const ech_reduction_row *row;
    char *x, *scratch; /* scratch: free again after run */
    int64_t n;
    size_t item; /* bytes of an element */
    ech_dtype dtype;
} ech_sum;
/* Waits for nobody, but for a group's first ECH_REDUCTION_LIBRARY (ech_group_prepare). */
ech_status ech_sum_begin(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                         void *scratch, ech_sum *out);
ech_status ech_sum_run(const ech_sum *sum);
ech_status ech_sum_end(const ech_sum *sum);

typedef enum ech_fold { ECH_FOLD_SUM, ECH_FOLD_MAX } ech_fold;
/* values[n] in fp64, n small (counts, norms, flags): folded over the members in member order. A NaN
 * on any member gives NaN everywhere, for MAX too. */
ech_status ech_group_fold(ech_group *group, ech_fold fold, double *values, int n);
ech_status ech_group_barrier(ech_group *group);
/* Member `root`'s bytes on all members. */
ech_status ech_group_broadcast(ech_group *group, int root, void *data, size_t bytes);

/* ---- collectives of tensor, sequence and context parallelism (comm/collective.h) ----
 *
 * Pieces are those of ech_piece_first: of n elements in all, uneven and empty ones allowed. Buffers
 * do not overlap unless said. */

/* x (n, fp32 or fp64, contiguous): every member's x becomes the sum over the members, added in member
 * order: what ech_group_reduce_scatter and ech_group_all_gather give, and DIRECT. Bit-identical on
 * all members. `scratch`: ech_collective_scratch bytes. Errors: ECH_EUNSUPPORTED for other dtypes. */
ech_status ech_group_all_reduce(ech_group *group, const ech_tensor *x, void *scratch);
/* whole (n elements of `item` bytes): piece i is member i's `mine`, which may be its piece of
 * `whole`, in place, where nothing is copied then. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n);
/* mine: this member's piece of the sum of all members' x (n, fp32 or fp64, contiguous), added in
 * member order. It may be that piece of x, in place; otherwise x is not changed. `scratch`:
 * ech_collective_scratch bytes. Errors: ECH_EUNSUPPORTED for other dtypes. */
ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch);
/* Pieces of `bytes` bytes, N of them in each buffer: piece i of `to` goes to member i, piece i of
 * `from` comes from member i. */
ech_status ech_group_all_to_all(ech_group *group, const void *to, void *from, size_t bytes);
/* Sends `bytes` bytes to the member `distance` places further on (backwards if negative), modulo N,
 * and receives as many from the one as far behind. A multiple of N copies. */
ech_status ech_group_shift(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes);

/* Gradient reductions (ech_group_reduce), the collectives of collective.h, and all other calls,
 * counted apart. */
ech_comm_count ech_group_reduce_count(const ech_group *group);
ech_comm_count ech_group_collective_count(const ech_group *group);
ech_comm_count ech_group_other_count(const ech_group *group);

#endif
