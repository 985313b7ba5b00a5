/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter: runs the lists of a rank's plan, one handler per kind of step.
 *
 *     ech_exec_create(&setup, &exec);             // arena, groups, lanes' threads
 *     ech_exec_run(exec, ECH_LIST_INIT, 0);
 *     for (step = 0; ...; step++) ech_exec_run(exec, ECH_LIST_TRAIN, step);
 *
 * The compute lane is the calling thread; send and receive share one thread, reduce and collective have
 * one each, and copy and disk share one. A thread sleeps through lists that have no step for it. Steps of a lane
 * begin in order; a step waits for the steps that it comes after. A message begins as soon as its step may;
 * many may be under way at once.
 * All memory that steps touch is in one arena, at the plan's offsets. A step that fails raises the
 * job's abort flag, so that no rank on this machine waits for this one; ech_exec_run then returns on
 * it, and its caller ends the job (ech_comm_abort).
 */
#ifndef ECH_EXEC_EXEC_H
#define ECH_EXEC_EXEC_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"
#include "comm/comm.h"
#include "data/data.h"
#include "device/device.h"
#include "schedule/schedule.h"

typedef struct ech_exec ech_exec;

typedef struct ech_exec_setup {
    const ech_config *config;
    const ech_plan *plan;
    const ech_device *device;
    ech_comm *comm;
} ech_exec_setup;

/* Makes the plan's groups. Collective. Everything in the setup is borrowed. */
ech_status ech_exec_create(const ech_exec_setup *setup, ech_exec **out);
void ech_exec_destroy(ech_exec *exec); /* accepts NULL */
/* The outcome of parallel.pin, for logs: "pinned", or "not pinned: " and why. */
const char *ech_exec_binding(const ech_exec *exec);

/* Runs a list for training step `step`, which selects the batch and the random numbers; a list of several turns runs
 * one training step a turn, from `step` on. Collective if the list's steps are. When it returns ECH_OK, every step
 * of every lane is complete. */
ech_status ech_exec_run(ech_exec *exec, ech_list_kind list, int64_t step);

/* The loader of LOAD's batches, for the lists of a purpose. Borrowed. */
void ech_exec_set_loader(ech_exec *exec, ech_purpose purpose, ech_loader *loader);
/* The token that LOAD gives the next run of ECH_LIST_GENERATE, and its position below T. Earlier runs had the tokens
 * before it, one each: their keys and values are in the KV cache. */
void ech_exec_set_token(ech_exec *exec, int32_t token, int64_t position);

/* ---- saving ----
 *
 * ECH_LIST_SAVE begins a checkpoint. Another thread of every rank writes, verifies and commits it, and
 * then removes those that are not kept; these threads have a channel of their own. Where the plan has a
 * snapshot, the list only copies into it, and training goes on meanwhile; otherwise the list ends when
 * the checkpoint is there. At most one is under way: the next one waits for it. */

/* What the next checkpoint holds besides tensors, how many are kept (0: all) and which one stays
 * (ech_checkpoint_prune). Copied. */
void ech_exec_set_save(ech_exec *exec, const char *directory, const ech_checkpoint_info *info,
                       int64_t keep, int64_t proven);

/* Called on this rank by the thread that writes a checkpoint, before it begins and before it removes older
 * ones: completes what must come before. An error on one rank is an error on all, and nothing is written. NULL: no
 * call. */
typedef ech_status ech_save_gate(void *context);
void ech_exec_gate_saves(ech_exec *exec, ech_save_gate *gate, void *context);

/* The type of the weights in model/: checkpoint.dtype. If it differs from the type of the run's weights, these are
 * saved in state/, too, as NAME.master. */
ech_dtype ech_exec_saved_dtype(const ech_exec *exec);

/* A checkpoint that was committed. */
typedef struct ech_exec_saved {
    int64_t step, bytes;   /* bytes: of its files, over all ranks */
    double seconds;        /* from the start of its writing to its commit */
    double waited_seconds; /* its list's wait for the checkpoint before */
} ech_exec_saved;
/* Whether a checkpoint was committed since the last call that returned one; *out: the newest. Never waits; not
 * collective. */
bool ech_exec_take_saved(ech_exec *exec, ech_exec_saved *out);
/* Waits for the checkpoint under way, if there is one. If it could not be written, every rank gets
 * an error (ECH_EABORTED where another one failed), here or from the next ECH_LIST_SAVE. */
ech_status ech_exec_finish_save(ech_exec *exec);

/* What the last READ wrote. */
typedef struct ech_readings {
    double loss;   /* mean over the tokens with weight, of all ranks */
    double tokens; /* tokens with weight, of all ranks */
    double loss_sum;
    double grad_norm, learning_rate, clip;
    int64_t updates;
    bool withheld;       /* no update was made: a NaN or infinity */
    bool stop, save_now; /* a signal asked some rank to */
    bool save_failed;    /* the checkpoint under way: ech_exec_finish_save says why */
    bool hash_differs;   /* list `check`: parameters are not bit-identical */
} ech_readings;
/* [turns of the list]. Under asynchronous schedules learning_rate, clip and updates are this stage's. */
const ech_readings *ech_exec_readings(const ech_exec *exec);
/* Logits (V) of the last ECH_GENERATE, as fp64. */
const double *ech_exec_logits(const ech_exec *exec);

/* A signal asked this rank to stop or to save; LOAD of the next training step tells the other ranks. */
void ech_exec_ask(ech_exec *exec, bool stop, bool save_now);

/* The count of updates, which is the position on the learning-rate curve; checkpoints hold it. */
int64_t ech_exec_updates(const ech_exec *exec);

/* Fills parameters and optimizer states from a checkpoint. A forward-only plan takes parameters only, from
 * model/. */
ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint);
/* Checks that a folder of weights has all parameters of this model, in their shapes. */
ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights);
/* Fills parameters, in all weight versions that the plan holds, from a folder that passed
 * ech_exec_check_weights. Every rank reads its own slices. */
ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights);

/* ---- looking inside, for verify and tests ---- */

/* This rank's shard of a parameter after the last run, of its gradient (valid only inside the train list's observer)
 * and of an optimizer state. */
ech_tensor ech_exec_param(const ech_exec *exec, int param);
/* The weight version `version` of the parameter, in updates since the list that runs began. */
ech_tensor ech_exec_param_at(const ech_exec *exec, int param, int version);
ech_tensor ech_exec_gradient(const ech_exec *exec, int param);
ech_tensor ech_exec_state(const ech_exec *exec, int param, int state);

/* Called on the compute lane after each of its steps. NULL: no call. */
typedef void (*ech_observer)(void *context, ech_exec *exec, const ech_step *step);
void ech_exec_observe(ech_exec *exec, ech_observer observer, void *context);

/* Finds the first NaN or infinity of a training step: runs the step a second time and checks all that its calls
 * write. Collective. */
typedef struct ech_finding {
    int rank, step, block, micro; /* step: index in the train list; rank -1: none was found */
    char what[192];               /* "B0.1/3: gradient of model.layers.1...., element 17 = nan" */
} ech_finding;
ech_status ech_exec_find_nonfinite(ech_exec *exec, int64_t step, ech_finding *out);

/* The most bytes of each memory kind that were live at once so far, measured; equal to the plan's. */
void ech_exec_peaks(const ech_exec *exec, int64_t peak[ECH_MEMORY_KINDS]);
/* The most bytes of working memory that were live at once so far, measured; equal to ech_plan_working's. */
int64_t ech_exec_working(const ech_exec *exec);
/* What this rank has sent so far in reductions of gradients. */
ech_comm_count ech_exec_reduce_count(const ech_exec *exec);
/* Messages that this rank has sent to other stages so far; calls: steps. */
ech_comm_count ech_exec_message_count(const ech_exec *exec);

/* What this rank has sent so far over one channel for collectives inside of blocks (tensor, context). */
ech_comm_count ech_exec_collective_count(const ech_exec *exec, ech_layout_group group,
                                         ech_lane lane);
/* The payload bytes of all that this rank has sent so far, without checkpoints. */
int64_t ech_exec_sent_bytes(const ech_exec *exec);

/* Whether runs from the next on record the times at which steps and calls begin and end. */
void ech_exec_record(ech_exec *exec, bool on);
/* Times of the last run, in seconds of ech_clock_now. Borrowed, to read. */
typedef struct ech_exec_times {
    double began, ended;   /* ended: on all lanes */
    double *begins, *ends; /* [steps of its list]; of a message: posted and completed */
    /* [ticks of its list]: the end of each call of F, B and W; at LOAD's first tick, when the batch had arrived. Other
     * steps do not set it. */
    double *marks;
} ech_exec_times;
const ech_exec_times *ech_exec_get_times(const ech_exec *exec);
ech_group *ech_exec_world(ech_exec *exec);

#endif
