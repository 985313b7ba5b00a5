/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checkpoint or a Hugging Face folder to a session.
 */
#include "app/train/trained.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/setup/initial.h"
#include "base/file.h"
#include "base/log.h"

enum { MOST_TOKENS = 1024 }; /* of a sample, where no run says how many */

typedef struct trained_run {
    const ech_trained_options *options;
    const ech_checkpoint *checkpoint; /* NULL: a Hugging Face model's folder */
    ech_trained_use use;
    void *context;
} trained_run;

/* The run file comes with the checkpoint, from a stranger perhaps: no path in it is followed. */
static void stay_inside(const trained_run *run, ech_config *config)
{
    ech_config_replace_text(&config->data.tokenizer, "auto");
    ech_config_replace_text(&config->model.init_from, "");
    ech_config_replace_text(&config->log.directory, run->options->path); /* nothing is written */
    ech_config_replace_text(&config->checkpoint.directory, "auto");
    ech_config_replace_text(&config->checkpoint.resume, "auto");
}

/* The run file of the checkpoint, with what belongs to one rank on this machine instead of the
 * layout that trained it. */
static ech_status read_config(const trained_run *run, ech_config **out)
{
    char batch[64], micro_batch[64];
    char *assignments[] = {batch,
                           micro_batch,
                           (char[]){"parallel.comm=local"},
                           (char[]){"parallel.threads=auto"},
                           (char[]){"parallel.reduction=direct"},
                           (char[]){"memory.device_limit=auto"}};
    snprintf(batch, sizeof batch, "training.global_batch_size=%lld",
             (long long)run->options->samples);
    snprintf(micro_batch, sizeof micro_batch, "training.micro_batch_size=%lld",
             (long long)run->options->samples);
    ECH_TRY(ech_setup_config_text(ech_checkpoint_get_info(run->checkpoint)->run_yaml,
                                  ech_checkpoint_path(run->checkpoint), assignments,
                                  sizeof assignments / sizeof *assignments, out));
    stay_inside(run, *out);
    return ECH_OK;
}

static ech_status set_all(ech_config *config, char *const *assignments, size_t n)
{
    for (size_t i = 0; i < n; i++) ECH_TRY(ech_config_set(config, assignments[i]));
    return ECH_OK;
}

/* What config.json does not say and no run file has said. */
static ech_status fill_config(const trained_run *run, ech_config *config)
{
    char batch[64], length[64];
    char *assignments[] = {batch, length, (char[]){"training.steps=0"},
                           (char[]){"optimizer.learning_rate=0"}, (char[]){"parallel.comm=local"}};
    ech_config_replace_text(&config->model.init_from, run->options->path);
    ECH_TRY(ech_setup_fill_model(config));
    ECH_TRY(ech_initial_expect(config));
    int64_t T = config->model.max_position_embeddings;
    snprintf(batch, sizeof batch, "training.global_batch_size=%lld",
             (long long)run->options->samples);
    snprintf(length, sizeof length, "data.sequence_length=%lld",
             (long long)(T < MOST_TOKENS ? T : MOST_TOKENS));
    return set_all(config, assignments, sizeof assignments / sizeof *assignments);
}

static ech_status make_config(const trained_run *run, ech_config **out)
{
    if (run->checkpoint) return read_config(run, out);
    ECH_TRY(ech_setup_defaults(out));
    return fill_config(run, *out);
}

/* ---- the tokenizer ---- */

/* The model's own, which is not needed. */
static void try_tokenizer(ech_trained *trained)
{
    int64_t V = trained->config->model.vocab_size;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_initial_open_folder(trained->folder, &trained->tokenizer);
    ech_log_set_quiet(quiet);
    if (status != ECH_OK) ech_log_warn("%s; going on with ids alone", ech_last_error());
    if (!trained->tokenizer || ech_tokenizer_vocabulary(trained->tokenizer) <= V) return;
    ech_log_warn("the tokenizer of %s has %lld ids, the model %lld; going on with ids alone",
                 trained->folder, (long long)ech_tokenizer_vocabulary(trained->tokenizer),
                 (long long)V);
    ech_tokenizer_close(trained->tokenizer);
    trained->tokenizer = NULL;
}

/* That of the run file may be gone by now; the model has its own beside it. */
static ech_status open_tokenizer(ech_trained *trained, const ech_trained_options *options)
{
    const char *source = options->tokenizer ? options->tokenizer : trained->folder;
    ech_config_replace_text(&trained->config->data.tokenizer, source);
    if (options->tokenizer) return ech_tokenizer_open(source, &trained->tokenizer);
    if (!options->ids_do) return ech_initial_open_folder(source, &trained->tokenizer);
    try_tokenizer(trained);
    return ECH_OK;
}

static ech_status add_stops(ech_trained *trained, const char *name)
{
    ECH_FREED char *path = ech_file_join(trained->folder, name), *text = NULL;
    size_t n;
    ech_status status = ECH_OK;
    if (ech_file_exists(path)) {
        status = ech_file_read(path, ECH_TEXT_LIMIT, &text, &n);
        if (status == ECH_OK)
            status = ech_model_read_stops(path, text, n, trained->config->model.vocab_size,
                                          &trained->stops);
    }
    return status;
}

static ech_status find_ends(ech_trained *trained)
{
    const ech_tokenizer *tokenizer = trained->tokenizer;
    if (tokenizer) {
        trained->ends.begin = ech_tokenizer_begin_of_text(tokenizer);
        trained->ends.end = ech_tokenizer_end_of_text(tokenizer);
        ECH_PUSH(trained->stops, trained->ends.end);
    } else {
        ECH_TRY(ech_initial_read_ends(trained->folder, &trained->ends));
    }
    ECH_TRY(add_stops(trained, "config.json"));
    return add_stops(trained, "generation_config.json");
}

/* ---- from begin to end ---- */

static ech_status find_folder(const trained_run *run, char **out)
{
    if (!run->checkpoint) return ech_shards_find(run->options->path, out);
    *out = ech_file_join(ech_checkpoint_path(run->checkpoint), "model");
    return ECH_OK;
}

static ech_status open_and_use(ech_trained *trained, ech_comm *comm, const trained_run *run)
{
    ECH_TRY(make_config(run, &trained->config));
    ECH_TRY(find_folder(run, &trained->folder));
    ECH_TRY(open_tokenizer(trained, run->options));
    ech_config_replace_text(&trained->config->log.directory, run->options->path); /* not written */
    ech_setup_alone(trained->config);
    ECH_TRY(ech_design_create(trained->config, trained->tokenizer, 1, 1, &trained->design));
    ECH_TRY(find_ends(trained));
    ECH_TRY(ech_session_create(&trained->design, comm, true, &trained->session));
    if (run->checkpoint)
        ECH_TRY(ech_exec_restore(trained->session.exec, run->checkpoint));
    else
        ECH_TRY(ech_session_initialise(&trained->session, trained->config));
    return run->use(trained, run->context);
}

static ech_status run_rank(ech_comm *comm, void *context)
{
    ech_trained trained = {0};
    ech_status status = open_and_use(&trained, comm, context);
    ech_session_destroy(&trained.session);
    ech_design_destroy(&trained.design);
    ech_tokenizer_close(trained.tokenizer);
    free(trained.stops.at);
    free(trained.folder);
    ech_config_destroy(trained.config);
    return status;
}

ech_status ech_trained_run(const ech_trained_options *options, ech_trained_use use, void *context)
{
    const char *path = options->path;
    const double deadline = 600; /* seconds; one rank waits for nobody */
    ech_checkpoint *checkpoint = NULL;
    if (!ech_file_is_folder(path))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no such folder; name a run directory, a checkpoint or a Hugging Face model's "
                 "folder",
                 path);
    if (!ech_initial_is_folder(path)) ECH_TRY(ech_checkpoint_find(path, true, &checkpoint));
    trained_run run = {options, checkpoint, use, context};
    ech_status status = ech_run_ranks(ECH_COMM_local, 1, deadline, run_rank, &run);
    ech_checkpoint_close(checkpoint);
    return status;
}
