/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter: it runs the lists of a rank's plan, with one handler per kind of step.
 *
 *     ech_exec_create(&setup, &exec);             // arena, groups, lanes' threads
 *     ech_exec_run(exec, ECH_LIST_INIT, 0);
 *     for (step = 0; ...; step++) ech_exec_run(exec, ECH_LIST_TRAIN, step); // step: training step
 *
 * The compute lane is the calling thread. Send and receive share one thread, copy and disk share
 * one, and reduce and collective have one each. A thread sleeps while a list runs that has no step
 * for it. On a device that is not immediate these threads put their steps on queues, and the
 * calling thread waits at the list's end. Steps of a lane begin in order, and each waits for the
 * steps it depends on. A message begins as soon as its step may; many may be in flight at the same
 * time.
 *
 * All memory that steps touch is in one arena, at the plan's offsets. A step that fails raises the
 * job's abort flag, so that no rank on this machine waits for this one. ech_exec_run then returns
 * an error, on the other ranks ECH_EABORTED, and its caller ends the job (ech_comm_abort).
 *
 * All calls are for the thread that created the interpreter. Collective over all ranks are only
 * ech_exec_create, ech_exec_run (if the list's steps communicate) and ech_exec_find_nonfinite.
 */
#ifndef ECH_EXEC_EXEC_H
#define ECH_EXEC_EXEC_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/peft.h"
#include "checkpoint/shards.h"
#include "comm/comm.h"
#include "data/data.h"
#include "device/device.h"
#include "schedule/plan.h"
#include "schedule/protocol/protocol.h"
#include "schedule/protocol/serving.h"

typedef struct ech_exec ech_exec;

typedef struct ech_exec_setup {
    const ech_config *config;
    const ech_plan *plan;
    const ech_device *device;
    ech_comm *comm;
} ech_exec_setup;

/* Makes the plan's groups, the arena and the lanes' threads. Everything in the setup is
 * borrowed. */
ech_status ech_exec_create(const ech_exec_setup *setup, ech_exec **out);
void ech_exec_destroy(ech_exec *exec); /* waits for a pending checkpoint; accepts NULL */
/* The outcome of parallel.pin, for logs: "pinned", or "not pinned: " and the reason. */
const char *ech_exec_binding(const ech_exec *exec);

/* Lifts the throttle of memory.offload_bandwidth as soon as *is_urgent is true, so that the run
 * ends quickly. Borrowed; any thread or signal handler may set it. NULL: never. */
void ech_exec_hurry_on(ech_exec *exec, const atomic_bool *is_urgent);

/* Runs a list for training step `step`, which selects the batch and the random numbers. A list of
 * several turns runs one training step per turn, starting at `step`. All ranks run the same lists
 * in the same order. On ECH_OK every step of every lane is complete; only a checkpoint may still be
 * in progress (see saving). */
ech_status ech_exec_run(ech_exec *exec, ech_list_kind list, int64_t step);

/* Sets the loader from which COUNT and LOAD get batches in lists of that purpose. Borrowed. */
void ech_exec_set_loader(ech_exec *exec, ech_purpose purpose, ech_loader *loader);
/* Sets the token that LOAD passes to the next run of ECH_LIST_GENERATE, and its position < T in the
 * text, from 0. Earlier runs must have processed the tokens at the positions before it, one each:
 * their keys and values are in the KV cache. */
void ech_exec_set_token(ech_exec *exec, int32_t token, int64_t position);

/* ---- saving ---- ECH_LIST_SAVE begins a checkpoint. On every rank a separate thread writes,
 * verifies and commits it, then removes checkpoints that are no longer wanted
 * (ech_checkpoint_prune). These threads have a channel of their own. If the plan has a snapshot,
 * the list only copies into it and ends, and training continues during the write; otherwise the
 * list ends once the checkpoint is committed. At most one checkpoint is pending: the next one waits
 * for it. */

/* Call it on every rank before each ECH_LIST_SAVE. Sets the folder of checkpoints and what the next
 * one holds besides tensors. keep, best, proven: as in ech_checkpoint_prune. Copies everything. */
void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info,
                       int64_t keep, int64_t best, int64_t proven);

/* Called by the thread that writes a checkpoint, on its rank, before it writes and before it
 * removes older ones. It completes whatever must precede these. An error on one rank is an error on
 * all; nothing is then written or removed. */
typedef ech_status ech_save_gate(void *context);
void ech_exec_gate_saves(ech_exec *exec, ech_save_gate *gate, void *context); /* NULL: no gate */

/* The dtype of the weights in model/: checkpoint.dtype. If the run's weights have another dtype,
 * they are also in state/, as NAME.master. */
ech_dtype ech_exec_saved_dtype(const ech_exec *exec);

/* A committed checkpoint. */
typedef struct ech_exec_saved {
    int64_t step;          /* its training step: ech_checkpoint_info.step */
    int64_t bytes;         /* of all its files, over all ranks */
    double seconds;        /* from the start of its thread to its commit */
    double waited_seconds; /* its ECH_LIST_SAVE's wait for the previous checkpoint */
} ech_exec_saved;
/* Returns true if a committed checkpoint has not been returned yet; *out: the oldest of these. Call
 * it after each ECH_LIST_SAVE and each ech_exec_finish_save, before the next of either. Never
 * waits. */
bool ech_exec_take_saved(ech_exec *exec, ech_exec_saved *out);
/* Waits for the pending checkpoint, if any, and returns the status of the last one. If one could
 * not be written, every rank gets an error (ECH_EABORTED where another rank failed), here or from
 * the next ECH_LIST_SAVE. */
ech_status ech_exec_finish_save(ech_exec *exec);

/* A turn's results, as the last READ fetched them. Under asynchronous schedules learning_rate, clip
 * and updates belong to this stage. */
typedef struct ech_readings {
    double loss;      /* loss_sum / tokens; 0 if there are no tokens */
    double tokens;    /* sum of the targets' weights */
    double loss_sum;  /* over all targets, times their weights */
    /* of samples with classes, outside of training: weights of those whose class has the largest
     * logit, or one of the five largest */
    double hits, hits_of_5;
    bool stop;        /* some rank requested it (ech_exec_ask) */
    /* of all parameters, before gradient clipping; this and the following fields: only for
     * ECH_LIST_TRAIN */
    double grad_norm;
    double learning_rate; /* of the step; 0 if its update was withheld */
    double clip;          /* gradient clipping factor, <= 1; 0 if the update was withheld */
    double loss_scale;    /* of this turn's gradients; the norm excludes it */
    /* share of the turn (from the previous turn's beginning to its own) that compute lanes spent
     * waiting, mean over ranks without servers; NaN: unknown */
    double idle;
    /* pushes of others applied since a push's worker got its weights, mean over the step's
     * pushes */
    double staleness;
    /* Gradients are sent as factors (factored): mean rank of a factor, that is, its columns that
     * are not rounding errors; and the share of matrices of lower rank than their factors.
     * Otherwise not set. */
    bool factored;
    double rank, rank_short;
    int64_t updates; /* ech_exec_updates after this turn */
    bool withheld;   /* no update was made, because of a NaN or infinity */
    bool overflow;   /* withheld because gradients overflowed under a dynamic loss scale above 1 */
    const double *reports; /* [model.reports], over all ranks; borrowed until the next run */
    bool save_now;         /* some rank requested it (ech_exec_ask) */
    bool save_failed;      /* a checkpoint was not written: ech_exec_finish_save returns why */
    bool hash_differs;     /* only for ECH_LIST_CHECK: replicas of some parameter differ in bits */
} ech_readings;
/* [turns of the list that ran last]. Borrowed. */
const ech_readings *ech_exec_readings(const ech_exec *exec);
/* Copies between the host and this rank's device memory, or within it, after the pending work of
 * the compute lane. Complete on return; a fault of the device makes the run fail. During a list,
 * only observers may call it. */
void ech_exec_copy(ech_exec *exec, void *to, const void *from, size_t bytes);
/* Copies a contiguous local tensor to the host as fp64 (also from uint8), and back. */
void ech_exec_read(ech_exec *exec, const ech_tensor *x, double *out);
void ech_exec_write(ech_exec *exec, const ech_tensor *x, const double *from);
/* The logits [V] of the last ECH_LIST_GENERATE on this rank, as fp64. Borrowed. */
const double *ech_exec_logits(const ech_exec *exec);

/* Sets the learning rate of all following steps, in place of the run's curve (below 0: the curve's
 * again), and the norm that replaces optimizer.clip_norm. The same on all ranks, between lists. */
void ech_exec_set_rate(ech_exec *exec, double rate);
void ech_exec_set_clip_norm(ech_exec *exec, double norm);

/* Requests that all ranks stop, or save now. The next ECH_LIST_TRAIN or ECH_LIST_VALIDATE passes
 * the request to all ranks (ech_readings); a validation passes only `stop`. */
void ech_exec_ask(ech_exec *exec, bool stop, bool save_now);

/* The loss scale of the next training step and its state if it is dynamic; the same on all
 * ranks. */
ech_scaler ech_exec_scaler(const ech_exec *exec);
/* The number of updates so far, which is the position on the learning-rate curve; saved in
 * checkpoints. */
int64_t ech_exec_updates(const ech_exec *exec);
/* Sets it, to replay steps. */
void ech_exec_set_updates(ech_exec *exec, int64_t updates);

/* Loads parameters, optimizer states and the number of updates. A forward-only plan loads only
 * parameters, from model/; an evaluator loads them in full precision from state/ if it has them. */
ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint);
/* Checks that a folder of weights has exactly this model's parameters without adapters, in their
 * shapes; on rank 0 also a tied head. The folder `adapters` (may be NULL) must have exactly the
 * model's adapters. */
ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights,
                                  const ech_peft *adapters);
/* Loads parameters, in all weight versions of the plan, from folders that passed
 * ech_exec_check_weights. adapters NULL: adapters keep their values. Each rank reads its own boxes.
 * This is also how weights are resharded on import. */
ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights,
                                 const ech_peft *adapters);

/* ---- whole tensors, between lists: every parameter in the type that training keeps it in, then
 * every state, then gradients if they are kept, in the order of model->param, under any layout ----
 */

/* Keeps each train list's gradients in host memory, eight bytes a number, until the next one's:
 * summed over ranks, a mean over targets, before clipping, without the loss scale; in fp32, or fp64
 * where training has them so. Takes ech_exec_observe. To be called on all ranks, before the first
 * list. Errors: protocols, schedules and compression without such a sum. */
ech_status ech_exec_keep_gradients(ech_exec *exec);
/* Whether a step has been made since. */
bool ech_exec_has_gradients(const ech_exec *exec);

typedef struct ech_exec_whole {
    const char *name;  /* the parameter's; borrowed, like the next */
    const char *state; /* "exp_avg", "gradient"; NULL: the parameter itself */
    bool is_gradient;  /* which can only be read, after a step */
    ech_dtype dtype;
    int dims;
    int64_t shape[ECH_MAX_DIMS], bytes;
} ech_exec_whole;
int ech_exec_whole_count(const ech_exec *exec);
bool ech_exec_whole_at(const ech_exec *exec, int index, ech_exec_whole *out); /* false: none */
/* Copies a whole tensor to `out` (NULL: not wanted on this rank), and from `from`, the same on all
 * ranks. Between averages of local replicas, reading gives one of them. Collective. */
ech_status ech_exec_read_whole(ech_exec *exec, int index, void *out);
ech_status ech_exec_write_whole(ech_exec *exec, int index, const void *from);

/* ---- inspection, for verify and tests ---- Tensors are this rank's shards, in the arena. `param`:
 * index in model->param; this rank must have it. */

/* The newest version of a parameter when the running list began; between lists, the newest. For
 * gathered weights (ech_bucket_is_gathered), the part that this rank stores (ech_plan_own): as rows
 * if it consists of whole rows, otherwise one-dimensional. */
ech_tensor ech_exec_param(const ech_exec *exec, int param);
/* The version after `version` updates since the list began; 0: ech_exec_param; -1: the one before,
 * if the plan has it. */
ech_tensor ech_exec_param_at(const ech_exec *exec, int param, int version);
/* A gradient of turn 0, multiplied by the loss scale, or a layer state's sum of partials; only in
 * an observer of ECH_LIST_TRAIN. */
ech_tensor ech_exec_gradient(const ech_exec *exec, int param);
/* One number of turn 0's row of scalars at `index` (ech_scalar); only in such an observer. */
double ech_exec_scalar(ech_exec *exec, int index);
void ech_exec_set_scalar(ech_exec *exec, int index, double value);

/* ---- pushes (asynchronous parameter servers) ---- */

/* The pushes that this rank served in the last list, turn by turn; NULL, *n 0: it serves none. */
const ech_serve *ech_exec_serves(const ech_exec *exec, int *n);
/* Makes the rank serve pushes in a given order, the same on all servers, and wait for them, instead
 * of in the order of arrival. */
void ech_exec_order_serves(ech_exec *exec, ech_serve_order *order, void *context);
/* [workers] the training step of each worker's next push; the same on all ranks after a span. NULL:
 * there are no pushes. Borrowed. */
const int64_t *ech_exec_clocks(const ech_exec *exec);
/* Counts the rank's updates as pushes of `workers` workers: the learning rate is their training
 * step's, divided by the number of workers. */
void ech_exec_set_workers(ech_exec *exec, int workers);
/* Layer states follow the samples of this replica alone, of so many. Ranks of diverging replicas
 * and workers that push begin so. A single rank that stands for each of them in turn must say
 * which. */
void ech_exec_set_replica(ech_exec *exec, int replicas, int replica);

/* All factors of a step's bucket in the running list, for steps of compressed gradients except
 * RESIDUAL: left factors first (ech_plan_param.left, right). */
ech_tensor ech_exec_factors(const ech_exec *exec, const ech_step *step);
/* The part of the summed gradient that this rank has: in a sharded bucket only its own part
 * (ech_plan_own), one-dimensional. For layer states, of the given turn. */
ech_tensor ech_exec_own_gradient(const ech_exec *exec, int param, int turn);
/* Arranges numbers that were read from a table with listed rows (ech_listed): moves the turn's
 * rows, which lie in front, to their places in the table, and makes all other rows zero. Leaves
 * numbers of other parameters as they are. */
void ech_exec_spread_rows(ech_exec *exec, int param, int turn, double *numbers);
/* The part of ech_exec_param_at that this rank updates: in a sharded bucket only its own part. */
ech_tensor ech_exec_own_param(const ech_exec *exec, int param, int version);
/* Optimizer state number `state`. */
ech_tensor ech_exec_state(const ech_exec *exec, int param, int state);

typedef void (*ech_observer)(void *context, ech_exec *exec, const ech_step *step);
/* Sets a function that the compute lane calls after each of its steps. NULL: none. */
void ech_exec_observe(ech_exec *exec, ech_observer observer, void *context);

typedef struct ech_finding {
    int rank;       /* -1: none was found */
    int step;       /* index in that rank's train list */
    int block;      /* -1: it is not in a block */
    int micro;   /* index among the rank's micro-batches; -1: it is in a parameter, or in a sum */
    bool summed; /* it appears in a gradient only after the sum over ranks */
    char what[192]; /* "gradient of model.layers.1...., element 17 is nan, in step B0.1/3" */
} ech_finding;
/* Finds the first NaN or infinity of training step `step`: runs it a second time, without an
 * update, and checks parameters and everything that calls write. *out is the same on all ranks.
 * Only for synchronous schedules. */
ech_status ech_exec_find_nonfinite(ech_exec *exec, int64_t step, ech_finding *out);

/* The measured peak of each memory kind so far, in bytes; after all lists, equal to the plan's. */
void ech_exec_peaks(const ech_exec *exec, int64_t peak[ECH_MEMORY_KINDS]);
/* The measured peak of all working memory together; after all lists, equal to
 * ech_plan_working's. */
int64_t ech_exec_working(const ech_exec *exec);
/* What this rank has sent so far to sum gradients over ranks, and to gather weights that were
 * updated in shards. */
ech_comm_count ech_exec_reduce_count(const ech_exec *exec);
/* Counts of what this rank has done so far. */
typedef struct ech_exec_counts {
    /* Bytes of values that FETCH and OFFLOAD have copied from one space to another, without
     * alignment. Each entry is written by one lane. */
    int64_t copied[ECH_SPACES][ECH_SPACES];
    ech_comm_count messages[ECH_MESSAGES]; /* by kind; .calls: steps that sent */
    /* Counted rows that this rank should have sent, according to the count tables. The channels
     * count what was sent, and the exchanges of the tables themselves. */
    ech_comm_count exchanged;
    int64_t tables_fetched; /* waits for count tables, to know how many rows go to each rank */
    /* By lane: collectives of ech_exec_reduce_count that began before the previous one had ended */
    int64_t sums_ahead[ECH_LANES];
    /* Waits of this rank's thread for queues. A list waits once, at its end; an asynchronous list
     * of several turns once per turn; observers and NaN searches at each look. */
    int64_t host_waits;
} ech_exec_counts;
const ech_exec_counts *ech_exec_counted(const ech_exec *exec); /* borrowed */
/* What this rank has sent so far over one channel by calls of that kind; zeros if it has no such
 * channel. */
ech_comm_count ech_exec_channel_count(const ech_exec *exec, ech_layout_group group, ech_lane lane,
                                      ech_comm_counted kind);
/* The payload bytes that this rank has sent so far, without checkpoints. */
int64_t ech_exec_sent_bytes(const ech_exec *exec);

/* Sets whether the next runs of lists record when steps and calls begin and end. */
void ech_exec_record(ech_exec *exec, bool on);
/* Times of the last run of a list, in seconds of ech_clock_now. */
typedef struct ech_exec_times {
    double began, ended;   /* of the run, on all lanes */
    double *begins, *ends; /* [steps of its list]; for a message: posted and completed */
    /* [ticks of its list]: the end of each call of F, B and W; at COUNT's tick, the arrival of the
     * batch. Other ticks are not set. */
    double *marks;
} ech_exec_times;
const ech_exec_times *ech_exec_get_times(const ech_exec *exec);
ech_group *ech_exec_world(ech_exec *exec); /* the channel of all ranks, for use between lists */

#endif
