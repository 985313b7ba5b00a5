/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that implement include/echelon.h. Private to src/library.
 */
#ifndef ECH_LIBRARY_LIBRARY_H
#define ECH_LIBRARY_LIBRARY_H

#include <echelon.h>

#include "app/plan/planning.h"
#include "app/setup/run.h"
#include "app/train/trainer.h"
#include "base/text.h"

struct echelon_run {
    char *file, *text;      /* owned; text NULL: it is in the file */
    char *model;            /* owned; a model's folder in place of the file; NULL: none */
    ECH_LIST(char *) words; /* "section.key=value"; owned */
    ech_text value;         /* of the last echelon_run_get */
};

/* ---- handles (handles.c) ---- */

typedef enum ech_handle_kind {
    ECH_HANDLE_RUN,
    ECH_HANDLE_PLAN,
    ECH_HANDLE_SEARCH,
    ECH_HANDLE_TRAINING,
    ECH_HANDLE_VERIFICATION,
    ECH_HANDLE_CHECKPOINTS
} ech_handle_kind;

/* A handle of zeros, for a caller; and its end. */
void *ech_handle_create(size_t bytes, ech_handle_kind kind);
void ech_handle_destroy(void *handle);

typedef struct ech_handle_use {
    const void *handle;
    ech_status status;
} ech_handle_use;
/* Keeps a handle for this thread until ech_handle_leave; calls of a thread may be nested. Errors:
 * the handle is closed, or of another kind; another thread uses it; a training of the process from
 * which this one was forked; the caller is the function of echelon_set_log. */
ech_handle_use ech_handle_enter(const void *handle, ech_handle_kind kind, const char *function);
void ech_handle_leave(ech_handle_use *use);
/* Declares `use`, by which the calling function keeps the handle; on an error it returns `failed`,
 * which may name use.status. */
#define ECH_USE_HANDLE(handle, KIND, failed)                                                       \
    ECH_CLEANUP(ech_handle_leave)                                                                  \
    ech_handle_use use = ech_handle_enter(handle, ECH_HANDLE_##KIND, __func__);                    \
    if (use.status != ECH_OK) return failed
#define ECH_USE(handle, KIND) ECH_USE_HANDLE(handle, KIND, (echelon_status)use.status)

/* ---- calls ---- */

/* To be called first by every function that can fail: clears the thread's last error. Until someone
 * gets the log, nobody does. */
void ech_library_enter(void);
/* The run's file, text and keys, without ranks; borrowed from the run, with a list that the caller
 * frees. */
ech_run_arguments ech_library_arguments(const echelon_run *run);
/* Opens the run for plans on so many ranks. *out borrows *arguments, which need not be freed; the
 * run may be closed before them. */
ech_status ech_library_open_plans(const echelon_run *run, int ranks, ech_run_arguments *arguments,
                                  ech_run *out);
/* The caller's options of a plan or a search. */
ech_planning_options ech_library_planning(const echelon_plan_options *options);
/* Returns the error of a call within the library. */
#define ECH_PASS(call)                                                                             \
    do {                                                                                           \
        ech_status passed = (call);                                                                \
        if (passed != ECH_OK) return (echelon_status)passed;                                       \
    } while (0)
/* Refuses what the caller asks for: logs the message, and returns ECHELON_EUSAGE. */
#define ECH_REFUSE(...)                                                                            \
    return (echelon_status)ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE, __VA_ARGS__)
/* Refuses a NULL in place of an argument that a call needs. */
ech_status ech_library_refuse_null(const char *argument, const char *function);
#define ECH_NEED(argument)                                                                         \
    if (!(argument)) return (echelon_status)ech_library_refuse_null(#argument, __func__)
/* Checks that a caller has set its struct's size. */
ech_status ech_library_check_size(size_t size);
/* The same for a struct that a call fills. */
#define ECH_NEED_STRUCT(out)                                                                       \
    ECH_NEED(out);                                                                                 \
    ECH_PASS(ech_library_check_size((out)->size))
/* Copies to a caller's struct as many bytes as both know: its first field is its size. */
void ech_library_give(void *to, size_t size, const void *from, size_t known);
/* The caller's options, completed with zeros; NULL: only zeros. Error: their size is not set. */
ech_status ech_library_take(void *to, size_t known, const void *from);
/* The same for the options of a call, which returns the error. */
#define ECH_TAKE(to, from)                                                                         \
    if (ech_library_take(&(to), sizeof(to), from) != ECH_OK) return ECHELON_EUSAGE

/* Returns the status with which a rank ends. A process of several ends with its failure, so its
 * error is printed if nobody gets the log. */
ech_status ech_library_end_rank(const ech_design *design, ech_status status);

/* ---- of a training (training.c) ---- */

/* Checks that the ranks have not ended. */
ech_status ech_training_check(echelon_training *training);
/* The executor of this process's first rank; to be looked at between calls. */
ech_exec *ech_training_exec(echelon_training *training);
typedef ech_status ech_rank_call(ech_trainer *t, bool is_first, void *argument);
/* Has all ranks of this process make the call, on their threads; is_first: of the first of them.
 * Collective if the call is. */
ech_status ech_training_call(echelon_training *training, ech_rank_call *call, void *argument);
/* Whether ranks of this process train; an evaluator's do not. */
bool ech_training_trains(echelon_training *training);
/* What echelon_metrics.tokens counts. */
const char *ech_training_unit(const echelon_training *training);
/* While a hook runs: some calls are refused. */
void ech_training_set_hook(echelon_training *training, bool runs);
/* numbers[n]: the largest of all processes. Collective. */
ech_status ech_training_fold(echelon_training *training, double *numbers, int n);
/* Whether a checkpoint can record this step. */
bool ech_training_may_save(echelon_training *training);
/* No further steps are made; echelon_train_is_stopped is true. */
void ech_training_stop(echelon_training *training);

#endif
