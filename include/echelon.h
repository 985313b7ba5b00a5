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
 * written only on success. The library prints nothing, installs no signal handlers and does not
 * change the locale. It ends the process only if memory for small structures runs out, if one of
 * its invariants is broken, or if a rank fails that trains together with other processes. Text
 * that a function returns belongs to the object that it came from.
 *
 * "Collective" means: if several processes train together (parallel.comm mpi, ucx or nccl), each
 * of them calls the function, in the same order. With parallel.comm=local all ranks are threads of
 * this process, and one call is for all of them.
 *
 * A handle is for one thread at a time. Several runs may exist, and train, at the same time; with
 * parallel.comm=mpi a process trains once.
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
 * warnings, progress. It may be called by any thread of the library, by several at a time. */
typedef void echelon_log(const char *line, void *context);
/* Sets who gets these lines, for the whole process; NULL, as at the start: nobody. */
ECHELON_API void echelon_set_log(echelon_log *log, void *context);

/* ---- runs: a run file and keys ---- */

typedef struct echelon_run echelon_run;

/* Opens a run from a run file, which is read when the run is used. Errors: there is no such
 * file. */
ECHELON_API echelon_status echelon_run_open(const char *path, echelon_run **out);
/* Opens a run from the text of a run file (YAML, UTF-8); "": all keys have their defaults. `name`
 * stands for the file in errors. */
ECHELON_API echelon_status echelon_run_open_text(const char *text, const char *name,
                                                 echelon_run **out);
/* Accepts NULL. Plans and trainings of the run stay valid. */
ECHELON_API void echelon_run_close(echelon_run *run);

/* Sets a key, "section.key", in place of the run file. Values are written as in the file. Errors:
 * no such key (the nearest one is named), a value of the wrong type or out of bounds. Keys that do
 * not fit together are reported when the run is used. */
ECHELON_API echelon_status echelon_run_set(echelon_run *run, const char *key, const char *value);
/* The key's value as text: as set, from the run file, from the model folder, or the default. It is
 * valid until the next call with this run. Errors: the run file or a key is wrong. */
ECHELON_API echelon_status echelon_run_get(echelon_run *run, const char *key, const char **out);

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
} echelon_key;
/* What a key means: the index-th of all keys, from 0. Errors: there are fewer. */
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
    double tokens;       /* with `cluster`: tokens of the whole training; 0: those of the run */
} echelon_plan_options;

/* Plans the run on all ranks, checks the plans and simulates them. Reads no data and writes
 * nothing. options NULL: defaults. Errors: the run is wrong, or does not fit into memory. */
ECHELON_API echelon_status echelon_plan_create(echelon_run *run,
                                               const echelon_plan_options *options,
                                               echelon_plan **out);
ECHELON_API void echelon_plan_free(echelon_plan *plan); /* accepts NULL */
/* The plan as `echelon plan` prints it, as with --json, and its timeline as SVG. They return NULL
 * on failure. */
ECHELON_API const char *echelon_plan_text(echelon_plan *plan);
ECHELON_API const char *echelon_plan_json(echelon_plan *plan);
ECHELON_API const char *echelon_plan_svg(echelon_plan *plan);
/* Number of ranks, without evaluators. */
ECHELON_API int echelon_plan_ranks(const echelon_plan *plan);
/* Number of kinds of memory, and the name of a kind: "parameters", "optimizer" ... */
ECHELON_API int echelon_memory_kinds(void);
ECHELON_API const char *echelon_memory_kind(int kind);
/* The rank's peak of that kind of memory, in bytes; -1: no such rank or kind. */
ECHELON_API int64_t echelon_plan_bytes(const echelon_plan *plan, int rank, int kind);

/* ---- training ---- */

typedef struct echelon_training echelon_training;

typedef struct echelon_train_options {
    size_t size; /* sizeof(echelon_train_options), set by the caller */
    int ranks;   /* with parallel.comm=local; 0: as many as the parallel section says */
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
    int64_t tokens;       /* trained on so far, over all ranks */
    double seconds;       /* of this step */
    int withheld;         /* 1: a NaN or infinity; no update was made */
    int saved;            /* 1: a checkpoint of this step was begun */
    double valid_loss;    /* NaN: the run did not validate after this step */
} echelon_metrics;

/* Makes a training step and what is due after it (validation, checkpoint), as the run's keys say.
 * Asynchronous strategies make a span of steps; the metrics are the last step's. metrics NULL: not
 * wanted. Collective. Errors: as for `echelon train`; there are no steps left. After an error only
 * echelon_train_finish may be called. */
ECHELON_API echelon_status echelon_train_step(echelon_training *training, echelon_metrics *metrics);
/* True if all steps are done, or training was told to stop. */
ECHELON_API bool echelon_train_is_done(echelon_training *training);
/* Training steps done so far, of all starts. */
ECHELON_API int64_t echelon_train_steps(const echelon_training *training);
/* Saves a checkpoint now. Collective. Errors: local replicas differ, before they are averaged. */
ECHELON_API echelon_status echelon_train_save(echelon_training *training);
/* The mean loss over the validation data. Collective. Errors: the run has no validation data. */
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

/* ---- weights and optimizer states, between steps ---- */

typedef struct echelon_tensor {
    size_t size;       /* sizeof(echelon_tensor), set by the caller */
    const char *name;  /* of the parameter: "model.layers.0.mlp.up_proj.weight" */
    const char *state; /* "exp_avg" and so on; "": the parameter itself */
    const char *dtype; /* "fp32", "bf16", "fp16", "fp64", "uint8" */
    int dims;
    int64_t shape[8]; /* of the whole tensor */
    int64_t bytes;
} echelon_tensor;

/* Number of tensors: first every parameter, then the optimizer's states. 0: the ranks have
 * ended. */
ECHELON_API int echelon_tensor_count(echelon_training *training);
ECHELON_API echelon_status echelon_tensor_at(echelon_training *training, int index,
                                             echelon_tensor *out);
/* Copies the whole tensor, under any layout, to data[bytes]. Between averages of local replicas
 * it is one replica's. Collective; every process gets it. */
ECHELON_API echelon_status echelon_tensor_read(echelon_training *training, int index, void *data,
                                               size_t bytes);
/* Replaces the tensor by data[bytes], the same in each process and on all replicas. Schedules that
 * keep older weights (pipedream-2bw) have these as a state, "previous". Collective. */
ECHELON_API echelon_status echelon_tensor_write(echelon_training *training, int index,
                                                const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
