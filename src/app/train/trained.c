/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checkpoint, or from a Hugging Face model's folder, to a session.
 */
#include "app/train/trained.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/setup/initial.h"
#include "base/file.h"

enum { MOST_TOKENS = 1024 }; /* of a sample, where no run says how many */

typedef struct trained_run {
    const ech_checkpoint *checkpoint; /* NULL: a Hugging Face model's folder */
    const char *path;
    int64_t samples;
    ech_trained_use use;
    void *context;
} trained_run;

/* The tokenizer lies in the checkpoint; the one of the run file may be gone by now. */
static void use_saved_tokenizer(const ech_checkpoint *checkpoint, ech_config *config)
{
    if (!ech_checkpoint_get_info(checkpoint)->tokenizer_json) return;
    char *path = ech_file_join(ech_checkpoint_path(checkpoint), "model");
    ech_config_replace_text(&config->data.tokenizer, path);
    free(path);
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
    snprintf(batch, sizeof batch, "training.global_batch_size=%lld", (long long)run->samples);
    snprintf(micro_batch, sizeof micro_batch, "training.micro_batch_size=%lld",
             (long long)run->samples);
    ECH_TRY(ech_setup_config_text(ech_checkpoint_get_info(run->checkpoint)->run_yaml,
                                  ech_checkpoint_path(run->checkpoint), assignments,
                                  sizeof assignments / sizeof *assignments, out));
    use_saved_tokenizer(run->checkpoint, *out);
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
    ech_config_replace_text(&config->model.init_from, run->path);
    ECH_TRY(ech_setup_fill_model(config));
    int64_t T = config->model.max_position_embeddings;
    snprintf(batch, sizeof batch, "training.global_batch_size=%lld", (long long)run->samples);
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

static ech_status open_and_use(ech_trained *trained, ech_comm *comm, const trained_run *run)
{
    ECH_TRY(make_config(run, &trained->config));
    ECH_TRY(ech_initial_open_tokenizer(trained->config, &trained->tokenizer));
    ech_config_replace_text(&trained->config->log.directory, run->path); /* nothing is written */
    ech_setup_alone(trained->config);
    ECH_TRY(ech_setup_resolve(trained->config, trained->tokenizer, 1, 1));
    ECH_TRY(ech_design_create(trained->config, trained->tokenizer, 1, &trained->design));
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
    ech_config_destroy(trained.config);
    return status;
}

ech_status ech_trained_run(const char *path, int64_t samples, ech_trained_use use, void *context)
{
    const double deadline = 600; /* seconds; one rank waits for nobody */
    ech_checkpoint *checkpoint = NULL;
    if (!ech_file_is_folder(path))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no such folder; name a run directory, a checkpoint or a Hugging Face model's "
                 "folder",
                 path);
    if (!ech_initial_is_folder(path)) ECH_TRY(ech_checkpoint_find(path, true, &checkpoint));
    trained_run run = {checkpoint, path, samples, use, context};
    ech_status status = ech_run_ranks("local", 1, deadline, run_rank, &run);
    ech_checkpoint_close(checkpoint);
    return status;
}
