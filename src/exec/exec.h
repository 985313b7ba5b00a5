/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter: runs the lists of a rank's plan, one handler per kind of step.
 *
 *     ech_exec_create(&setup, &exec);             // arena, groups, lanes' threads
 *     ech_exec_run(exec, ECH_LIST_INIT, 0);
 *     for (step = 0; ...; step++) ech_exec_run(exec, ECH_LIST_TRAIN, step); // step: training step
 *
 * The compute lane is the calling thread; send and receive share one thread, reduce and collective
 * have one each, and copy and disk share one. A thread sleeps while a list runs that has no step
 * for it. On a device that is not immediate they put their steps on queues, and the calling thread
 * waits at the list's end. Steps of a lane begin in order; a step waits for the steps that it comes
 * after. A message begins as soon as its step may; many may be under way at once. All memory that
 * steps touch is in one arena, at the plan's offsets. A step that fails raises the job's abort
 * flag, so that no rank on this machine waits for this one; ech_exec_run then returns an error, on
 * the other ranks ECH_EABORTED, and its caller ends the job (ech_comm_abort).
 *
 * All calls are for the thread that created the interpreter. Collective over all ranks are
 * ech_exec_create, ech_exec_run (if the list's steps communicate) and ech_exec_find_nonfinite; the
 * others are not.
 */
#ifndef ECH_EXEC_EXEC_H
#define ECH_EXEC_EXEC_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
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

/* Makes the plan's groups, the arena and the lanes' threads. Everything in the setup is borrowed.
 * */
ech_status ech_exec_create(const ech_exec_setup *setup, ech_exec **out);
void ech_exec_destroy(ech_exec *exec); /* waits for a checkpoint under way; accepts NULL */
/* The outcome of parallel.pin, for logs: "pinned", or "not pinned: " and why. */
const char *ech_exec_binding(const ech_exec *exec);

/* Once *is_urgent, the run is to come to an end: from then on memory.offload_bandwidth slows
 * nothing down. Borrowed; for any thread and handler to set. NULL: never. */
void ech_exec_hurry_on(ech_exec *exec, const atomic_bool *is_urgent);

/* Runs a list for training step `step`, which selects the batch and the random numbers; a list of
 * several turns runs one training step a turn, from `step` on. All ranks run the same lists in the
 * same order. When it returns ECH_OK, every step of every lane is complete; a checkpoint may still
 * be written (see saving). */
ech_status ech_exec_run(ech_exec *exec, ech_list_kind list, int64_t step);

/* Sets the loader from which COUNT and LOAD take batches in lists of that purpose. Borrowed. */
void ech_exec_set_loader(ech_exec *exec, ech_purpose purpose, ech_loader *loader);
/* Sets the token that LOAD gives to the next run of ECH_LIST_GENERATE, and its position < T in the
 * text, from 0. Earlier runs had the tokens at the positions before it, one each: their keys and
 * values are in the KV cache. */
void ech_exec_set_token(ech_exec *exec, int32_t token, int64_t position);

/* ---- saving ----
 *
 * ECH_LIST_SAVE begins a checkpoint. On every rank another thread writes, verifies and commits it,
 * and then removes those that are not wanted any more (ech_checkpoint_prune); these threads have a
 * channel of their own. Where the plan has a snapshot, the list only copies into it and ends, and
 * training goes on while that is written; otherwise the list ends when the checkpoint is there. At
 * most one checkpoint is under way: the next one waits for it. */

/* To be called on every rank before each ECH_LIST_SAVE. Sets the folder of checkpoints and what the
 * next one holds besides tensors; keep and proven: as in ech_checkpoint_prune. All is copied. */
void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info,
                       int64_t keep, int64_t proven);

/* The thread that writes a checkpoint calls it on its rank before it writes, and before it removes
 * older ones: it completes what must come before. An error on one rank is an error on all, and
 * nothing is written or removed then. */
typedef ech_status ech_save_gate(void *context);
void ech_exec_gate_saves(ech_exec *exec, ech_save_gate *gate, void *context); /* NULL: no gate */

/* The dtype of the weights in model/: checkpoint.dtype. If the run's weights have another one, they
 * are in state/, too, as NAME.master. */
ech_dtype ech_exec_saved_dtype(const ech_exec *exec);

/* A checkpoint that was committed. */
typedef struct ech_exec_saved {
    int64_t step;          /* its training step: ech_checkpoint_info.step */
    int64_t bytes;         /* of all of its files, over all ranks */
    double seconds;        /* from the start of its thread to its commit */
    double waited_seconds; /* its ECH_LIST_SAVE's wait for the checkpoint before */
} ech_exec_saved;
/* Whether a checkpoint was committed that no call has told of; *out: which, the older first. Call
 * it behind each ECH_LIST_SAVE and each ech_exec_finish_save, before the next of these. Never waits
 * for one. */
bool ech_exec_take_saved(ech_exec *exec, ech_exec_saved *out);
/* Waits for the checkpoint under way, if any; returns the status of the last one. If one could not
 * be written, every rank gets an error (ECH_EABORTED where another rank failed), here or from the
 * next ECH_LIST_SAVE. */
ech_status ech_exec_finish_save(ech_exec *exec);

/* What the last READ wrote of a turn. Under asynchronous schedules learning_rate, clip and updates
 * are this stage's. */
typedef struct ech_readings {
    double loss;      /* loss_sum / tokens; 0 if there are no tokens */
    double tokens;    /* sum of the targets' weights */
    double loss_sum;  /* over all targets, times their weights */
    double grad_norm; /* of all parameters, before clipping; from here on: only of ECH_LIST_TRAIN */
    double learning_rate; /* of the step; 0 if its update was withheld */
    double clip;          /* factor of gradients, <= 1; 0 if the update was withheld */
    double loss_scale;    /* of this turn's gradients; those of the norm are without it */
    /* share of the time between the beginnings of the turn before and this one in which compute
     * lanes have waited for others, mean over ranks but servers; NaN: not known */
    double idle;
    /* pushes of others served since a push's worker got its weights, mean over the step's
     * pushes */
    double staleness;
    /* factored: gradients are sent as factors. Columns of a factor that were found to be no
     * rounding errors, mean over matrices; the share of matrices with fewer than their factors
     * have. Otherwise not set. */
    bool factored;
    double rank, rank_short;
    int64_t updates; /* ech_exec_updates after this turn */
    bool withheld;   /* no update was made, because of a NaN or infinity */
    bool overflow;   /* withheld because gradients overflowed under a dynamic loss scale above 1 */
    const double *reports; /* [model.reports], over all ranks; borrowed, until the next run */
    bool stop, save_now;   /* ech_exec_ask asked for it on some rank */
    bool save_failed;      /* a checkpoint was not written: ech_exec_finish_save returns why */
    bool hash_differs;     /* only of ECH_LIST_CHECK: replicas of some parameter differ in bits */
} ech_readings;
/* [turns of the list that ran last]. Borrowed. */
const ech_readings *ech_exec_readings(const ech_exec *exec);
/* Copies between the host and this rank's device memory, or within that, behind the compute lane's
 * work. Complete on return; a fault of the device makes the run fail. In a list for observers
 * alone. */
void ech_exec_copy(ech_exec *exec, void *to, const void *from, size_t bytes);
/* The numbers of a contiguous tensor of this rank's, as fp64 (also of uint8), and back. */
void ech_exec_read(ech_exec *exec, const ech_tensor *x, double *out);
void ech_exec_write(ech_exec *exec, const ech_tensor *x, const double *from);
/* The logits (V) that the last ECH_LIST_GENERATE gave on this rank, as fp64. Borrowed. */
const double *ech_exec_logits(const ech_exec *exec);

/* Sets what this rank asks of all: to stop, to save now. The next ECH_LIST_TRAIN tells all ranks
 * (ech_readings). */
void ech_exec_ask(ech_exec *exec, bool stop, bool save_now);

/* The loss scale of the next training step, and what a dynamic one follows from; the same on all
 * ranks. */
ech_scaler ech_exec_scaler(const ech_exec *exec);
/* How often this rank's thread has waited for what is on queues: a list does so once, at its end,
 * and an asynchronous one of several turns once a turn; observers and a search for a NaN do each
 * time that they look. */
int64_t ech_exec_host_waits(const ech_exec *exec);
/* The number of updates so far, which is the position on the learning-rate curve; checkpoints hold
 * it. */
int64_t ech_exec_updates(const ech_exec *exec);
/* Sets it, for who replays steps. */
void ech_exec_set_updates(ech_exec *exec, int64_t updates);

/* Fills parameters, optimizer states and the number of updates; a forward-only plan's parameters
 * only, from model/, or where it is an evaluator's as training has them: from state/, if that has
 * them in full. */
ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint);
/* Checks that a folder of weights has exactly this model's parameters, in their shapes; on rank 0
 * also a tied head. */
ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights);
/* Fills parameters, in all weight versions that the plan holds, from a folder that passed
 * ech_exec_check_weights. Each rank reads its own boxes. */
ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights);

/* ---- looking inside, for verify and tests ----
 *
 * Tensors are this rank's shards, in the arena. `param`: index in model->param; this rank must have
 * it. */

/* The newest version of a parameter when the list that runs began; between lists: the newest. Where
 * weights are gathered (ech_bucket_is_gathered) what this rank keeps of it (ech_plan_own): as rows
 * where these are whole, otherwise of one dimension. */
ech_tensor ech_exec_param(const ech_exec *exec, int param);
/* The version after `version` updates since the list began; 0: ech_exec_param; -1: that before, if
 * the plan has it. */
ech_tensor ech_exec_param_at(const ech_exec *exec, int param, int version);
/* A gradient, multiplied by the turn's loss scale, or a layer state's sum of partials, of turn 0;
 * only in ECH_LIST_TRAIN's observer. */
ech_tensor ech_exec_gradient(const ech_exec *exec, int param);
/* A number of turn 0's row of scalars, `index` from its beginning (ech_scalar); only there. */
double ech_exec_scalar(ech_exec *exec, int index);
void ech_exec_set_scalar(ech_exec *exec, int index, double value);

/* ---- pushes ---- */

/* What the rank has served in the list that ran last, turn by turn; NULL, *n 0: it serves none. */
const ech_serve *ech_exec_serves(const ech_exec *exec, int *n);
/* Pushes are served in that order, and the run waits for them; another one than that in which they
 * come. */
void ech_exec_order_serves(ech_exec *exec, ech_serve_order *order, void *context);
/* [workers] the training step of each worker's next push, alike on all ranks after a span. NULL:
 * there are no pushes. Borrowed. */
const int64_t *ech_exec_clocks(const ech_exec *exec);
/* The rank's updates count as pushes of so many workers: the learning rate is that of the step they
 * are of, over their number. */
void ech_exec_set_workers(ech_exec *exec, int workers);

/* All factors of the bucket of a step of compressed gradients in the list that runs, but for
 * RESIDUAL: the left ones first (ech_plan_param.left, right). */
ech_tensor ech_exec_factors(const ech_exec *exec, const ech_step *step);
/* What of it this rank has when it is summed: in a sharded bucket its part (ech_plan_own) alone,
 * then of one dimension. Of layer states that turn's. */
ech_tensor ech_exec_own_gradient(const ech_exec *exec, int param, int turn);
/* What of ech_exec_param_at this rank updates: in a sharded bucket likewise its part alone. */
ech_tensor ech_exec_own_param(const ech_exec *exec, int param, int version);
/* Optimizer state number `state`. */
ech_tensor ech_exec_state(const ech_exec *exec, int param, int state);

typedef void (*ech_observer)(void *context, ech_exec *exec, const ech_step *step);
/* Sets a function that the compute lane calls after each of its steps. NULL: none. */
void ech_exec_observe(ech_exec *exec, ech_observer observer, void *context);

typedef struct ech_finding {
    int rank;       /* -1: none was found */
    int step;       /* index in that rank's train list */
    int block;      /* -1: it is in no block */
    int micro;      /* number of the rank's micro-batch; -1: it is in a parameter, or summed */
    bool summed;    /* it is in a gradient after its sum over ranks, and was nowhere before */
    char what[192]; /* "gradient of model.layers.1...., element 17 is nan, in step B0.1/3" */
} ech_finding;
/* Finds the first NaN or infinity of training step `step`: runs it a second time, without an
 * update, and checks parameters and all that calls write. *out is the same on all ranks. Only for
 * synchronous schedules. */
ech_status ech_exec_find_nonfinite(ech_exec *exec, int64_t step, ech_finding *out);

/* The most bytes of each memory kind that were live at once so far, measured; after all lists equal
 * to the plan's. */
void ech_exec_peaks(const ech_exec *exec, int64_t peak[ECH_MEMORY_KINDS]);
/* The same of all working memory together; after all lists equal to ech_plan_working's. */
int64_t ech_exec_working(const ech_exec *exec);
/* What this rank has sent so far in sums of gradients over ranks, and to gather weights that were
 * updated in shards. */
ech_comm_count ech_exec_reduce_count(const ech_exec *exec);
/* Of these, how many it has begun before the one before them had ended. */
int64_t ech_exec_sums_ahead(const ech_exec *exec);
/* Bytes of values that FETCH and OFFLOAD have copied from one space to another so far, without what
 * aligns them. */
int64_t ech_exec_copied(const ech_exec *exec, ech_space from, ech_space to);
/* What this rank has sent to other stages so far of activations and gradients; .calls: steps that
 * sent. */
ech_comm_count ech_exec_message_count(const ech_exec *exec);
/* Messages of one kind. */
ech_comm_count ech_exec_messages_of(const ech_exec *exec, ech_message_kind kind);

/* What this rank was to send so far of rows by counts, by the tables: the channels have counted the
 * same, and exchanges of the tables themselves. */
ech_comm_count ech_exec_exchanged(const ech_exec *exec);
/* How many times it has waited for tables so far, to know how many rows go where. */
int64_t ech_exec_tables_fetched(const ech_exec *exec);
/* What this rank has sent so far over one channel by calls of that kind; zeros: it has no such
 * channel. */
ech_comm_count ech_exec_channel_count(const ech_exec *exec, ech_layout_group group, ech_lane lane,
                                      ech_comm_counted kind);
/* The payload bytes of all that this rank has sent so far, without what saving has sent. */
int64_t ech_exec_sent_bytes(const ech_exec *exec);

/* Sets whether the next runs of lists record the times at which steps and calls begin and end. */
void ech_exec_record(ech_exec *exec, bool on);
/* Times of the last run of a list, in seconds of ech_clock_now. */
typedef struct ech_exec_times {
    double began, ended;   /* of the run, on all lanes */
    double *begins, *ends; /* [steps of its list]; of a message: posted and completed */
    /* [ticks of its list]: the end of each call of F, B and W; at COUNT's tick, when the batch had
     * arrived. Other ticks are not set. */
    double *marks;
} ech_exec_times;
const ech_exec_times *ech_exec_get_times(const ech_exec *exec);
ech_group *ech_exec_world(ech_exec *exec); /* the channel of all ranks, for use between lists */

#endif
