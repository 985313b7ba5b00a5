/* SPDX-License-Identifier: Apache-2.0
 *
 * libechelon: plans and trains neural networks across many devices. The program `echelon` is built
 * on it.
 *
 *     echelon_run *run;
 *     echelon_training *training;
 *     echelon_metrics m = {sizeof m};
 *     if (echelon_run_open("run.yaml", &run) ||
 *         echelon_run_set(run, "training.steps", "100") ||
 *         echelon_train_start(run, NULL, &training))
 *         return puts(echelon_last_error()), 1;
 *     while (!echelon_train_is_done(training) && echelon_train_step(training, &m) == ECHELON_OK)
 *         printf("%lld %g\n", (long long)m.step, m.loss);
 *     echelon_train_finish(training);
 *     echelon_run_close(run);
 *
 * Functions that can fail return a status; results come back through the last parameter, and are
 * written only on success. The library prints nothing and installs no signal handlers, unless the
 * caller requests it (echelon_log_print, catch_signals). It does not change the locale. The process
 * ends only if memory for small structures runs out, an invariant of the library is broken, or a
 * plugin writes outside its buffers during a verification. It also ends if a rank that trains
 * together with other processes fails or waits too long (docs/library.md). Text that a function
 * returns belongs to the object that it came from. Structs begin with their size, which the caller
 * sets.
 *
 * "Collective" means: if several processes train together (parallel.comm mpi, ucx or nccl), each
 * of them calls the function, in the same order. With parallel.comm=local all ranks are threads of
 * this process, and one call is for all of them.
 *
 * A handle is for one thread at a time, and may change its thread between two calls. A call is
 * refused (ECHELON_EUSAGE; 0, false or NULL where it returns no status) if another thread is using
 * the handle, if it is of another kind, or if it is closed and no later handle has its address.
 * Several runs may exist, and train, at the same time; with parallel.comm=mpi a process trains
 * once. A training belongs to the process that started it: a process that is forked from this one
 * cannot use it.
 */
#ifndef ECHELON_H
#define ECHELON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ECHELON_API __attribute__((visibility("default")))
#else
#define ECHELON_API
#endif

typedef enum echelon_status {
    ECHELON_OK = 0,
    ECHELON_EUSAGE = -1,       /* a key, an argument or a call is wrong */
    ECHELON_EINPUT = -2,       /* a file's content is wrong or damaged */
    ECHELON_EIO = -3,          /* the operating system refused a read, write or rename */
    ECHELON_ENOMEM = -4,       /* not enough memory */
    ECHELON_EUNSUPPORTED = -5, /* not available with these values or on this machine */
    ECHELON_ECOMM = -6,        /* a peer is lost, or a deadline passed */
    ECHELON_EABORTED = -7,     /* another rank failed first */
    ECHELON_ENUMERIC = -8,     /* a NaN or infinity with which training cannot continue */
    ECHELON_EINTERNAL = -9     /* an invariant of this library is broken */
} echelon_status;

/* "0.1.0". */
ECHELON_API const char *echelon_version(void);

/* The message of this thread's last call, if that failed; otherwise it may be "". The same text
 * that the program prints. Valid until the next call of the library on this thread. */
ECHELON_API const char *echelon_last_error(void);

/* Called with a line (without its end) that the program would print on standard error: errors,
 * warnings, progress. It may be called by any thread of the library, by several at a time, so its
 * calls with handles are refused. Lines of calls that it makes are dropped. */
typedef void echelon_log(const char *line, void *context);
/* Sets who gets these lines, for the whole process; NULL, as at the start: nobody. */
ECHELON_API void echelon_set_log(echelon_log *log, void *context);
/* A log for echelon_set_log that prints the lines on standard error, with a status line on a
 * terminal, as `echelon` does. Its context is not used. */
ECHELON_API void echelon_log_print(const char *line, void *context);

/* ---- runs: a run file and keys ---- */

typedef struct echelon_run echelon_run;

#define ECHELON_MOST_RANKS 65536 /* of a run */

/* Opens a run from a run file, which is read when the run is used. Errors: there is no such
 * file. */
ECHELON_API echelon_status echelon_run_open(const char *path, echelon_run **out);
/* Opens a run from the text of a run file (YAML, UTF-8); "": all keys have their defaults. `name`
 * stands for the file in errors. */
ECHELON_API echelon_status echelon_run_open_text(const char *text, const char *name,
                                                 echelon_run **out);
/* Opens a run with the run file that `echelon init FOLDER` writes for a Hugging Face model's
 * folder. Only config.json is read, when the run is used. Such a run is for plans: it names no
 * data. */
ECHELON_API echelon_status echelon_run_open_model(const char *folder, echelon_run **out);
/* Accepts NULL. Plans and trainings of the run stay valid. */
ECHELON_API void echelon_run_close(echelon_run *run);

/* Sets a key, "section.key", in place of the run file. Values are written as in the file. Errors:
 * no such key (the nearest one is named), a value of the wrong type or out of bounds. Keys that do
 * not fit together are reported when the run is used. */
ECHELON_API echelon_status echelon_run_set(echelon_run *run, const char *key, const char *value);
/* The same for a word of a command line, "section.key=value". It is not checked before the run is
 * used: then all wrong words and lines of the run file are reported together. */
ECHELON_API echelon_status echelon_run_add_word(echelon_run *run, const char *word);
/* The key's value as text: as set, from the run file, from the model folder, or the default. It is
 * valid until the next call with this run. Required keys may be missing. With training.epochs,
 * training.steps is counted from the data. Errors: the run file or a key is wrong; the key is
 * required and not set; data that is counted cannot be read. */
ECHELON_API echelon_status echelon_run_get(echelon_run *run, const char *key, const char **out);
/* True if the key was set: by echelon_run_set, by the run file, or by a key that implies it
 * (model.init_from, parallel.strategy). Errors: the run file or a key is wrong. */
ECHELON_API echelon_status echelon_run_is_set(echelon_run *run, const char *key, bool *out);

struct echelon_plugin; /* echelon_plugin.h */
/* Adds a plugin of this process, which runs then use as if training.plugins named it (see
 * docs/plugins.md). The table stays unchanged until the process ends. Call it before a run uses the
 * plugin's names. Errors: another version of the interface; a row is incomplete, or its name is
 * taken. */
ECHELON_API echelon_status echelon_plugin_register(const struct echelon_plugin *table);

typedef struct echelon_key {
    size_t size;                /* sizeof(echelon_key), set by the caller */
    const char *section, *name; /* "training", "steps" */
    /* INT, SIZE (bytes), REAL, TIME (seconds), BOOL, TEXT, PATH, PATHS, NAME (one of several
     * words) or LIST */
    const char *type;
    const char *fallback; /* the default as text, or "required" */
    const char *help;     /* what the key sets, in a line */
    const char *more;     /* and sentences about it; may be "" */
    /* blank-separated words: the values of a NAME; of INT and LIST, what may stand in place of
     * numbers; of TEXT and PATH, suggestions; may be "" */
    const char *choices;
} echelon_key;
/* Describes the index-th of all keys, from 0. Errors: there are fewer. */
ECHELON_API echelon_status echelon_key_at(int index, echelon_key *out);

/* ---- plans ---- */

typedef struct echelon_plan echelon_plan;

typedef struct echelon_plan_options {
    size_t size;         /* sizeof(echelon_plan_options), set by the caller */
    int ranks;           /* 0: as many as the parallel section says */
    int per_machine;     /* ranks on a machine; 0: all, but not more than cores */
    bool steps;          /* text and JSON have every step of a training step */
    bool simulate;       /* the text has the simulation's results */
    const char *cluster; /* a cluster file (docs/clusters.md); NULL: this machine */
    /* With `cluster`: units of the whole training (echelon_metrics.unit); 0: the run's. */
    double tokens;
    /* Called by echelon_plan_create and echelon_search_create, on their thread, with what they
     * begin to do: "simulating". */
    void (*progress)(const char *doing, void *context); /* NULL: not wanted */
    void *context;
    /* The layout as arguments of another system: "megatron", "torchtitan", "deepspeed". NULL: none.
     * Text and JSON name what that system does not have. */
    const char *emit_for;
    /* With `cluster`: goodput with failures. Mean hours between failures of a rank, 0: there are
     * none; seconds of a restart; hours of a repair; spare machines (docs/clusters.md). */
    double mtbf_hours, restart_seconds, repair_hours;
    int spares;
} echelon_plan_options;

/* Plans the run on all ranks, checks the plans and simulates them. Counts the samples of data.train
 * if it can be read, and writes nothing. options NULL: defaults. Errors: the run is wrong, or does
 * not fit into memory; with training.epochs, data.train cannot be read. */
ECHELON_API echelon_status echelon_plan_create(echelon_run *run,
                                               const echelon_plan_options *options,
                                               echelon_plan **out);
ECHELON_API void echelon_plan_free(echelon_plan *plan); /* accepts NULL */
/* The plan as `echelon plan` prints it, as with --json, and its timeline as SVG. They return NULL
 * on failure. */
ECHELON_API const char *echelon_plan_text(echelon_plan *plan);
ECHELON_API const char *echelon_plan_json(echelon_plan *plan);
ECHELON_API const char *echelon_plan_svg(echelon_plan *plan);
/* The plan as a page for browsers, which loads nothing, as with --html. Its data is the JSON of a
 * plan with options->steps. NULL: failure. */
ECHELON_API const char *echelon_plan_html(echelon_plan *plan);
/* The file of options.emit_for; NULL without it. */
ECHELON_API const char *echelon_plan_emitted(const echelon_plan *plan);
/* Goodput against ranks as SVG. NULL: failure, as there is no options.mtbf_hours. */
ECHELON_API const char *echelon_plan_goodput_svg(echelon_plan *plan);
/* The memory of a training step as in Chen et al. 2016: without sharing of memory and gradients in
 * place, with each, with both, and with recomputed segments. Valid until the plan is freed. NULL:
 * it cannot be planned without recomputation (echelon_last_error). */
ECHELON_API const char *echelon_plan_memory_figure(echelon_plan *plan);
/* Number of ranks, without evaluators. */
ECHELON_API int echelon_plan_ranks(const echelon_plan *plan);
/* Number of kinds of memory, and the name of a kind: "parameters", "optimizer" ... */
ECHELON_API int echelon_memory_kinds(void);
ECHELON_API const char *echelon_memory_kind(int kind);
/* The rank's peak of that kind of memory, in bytes; -1: no such rank or kind. */
ECHELON_API int64_t echelon_plan_bytes(const echelon_plan *plan, int rank, int kind);

/* ---- a search for a layout ---- */

typedef struct echelon_search echelon_search;

/* Searches the layouts of the run on options->cluster: degrees, micro-batch, schedule, ZeRO,
 * recomputation and offload. Those with the shortest simulated step that fit into memory come
 * first. A key of these that the run sets is not searched. Writes nothing, and needs no data unless
 * the run has training.epochs.
 * With options->steps the first layout is also planned as a whole, for JSON and HTML; `simulate` is
 * not used. Errors: no layout can be run or fits. */
ECHELON_API echelon_status echelon_search_create(echelon_run *run,
                                                 const echelon_plan_options *options,
                                                 echelon_search **out);
ECHELON_API void echelon_search_free(echelon_search *search); /* accepts NULL */
/* The result as `echelon plan --search` prints it, and as with --json. They return NULL on
 * failure. */
ECHELON_API const char *echelon_search_text(echelon_search *search);
ECHELON_API const char *echelon_search_json(echelon_search *search);
/* The result as a page for browsers, which loads nothing; its data is the JSON. NULL: failure. */
ECHELON_API const char *echelon_search_html(echelon_search *search);
/* The number of layouts that were planned and are listed, the fastest first. */
ECHELON_API int echelon_search_places(const echelon_search *search);
/* The run file of the layout at `place`, from 0; borrowed until the next call. NULL: there is no
 * such place. */
ECHELON_API const char *echelon_search_run_file(echelon_search *search, int place);
/* As echelon_plan_emitted and echelon_plan_goodput_svg, of the first layout. */
ECHELON_API const char *echelon_search_emitted(const echelon_search *search);
ECHELON_API const char *echelon_search_goodput_svg(echelon_search *search);

/* ---- training ---- */

typedef struct echelon_training echelon_training;

typedef struct echelon_train_options {
    size_t size; /* sizeof(echelon_train_options), set by the caller */
    int ranks;   /* with parallel.comm=local; 0: as many as the parallel section says */
    bool profile;       /* measure where the time of steps goes, as `echelon train --profile` */
    bool catch_signals; /* in this process: SIGUSR1 requests a checkpoint; SIGUSR2, SIGTERM, SIGHUP
                         * and SIGINT finish the step, save, and stop; a second SIGINT ends it */
    double elapsed;     /* seconds of training.time_limit that earlier starts have used */
    bool gradients;     /* keep each step's gradients, which can be read as tensors */
} echelon_train_options;

/* Starts the run's ranks: opens data and logs, and restores the newest checkpoint or initializes
 * weights. With parallel.comm=local the ranks are threads of this process. Otherwise this process
 * is a rank if a launcher (mpirun, srun, torchrun) started it, and else the only rank. Collective.
 * Options NULL: defaults. Errors: as for `echelon train`; several ranks are asked for that would be
 * processes, but no launcher started them. */
ECHELON_API echelon_status echelon_train_start(echelon_run *run,
                                               const echelon_train_options *options,
                                               echelon_training **out);

typedef struct echelon_metrics {
    size_t size;          /* sizeof(echelon_metrics), set by the caller */
    int64_t step;         /* training steps done, of all starts */
    double loss;          /* mean over targets; NaN: no token counted as a target */
    double grad_norm;     /* before clipping */
    double learning_rate; /* 0: the update was withheld */
    int64_t tokens;       /* units trained on so far, over all ranks: see `unit` */
    double seconds;       /* of this step */
    int withheld;         /* 1: a NaN or infinity; no update was made */
    int saved;            /* 1: a checkpoint of this step was begun */
    double valid_loss;    /* NaN: the run did not validate after this step */
    int requests; /* that hooks of any process have made after this step; set for the hook `end` */
    const char *unit; /* what `tokens` counts: "token"; "sample" of runs on images or features */
} echelon_metrics;

/* Makes a training step and what is due after it (validation, checkpoint), as the run's keys say.
 * Asynchronous strategies make a span of steps; the metrics are the last step's. metrics NULL: not
 * wanted. Collective. Errors: as for `echelon train`; there are no steps left. After an error only
 * echelon_train_finish may be called. */
ECHELON_API echelon_status echelon_train_step(echelon_training *training, echelon_metrics *metrics);
/* Makes up to `steps` training steps, or with 0 all that are left, like echelon_train_step, but as
 * one request to the ranks, which pass steps faster without the caller between them. The metrics
 * are the last step's; they are unchanged if there was none left. Collective. Errors: as for
 * echelon_train_step. */
ECHELON_API echelon_status echelon_train_run(echelon_training *training, int64_t steps,
                                             echelon_metrics *metrics);
/* True if a signal, training.time_limit or a hook ended training before its last step, with a
 * checkpoint: the same run goes on from there. */
ECHELON_API bool echelon_train_is_stopped(echelon_training *training);
/* True if all steps are done, or training was told to stop. */
ECHELON_API bool echelon_train_is_done(echelon_training *training);
/* Training steps done so far, of all starts. */
ECHELON_API int64_t echelon_train_steps(const echelon_training *training);
/* The step with which the run ends: training.steps, or what training.epochs comes to. */
ECHELON_API int64_t echelon_train_last_step(const echelon_training *training);
/* Saves a checkpoint now. Collective. Errors: local replicas differ, before they are averaged. */
ECHELON_API echelon_status echelon_train_save(echelon_training *training);
/* The mean loss over the validation data; NaN if a rank is asked to stop. Collective. Errors: the
 * run has no validation data. */
ECHELON_API echelon_status echelon_train_validate(echelon_training *training, double *loss);
/* Sets optimizer.learning_rate (of all following steps, in place of the curve) or
 * optimizer.clip_norm. Checkpoints do not record it. Collective. Errors: another key. */
ECHELON_API echelon_status echelon_train_set(echelon_training *training, const char *key,
                                             double value);
/* Ends the ranks, waits for checkpoints that are being written, and frees the training. Without
 * echelon_train_save, steps since the last checkpoint are lost if not all steps are done.
 * Collective. Accepts NULL. Errors: of the training, if it failed. */
ECHELON_API echelon_status echelon_train_finish(echelon_training *training);
/* Ends the ranks at once, also those of other processes, and frees the training: for a process that
 * cannot go on while others wait for it. With parallel.comm mpi, ucx or nccl it ends the processes.
 * Not collective. Accepts NULL. */
ECHELON_API void echelon_train_abort(echelon_training *training);

/* ---- training with hooks ----
 *
 *     static int after_step(echelon_training *training, const echelon_metrics *m, void *context)
 *     {
 *         printf("%lld %g\n", (long long)m->step, m->loss);
 *         return m->loss < *(double *)context ? ECHELON_STOP : 0;
 *     }
 *
 *     double enough = 0.1;
 *     echelon_train_hooks hooks = {sizeof hooks, &enough, .step_end = after_step};
 *     if (echelon_train(run, NULL, &hooks)) puts(echelon_last_error());
 *
 * Hooks run on the thread that called echelon_train, between two steps, while all ranks wait. They
 * may call every function with their training but echelon_train_step, _run, _finish and _abort,
 * which refuse. Calls of other threads with this training are refused until echelon_train returns.
 * A hook that takes longer than parallel.deadline looks dead to other processes.
 */

/* A hook's requests, as a sum; what one process requests, all do. */
enum {
    ECHELON_STOP = 1, /* save, and end training as a signal does */
    ECHELON_SAVE = 2,
    ECHELON_VALIDATE = 4 /* needs validation data */
};
/* Returns requests. A negative number, such as an echelon_status, is a failure: then the ranks of
 * all processes end together. A checkpoint that is being written is completed, and later steps are
 * lost. */
typedef int echelon_hook(echelon_training *training, const echelon_metrics *metrics, void *context);

/* NULL: no such hook. */
typedef struct echelon_train_hooks {
    size_t size;             /* sizeof(echelon_train_hooks), set by the caller */
    void *context;           /* passed to each hook */
    echelon_hook *begin;     /* before the first step; of the metrics only `step` is set */
    echelon_hook *step_end;  /* after each step, or span of steps */
    echelon_hook *validated; /* after validation, which has set valid_loss */
    echelon_hook *saved;     /* after a checkpoint of this step was begun */
    echelon_hook
        *end; /* after the last step, or a stop; before the ranks end. Not after an error */
} echelon_train_hooks;

/* Trains to the end: echelon_train_start, all steps with their hooks, and echelon_train_finish.
 * Local replicas differ between their averages: then requests to save or stop wait for the next
 * one. Hooks of evaluators' processes are not called. options NULL, hooks NULL: defaults, none.
 * Collective, and so is each hook: all processes have the same ones. Errors: as for
 * echelon_train_start and echelon_train_step; a hook's failure, and ECHELON_EABORTED in processes
 * whose hooks did not fail. */
ECHELON_API echelon_status echelon_train(echelon_run *run, const echelon_train_options *options,
                                         const echelon_train_hooks *hooks);

/* ---- weights, optimizer states and gradients, between steps ---- */

typedef struct echelon_tensor {
    size_t size;       /* sizeof(echelon_tensor), set by the caller */
    const char *name;  /* of the parameter: "model.layers.0.mlp.up_proj.weight" */
    const char *state; /* "exp_avg" and so on, or "gradient"; "": the parameter itself */
    const char *dtype; /* "fp32", "bf16", "fp16", "fp64", "uint8" */
    int dims;
    int64_t shape[8]; /* of the whole tensor */
    int64_t bytes;
} echelon_tensor;

/* Number of tensors: first every parameter, then the optimizer's states; with
 * echelon_train_options.gradients then the last step's gradients. 0: the ranks have ended.
 *
 * A gradient is the one with which the step updates: summed over all ranks and micro-batches, a
 * mean over targets, before clipping and without the loss scale. It is fp32, or fp64 where training
 * has it so. Frozen parameters have none. A rank keeps its part in host memory, eight bytes a
 * number, beside what the plan states. Strategies whose workers or replicas update by gradients of
 * their own (asp, ssp, hogwild, local_sgd, gossip ...), backup workers, spans of steps (pipedream)
 * and compressed gradients have no such sum: echelon_train_start refuses them by name. */
ECHELON_API int echelon_tensor_count(echelon_training *training);
ECHELON_API echelon_status echelon_tensor_at(echelon_training *training, int index,
                                             echelon_tensor *out);
/* Copies the whole tensor, under any layout, to data[bytes]. Between averages of local replicas
 * it is one replica's. Collective; every process gets it. Errors: a gradient, before the first
 * step. */
ECHELON_API echelon_status echelon_tensor_read(echelon_training *training, int index, void *data,
                                               size_t bytes);
/* Replaces the tensor, which is no gradient, by data[bytes], the same in each process and on all
 * replicas. Schedules that
 * keep older weights (pipedream-2bw) have these as a state, "previous". Collective. */
ECHELON_API echelon_status echelon_tensor_write(echelon_training *training, int index,
                                                const void *data, size_t bytes);

/* ---- verification: a layout against one rank ----
 *
 *     echelon_verification *v;
 *     echelon_comparison c = {sizeof c};
 *     if (echelon_verify(run, NULL, &v)) return puts(echelon_last_error()), 1;
 *     if (echelon_verification_at(v, 0, &c) == ECHELON_OK)
 *         printf("%s: worst %g at %s\n", c.passed ? "passed" : "failed", c.worst, c.worst_at);
 *     echelon_verification_free(v);
 */

typedef struct echelon_verification echelon_verification;

typedef struct echelon_verify_options {
    size_t size;        /* sizeof(echelon_verify_options), set by the caller */
    int ranks;          /* with parallel.comm=local; 0: as many as the parallel section says */
    int64_t steps;      /* training steps to compare; 0: 2 */
    /* largest error in fp64 that passes; 0: the larger of 1e-11 and ten times the unit
     * (echelon_comparison.unit) */
    double tolerance;
    bool own_precision; /* compare in the run's own precision, too */
} echelon_verify_options;

/* A comparison of training under the run's layout with training on one rank. The error of a tensor
 * a against the reference b is max|a - b| / max|b|. */
typedef struct echelon_comparison {
    size_t size;           /* sizeof(echelon_comparison), set by the caller */
    const char *precision; /* in which it was made: "fp64", "bf16" */
    const char *layout;    /* "2 stages x 2 replicas, 1f1b" */
    int ranks;
    int passed;
    /* not passed, but not failed: rounding changes results too much to prove anything, or every
     * update was withheld */
    int ill_conditioned;
    double tolerance;      /* 0: the same bits */
    double unit;           /* the change of results by a random last bit of each weight */
    double worst;          /* the largest error */
    const char *worst_at;  /* "step 2, gradient of model.layers.1....", "" if there is no error */
    const char *first_bad; /* the first tensor out of tolerance, "" if there is none */
    int64_t steps;
    int64_t compared; /* number of elements of gradients, weights and states */
    /* The largest errors by kind. NaN: not compared. `reports`: what layers report beside the loss,
     * such as the loads of experts. */
    double loss, gradients, weights, states, reports, validation;
} echelon_comparison;

/* Trains a few steps under the run's layout in fp64 and beside it on one rank, and compares, as
 * `echelon verify` does. A failed comparison is no error. options NULL: defaults. Collective, with
 * ranks as in echelon_train_start. Errors: as for echelon_train_start; evaluators. */
ECHELON_API echelon_status echelon_verify(echelon_run *run, const echelon_verify_options *options,
                                          echelon_verification **out);
ECHELON_API void echelon_verification_free(echelon_verification *verification); /* accepts NULL */
/* Number of comparisons: 1, or 2 if one was made in the run's own precision. 0 in processes other
 * than rank 0's, which have no results. */
ECHELON_API int echelon_verification_count(const echelon_verification *verification);
/* The index-th comparison; 0 is in fp64. Errors: there are fewer. */
ECHELON_API echelon_status echelon_verification_at(const echelon_verification *verification,
                                                   int index, echelon_comparison *out);
/* The text that `echelon verify` prints; "" in processes other than rank 0's. */
ECHELON_API const char *echelon_verification_text(const echelon_verification *verification);

/* ---- trained models: evaluation and sampling ----
 *
 *     static bool print(const echelon_token *token, void *context)
 *     {
 *         return fwrite(token->bytes, 1, token->n, stdout) == token->n;
 *     }
 *
 *     if (echelon_sample("runs/book", "Once upon a time", NULL, print, NULL))
 *         puts(echelon_last_error());
 *
 * `path` names a run directory, a folder of checkpoints (the newest valid one is used), one
 * checkpoint, or a Hugging Face model's folder. A rank of this process computes, or as many as
 * `parallel` says; nothing is collective.
 */

enum { ECHELON_AUTO = -1 };

typedef struct echelon_evaluate_options {
    size_t size;           /* sizeof(echelon_evaluate_options), set by the caller */
    const char *split;     /* shares as in data.split, of which the third counts; NULL: all */
    const char *tokenizer; /* that made the tokens; NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    /* a new file: safetensors with logits (samples, tokens, ids); NULL: none */
    const char *logits;
    int64_t samples; /* only the first ones; 0: all */
    int64_t batch;   /* samples at a time; 0: 8 */
    /* Called before each batch, on the thread of the rank, with the number of samples done. */
    void (*progress)(int64_t sample, int64_t samples, void *context); /* NULL: not wanted */
    void *context;
    const char *plugins; /* of the run, as training.plugins; NULL: none */
    /* keys of the parallel section (pipeline, tensor, sequence, context, context_method, expert),
     * "tensor=2 pipeline=2", for ranks that are threads; NULL: one rank */
    const char *parallel;
} echelon_evaluate_options;

typedef struct echelon_evaluation {
    size_t size;          /* sizeof(echelon_evaluation), set by the caller */
    double loss;          /* mean over the targets, in nats; its exp() is the perplexity */
    double bits_per_byte; /* of the predicted text; NaN: the tokenizer is not known */
    int64_t targets;      /* predicted tokens that count, or labels */
    int64_t samples;
    int features; /* 1: samples are no texts: each has one target, a label or a class */
    /* shares of samples whose class has the largest logit, and one of the five largest;
     * NaN: samples have no classes */
    double accuracy, accuracy_of_5;
} echelon_evaluation;

/* The loss on data, which are named as in data.train. options NULL: defaults. Errors: there is no
 * model at the path; the data cannot be read or have no targets; the logits' file exists. */
ECHELON_API echelon_status echelon_evaluate(const char *path, const char *data,
                                            const echelon_evaluate_options *options,
                                            echelon_evaluation *out);

typedef struct echelon_scored_text {
    size_t size;         /* sizeof(echelon_scored_text), the same for all of an array */
    const char *context; /* "": the begin of text; NULL: text is scored in windows, to its end */
    const char *text;
    const char *name; /* in errors; NULL: "text 0" and so on */
} echelon_scored_text;

typedef struct echelon_score_options {
    size_t size;           /* sizeof(echelon_score_options), set by the caller */
    const char *tokenizer; /* NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    const char *parallel;  /* as in echelon_evaluate_options */
    const char *plugins;   /* of the run, as training.plugins; NULL: none */
    int begin_of_text;     /* before the context: 1, 0, or ECHELON_AUTO: as in the training data */
    bool truncate;         /* a context that is too long loses its first tokens */
    bool greedy;           /* fill echelon_likelihood.greedy, which takes longer; on one rank */
    /* Called before each text, on the thread of a rank, with the number of texts done. */
    void (*progress)(int64_t done, int64_t all, void *context); /* NULL: not wanted */
    void *context;
} echelon_score_options;
/* Its initial value, and what NULL means. */
#define ECHELON_SCORE_OPTIONS                                                                      \
    {                                                                                              \
        sizeof(echelon_score_options), NULL, NULL, NULL, NULL, ECHELON_AUTO, false, false, NULL,   \
            NULL                                                                                   \
    }

typedef struct echelon_likelihood {
    size_t size;           /* sizeof(echelon_likelihood) of the library */
    int64_t index;         /* of the text */
    double log_likelihood; /* natural logarithm of its probability after the context */
    int64_t tokens;        /* of the text */
    int greedy; /* 1: each of them is the most likely one; 0: one is not; -1: not requested */
} echelon_likelihood;
/* Takes the likelihood of a text. Called on the caller's thread, text by text. */
typedef void echelon_take_likelihood(const echelon_likelihood *likelihood, void *context);

/* The log-likelihoods of texts[n], each after its context. Context and text are tokenized together;
 * the tokens of the text are those after the context's own, without blanks at the context's end.
 * `take` gets all of them once all are known. options NULL: defaults. Errors: there is no model at
 * the path, or no tokenizer; a text has no tokens, or is longer with its context than the model
 * reads. */
ECHELON_API echelon_status echelon_score(const char *path, const echelon_scored_text *texts,
                                         int64_t n, const echelon_score_options *options,
                                         echelon_take_likelihood *take, void *context);

typedef struct echelon_sample_options {
    size_t size;           /* sizeof(echelon_sample_options), set by the caller */
    const char *ids;       /* token ids in place of the prompt, as "1 2 3"; NULL: none */
    const char *tokenizer; /* NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    int64_t tokens;        /* to write, at most */
    int64_t seed;          /* of random numbers: the same seed, the same text */
    double temperature;    /* 0: the most likely token */
    int64_t top_k;         /* only the k most likely; 0: all */
    double top_p;          /* the most likely ones with this total probability; 1: all */
    int begin_of_text;     /* before the prompt: 1, 0, or ECHELON_AUTO: as in the training data */
    bool special_tokens;   /* names of special tokens in the prompt become their ids */
    const char *plugins;   /* of the run, as training.plugins; NULL: none */
} echelon_sample_options;
/* Its initial value, and what NULL means. */
#define ECHELON_SAMPLE_OPTIONS                                                                     \
    {                                                                                              \
        sizeof(echelon_sample_options), NULL, NULL, NULL, 200, 1, 0.8, 0, 1, ECHELON_AUTO, false,  \
            NULL                                                                                   \
    }

typedef struct echelon_token {
    size_t size; /* sizeof(echelon_token) of the library */
    int32_t id;
    int is_prompt;     /* 1: it is of the prompt */
    const char *bytes; /* [n] of the text, valid during the call; may be part of a character */
    size_t n;          /* 0: no text is known */
} echelon_token;
/* Takes a token; false: no more are wanted. Called on the thread of the rank, while the caller of
 * echelon_sample waits. It may not call the library. */
typedef bool echelon_take_token(const echelon_token *token, void *context);

/* Passes the tokens of the prompt and of the text that follows to `take`. Errors: there is no model
 * at the path, or no tokenizer (then give `ids`); an option is out of bounds. */
ECHELON_API echelon_status echelon_sample(const char *path, const char *prompt,
                                          const echelon_sample_options *options,
                                          echelon_take_token *take, void *context);

/* ---- checkpoints ----
 *
 * The key checkpoint.resume says which one a training begins with: the newest one of its run, or a
 * path.
 */

typedef struct echelon_checkpoints echelon_checkpoints;

typedef struct echelon_checkpoint {
    size_t size;      /* sizeof(echelon_checkpoint), set by the caller */
    const char *path; /* of its folder */
    int64_t step;
    int complete;        /* 1: manifest, headers and sizes are right; checksums are not read */
    const char *problem; /* why it is not complete; else "" */
    int64_t bytes;       /* of all its files; 0: unknown */
    int ranks;           /* that wrote it; 0: unknown */
    double loss;         /* of its step; NaN: unknown */
} echelon_checkpoint;

/* Lists the checkpoints in a run directory or a folder of checkpoints, or the one at the path,
 * newest first. Errors: there are none. */
ECHELON_API echelon_status echelon_checkpoints_list(const char *path, echelon_checkpoints **out);
ECHELON_API void echelon_checkpoints_free(echelon_checkpoints *checkpoints); /* accepts NULL */
ECHELON_API int echelon_checkpoints_count(const echelon_checkpoints *checkpoints);
/* Errors: there is none with this index. */
ECHELON_API echelon_status echelon_checkpoints_at(const echelon_checkpoints *checkpoints, int index,
                                                  echelon_checkpoint *out);

#ifdef __cplusplus
}
#endif
#endif
