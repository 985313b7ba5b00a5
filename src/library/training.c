/* SPDX-License-Identifier: Apache-2.0
 *
 * Training, step by step. The ranks run on threads of their own, which one more thread, the host,
 * starts and joins. Between two steps all ranks of this process wait at a gate. A call of the
 * library passes them a request there, which each of them executes: since all ranks do the same,
 * requests may be collective. The call returns once all of them have executed it, or one has failed
 * and the others have ended.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "library/library.h"

/* What the ranks do next. */
typedef enum request {
    NONE,
    STEP,
    CALL, /* of training.call */
    END,
    ABORT
} request;

struct echelon_training {
    ech_run run;
    ech_training options;
    bool catches_signals, caught; /* as the caller wants; handled at present */
    ech_run_arguments arguments;
    pthread_t host;

    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t asked, answered;
    int ranks;    /* of this process, as long as they are at the gate or on their way to it */
    int waiting;  /* of these, at the gate */
    int64_t requested; /* number of requests so far */
    request request;
    ech_rank_call *call;
    void *argument;
    bool evaluates;    /* this process was an evaluator's */
    bool ended;        /* the ranks have ended: */
    ech_status status; /* why */
    char error[2048];  /* the message of the rank that failed first */

    /* written by the caller while ranks are at the gate, read by ranks between gates: */
    int64_t until; /* steps before this one are made without a stop at the gate */

    /* written by the first rank of this process, read while it waits: */
    ech_trainer *first;
    int64_t steps, last_step;
    bool done, stopped;

    bool in_hook; /* of the caller's thread */
};

/* ---- on the threads of ranks ---- */

/* The message of the first rank that failed by itself. The mutex is locked. */
static void note_error(echelon_training *training, ech_status status)
{
    bool tells_more = training->status == ECH_OK || training->status == ECH_EABORTED;
    if (status == ECH_OK || !tells_more) return;
    training->status = status;
    snprintf(training->error, sizeof training->error, "%s", ech_last_error());
}

/* Waits for the next request. The mutex is locked. */
static request await(echelon_training *training, int64_t *seen)
{
    if (++training->waiting == training->ranks) pthread_cond_broadcast(&training->answered);
    while (training->requested == *seen && !training->ended)
        pthread_cond_wait(&training->asked, &training->mutex);
    *seen = training->requested;
    return training->ended ? END : training->request;
}

/* Executes calls until a step is asked for, or the end. */
static ech_status pause_ranks(ech_trainer *t, void *context, bool *ends)
{
    echelon_training *training = context;
    request next = NONE;
    if (t->step < training->until && !ech_trainer_is_done(t)) return ECH_OK;
    pthread_mutex_lock(&training->mutex);
    if (!training->first) training->first = t;
    bool is_first = training->first == t;
    int64_t seen = training->requested;
    while (next == NONE || next == CALL) {
        if (is_first) {
            training->steps = t->step;
            training->last_step = t->config->training.steps;
            training->stopped |= t->stopped;
            training->done = ech_trainer_is_done(t) || training->stopped;
        }
        next = await(training, &seen);
        if (next != CALL) continue;
        pthread_mutex_unlock(&training->mutex);
        ech_status status = training->call(t, is_first, training->argument);
        if (status != ECH_OK) return status;
        pthread_mutex_lock(&training->mutex);
    }
    *ends = next == END;
    pthread_mutex_unlock(&training->mutex);
    if (next == ABORT)
        ECH_FAIL(ECH_EABORTED, "step %lld: aborted by echelon_train_abort", (long long)t->step);
    return ECH_OK;
}

/* A rank that ends before the others wakes them: they must not wait for it. */
static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    echelon_training *training = context;
    pthread_mutex_lock(&training->mutex);
    training->ranks = ech_comm_has_threads((ech_comm_kind)design->config->parallel.comm)
                          ? ech_comm_size(comm) - ech_layout_roles(design->layout).evaluate.n
                          : 1;
    pthread_mutex_unlock(&training->mutex);
    ech_status status = ech_train_rank(comm, design, &training->options);
    pthread_mutex_lock(&training->mutex);
    note_error(training, status);
    training->ended = true;
    pthread_cond_broadcast(&training->asked);
    pthread_mutex_unlock(&training->mutex);
    return ech_library_end_rank(design, status);
}

static ech_status catch_signals(void *context)
{
    echelon_training *training = context;
    ECH_TRY(ech_train_catch_signals());
    training->caught = true;
    return ECH_OK;
}

static void *host_ranks(void *context)
{
    echelon_training *training = context;
    pthread_setname_np(pthread_self(), "echelon-ranks"); /* and so the threads that it starts */
    ech_start start = {.command = "train",
                       .reads_weights = true,
                       .trains = true,
                       .run = &training->run,
                       .prepare = training->catches_signals ? catch_signals : NULL,
                       .main = run_rank,
                       .context = training};
    ech_status status = ech_start_ranks(&start);
    if (training->caught) ech_train_leave_signals();
    pthread_mutex_lock(&training->mutex);
    note_error(training, status);
    training->ended = true;
    training->ranks = training->waiting = 0;
    pthread_cond_broadcast(&training->answered);
    pthread_mutex_unlock(&training->mutex);
    return NULL;
}

/* ---- on the caller's thread ---- */

/* Refuses a call that a hook makes. */
static ech_status check_not_in_hook(const echelon_training *training, const char *function)
{
    if (!training->in_hook) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE, "%s: a hook may not call it with its own training; return requests",
             function);
}

/* True for an evaluator's process, which has ended and takes no requests. */
static bool has_evaluated(const echelon_training *training)
{
    return training->ended && training->status == ECH_OK && training->requested == 0;
}

/* Checks that the ranks have not ended. The mutex is locked. */
static ech_status check_alive(echelon_training *training)
{
    if (!training->ended) return ECH_OK;
    if (training->status != ECH_OK)
        ech_set_last_error(training->error);
    else
        ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                    "this process's ranks have ended; begin another training");
    return training->status == ECH_OK ? ECH_EUSAGE : training->status;
}

ech_status ech_training_check(echelon_training *training)
{
    pthread_mutex_lock(&training->mutex);
    ech_status status = check_alive(training);
    pthread_mutex_unlock(&training->mutex);
    return status;
}

/* Waits until all ranks are at the gate, or have ended. The mutex is locked. */
static ech_status await_ranks(echelon_training *training)
{
    while (training->ranks < 0 || training->waiting < training->ranks)
        pthread_cond_wait(&training->answered, &training->mutex);
    return training->ranks > 0 || has_evaluated(training) ? ECH_OK : check_alive(training);
}

static ech_status ask(echelon_training *training, request what, ech_rank_call *call, void *argument)
{
    pthread_mutex_lock(&training->mutex);
    ech_status status = await_ranks(training);
    if (status == ECH_OK && !has_evaluated(training)) {
        training->request = what;
        training->call = call;
        training->argument = argument;
        training->waiting = 0;
        training->requested++;
        pthread_cond_broadcast(&training->asked);
        if (what == STEP || what == CALL) status = await_ranks(training);
    }
    pthread_mutex_unlock(&training->mutex);
    return status;
}

ech_status ech_training_call(echelon_training *training, ech_rank_call *call, void *argument)
{
    return ask(training, CALL, call, argument);
}

static void destroy(echelon_training *training)
{
    ech_run_close(&training->run);
    pthread_mutex_destroy(&training->mutex);
    pthread_cond_destroy(&training->asked);
    pthread_cond_destroy(&training->answered);
    free(training->arguments.assignment.at);
    free(training->arguments.file);
    ech_handle_destroy(training);
}

static ech_status start(const echelon_run *run, const echelon_train_options *o,
                        echelon_training *training)
{
    training->arguments = ech_library_arguments(run);
    training->arguments.ranks = o->ranks;
    training->arguments.file = run->file ? ech_strdup(run->file) : NULL;
    training->catches_signals = o->catch_signals;
    training->options = (ech_training){.pause = pause_ranks,
                                       .context = training,
                                       .gradients = o->gradients,
                                       .profile = o->profile,
                                       .elapsed = o->elapsed};
    ECH_TRY(ech_run_open(&training->arguments, &training->run));
    training->arguments.text = training->arguments.model =
        NULL; /* these belong to the run, which may be closed before */
    training->arguments.assignment.n = 0;
    if (ech_thread_start(&training->host, host_ranks, training) != 0)
        ECH_FAIL(ECH_EIO, "cannot start another thread for the ranks: " ECH_NO_THREAD);
    pthread_mutex_lock(&training->mutex);
    ech_status status = await_ranks(training);
    if (has_evaluated(training)) training->done = training->evaluates = true;
    pthread_mutex_unlock(&training->mutex);
    if (status != ECH_OK) pthread_join(training->host, NULL);
    return status;
}

echelon_status echelon_train_start(echelon_run *run, const echelon_train_options *options,
                                   echelon_training **out)
{
    echelon_train_options o;
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(out);
    ECH_TAKE(o, options);
    echelon_training *training = ech_handle_create(sizeof *training, ECH_HANDLE_TRAINING);
    training->ranks = -1; /* unknown yet */
    pthread_mutex_init(&training->mutex, NULL);
    pthread_cond_init(&training->asked, NULL);
    pthread_cond_init(&training->answered, NULL);
    ech_status status = start(run, &o, training);
    if (status == ECH_OK)
        *out = training;
    else
        destroy(training);
    return (echelon_status)status;
}

static void fill(const echelon_training *training, echelon_metrics *out)
{
    const ech_trainer *t = training->first;
    echelon_metrics m = {.step = t->step,
                         .loss = t->loss,
                         .grad_norm = t->last.grad_norm,
                         .learning_rate = t->last.learning_rate,
                         .tokens = t->tokens,
                         .seconds = t->seconds,
                         .withheld = t->last.withheld,
                         .saved = t->saved_step == t->step,
                         .valid_loss = ech_trainer_valid_loss(t),
                         .unit = ech_training_unit(training)};
    ech_library_give(out, out->size, &m, sizeof m);
}

/* Makes up to so many steps for the library's `function`; 0: all. */
static ech_status run_steps(echelon_training *training, int64_t steps, echelon_metrics *metrics,
                            bool needs_one, const char *function)
{
    ECH_TRY(check_not_in_hook(training, function));
    if (!training->evaluates) ECH_TRY(ech_training_check(training));
    if (metrics) ECH_TRY(ech_library_check_size(metrics->size));
    if (steps < 0) ECH_FAIL(ECH_EUSAGE, "%lld steps: must be 0 or more", (long long)steps);
    if (training->done && needs_one)
        ECH_FAIL(ECH_EUSAGE,
                 "step %lld was the last: training.steps, or what asked to stop, allows no further "
                 "one; raise training.steps, and start again to go on",
                 (long long)training->steps);
    if (training->done) return ECH_OK;
    bool all = steps == 0 || steps > INT64_MAX - training->steps;
    training->until = all ? INT64_MAX : training->steps + steps;
    ECH_TRY(ask(training, STEP, NULL, NULL));
    if (metrics) fill(training, metrics);
    return ECH_OK;
}

echelon_status echelon_train_step(echelon_training *training, echelon_metrics *metrics)
{
    ech_library_enter();
    ECH_USE(training, TRAINING);
    return (echelon_status)run_steps(training, 1, metrics, true, __func__);
}

echelon_status echelon_train_run(echelon_training *training, int64_t steps,
                                 echelon_metrics *metrics)
{
    ech_library_enter();
    ECH_USE(training, TRAINING);
    return (echelon_status)run_steps(training, steps, metrics, false, __func__);
}

bool echelon_train_is_stopped(echelon_training *training)
{
    ECH_USE_HANDLE(training, TRAINING, false);
    return training->stopped;
}

bool echelon_train_is_done(echelon_training *training)
{
    ECH_USE_HANDLE(training, TRAINING, false); /* the next step says why */
    pthread_mutex_lock(&training->mutex); /* ranks may end while nothing is asked of them */
    bool done = training->done || training->ended;
    pthread_mutex_unlock(&training->mutex);
    return done;
}

int64_t echelon_train_steps(const echelon_training *training)
{
    ECH_USE_HANDLE(training, TRAINING, 0);
    return training->steps;
}

int64_t echelon_train_last_step(const echelon_training *training)
{
    ECH_USE_HANDLE(training, TRAINING, 0);
    return training->last_step;
}

static echelon_status finish(echelon_training *training, request how, const char *function)
{
    ech_library_enter();
    if (!training) return ECHELON_OK;
    ech_handle_use use = ech_handle_enter(training, ECH_HANDLE_TRAINING, function);
    ech_status status = use.status;
    if (status == ECH_OK) status = check_not_in_hook(training, function);
    if (status != ECH_OK) {
        ech_handle_leave(&use);
        return (echelon_status)status;
    }
    (void)ask(training, how, NULL, NULL);
    pthread_join(training->host, NULL);
    status = training->status;
    ech_set_last_error(training->error);
    destroy(training);
    return (echelon_status)status;
}

echelon_status echelon_train_finish(echelon_training *training)
{
    return finish(training, END, __func__);
}

void echelon_train_abort(echelon_training *training)
{
    (void)finish(training, ABORT, __func__);
}

/* ---- for hooks ---- */

bool ech_training_trains(echelon_training *training)
{
    return !training->evaluates && ech_training_check(training) == ECH_OK;
}

void ech_training_set_hook(echelon_training *training, bool runs)
{
    training->in_hook = runs;
}

void ech_training_stop(echelon_training *training)
{
    training->stopped = training->done = true;
}

const char *ech_training_unit(const echelon_training *training)
{
    return ech_sample_row_of(ech_family_of(training->run.config)->samples)->unit;
}

ech_exec *ech_training_exec(echelon_training *training)
{
    return training->first->session.exec;
}

bool ech_training_may_save(echelon_training *training)
{
    return ech_trainer_may_save(training->first);
}

typedef struct folded {
    double *number;
    int n;
} folded;

static ech_status fold(ech_trainer *t, bool is_first, void *argument)
{
    const folded *of = argument;
    (void)is_first; /* a process has one rank */
    return ech_group_fold(ech_exec_world(t->session.exec), ECH_FOLD_MAX, of->number, of->n);
}

ech_status ech_training_fold(echelon_training *training, double *numbers, int n)
{
    folded of = {numbers, n};
    const ech_config *config = training->run.config;
    if (ech_comm_has_threads((ech_comm_kind)config->parallel.comm)) return ECH_OK;
    return ask(training, CALL, fold, &of);
}

/* ---- saving, validation, keys ---- */

static ech_status save(ech_trainer *t, bool is_first, void *argument)
{
    (void)is_first, (void)argument;
    ECH_TRY(ech_trainer_save(t));
    return ech_trainer_finish_save(t);
}

echelon_status echelon_train_save(echelon_training *training)
{
    ech_library_enter();
    ECH_USE(training, TRAINING);
    ECH_PASS(ech_training_check(training));
    if (!ech_trainer_may_save(training->first))
        ECH_REFUSE("step %lld: local replicas differ until they are averaged; save after a "
                   "multiple of parallel.sync_every",
                   (long long)training->steps);
    return (echelon_status)ask(training, CALL, save, NULL);
}

static ech_status validate(ech_trainer *t, bool is_first, void *argument)
{
    double loss;
    bool stops; /* the next step sees it, too */
    ECH_TRY(ech_trainer_validate(t, &loss, &stops));
    if (is_first) *(double *)argument = loss;
    return ECH_OK;
}

echelon_status echelon_train_validate(echelon_training *training, double *loss)
{
    ech_library_enter();
    ECH_USE(training, TRAINING);
    ECH_NEED(loss);
    ECH_PASS(ech_training_check(training));
    if (!training->first->valid)
        ECH_REFUSE("this run has no validation data; set data.valid or data.split, and "
                   "training.validate_every");
    return (echelon_status)ask(training, CALL, validate, loss);
}

/* The keys that may change between steps. */
static const struct {
    const char *key;
    void (*set)(ech_exec *exec, double value);
} settable[] = {{"optimizer.learning_rate", ech_exec_set_rate},
                {"optimizer.clip_norm", ech_exec_set_clip_norm}};
enum { SETTABLE = sizeof settable / sizeof *settable };

typedef struct setting {
    int row; /* of settable */
    double value;
} setting;

static ech_status set_key(ech_trainer *t, bool is_first, void *argument)
{
    const setting *of = argument;
    (void)is_first;
    settable[of->row].set(t->session.exec, of->value);
    return ECH_OK;
}

echelon_status echelon_train_set(echelon_training *training, const char *key, double value)
{
    setting of = {0, value};
    ech_library_enter();
    ECH_USE(training, TRAINING);
    ECH_NEED(key);
    while (of.row < SETTABLE && strcmp(key, settable[of.row].key) != 0) of.row++;
    if (of.row == SETTABLE)
        ECH_REFUSE("%s cannot change during training; only optimizer.learning_rate and "
                   "optimizer.clip_norm can",
                   key);
    if (!(value >= 0 && value <= 1e9)) ECH_REFUSE("%s = %g: not between 0 and 1e9", key, value);
    ECH_PASS(ech_training_check(training));
    return (echelon_status)ask(training, CALL, set_key, &of);
}
