/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the interpreter, and the functions that its files call of each other. Private to this room.
 */
#ifndef ECH_EXEC_STATE_H
#define ECH_EXEC_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "device/cores.h"
#include "exec/exec.h"

/* Threads of a rank; each runs one or two lanes. */
typedef enum ech_engine_kind {
    ECH_ENGINE_COMPUTE,
    ECH_ENGINE_LINK,
    ECH_ENGINE_REDUCE,
    ECH_ENGINE_COLLECTIVE,
    ECH_ENGINE_DISK,
    ECH_ENGINES
} ech_engine_kind;

typedef struct ech_engine {
    ech_exec *exec;
    ech_engine_kind kind;
    pthread_t thread;
    bool started;
    bool used[ECH_LIST_KINDS]; /* the list has a step for it */
    uint64_t run;              /* number of the last run that needs it; it sleeps in the others */
} ech_engine;

/* The births and deaths of one list's values. */
typedef struct ech_dated {
    int tick, value;
} ech_dated;
typedef struct ech_lives {
    bool *live;
    ech_dated *by_death, *by_birth; /* sorted; by_birth: values of other lanes only */
    size_t deaths, births;
} ech_lives;

/* The tensor of a block's value, without data. A view begins `skip` bytes into its base. */
typedef struct ech_view {
    ech_tensor tensor;
    ptrdiff_t skip;
} ech_view;

/* A message under way. */
typedef struct ech_message {
    int step;
    int requests;
    ech_request request[ECH_MAX_PORTS];
} ech_message;

/* Value of `awaited`: the compute lane is at the list's end and waits for everything under way. */
enum { ECH_AWAITS_ALL = INT_MAX };

enum { ECH_POSITION_BYTES = 32 };
typedef char ech_position[ECH_POSITION_BYTES];

/* Lives and peaks of values, measured. Written by the compute lane only. */
typedef struct ech_ledger {
    ech_lives lives[ECH_LIST_KINDS];
    size_t next_death, next_birth;
    int64_t now[ECH_MEMORY_KINDS], peak[ECH_MEMORY_KINDS];
    int64_t working, working_peak; /* of all working kinds together */
} ech_ledger;

/* The arguments of ech_exec_set_save. */
typedef struct ech_save_request {
    char *directory;
    int64_t keep, proven;
    ech_checkpoint_info info;
} ech_save_request;

/* Tensors of a checkpoint. */
typedef struct ech_saved_list {
    ech_pool *pool; /* of the names */
    ECH_LIST(ech_saved_tensor) tensor;
} ech_saved_list;

/* The thread that writes a checkpoint, and the last checkpoint that was written. */
typedef struct ech_saver {
    bool under_way; /* its thread has not been joined */
    pthread_t thread;
    atomic_bool ended; /* the thread is done: status and saved are final */
    ech_status status;
    ech_exec_saved saved;
    ech_exec_saved last;        /* of the threads that have been joined */
    bool news;                  /* ech_exec_take_saved has not returned it yet */
    double began, waited;       /* waited: by the list that runs, for the checkpoint before */
    ech_save_request now, next; /* next: of the next ECH_LIST_SAVE */
    ech_save_gate *gate;        /* NULL: none */
    void *gate_context;
    ech_saved_list list;
} ech_saver;

struct ech_exec {
    const ech_config *config;
    const ech_plan *plan;
    const ech_device *device;
    ech_comm *comm;
    const ech_curve *curve;
    ech_pool *pool;                            /* of arrays that live as long as this */
    ech_group *channel[ECH_GROUPS][ECH_LANES]; /* NULL: none of its steps is in a list */
    ech_kernel_context *context;
    const char *binding;       /* the outcome of parallel.pin */
    ech_core_set cores_before; /* of the rank's thread; all are in it where none was bound */
    bool is_bound;
    char *arena;
    double *scalars; /* a row for each turn, then the count of updates */
    double *updates;
    int64_t version; /* newest one of weights when a list begins; its slot: version mod versions */
    ech_position *where[ECH_LIST_KINDS]; /* of every step, for the board */

    ech_view *view[ECH_LIST_KINDS]; /* [list.first_local[block] + local] */
    ech_tensor *param_view;         /* [params], without data */

    /* The list that runs. */
    const ech_list *list;
    int64_t step;
    _Atomic int tick; /* of the compute lane's call */
    uint64_t run;     /* number of this run: a step is complete when done[step] == run */
    _Atomic uint64_t *done;
    _Atomic int failed; /* ech_status of the first failure */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic int waiting;
    _Atomic int awaited; /* the step that the compute lane waits for; -1: it computes */
    bool quit;
    int busy; /* engines that have not finished this run */
    ech_engine engine[ECH_ENGINES];
    ech_ledger ledger;
    ECH_LIST(ech_message) posted; /* the link lanes' messages under way */
    ech_comm_count messages;
    ech_sum begun;              /* of the reduce lane's next step, */
    const ech_step *begun_step; /* or NULL: no sum has begun ahead of its step */
    bool records;
    ech_exec_times times;

    ech_loader *loader[ECH_PURPOSES];
    int32_t token; /* of ECH_GENERATE, and where it stands */
    int64_t position;
    double *logits;
    ech_saver saver;
    bool ask_stop, ask_save;
    ech_readings *readings;
    ech_observer observer;
    void *observer_context;
    bool scanning;
    ech_finding finding;
};

/* One handler a row of steps.def. */
#define X(name, ...) ech_status ech_handle_##name(ech_exec *exec, const ech_step *step);
#include "schedule/steps.def"
#undef X
/* Defines the handler of a kind: the same function handles several. */
#define ECH_HANDLE_BY(name, function)                                                              \
    ech_status ech_handle_##name(ech_exec *exec, const ech_step *step)                             \
    {                                                                                              \
        return function(exec, step);                                                               \
    }

/* The samples and positions of this rank's rows of a micro-batch of the list that runs: those of its context rank
 * and sequence chunk, or of the one token that is sampled after. */
ech_rows ech_exec_rows(const ech_exec *exec, int micro);
/* The scalars of a turn of the list that runs. */
double *ech_exec_row(const ech_exec *exec, int turn);

void ech_views_create(ech_exec *exec);
/* The copy that holds a version of the weights. */
int ech_exec_weight_slot(const ech_exec *exec, int version);
/* As ech_exec_param_at (of a slot) and ech_exec_gradient, but written into *out, which is faster: a tensor that is
 * returned and copied at once stalls on its own stores. */
void ech_exec_set_param(const ech_exec *exec, int param, int slot, ech_tensor *out);
void ech_exec_set_gradient(const ech_exec *exec, int param, ech_tensor *out);
/* The tensor of a block's value in the list that runs; `data`: the memory of its base. */
void ech_exec_view(const ech_exec *exec, const ech_block *block, int local, void *data,
                   ech_tensor *out);

/* If times are recorded: a call of the compute lane ends now. */
void ech_exec_mark(ech_exec *exec, int tick);

/* Calls the handler of the step's kind: runs the step; a message it only begins. */
ech_status ech_exec_handle(ech_exec *exec, const ech_step *step);

/* For lanes: whether a step may begin; marks it complete. */
bool ech_exec_may_begin(ech_exec *exec, const ech_step *step);
void ech_exec_complete(ech_exec *exec, int step);
/* Waits until one of the steps (-1: none) may begin or the run has failed. */
void ech_exec_wait_for_any(ech_exec *exec, int step, int other);
/* Waits until a step ends, the compute lane begins to wait, the run fails, or `ns` nanoseconds have passed. */
void ech_exec_nap(ech_exec *exec, long ns);
bool ech_exec_has_failed(const ech_exec *exec);
/* Waits until a step is complete; false if the run has failed. compute: called by the compute lane, which publishes
 * the step in `awaited`; until it goes on, ech_exec_nap returns at once. */
bool ech_exec_wait_for(ech_exec *exec, int step, bool compute);
/* Wakes all waiting lanes, which then check what they wait for. */
void ech_exec_wake(ech_exec *exec);

/* Binds the compute lane's threads to cores of their own, as parallel.pin says. Collective. */
ech_status ech_threads_bind(ech_exec *exec);
void ech_threads_unbind(ech_exec *exec);
/* Touches every page of the new arena, by the thread that computes on it (first touch). */
void ech_threads_touch(ech_exec *exec);

/* Touches the snapshot, so that the first one need not wait until the system has handed out its
 * pages. */
void ech_snapshot_prepare(ech_exec *exec);

/* All tensors of a checkpoint, the same on all ranks, with those boxes that this rank writes: where training has them,
 * or in the snapshot. */
ech_saved_list ech_exec_list_saved(const ech_exec *exec, const ech_step *step);
void ech_saved_list_free(ech_saved_list *list);
/* For a step: waits for the checkpoint before, whose thread works on what the next one is about to change. */
ech_status ech_saver_wait(ech_exec *exec);
/* The checkpoint under way has ended badly. Never waits. */
bool ech_saver_has_failed(const ech_saver *saver);
void ech_saver_free(ech_saver *saver); /* waits for its end */

/* The send and receive lanes of the list that runs, to their end. */
ech_status ech_link_run(ech_exec *exec);

/* The address of a value of the list that runs, for a step of the compute lane. Enters it into the ledger; aborts
 * outside of the value's planned life. */
void *ech_exec_touch(ech_exec *exec, int value);
/* Likewise for a step of another lane; aborts if the step does not declare the value or it is not live. */
void *ech_exec_address(const ech_exec *exec, const ech_step *step, int value);
/* Likewise outside of steps (observers, scans); without checks. */
void *ech_exec_look(const ech_exec *exec, int value);
/* Copies a parameter's version `from` to version `to`. */
void ech_exec_copy_weights(ech_exec *exec, int param, int from, int to);

void ech_ledger_create(ech_exec *exec);
/* A run of exec->list begins; no value is live. */
void ech_ledger_begin(ech_exec *exec);
/* The compute lane reaches a tick: values whose life ended before it die. */
void ech_ledger_advance(ech_exec *exec, int tick);
/* A step of another lane begins, or has ended but is not marked complete: aborts if a value that it declares is not
 * live. */
void ech_ledger_check(const ech_exec *exec, const ech_step *step, bool begins);

/* In a scan: checks a tensor that a call wrote for NaN and infinity; stores the first finding. */
void ech_scan_tensor(ech_exec *exec, const ech_step *step, const char *what, const char *name,
                     const ech_tensor *x);

#endif
