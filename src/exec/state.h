/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to exec: the interpreter's state, and functions that its files share. "The list" is the
 * running one, exec->list; a run is one execution of a list. A value's number is below
 * plan->persistent.n for a persistent value, otherwise persistent.n + its index in list.value.
 */
#ifndef ECH_EXEC_STATE_H
#define ECH_EXEC_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "device/cores.h"
#include "device/disk.h"
#include "exec/exec.h"

/* A thread of the rank that runs the steps of one lane. The thread of SEND also runs RECEIVE.
 * COMPUTE, which is the thread that calls ech_exec_run, and lanes that no list uses have none. */
typedef struct ech_lane_thread {
    ech_exec *exec;
    ech_lane lane;
    pthread_t thread;
    bool started;              /* `thread` must be joined */
    bool used[ECH_LIST_KINDS]; /* by list: it has a step for this thread */
    uint64_t run; /* number of the last run that needs it; it sleeps during the others */
    /* The thread sleeps on it, between and during runs. For COMPUTE, the rank's thread does. No
     * other thread does. */
    pthread_cond_t woken; /* with ech_exec.lock */
} ech_lane_thread;

/* A birth or death of one of a list's own values. */
typedef struct ech_dated {
    int tick, value; /* value: index in list.value */
} ech_dated;
typedef struct ech_lives {
    bool *live;          /* [values of the list] it is live now */
    ech_dated *by_death; /* [deaths] of all values, by tick */
    ech_dated *by_birth; /* [births] by tick; only of values written by lanes other than compute */
    size_t deaths, births;
} ech_lives;

/* The tensor of a block's value, without data. */
typedef struct ech_view {
    ech_tensor tensor;
    ptrdiff_t skip; /* bytes from its base's beginning; 0 unless it is a view */
} ech_view;

/* A message in flight. */
typedef struct ech_message {
    ech_exec *exec;
    int step;             /* index in the list */
    int requests;         /* one per tensor of the message */
    ech_request *request; /* [requests] in exec->request */
} ech_message;

/* Watchdog state for a lane's reads and writes of files, as seen by the rank's thread. */
typedef struct ech_file_watch {
    _Atomic unsigned moves; /* count of begins and ends: odd during a read or write */
    unsigned seen;
    double progress_at; /* seconds of ech_clock_now */
    bool is_stuck;      /* a read or write is past the deadline */
} ech_file_watch;

/* Events of a device that is not immediate. Arrays end with NULL. */
typedef struct ech_events {
    ech_event *began;           /* the beginning of the run */
    ech_event **queue;          /* [queues] the end of the run's work on the queue */
    ech_event **begins, **ends; /* [steps of the list] */
    ech_event **marks;          /* [ticks of the list] */
    int *peers;                 /* [lanes + 1, world] ranks that a lane, or the rank, waits for */
    ECH_LIST(int) marked;       /* ticks of this run whose event was recorded */
    /* number of steps up to the last compute step that was queued, and up to the last that was
     * shown */
    size_t put, shown;
} ech_events;

/* Value of exec->awaited: the compute lane is at the list's end and waits for all pending work. */
enum { ECH_AWAITS_ALL = INT_MAX };

enum { ECH_POSITION_BYTES = 32 }; /* size of the text that the board shows for a step */
typedef char ech_position[ECH_POSITION_BYTES];

/* Measured lives and peaks of values. Written only by the compute lane. */
typedef struct ech_ledger {
    ech_lives lives[ECH_LIST_KINDS];
    size_t next_death, next_birth;  /* indices into the list's by_death and by_birth */
    int64_t now[ECH_MEMORY_KINDS];  /* bytes that are live now, of the list's own values */
    int64_t peak[ECH_MEMORY_KINDS]; /* the most so far, over all lists */
    int64_t working, working_peak;  /* the same for all working kinds together */
} ech_ledger;

/* The arguments of ech_exec_set_save. */
typedef struct ech_save_request {
    char *directory;
    int64_t keep, best, proven;
    ech_checkpoint_info info;
} ech_save_request;

/* The thread that writes a checkpoint, and the last checkpoint written. */
typedef struct ech_saver {
    bool under_way; /* its thread has not been joined */
    pthread_t thread;
    atomic_bool ended;          /* the thread is done: status and saved are final */
    ech_status status;          /* of the last thread */
    char error[1024];           /* its message, if the status is an error */
    ech_exec_saved saved, last; /* of the last thread, and of the last joined thread */
    bool news;     /* `last` was committed, and ech_exec_take_saved has not returned it yet */
    double began;  /* when the last thread began, in seconds of ech_clock_now */
    double waited; /* seconds for which the list waited for the previous checkpoint */
    ech_save_request now, next; /* of the last thread, and of the next ECH_LIST_SAVE */
    ech_save_gate *gate;        /* NULL: none */
    void *gate_context;
    ech_saved_list list; /* what the last thread writes */
    int64_t updates;     /* when it began: what counters of layer states are in the files */
} ech_saver;

/* Contents of count tables, once the host has them. */
typedef struct ech_known_rows {
    uint64_t run;     /* the run of a list in which they were fetched; 0: none */
    int table[2];     /* values of the list; -1: absent */
    int64_t *rows[2]; /* by split */
} ech_known_rows;

/* Results of ech_layout_held (ECH_HELD_GRADIENT) for steps, cached because the call takes as long
 * as the rest of a step. */
typedef struct ech_share {
    bool counts;
    int boxes; /* for a stack, of one matrix */
    ech_box *box;
} ech_share;

typedef struct ech_server ech_server; /* serve.c */

/* State of pushes, where servers update at each push. */
typedef struct ech_pushes {
    /* [workers] the training step of each worker's next push; NULL: there are no pushes */
    int64_t *clock;
    atomic_int last; /* of a worker: its last turn of the list; lanes read it */
    int next;        /* with backup workers: pushes of earlier turns will be dropped */
    int tally;       /* the train list's TALLY, after all turns */
} ech_pushes;

typedef struct ech_kept_gradients ech_kept_gradients;      /* gradients.c */
void ech_kept_gradients_destroy(ech_kept_gradients *kept); /* accepts NULL */

struct ech_exec {
    const ech_config *config;
    const ech_plan *plan;
    const ech_device *device;
    ech_comm *comm;
    const ech_curve *curve;
    double rate;      /* the learning rate of all steps; below 0: the curve's */
    double clip_norm; /* as optimizer.clip_norm */
    ech_pool *pool;                            /* of arrays that live as long as this struct */
    ech_group *channel[ECH_GROUPS][ECH_LANES]; /* NULL: not used on this rank */
    ech_pushes pushes;
    ech_server *server; /* serve.c; NULL: the rank serves no pushes */
    ech_kernel_context *context;
    ech_kernel_context lane_context[ECH_LANES]; /* of lanes other than compute; single-threaded */
    const char *binding;                        /* the outcome of parallel.pin */
    ech_core_set cores_before; /* cores on which the rank's thread could run before it was bound */
    bool is_bound;
    char *arena[ECH_SPACES];                /* of the disk: ech_disk_addresses */
    ech_disk *disk;                         /* NULL: nothing is stored there */
    ech_exec_counts counts;
    ech_file_watch watch[ECH_LANES];
    double watched_at; /* ech_clock_take_gap */
    /* lanes whose threads are stuck in file I/O: these threads and all memory are abandoned */
    _Atomic int stuck;
    double copy_began[ECH_LANES]; /* start of a throttled copy, in seconds of ech_clock_now */
    const atomic_bool *is_urgent; /* ech_exec_hurry_on */
    char *scalars;                /* on the device: a row per turn */
    char *staged;       /* on the host: the same rows, as COUNT writes and READ fetches them */
    int64_t updates;    /* so far */
    /* Replicas that commit layer states by their own samples, and which of them the rank is; 1 and
     * 0: states follow all samples of a step */
    int replicas, replica;
    int workers;        /* number of workers whose pushes the updates are; 1: they are not pushes */
    double waited;      /* seconds that the compute lane has waited since COUNT */
    double counted_at;  /* time of COUNT; 0: there was none */
    ech_scaler scaler;  /* of the next list */
    bool fetched;       /* READ has queued the copy to `staged` */
    /* newest weight version at the list's beginning; its slot is version mod versions */
    int64_t version;
    ech_position *where[ECH_LIST_KINDS]; /* [steps of the list] for the board */

    ech_view *view[ECH_LIST_KINDS]; /* [list.first_local[block] + local] */
    ech_tensor *param_view;         /* [params], without data */
    ech_tensor *state_view;         /* [plan.state] */
    ech_share *share;               /* [params] */
    ech_call call; /* of the compute lane; between steps all its tensors are absent */

    /* The running list. */
    const ech_list *list;
    int64_t step;     /* training step of its first turn */
    _Atomic int tick; /* of the compute lane's call */
    uint64_t run;     /* number of this run */
    /* [steps] run << ECH_LANES | one bit for each lane whose thread waits for the step (wait.c).
     * run: the last run that completed the step or, where queues run by themselves, queued all its
     * work. */
    _Atomic uint64_t *done;
    _Atomic int failed;   /* ech_status of the first failure, or ECH_OK; never reset */
    char error[1024];     /* its message, of the thread that failed */
    pthread_mutex_t lock; /* guards engine[].run, quit, busy, signals; all threads sleep with it */
    _Atomic int awaited;  /* the step that the compute lane waits for; -1: it computes */
    bool quit;            /* the lanes' threads must end */
    int busy;             /* threads of lanes that have not finished this run */
    int64_t signals; /* wake-ups sent so far to threads that wait for steps, naps or failures */
    ech_lane_thread engine[ECH_LANES];
    /* One queue per lane; message lanes have one per (boundary, kind) (ech_step_queue). */
    ech_comm_queue *on;
    ech_events events;
    ech_ledger ledger;
    ECH_LIST(ech_message) posted; /* messages in flight of the send and receive lanes */
    ech_request *request;         /* of all messages of a list, in the order in which they began */
    size_t requested;             /* number of requests that have begun */
    int *link_next;               /* [link_cursors] positions of the loop over the link lanes */
    int *link_wanted;             /* [link_cursors] of these, steps that wait for other steps */
    int link_cursors;
    /* Written by the lane COLLECTIVE. */
    /* [e] rows to each rank and from each rank, of the exchange with the experts */
    ech_known_rows exchanged_rows;
    ech_known_rows received_rows;          /* [t e] rows that the tensor ranks received */
    int64_t *slice_rows;                   /* [t e] the same, within a round's slices */
    ech_sum begun[ECH_LANES];              /* the sum that a lane has begun before its step */
    const ech_step *begun_step[ECH_LANES]; /* that step; NULL: no sum has begun early */
    bool records;                          /* `times` are recorded */
    ech_exec_times times;

    ech_loader *loader[ECH_PURPOSES];
    int32_t token; /* ech_exec_set_token, also position */
    int64_t position;
    /* How checkpoint data is copied: by the rank's thread, and by the thread that writes
     * checkpoints. */
    ech_saved_copier copier[2];
    ech_saver saver;
    bool ask_stop, ask_save; /* ech_exec_ask */
    ech_readings *readings;  /* [turns of the train list] */
    ech_kept_gradients *gradients; /* NULL: none are kept */
    ech_observer observer;         /* NULL: none */
    void *observer_context;
    bool scanning;       /* ech_exec_find_nonfinite runs the list: nothing is updated */
    ech_finding finding; /* this rank's first */
};

/* A handler per row of steps.def: it runs a step of the list on the thread of its lane. */
#define X(name, ...) ech_status ech_handle_##name(ech_exec *exec, const ech_step *step);
#include "schedule/steps.def"
#undef X
/* Defines a kind's handler by a function for several kinds. */
#define ECH_HANDLE_BY(name, function)                                                              \
    ech_status ech_handle_##name(ech_exec *exec, const ech_step *step)                             \
    {                                                                                              \
        return function(exec, step);                                                               \
    }

/* The samples and positions of the rows that this rank computes for `micro` (as in ech_numbering):
 * the tokens of its context rank and sequence chunk, or in ECH_LIST_GENERATE its one token. */
ech_rows ech_exec_rows(const ech_exec *exec, int micro);

/* The queue that runs the step's work. */
ech_queue *ech_exec_queue(const ech_exec *exec, const ech_step *step);
/* Returns the batch of the step's turn. It is valid until the next turn's batch is requested. */
ech_status ech_exec_find_batch(ech_exec *exec, const ech_step *step, const ech_batch **out);
void ech_scalars_create(ech_exec *exec);
/* Copies the position of ech_exec_set_token to the device. */
void ech_scalars_put_position(ech_exec *exec, const ech_step *step);
/* Elements first .. first + n - 1 of a tensor with the shape and type of `all`. `data` holds only
 * these elements. The result has rows if they are whole rows, otherwise one dimension. */
ech_tensor ech_exec_part(const ech_tensor *all, int64_t first, int64_t n, void *data);
static inline ech_tensor ech_exec_elements(const ech_tensor *x, int64_t first, int64_t n)
{
    return ech_exec_part(x, first, n, (char *)x->data + (size_t)first * ech_dtype_bytes(x->dtype));
}
/* NORM of one parameter: adds the squares of this rank's part, from the sums of its blocks.
 * `counts`: this rank contributes to the global norm. */
void ech_scalars_count_squares(ech_exec *exec, int turn, int param, const ech_tensor *sums,
                               bool counts);
/* Counts the columns of a right factor that are not rounding errors; terms: as for
 * clear_columns. */
void ech_scalars_count_rank(ech_exec *exec, int turn, const ech_tensor *right, int64_t terms);
/* Waits until the host has the turn's row. */
ech_status ech_scalars_await(ech_exec *exec, const ech_step *step, const ech_scalar_row **out);
/* Writes the scalars of a push as the turn's row, with the number and rate of its update, number
 * `update` of the span. */
void ech_scalars_put(ech_exec *exec, const ech_step *step, int update, const ech_scalar_row *row);
/* Waits until the host has the rows of all turns. */
ech_status ech_scalars_await_all(ech_exec *exec, const ech_step *step);
/* A turn's row on the host. */
const ech_scalar_row *ech_scalars_staged(const ech_exec *exec, int turn);
/* Totals over a training step's pushes. */
typedef struct ech_pushed_step {
    double loss, loss_weight, squares, idle, staleness; /* sums over the pushes */
} ech_pushed_step;
/* Writes a span's scalars by training step: `steps` of them (NULL: zeros), and the rank's own
 * flags. */
ech_status ech_scalars_tally(ech_exec *exec, const ech_step *step, const ech_pushed_step *steps);

/* ---- serve.c ---- */

void ech_exec_create_pushes(ech_exec *exec);
/* Begins a list. */
void ech_exec_begin_pushes(ech_exec *exec);
/* True if the worker has no push for the step's turn. */
static inline bool ech_exec_is_idle(const ech_exec *exec, const ech_step *step)
{
    return step->turn > exec->pushes.last && step - exec->list->step.at < exec->pushes.tally;
}
/* Sets the next span's clocks: clocks[n] if n is the number of workers; otherwise `step` for
 * all. */
void ech_exec_set_clocks(ech_exec *exec, const int64_t *clocks, int n, int64_t step);
/* The training step whose samples a turn of the list uses. */
int64_t ech_exec_clock(const ech_exec *exec, int turn);
/* Makes the groups of workers and servers: a worker has one, a server has one with each worker. */
ech_status ech_exec_make_pushed(ech_exec *exec);
/* The channel of a step's group; on a server, the channel with the turn's worker. */
ech_group *ech_exec_channel(const ech_exec *exec, const ech_step *step);
/* The gather of weights with which a server answers a worker. */
typedef struct ech_answer {
    ech_group *channel;
    ech_sum sum;
} ech_answer;
/* Number of workers that a server's weight gather answers, with their channels in *to (optional);
 * -1: it is not such a step. */
int ech_exec_answered(const ech_exec *exec, const ech_step *step, ech_answer **to);
/* What happens to the result of a scatter: see ech_delivery. */
ech_delivery ech_exec_delivery(const ech_exec *exec, const ech_step *step);
/* Notes that part of the push of the step's turn was lost with its worker: the turn updates nothing
 * from now on. */
void ech_exec_lose_push(ech_exec *exec, const ech_step *step);
/* True if the turn updates. A server's turn may only add to an incomplete sum, or drop its push. */
bool ech_exec_updates_in(const ech_exec *exec, int turn);
/* True if the worker knows that its push of that turn will be dropped. */
static inline bool ech_exec_is_void(const ech_exec *exec, int turn)
{
    return turn < exec->pushes.next;
}
/* All channels of a server with workers; NULL entries are unused. */
int ech_exec_pushed_channels(const ech_exec *exec);
ech_group *ech_exec_pushed_channel(const ech_exec *exec, int i);

/* NORM of a parameter with compressed gradients. */
void ech_compression_norm(ech_exec *exec, const ech_step *step, int param);
/* Sets a basis to its initial value. */
void ech_compression_init_basis(ech_exec *exec, int param, int state, const ech_tensor *basis);
/* The turn's update; values that change from turn to turn are references into the scalars. */
ech_update ech_scalars_update(const ech_exec *exec, int turn);
/* The same for an update on the host, with the values that READ_UPDATE fetched. */
ech_update ech_scalars_update_on_host(const ech_exec *exec, int turn);
/* Converts the scalars that READ fetched into readings at the end of a list, and advances the
 * number of updates and the loss scaler. */
void ech_scalars_take(ech_exec *exec);
/* The same for the logits that LOGITS fetched. */
void ech_logits_take(ech_exec *exec);
/* The scalars of a turn of the list, on the device. */
ech_scalar_row *ech_exec_row(const ech_exec *exec, int turn);

void ech_views_create(ech_exec *exec);
/* Makes the memory and functions through which the host reads and writes device memory. */
void ech_bounce_create(ech_exec *exec);
/* The slot of a version of the weights; `version` as in ech_exec_param_at. */
int ech_exec_weight_slot(const ech_exec *exec, const ech_bucket *bucket, int version);
/* Sets *out to a parameter within `weights`, which holds all of its bucket, or to its gradient
 * within `gradients`. Writing through a pointer avoids a store-forwarding stall on the returned
 * struct. */
void ech_exec_set_weights(const ech_exec *exec, int param, char *weights, ech_tensor *out);
void ech_exec_set_gradient(const ech_exec *exec, int param, char *gradients, ech_tensor *out);
/* The part of a parameter that an update step works on, within the value of the given use and type:
 * gradients, weights or an element-wise state of its bucket. */
ech_tensor ech_exec_part_used(ech_exec *exec, const ech_step *step, int param, ech_used_as use,
                              int number, ech_dtype dtype);
/* Zeroes the padding after a parameter in its bucket; `of`: its gradient, weights or an
 * element-wise state. */
void ech_exec_clear_padding(const ech_exec *exec, int param, const ech_tensor *of);
/* Zeroes all weights and element-wise states. Padding stays zero, since nothing writes there. */
void ech_params_create(ech_exec *exec);
/* Sets the replicas' common weights (ECH_STATE_ANCHOR) to the weights that were just loaded. */
void ech_exec_begin_apart(ech_exec *exec);
/* Sets a version of the weights to the rounded master weights; does nothing without masters. */
void ech_exec_round_weights(ech_exec *exec, int param, int version);
/* This rank's shard of a state (sharding {0}: all of it), in that memory. */
ech_tensor ech_exec_state_view(const ech_exec *exec, const ech_state *state, ech_sharding sharding,
                               void *data);
/* The row list of a turn (ech_bucket_rows). */
ech_tensor ech_exec_rows_listed(ech_exec *exec, const ech_bucket *bucket, int turn);
/* The places in it of the batch's ids (ech_listed.value). */
int32_t *ech_exec_places_listed(ech_exec *exec, const ech_bucket *bucket, int turn);
/* The view of a table's weights or gradients, as one of the listed rows, which lie in front. */
void ech_exec_see_listed(const ech_bucket *bucket, ech_tensor *table);
/* The parameters of the step's bucket. */
const int *ech_exec_bucket_params(const ech_exec *exec, const ech_step *step, int *n);
/* *out: the tensor of the block's value `local` in the list; `data`: the memory of its base. */
void ech_exec_view(const ech_exec *exec, const ech_block *block, int local, void *data,
                   ech_tensor *out);

/* If times are recorded, notes that the compute lane's call at this tick ends now. */
void ech_exec_mark(ech_exec *exec, int tick);

/* Makes the run fail with this status; does nothing for ECH_OK or if the run has failed before. Any
 * thread may call it. */
void ech_exec_fail(ech_exec *exec, ech_status status);

/* Runs a step of the list with its handler; a message is only begun. */
ech_status ech_exec_handle(ech_exec *exec, const ech_step *step);
/* Shows a step of the compute lane on the board as the rank's position. */
void ech_exec_show_position(ech_exec *exec, const ech_step *step);

/* Makes the step's queue call `body` on the host when it gets there. Host memory is thus accessed
 * in the queue's order while the thread that queues steps continues. An error of `body` makes the
 * run fail. `body` must not touch device memory. */
typedef ech_status ech_work(ech_exec *exec, const ech_step *step);
void ech_exec_put(ech_exec *exec, const ech_step *step, ech_work *body);
/* Makes queues for all lists; unless the device is immediate, also events for lists of up to
 * `steps` steps and `ticks` ticks. */
ech_status ech_queues_create(ech_exec *exec, size_t steps, size_t ticks);
/* For the step's own lane: true if the step, a sum, has begun early. */
bool ech_exec_has_begun(const ech_exec *exec, const ech_step *step);
/* Lets the channels of steps access the device's data, and connects queues of messages with the
 * peers' queues (ech_comm_join). Collective. */
ech_status ech_collectives_create(ech_exec *exec);
ech_status ech_queues_join(ech_exec *exec);
void ech_queues_destroy(ech_exec *exec);
/* Begin and end of a run on a device that is not immediate; the host waits at the end. Errors: of
 * the device. */
void ech_queues_begin(ech_exec *exec);
ech_status ech_queues_end(ech_exec *exec);
/* True if no queue has pending work, so that the memory it touches may be freed. */
bool ech_queues_are_idle(const ech_exec *exec);
/* True if a step for which ech_exec_may_begin holds can begin without a wait of its queue. */
bool ech_queue_is_free(const ech_exec *exec, const ech_step *step);
/* Waits, on the thread of the step's lane, until its queue has finished the step's work so far.
 * Errors: as at the list's end; failure of another thread. */
ech_status ech_queue_wait(ech_exec *exec, const ech_step *step);
/* Makes the step's queue wait for the step's dependencies on other queues; they all have been
 * queued. Does nothing on an immediate device. */
void ech_queue_await(ech_exec *exec, const ech_step *step);
/* On a device that is not immediate: records the step's begin or end; records the end of the
 * compute lane's call at this tick. */
void ech_queue_record(ech_exec *exec, int step, bool ends);
void ech_queue_mark(ech_exec *exec, int tick);

/* ---- wait.c ---- Here `step` is an index in the list. */

/* Makes and destroys `lock` and the conditions of all lanes. */
void ech_waits_create(ech_exec *exec);
void ech_waits_destroy(ech_exec *exec);
static inline bool ech_exec_is_complete(const ech_exec *exec, int step)
{
    return atomic_load(&exec->done[step]) >> ECH_LANES == exec->run;
}
/* True if all dependencies of a step are complete, or the run has failed. */
bool ech_exec_may_begin(ech_exec *exec, const ech_step *step);
/* If times are recorded, notes that the step begins now. */
void ech_exec_begin(ech_exec *exec, int step);
/* Marks a step complete, and wakes the threads that wait for it. */
void ech_exec_complete(ech_exec *exec, int step);
/* Makes the link thread wait until one of the n steps (-1: none) may begin or the run has
 * failed. */
void ech_exec_wait_for_any(ech_exec *exec, const int *steps, int n);
/* Makes the link thread sleep, at most `ns` nanoseconds. The sleep ends when one of the n steps
 * (-1: none) may begin, the compute lane waits, or the run fails. If ech_comm_rings, it also ends
 * when another rank ends a transfer. heard: ech_comm_heard before the thread last looked. */
void ech_exec_nap(ech_exec *exec, const int *steps, int n, unsigned heard, long ns);
bool ech_exec_has_failed(const ech_exec *exec);
/* Makes the thread of `lane` wait until a step is complete; false if the run has failed. For
 * COMPUTE, `awaited` shows the step. */
bool ech_exec_wait_for(ech_exec *exec, int step, ech_lane lane);
/* Notes that the compute lane waits for `step` or ECH_AWAITS_ALL, and ends a nap of the link
 * thread. */
void ech_exec_set_awaited(ech_exec *exec, int step);
/* Errors: ECH_EUSAGE if memory.offload_bandwidth makes a copy take longer than the deadline. */
ech_status ech_exec_check_pace(ech_exec *exec);
/* Watchdog for file I/O: the waiting rank's thread calls it every 0.1 s. Errors: a read or write of
 * a file is past the deadline; the error names the file. */
ech_status ech_exec_watch_files(ech_exec *exec);
/* Lets the rank's thread, which holds `lock`, sleep until it is woken; while asleep it watches file
 * I/O. */
void ech_exec_rest(ech_exec *exec);
/* Wakes all threads; each then checks its condition. */
void ech_exec_wake(ech_exec *exec);

/* Binds the compute lane's threads to cores of their own, as parallel.pin says. Collective over all
 * ranks. */
ech_status ech_threads_bind(ech_exec *exec);
void ech_threads_unbind(ech_exec *exec);
/* Touches every page of the new arena on the thread that computes on it (first touch). */
void ech_threads_touch(ech_exec *exec);

/* All tensors of a checkpoint, the same on all ranks, with the boxes that this rank writes. They
 * are in the snapshot, or without one in the weights and states themselves. `step`: the step of the
 * list that reads them. */
ech_saved_list ech_exec_list_saved(const ech_exec *exec, const ech_step *step);
/* Makes a step wait for the previous checkpoint, whose thread still reads what the step will
 * change; returns that checkpoint's status. */
ech_status ech_saver_wait(ech_exec *exec);
/* True if the last thread has ended with an error. Never waits. */
bool ech_saver_has_failed(const ech_saver *saver);
void ech_saver_free(ech_saver *saver); /* waits for the thread's end */

/* Runs the send and receive lanes of the list to their end. Returns ECH_OK also if another lane has
 * failed. */
ech_status ech_link_run(ech_exec *exec);

static inline void *ech_exec_at(const ech_exec *exec, const ech_value *value)
{
    return exec->arena[ech_memory_space(value->kind)] + value->offset;
}
/* The address of a value for a step of the compute lane. Updates the ledger, and aborts the process
 * outside the value's planned life. */
void *ech_exec_touch(ech_exec *exec, int value);
/* The address of a value for a step of any lane. Aborts the process if the step does not declare
 * the value (ech_access) or runs outside its planned life. */
void *ech_exec_address(const ech_exec *exec, const ech_step *step, int value);
/* The address of the value that a bucket's step uses that way (ech_step_uses); NULL: none. Weight
 * slots rotate from list to list. */
void *ech_exec_used(ech_exec *exec, const ech_step *step, ech_used_as use, int number);
/* Aborts the process if the step does not declare the value. Steps declare weights by the value of
 * ech_plan_weights. */
void ech_ledger_expect(const ech_exec *exec, const ech_step *step, int value);
/* The address of a value outside steps (observers, scans), without checks. */
void *ech_exec_look(const ech_exec *exec, int value);
/* Copies a parameter's version `from` to version `to`; versions as in ech_exec_param_at. */
void ech_exec_copy_weights(ech_exec *exec, int param, int from, int to);

/* Makes the rank's arena on disk, if it has values there. Collective over all ranks. Errors are
 * logged once. */
ech_status ech_exec_take_disk(ech_exec *exec);

/* Maps the memory that all ranks share, if the plan has values there. A barrier of all ranks must
 * separate this from the release of what was mapped before. */
ech_status ech_exec_map_shared(ech_exec *exec);
/* After this barrier all ranks may read what others wrote to shared memory. Collective over all
 * ranks, if there is some. */
ech_status ech_exec_meet_in_shared(ech_exec *exec);

void ech_ledger_create(ech_exec *exec);
void ech_ledger_begin(ech_exec *exec); /* when a run begins: no value is live */
/* Advances the ledger when the compute lane reaches a tick: values whose last tick has passed
 * die. */
void ech_ledger_advance(ech_exec *exec, int tick);
/* Checks a step of another lane when it begins and when it has ended: aborts if a value that it
 * declares is not live. */
void ech_ledger_check(const ech_exec *exec, const ech_step *step, bool begins);

/* In a scan, searches a tensor that a call of `step` wrote for a NaN or infinity and stores the
 * first in exec->finding. `what` and `name` are for its text: "gradient of",
 * "model.norm.weight". */
void ech_scan_tensor(ech_exec *exec, const ech_step *step, const char *what, const char *name,
                     const ech_tensor *x);

#endif
