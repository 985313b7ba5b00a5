/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checkpoint or a Hugging Face folder to a session.
 */
#include "app/train/trained.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/setup/adapters.h"
#include "app/setup/initial.h"
#include "app/setup/plugins.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/foreign.h"

enum { MOST_TOKENS = 1024 }; /* of a sample, where no run says how many */

typedef struct trained_run {
    const ech_trained_options *options;
    const ech_checkpoint *checkpoint; /* NULL: a Hugging Face model's folder */
    ech_trained_use use;
    void *context;
} trained_run;

/* One rank of this machine, which trains nothing. */
static void set_alone(const ech_trained_options *options, ech_config *c)
{
    c->training.global_batch_size = options->samples;
    c->training.steps = 0;
    c->optimizer.learning_rate = 0;
    c->parallel.comm = ECH_COMM_local;
}

/* From the run file of a checkpoint, which may be a stranger's: the model, and what its numbers
 * depend on besides. No path in it is followed, and nothing of it says how many resources to take;
 * the model's shapes are compared with the files' first. */
static ech_status take_config(const trained_run *run, const char *folder, ech_config *c)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *saved = NULL;
    const char *path = ech_checkpoint_path(run->checkpoint);
    if (run->options->plugins) ECH_TRY(ech_plugins_load(run->options->plugins));
    ECH_TRY(ech_setup_config_saved(run->checkpoint, NULL, 0, &saved));
    ech_config_replace_text(&saved->model.init_from, "");
    ech_config_replace_text(&saved->lora.init_from, "");
    ECH_TRY(ech_config_fill_section(c, saved, "model", path));
    ECH_TRY(ech_config_fill_section(c, saved, "lora", path));
    ECH_TRY(ech_config_fill_section(c, saved, "precision", path));
    ech_config_replace_text(&c->model.init_from, "");
    ech_config_replace_text(&c->lora.init_from, "");
    ech_model_choose(c);
    c->precision.tf32 = 0;
    c->data.sequence_length = saved->data.sequence_length;
    c->data.packing = saved->data.packing;
    c->data.long_documents = saved->data.long_documents;
    c->data.document_mask = saved->data.document_mask;
    c->parallel.device = saved->parallel.device;
    if (!ech_shards_are_there(folder))
        ECH_FAIL(ECH_EINPUT,
                 "%s: has no weights (model.safetensors or its index); copy them into it, or name "
                 "another folder",
                 folder);
    return ech_initial_check_shapes(c, folder);
}

/* Of a Hugging Face folder, with the keys that no run file has set. */
static ech_status fill_config(const trained_run *run, ech_config *c)
{
    ech_config_replace_text(&c->model.init_from, run->options->path);
    ECH_TRY(ech_setup_name_adapters(c, run->options->path));
    ECH_TRY(ech_setup_fill_model(c));
    ECH_TRY(ech_initial_expect(c));
    int64_t T = c->model.max_position_embeddings;
    c->data.sequence_length = T < MOST_TOKENS ? T : MOST_TOKENS;
    return ECH_OK;
}

/* A batch has whole balance groups, by which losses are as in training. What is sampled is of none.
 * */
static ech_status fit_groups(const ech_trained_options *options, ech_config *c)
{
    int64_t samples = c->model.moe_group_samples;
    if (!options->evaluates) c->model.moe_group_samples = 1;
    if (!options->evaluates || options->samples % samples == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "--batch %lld: experts drop rows per group of %lld samples, so a batch needs whole "
             "groups; use --batch %lld",
             (long long)options->samples, (long long)samples,
             (long long)((options->samples / samples + 1) * samples));
}

static ech_status make_config(const trained_run *run, const char *folder, ech_config **out)
{
    ECH_FREED_TEXT device = {0};
    ECH_TRY(ech_setup_defaults(out));
    set_alone(run->options, *out);
    ECH_TRY(run->checkpoint ? take_config(run, folder, *out) : fill_config(run, *out));
    ECH_TRY(fit_groups(run->options, *out));
    if (!run->options->device) return ECH_OK;
    ech_text_append(&device, "parallel.device=%s", run->options->device);
    return ech_config_set(*out, device.at);
}

/* ---- the tokenizer ---- */

/* The model's own, which is not needed. */
static void try_tokenizer(ech_trained *trained)
{
    int64_t V = trained->config->model.vocab_size;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_initial_open_folder(trained->folder, &trained->tokenizer);
    ech_log_set_quiet(quiet);
    if (status != ECH_OK) ech_log_warn("%s; continuing with token ids only", ech_last_error());
    if (!trained->tokenizer || trained->tokenizer->vocabulary <= V) return;
    ech_log_warn("the tokenizer of %s has %lld ids, the model %lld; continuing with token ids only",
                 trained->folder, (long long)trained->tokenizer->vocabulary, (long long)V);
    ech_tokenizer_close(trained->tokenizer);
    trained->tokenizer = NULL;
}

/* The run file's tokenizer may be gone by now; the model's folder has a copy. */
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
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_read(path, ECH_TEXT_LIMIT, &text, &n));
    return ech_model_read_stops(path, text, n, trained->config->model.vocab_size, &trained->stops);
}

static ech_status find_ends(ech_trained *trained)
{
    const ech_tokenizer *tokenizer = trained->tokenizer;
    if (tokenizer) {
        trained->ends.begin = tokenizer->begin_of_text;
        trained->ends.end = tokenizer->end_of_text;
        ECH_PUSH(trained->stops, trained->ends.end);
    } else {
        ECH_TRY(ech_initial_read_ends(trained->folder, &trained->ends));
    }
    ECH_TRY(add_stops(trained, "config.json"));
    return add_stops(trained, "generation_config.json");
}

/* ---- from begin to end ---- */

static ech_status open_and_use(ech_trained *trained, ech_comm *comm, const trained_run *run)
{
    if (run->checkpoint)
        trained->folder = ech_file_join(ech_checkpoint_path(run->checkpoint), "model");
    ECH_TRY(make_config(run, trained->folder, &trained->config));
    if (!run->checkpoint) /* of adapters alone, their base's */
        ECH_TRY(ech_shards_find(trained->config->model.init_from, &trained->folder));
    ECH_TRY(open_tokenizer(trained, run->options));
    ech_config_replace_text(&trained->config->log.directory, run->options->path); /* not written */
    ech_config_set_alone(trained->config);
    ECH_TRY(ech_design_create(trained->config, trained->tokenizer, 1, 1, &trained->design));
    ECH_TRY(ech_setup_check_device(trained->config, "--device cpu"));
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
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    if (!ech_file_is_folder(path)) {
        ECH_TRY(ech_foreign_check(path));
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no such folder; name a run directory, a checkpoint or a Hugging Face model's "
                 "folder",
                 path);
    }
    if (!ech_initial_is_folder(path) && !ech_peft_is_there(path))
        ECH_TRY(ech_checkpoint_find(path, true, &checkpoint));
    trained_run run = {options, checkpoint, use, context};
    return ech_run_ranks(ECH_COMM_local, 1, deadline, run_rank, &run);
}
