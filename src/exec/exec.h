/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter: runs the lists of a rank's plan, one handler per kind of step.
 *
 *     ech_exec_create(&setup, &exec);             // arena, groups, lanes' threads
 *     ech_exec_run(exec, ECH_LIST_INIT, 0);
 *     for (step = 0; ...; step++) ech_exec_run(exec, ECH_LIST_TRAIN, step);
 *
 * The compute lane is the calling thread; send and receive share one thread, reduce and collective have
 * one each, and copy and disk share one. A thread sleeps through lists that do not need it. Steps of a lane
 * begin in order; a step waits for the steps it comes after.
 * Messages are begun as early as their steps allow, and many may be under way at once.
 * All memory that steps touch is in one arena, at the plan's offsets. A step that fails raises the
 * job's abort flag, so that nobody on this machine waits for this rank; ech_exec_run then returns on
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

/* Collective: makes the plan's groups. Everything in the setup is borrowed. */
ech_status ech_exec_create(const ech_exec_setup *setup, ech_exec **out);
void ech_exec_destroy(ech_exec *exec); /* accepts NULL */
/* What became of parallel.pin, for logs: "pinned", or "not pinned: " and why. */
const char *ech_exec_binding(const ech_exec *exec);

/* Runs a list for `step` (which batch, which random numbers), or for as many steps from `step` on as the
 * list has turns. Collective as its steps are. Every step of every lane is complete when it
 * returns. */
ech_status ech_exec_run(ech_exec *exec, ech_list_kind list, int64_t step);

/* Where LOAD takes its batches from, for the lists of a purpose. Borrowed. */
void ech_exec_set_loader(ech_exec *exec, ech_purpose purpose, ech_loader *loader);
/* What LOAD gives ECH_GENERATE: a token, whose successor is wanted, and its position below T. Those before
 * it have been given, one run of the list each: their keys and values are carried along. */
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
 * ones: for what must be so by then. An error is every rank's, and nothing is written. NULL: nobody. */
typedef ech_status ech_save_gate(void *context);
void ech_exec_gate_saves(ech_exec *exec, ech_save_gate *gate, void *context);

/* The type of the weights in model/: checkpoint.dtype. Where it is not that of the run's own weights,
 * those go to state/, as NAME.master. */
ech_dtype ech_exec_saved_dtype(const ech_exec *exec);

/* A checkpoint that is there. */
typedef struct ech_exec_saved {
    int64_t step, bytes;   /* bytes: of its files, over all ranks */
    double seconds;        /* from the beginning of its writing until it was committed */
    double waited_seconds; /* that its list waited for the checkpoint before */
} ech_exec_saved;
/* Whether a checkpoint has been written that was not told of yet. Never waits; not collective. */
bool ech_exec_take_saved(ech_exec *exec, ech_exec_saved *out);
/* Waits for the checkpoint under way, if there is one. If it could not be written, every rank gets
 * an error (ECH_EABORTED where another one failed), here or from the next ECH_LIST_SAVE. */
ech_status ech_exec_finish_save(ech_exec *exec);

/* What READ read last. */
typedef struct ech_readings {
    double loss;   /* mean over the tokens that count, of all ranks */
    double tokens; /* tokens that count, of all ranks */
    double loss_sum;
    double grad_norm, learning_rate, clip;
    int64_t updates;
    bool withheld;       /* the update was withheld: a NaN or infinity */
    bool stop, save_now; /* some rank was asked to by a signal */
    bool save_failed;    /* the checkpoint under way: ech_exec_finish_save says why */
    bool hash_differs;   /* list `check`: parameters are not bit-identical */
} ech_readings;
/* [turns of the list]. Under asynchronous schedules learning_rate, clip and updates are this stage's. */
const ech_readings *ech_exec_readings(const ech_exec *exec);
/* Logits (V) of the last ECH_GENERATE, as fp64. */
const double *ech_exec_logits(const ech_exec *exec);

/* This rank was asked by a signal to stop or to save; LOAD of the next step tells the others. */
void ech_exec_ask(ech_exec *exec, bool stop, bool save_now);

/* Counts and curve position, which checkpoints carry. */
void ech_exec_set_updates(ech_exec *exec, int64_t updates);
int64_t ech_exec_updates(const ech_exec *exec);

/* Fills parameters and optimizer states from a checkpoint; of a plan that is forward-only parameters
 * alone, from model/, as others see them. */
ech_status ech_exec_restore(ech_exec *exec, const ech_checkpoint *checkpoint);
/* Whether a folder of weights is whole and of this model. */
ech_status ech_exec_check_weights(const ech_exec *exec, const ech_shards *weights);
/* Fills parameters, in all versions that the plan keeps, from a folder that was so checked. Every rank
 * reads its slices. */
ech_status ech_exec_take_weights(ech_exec *exec, const ech_shards *weights);

/* ---- looking inside, for verify and tests ---- */

/* A parameter as of the last run's end, its gradient (valid while the train list's observer runs), a
 * state; of what this rank holds. */
ech_tensor ech_exec_param(const ech_exec *exec, int param);
/* The parameter's version `version`, in updates since the list that runs began. */
ech_tensor ech_exec_param_at(const ech_exec *exec, int param, int version);
ech_tensor ech_exec_gradient(const ech_exec *exec, int param);
ech_tensor ech_exec_state(const ech_exec *exec, int param, int state);

/* Called on the compute lane after each of its steps. NULL: nobody. */
typedef void (*ech_observer)(void *context, ech_exec *exec, const ech_step *step);
void ech_exec_observe(ech_exec *exec, ech_observer observer, void *context);

/* The first NaN or infinity of a training step, found by running the step again and looking at
 * everything that is written. Collective. */
typedef struct ech_finding {
    int rank, step, block, micro; /* step: index in the train list; rank -1: nothing was found */
    char what[192];               /* "B0.1/3: gradient of model.layers.1...., element 17 = nan" */
} ech_finding;
ech_status ech_exec_find_nonfinite(ech_exec *exec, int64_t step, ech_finding *out);

/* The most bytes of each kind that were ever live at once, as run: equal to the plan's. */
void ech_exec_peaks(const ech_exec *exec, int64_t peak[ECH_MEMORY_KINDS]);
/* The most working memory that was ever live at once, as run: equal to ech_plan_working's. */
int64_t ech_exec_working(const ech_exec *exec);
/* Gradient bytes, messages and calls that this rank sent so far. */
ech_comm_count ech_exec_reduce_count(const ech_exec *exec);
ech_comm_count ech_exec_other_count(const ech_exec *exec);
/* Messages between stages that this rank sent so far; calls: steps. */
ech_comm_count ech_exec_message_count(const ech_exec *exec);

/* What ranks exchange inside of blocks over a channel: tensor and context ranks on the lane of collectives. */
ech_comm_count ech_exec_collective_count(const ech_exec *exec, ech_layout_group group,
                                         ech_lane lane);
/* Payload bytes of all of these together. */
int64_t ech_exec_sent_bytes(const ech_exec *exec);

/* From the next run on: whether the times are kept at which steps and calls of a list begin and end. */
void ech_exec_record(ech_exec *exec, bool on);
/* Of the last run, [steps of its list], on ech_clock_now's clock. Messages: from post to completion. */
const double *ech_exec_begins(const ech_exec *exec);
const double *ech_exec_ends(const ech_exec *exec);
/* Likewise, [ticks of its list]: of F, B and W the end of each call; of LOAD (its first tick) when the
 * batch was there. Of other steps nothing. */
const double *ech_exec_marks(const ech_exec *exec);
/* When the last run began, and when it had ended on all lanes. */
double ech_exec_began(const ech_exec *exec);
double ech_exec_ended(const ech_exec *exec);
ech_group *ech_exec_world(ech_exec *exec);

#endif
