/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to exec: the state of the interpreter, and the functions that its files call of each
 * other. "The list" is the one that runs, exec->list; a run is one execution of a list. A value's
 * number is below plan->persistent.n if it is a persistent value, else persistent.n + its index in
 * list.value.
 */
#ifndef ECH_EXEC_STATE_H
#define ECH_EXEC_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "device/cores.h"
#include "device/disk.h"
#include "exec/exec.h"

/* A thread of the rank that runs the steps of a lane; that of SEND those of RECEIVE, too. There is
 * none for COMPUTE, which is the thread that calls ech_exec_run, and for lanes that no list
 * uses. */
typedef struct ech_lane_thread {
    ech_exec *exec;
    ech_lane lane;
    pthread_t thread;
    bool started;              /* `thread` is to be joined */
    bool used[ECH_LIST_KINDS]; /* by list: it has a step for this engine */
    uint64_t run; /* number of the last run that needs it; it sleeps during the others */
    /* Only this lane's thread sleeps on it (COMPUTE: the rank's thread), between runs and during
     * them. */
    pthread_cond_t woken; /* with ech_exec.lock */
} ech_lane_thread;

/* A birth or death of one of a list's own values. */
typedef struct ech_dated {
    int tick, value; /* value: index in list.value */
} ech_dated;
typedef struct ech_lives {
    bool *live;          /* [values of the list] whether it lives now */
    ech_dated *by_death; /* [deaths] of all values, by tick */
    ech_dated *by_birth; /* [births] by tick; only of values that other lanes than compute write */
    size_t deaths, births;
} ech_lives;

/* The tensor of a block's value, without data. */
typedef struct ech_view {
    ech_tensor tensor;
    ptrdiff_t skip; /* bytes from the beginning of its base; 0 unless it is a view */
} ech_view;

/* A message under way. */
typedef struct ech_message {
    ech_exec *exec;
    int step;             /* index in the list */
    int requests;         /* one for each tensor of the message */
    ech_request *request; /* [requests] in exec->request */
} ech_message;

/* What the rank's thread has seen of a lane's reads and writes of files. */
typedef struct ech_file_watch {
    _Atomic unsigned moves; /* begun and ended: odd while one is under way */
    unsigned seen;
    double progress_at; /* seconds of ech_clock_now */
    bool is_stuck;      /* one is under way past the deadline */
} ech_file_watch;

/* Events of a device that is not immediate. Arrays end with NULL. */
typedef struct ech_events {
    ech_event *began;           /* the run */
    ech_event **queue;          /* [queues] the end of what the run has put there */
    ech_event **begins, **ends; /* [steps of the list] */
    ech_event **marks;          /* [ticks of the list] */
    int *peers;                 /* [world] for whom the device waits */
    ECH_LIST(int) marked;       /* ticks of this run whose event was recorded */
    /* steps of the list up to the last of the compute lane that was put; that was shown */
    size_t put, shown;
} ech_events;

/* Value of exec->awaited: the compute lane is at the list's end and waits for everything under
 * way. */
enum { ECH_AWAITS_ALL = INT_MAX };

enum { ECH_POSITION_BYTES = 32 }; /* of the text by which the board shows a step */
typedef char ech_position[ECH_POSITION_BYTES];

/* Lives and peaks of values, measured. Written by the compute lane only. */
typedef struct ech_ledger {
    ech_lives lives[ECH_LIST_KINDS];
    size_t next_death, next_birth;  /* of the list's by_death and by_birth */
    int64_t now[ECH_MEMORY_KINDS];  /* bytes that live now, of the list's own values */
    int64_t peak[ECH_MEMORY_KINDS]; /* the most so far, over all lists */
    int64_t working, working_peak;  /* the same of all working kinds together */
} ech_ledger;

/* The arguments of ech_exec_set_save. */
typedef struct ech_save_request {
    char *directory;
    int64_t keep, proven;
    ech_checkpoint_info info;
} ech_save_request;

/* The thread that writes a checkpoint, and the last checkpoint that was written. */
typedef struct ech_saver {
    bool under_way; /* its thread has not been joined */
    pthread_t thread;
    atomic_bool ended;          /* the thread is done: status and saved are final */
    ech_status status;          /* of the last thread */
    ech_exec_saved saved, last; /* of the last thread, and of the last one that was joined */
    bool news;     /* `last` was committed, and ech_exec_take_saved has not returned it yet */
    double began;  /* when the last thread began, in seconds of ech_clock_now */
    double waited; /* seconds for which the list waited for the checkpoint before */
    ech_save_request now, next; /* of the last thread, and of the next ECH_LIST_SAVE */
    ech_save_gate *gate;        /* NULL: none */
    void *gate_context;
    ech_saved_list list; /* what the last thread writes */
} ech_saver;

/* What tables say, once the host knows. */
typedef struct ech_known_rows {
    uint64_t run;     /* of lists, in which they were fetched; 0: none */
    int table[2];     /* values of the list; -1: absent */
    int64_t *rows[2]; /* by piece */
} ech_known_rows;

/* What steps ask of ech_layout_held (ECH_HELD_GRADIENT), asked once: it takes as long as the rest
 * of a step's work. */
typedef struct ech_share {
    bool counts;
    int boxes; /* of a stack those of one */
    ech_box *box;
} ech_share;

typedef struct ech_server ech_server; /* serve.c */

/* Where servers update at each push. */
typedef struct ech_pushes {
    /* [workers] the training step of each worker's next push; NULL: there are no pushes */
    int64_t *clock;
    int last;  /* of a worker: the last turn of the list that it has */
    int next;  /* with backup workers: its pushes of turns before that will be dropped */
    int tally; /* the train list's TALLY, behind all turns */
} ech_pushes;

struct ech_exec {
    const ech_config *config;
    const ech_plan *plan;
    const ech_device *device;
    ech_comm *comm;
    const ech_curve *curve;
    ech_pool *pool;                            /* of arrays that live as long as this */
    ech_group *channel[ECH_GROUPS][ECH_LANES]; /* NULL: not used on this rank */
    ech_pushes pushes;
    ech_server *server; /* serve.c; NULL: the rank serves no pushes */
    ech_kernel_context *context;
    ech_kernel_context lane_context[ECH_LANES]; /* of lanes other than compute: on one thread */
    const char *binding;                        /* the outcome of parallel.pin */
    ech_core_set cores_before; /* on which the rank's thread may run, before it is bound */
    bool is_bound;
    char *arena[ECH_SPACES];                /* of the disk ech_disk_addresses */
    ech_disk *disk;                         /* NULL: nothing is placed there */
    int64_t copied[ECH_SPACES][ECH_SPACES]; /* ech_exec_copied; each by one lane */
    ech_file_watch watch[ECH_LANES];
    double watched_at; /* ech_clock_take_gap */
    _Atomic int stuck; /* lanes whose threads are: they are left to that, with all memory */
    double copy_began[ECH_LANES]; /* a throttled copy, in seconds of ech_clock_now */
    const atomic_bool *is_urgent; /* ech_exec_hurry_on */
    char *scalars;                /* on the device: a row for each turn */
    char *staged;       /* on the host: the same rows, as COUNT puts and READ fetches them */
    int64_t updates;    /* so far */
    int workers;        /* whose pushes these are; 1: none's */
    double waited;      /* seconds that the compute lane has waited since COUNT */
    double counted_at;  /* the clock at COUNT; 0: there was none */
    ech_scaler scaler;  /* of the next list */
    bool fetched;       /* READ has put the copy to `staged` */
    int64_t host_waits; /* ech_exec_host_waits */
    int64_t version; /* newest one of weights when a list begins; its slot: version mod versions */
    ech_position *where[ECH_LIST_KINDS]; /* [steps of the list] for the board */

    ech_view *view[ECH_LIST_KINDS]; /* [list.first_local[block] + local] */
    ech_tensor *param_view;         /* [params], without data */
    ech_tensor *state_view;         /* [plan.state] */
    ech_share *share;               /* [params] */
    ech_call call; /* of the compute lane; between steps all its tensors are absent */

    /* The list that runs. */
    const ech_list *list;
    int64_t step;     /* training step of its first turn */
    _Atomic int tick; /* of the compute lane's call */
    uint64_t run;     /* number of this run */
    /* [steps] run << ECH_LANES | a bit for each lane whose thread waits for the step (wait.c).
     * run: the last run that completed the step or, where queues run by themselves, put all of
     * its work there. */
    _Atomic uint64_t *done;
    _Atomic int failed;   /* ech_status of the first failure, or ECH_OK; never reset */
    pthread_mutex_t lock; /* guards engine[].run, quit, busy, signals; all threads sleep with it */
    atomic_bool naps;     /* the link's thread is in ech_exec_nap */
    _Atomic int awaited;  /* the step that the compute lane waits for; -1: it computes */
    bool quit;            /* the engines' threads are to end */
    int busy;             /* engines that have not finished this run */
    int64_t signals;      /* sent so far to threads that wait for steps, naps or failures */
    ech_lane_thread engine[ECH_LANES];
    /* By lane, but those of messages: by boundary and kind (ech_step_queue). */
    ech_comm_queue *on;
    ech_events events;
    ech_ledger ledger;
    ECH_LIST(ech_message) posted; /* the link lanes' messages under way */
    ech_request *request;         /* of all messages of a list, in the order in which they began */
    size_t requested;             /* how many of them have */
    int *link_next;               /* [link_cursors] the link loop's */
    int link_cursors;
    ech_comm_count messages[ECH_MESSAGES]; /* ech_exec_message_count */
    ech_comm_count exchanged;              /* ech_exec_exchanged; by the lane COLLECTIVE */
    /* By the lane COLLECTIVE. */
    ech_known_rows exchanged_rows;         /* [e] to each, and from each, on the way to experts */
    ech_known_rows received_rows;          /* [t e] of what tensor ranks have received */
    int64_t *window_rows;                  /* [t e] of these, in a round's windows */
    int64_t tables_fetched;                /* ech_exec_tables_fetched */
    ech_sum begun[ECH_LANES];              /* the sum that a lane has begun ahead of its step */
    const ech_step *begun_step[ECH_LANES]; /* that step; NULL: no sum has begun ahead */
    int64_t sums_ahead[ECH_LANES];         /* ech_exec_sums_ahead; each by its lane */
    bool records;                          /* `times` are recorded */
    ech_exec_times times;

    ech_loader *loader[ECH_PURPOSES];
    int32_t token; /* ech_exec_set_token, also position */
    int64_t position;
    /* How checkpoints are copied: by the rank's own thread, and by the one that writes them. */
    ech_saved_copier copier[2];
    ech_saver saver;
    bool ask_stop, ask_save; /* ech_exec_ask */
    ech_readings *readings;  /* [turns of the train list] */
    ech_observer observer;   /* NULL: none */
    void *observer_context;
    bool scanning;       /* ech_exec_find_nonfinite runs the list: nothing is updated */
    ech_finding finding; /* this rank's first */
};

/* A handler for each row of steps.def: runs a step of the list on the thread of its lane. */
#define X(name, ...) ech_status ech_handle_##name(ech_exec *exec, const ech_step *step);
#include "schedule/steps.def"
#undef X
/* Defines a kind's handler by a function that handles several kinds. */
#define ECH_HANDLE_BY(name, function)                                                              \
    ech_status ech_handle_##name(ech_exec *exec, const ech_step *step)                             \
    {                                                                                              \
        return function(exec, step);                                                               \
    }

/* The samples and positions of the rows that this rank computes of `micro` (as in ech_numbering) of
 * the list: those of its context rank and sequence chunk, or in ECH_LIST_GENERATE that of its one
 * token. */
ech_rows ech_exec_rows(const ech_exec *exec, int micro);

/* The queue on which the step's work is put. */
ech_queue *ech_exec_queue(const ech_exec *exec, const ech_step *step);
/* The batch of the step's turn. It stays until that of the next turn is asked for. */
ech_status ech_exec_find_batch(ech_exec *exec, const ech_step *step, const ech_batch **out);
void ech_scalars_create(ech_exec *exec);
/* ech_exec_set_token's position, to the device. */
void ech_scalars_put_position(ech_exec *exec, const ech_step *step);
/* Elements first .. first + n - 1 of a tensor of `all`'s shape and type, of which `data` has these
 * alone: as rows where these are whole, otherwise of one dimension. */
ech_tensor ech_exec_part(const ech_tensor *all, int64_t first, int64_t n, void *data);
static inline ech_tensor ech_exec_elements(const ech_tensor *x, int64_t first, int64_t n)
{
    return ech_exec_part(x, first, n, (char *)x->data + (size_t)first * ech_dtype_bytes(x->dtype));
}
/* NORM of one parameter: the squares of this rank's part of it, from the sums of that part's
 * blocks. */
/* counts: this rank counts them. */
void ech_scalars_count_squares(ech_exec *exec, int turn, int param, const ech_tensor *sums,
                               bool counts);
/* The columns of a right factor that are no rounding errors; terms: as for clear_columns. */
void ech_scalars_count_rank(ech_exec *exec, int turn, const ech_tensor *right, int64_t terms);
/* Waits for the turn's row, for the host. */
ech_status ech_scalars_await(ech_exec *exec, const ech_step *step, const ech_scalar_row **out);
/* Puts the numbers of a push as the turn's row, with the number and rate of its update, number
 * `update` of the span. */
void ech_scalars_put(ech_exec *exec, const ech_step *step, int update, const ech_scalar_row *row);
/* Waits for the rows of all turns, for the host. */
ech_status ech_scalars_await_all(ech_exec *exec, const ech_step *step);
/* A turn's row as the host has it. */
const ech_scalar_row *ech_scalars_staged(const ech_exec *exec, int turn);
/* A training step's pushes together. */
typedef struct ech_pushed_step {
    double loss, loss_weight, squares, idle, staleness; /* sums over them */
} ech_pushed_step;
/* Puts a span's scalars by training step: `steps` of them (NULL: zeros), and the rank's own
 * flags. */
ech_status ech_scalars_tally(ech_exec *exec, const ech_step *step, const ech_pushed_step *steps);

/* ---- serve.c ---- */

void ech_exec_create_pushes(ech_exec *exec);
/* A list begins. */
void ech_exec_begin_pushes(ech_exec *exec);
/* Whether the step is of a turn that the worker has no push for. */
static inline bool ech_exec_is_idle(const ech_exec *exec, const ech_step *step)
{
    return step->turn > exec->pushes.last && step - exec->list->step.at < exec->pushes.tally;
}
/* n clocks for the next span, if that is how many workers there are; otherwise all have `step`. */
void ech_exec_set_clocks(ech_exec *exec, const int64_t *clocks, int n, int64_t step);
/* The training step whose samples a turn of the list is of. */
int64_t ech_exec_clock(const ech_exec *exec, int turn);
/* Groups of a worker and servers: of a worker its own, of a server one with each. */
ech_status ech_exec_make_pushed(ech_exec *exec);
/* The channel of a step's group: as a server that of the turn's worker. */
ech_group *ech_exec_channel(const ech_exec *exec, const ech_step *step);
/* The gather of weights by which a server answers a worker. */
typedef struct ech_answer {
    ech_group *channel;
    ech_sum sum;
} ech_answer;
/* How many workers a server's gather of weights answers, and (optional) their channels in *to; -1:
 * it is no such step. */
int ech_exec_answered(const ech_exec *exec, const ech_step *step, ech_answer **to);
/* What becomes of what a scatter sums. */
ech_delivery ech_exec_delivery(const ech_exec *exec, const ech_step *step);
/* A part of the push of the step's turn was lost with its worker: the turn updates nothing any
 * more. */
void ech_exec_lose_push(ech_exec *exec, const ech_step *step);
/* Whether a turn updates: a server's may add to a sum that is not complete, or drop its push. */
bool ech_exec_updates_in(const ech_exec *exec, int turn);
/* Whether a worker's push of that turn will be dropped in any case, as it knows. */
static inline bool ech_exec_is_void(const ech_exec *exec, int turn)
{
    return turn < exec->pushes.next;
}
/* All channels that a server has with workers; NULL entries are not used. */
int ech_exec_pushed_channels(const ech_exec *exec);
ech_group *ech_exec_pushed_channel(const ech_exec *exec, int i);

/* NORM of a parameter that is compressed. */
void ech_compression_norm(ech_exec *exec, const ech_step *step, int param);
/* A basis as it is at first. */
void ech_compression_init_basis(ech_exec *exec, int param, int state, const ech_tensor *basis);
/* The turn's update: all that changes from turn to turn by its place among the scalars. */
ech_update ech_scalars_update(const ech_exec *exec, int turn);
/* The same for an update on the host, of what READ_UPDATE has fetched. */
ech_update ech_scalars_update_on_host(const ech_exec *exec, int turn);
/* When a list has ended: what READ has fetched becomes the readings, and moves the number of
 * updates and the scaler on. */
void ech_scalars_take(ech_exec *exec);
/* The same of what LOGITS has fetched. */
void ech_logits_take(ech_exec *exec);
/* The scalars of a turn of the list, on the device. */
ech_scalar_row *ech_exec_row(const ech_exec *exec, int turn);

void ech_views_create(ech_exec *exec);
/* The memory and functions by which the host reads and writes device memory. */
void ech_window_create(ech_exec *exec);
/* The slot of a version of the weights; `version`: as in ech_exec_param_at. */
int ech_exec_weight_slot(const ech_exec *exec, int version);
/* A parameter in memory with all of its bucket's `weights`, and its gradient in that with all of
 * `gradients`, each written into *out. That is faster: a tensor that is returned and copied at once
 * waits for its own stores. */
void ech_exec_set_weights(const ech_exec *exec, int param, char *weights, ech_tensor *out);
void ech_exec_set_gradient(const ech_exec *exec, int param, char *gradients, ech_tensor *out);
/* The part of a parameter that a step of an update works on, in what the step uses as that:
 * gradients, weights or an element-wise state of its bucket, in that type. */
ech_tensor ech_exec_part_used(ech_exec *exec, const ech_step *step, int param, ech_used_as use,
                              int number, ech_dtype dtype);
/* Makes zero what lies behind a parameter in its bucket; `of`: its gradient, weights or an
 * element-wise state. */
void ech_exec_clear_padding(const ech_exec *exec, int param, const ech_tensor *of);
/* Makes all weights and element-wise states zero. Behind a parameter they stay so: nothing writes
 * there. */
void ech_params_create(ech_exec *exec);
/* Weights have come from elsewhere: replicas that are apart have met there. */
void ech_exec_begin_apart(ech_exec *exec);
/* Makes the weights of a version the rounding of the master; without a master they stay as they
 * are. */
void ech_exec_round_weights(ech_exec *exec, int param, int version);
/* This rank's shard of a state, or with sharding {0} all of it, with that memory. */
ech_tensor ech_exec_state_view(const ech_exec *exec, const ech_state *state, ech_sharding sharding,
                               void *data);
/* The list of rows of a turn (ech_bucket_rows). */
ech_tensor ech_exec_rows_listed(ech_exec *exec, const ech_bucket *bucket, int turn);
/* The parameters of the step's bucket. */
const int *ech_exec_bucket_params(const ech_exec *exec, const ech_step *step, int *n);
/* *out: the tensor of the block's value `local` in the list; `data`: the memory of its base. */
void ech_exec_view(const ech_exec *exec, const ech_block *block, int local, void *data,
                   ech_tensor *out);

/* If times are recorded: the call of the compute lane at this tick ends now. */
void ech_exec_mark(ech_exec *exec, int tick);

/* The run fails with this status, unless it is ECH_OK or the run has failed before. For any
 * thread. */
void ech_exec_fail(ech_exec *exec, ech_status status);

/* Runs a step of the list by its handler; of a message only begins it. */
ech_status ech_exec_handle(ech_exec *exec, const ech_step *step);
/* The run fails with this status, unless it is ECH_OK or the run has failed before. For any
 * thread. */
void ech_exec_fail(ech_exec *exec, ech_status status);
/* Puts a step of the compute lane on the board as the rank's position. */
void ech_exec_show_position(ech_exec *exec, const ech_step *step);

/* The step's queue calls what the host does, when it is there: host memory is in the queue's order
 * then, and the thread that puts steps there goes on. If `body` fails the run does. It touches no
 * device memory. */
typedef ech_status ech_work(ech_exec *exec, const ech_step *step);
void ech_exec_put(ech_exec *exec, const ech_step *step, ech_work *body);
/* Makes queues for all lists, and unless the device is immediate events for a list of so many steps
 * and ticks. */
ech_status ech_queues_create(ech_exec *exec, size_t steps, size_t ticks);
/* For the step's own lane: whether it has begun ahead, as sums do. */
bool ech_exec_has_begun(const ech_exec *exec, const ech_step *step);
/* Makes the channels of steps work on the device's data; and queues of messages meet those of their
 * peers (ech_comm_join). Collective. */
ech_status ech_collectives_create(ech_exec *exec);
ech_status ech_queues_join(ech_exec *exec);
void ech_queues_destroy(ech_exec *exec);
/* On a device that is not immediate: when a run begins, and its end, for which the host waits.
 * Errors: of the device. */
void ech_queues_begin(ech_exec *exec);
ech_status ech_queues_end(ech_exec *exec);
/* Whether no queue has work left: memory that such work touches is not given back. */
bool ech_queues_are_idle(const ech_exec *exec);
/* Whether a step may begin for which ech_exec_may_begin holds, without a wait of its queue. */
bool ech_queue_is_free(const ech_exec *exec, const ech_step *step);
/* Waits, on the thread of the step's lane, until its queue has done what the step has put there so
 * far. Errors: as of waits at the list's end; another thread's. */
ech_status ech_queue_wait(ech_exec *exec, const ech_step *step);
/* The step's queue waits for what the step comes after, all of which is complete. Does nothing
 * where that is the end. */
void ech_queue_await(ech_exec *exec, const ech_step *step);
/* On a device that is not immediate: the step's beginning or end is recorded; the end of the
 * compute lane's call at this tick is. */
void ech_queue_record(ech_exec *exec, int step, bool ends);
void ech_queue_mark(ech_exec *exec, int tick);

/* ---- wait.c ---- In its calls `step` is an index in the list. */

/* Makes and destroys `lock` and the conditions of all lanes. */
void ech_waits_create(ech_exec *exec);
void ech_waits_destroy(ech_exec *exec);
static inline bool ech_exec_is_complete(const ech_exec *exec, int step)
{
    return atomic_load(&exec->done[step]) >> ECH_LANES == exec->run;
}
/* Whether all steps that a step comes after are complete, or the run has failed. */
bool ech_exec_may_begin(ech_exec *exec, const ech_step *step);
/* If times are recorded: the step begins now. */
void ech_exec_begin(ech_exec *exec, int step);
/* Marks a step complete, and wakes the threads that wait for it. */
void ech_exec_complete(ech_exec *exec, int step);
/* The link's thread waits until one of the n steps (-1: none) may begin or the run has failed. */
void ech_exec_wait_for_any(ech_exec *exec, const int *steps, int n);
/* The link's thread waits until a step ends, the compute lane waits, the run fails, or `ns`
 * nanoseconds have passed. */
void ech_exec_nap(ech_exec *exec, long ns);
bool ech_exec_has_failed(const ech_exec *exec);
/* The thread of `lane` waits until a step is complete; false if the run has failed. For COMPUTE,
 * `awaited` shows the step. */
bool ech_exec_wait_for(ech_exec *exec, int step, ech_lane lane);
/* Shows that the compute lane waits for `step` or ECH_AWAITS_ALL, and ends a nap of the link's
 * thread. */
void ech_exec_set_awaited(ech_exec *exec, int step);
/* Errors: ECH_EUSAGE, with memory.offload_bandwidth a copy would take longer than the deadline. */
ech_status ech_exec_check_pace(ech_exec *exec);
/* For the rank's thread, every 0.1 s while it waits: a read or write of a file past the deadline is
 * an error that names it. */
ech_status ech_exec_watch_files(ech_exec *exec);
/* The rank's thread, which holds `lock`, sleeps until it is woken. Where there are files it watches
 * them. */
void ech_exec_rest(ech_exec *exec);
/* Wakes all threads; they then check what they wait for. */
void ech_exec_wake(ech_exec *exec);

/* Binds the compute lane's threads to cores of their own, as parallel.pin says. Collective over all
 * ranks. */
ech_status ech_threads_bind(ech_exec *exec);
void ech_threads_unbind(ech_exec *exec);
/* Touches every page of the new arena, each by the thread that computes on it (first touch). */
void ech_threads_touch(ech_exec *exec);

/* All tensors of a checkpoint, the same on all ranks, each with the boxes that this rank writes.
 * Their memory is that of the snapshot, or without one that of the weights and states. `step`: the
 * step of the list that reads them. */
ech_saved_list ech_exec_list_saved(const ech_exec *exec, const ech_step *step);
/* For steps: waits for the checkpoint before, whose thread reads what they will change; returns its
 * status. */
ech_status ech_saver_wait(ech_exec *exec);
/* Whether the last thread has ended with an error. Never waits. */
bool ech_saver_has_failed(const ech_saver *saver);
void ech_saver_free(ech_saver *saver); /* waits for the thread's end */

/* Runs the send and receive lanes of the list to their end. ECH_OK also if another lane has
 * failed. */
ech_status ech_link_run(ech_exec *exec);

static inline void *ech_exec_at(const ech_exec *exec, const ech_value *value)
{
    return exec->arena[ech_memory_space(value->kind)] + value->offset;
}
/* A value's address, for a step of the compute lane. Enters it into the ledger; aborts outside of
 * its planned life. */
void *ech_exec_touch(ech_exec *exec, int value);
/* The address of a value, for a step of any lane. Aborts the process if the step does not declare
 * the value (ech_access) or does not lie in its planned life. */
void *ech_exec_address(const ech_exec *exec, const ech_step *step, int value);
/* The address of what a step of a bucket uses as that (ech_step_uses); NULL: nothing. Weights go
 * round from list to list. */
void *ech_exec_used(ech_exec *exec, const ech_step *step, ech_used_as use, int number);
/* Aborts the process if the step does not declare the value. Of weights a step declares the value
 * of ech_plan_weights. */
void ech_ledger_expect(const ech_exec *exec, const ech_step *step, int value);
/* The address of a value, outside of steps (observers, scans). Checks nothing. */
void *ech_exec_look(const ech_exec *exec, int value);
/* Copies a parameter's version `from` to version `to`; versions as in ech_exec_param_at. */
void ech_exec_copy_weights(ech_exec *exec, int param, int from, int to);

/* Makes the rank's arena on disk, if it has values there. Collective over all ranks. Errors are
 * said once. */
ech_status ech_exec_take_disk(ech_exec *exec);

/* Takes the window that all ranks share, if the plan has values there. All ranks must have met
 * since they gave back the one before. */
ech_status ech_exec_take_window(ech_exec *exec);
/* What ranks have written to the window outside of lists all may read then. Collective over all
 * ranks, if there is a window. */
ech_status ech_exec_meet_in_window(ech_exec *exec);

void ech_ledger_create(ech_exec *exec);
void ech_ledger_begin(ech_exec *exec); /* when a run begins: no value is live */
/* When the compute lane reaches a tick: values whose last tick is before it die. */
void ech_ledger_advance(ech_exec *exec, int tick);
/* When a step of another lane begins, and when it has ended: aborts if a value that it declares is
 * not live. */
void ech_ledger_check(const ech_exec *exec, const ech_step *step, bool begins);

/* In a scan: looks for a NaN or infinity in a tensor that a call of `step` wrote; stores the first
 * in exec->finding. `what` and `name`, for its text: "gradient of", "model.norm.weight". */
void ech_scan_tensor(ech_exec *exec, const ech_step *step, const char *what, const char *name,
                     const ech_tensor *x);

#endif
