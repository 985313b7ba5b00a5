/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checkpoint or a Hugging Face folder to a session.
 */
#include "app/train/trained.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/setup/adapters.h"
#include "app/setup/initial.h"
#include "app/setup/plugins.h"
#include "app/setup/run.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/foreign.h"

enum { MOST_TOKENS = 1024 }; /* of a sample, where no run says how many */

typedef struct trained_run {
    const ech_trained_options *options;
    const ech_checkpoint *checkpoint; /* NULL: a Hugging Face model's folder */
    const ech_trained *shared;
    ech_trained_use use;
    void *context;
} trained_run;

/* One rank of this machine, which trains nothing. */
static void set_alone(const ech_trained_options *options, ech_config *c)
{
    ech_config_set_alone(c);
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
    ECH_TRY(ech_setup_config_saved(run->checkpoint, &saved));
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
    ech_model_choose(c);
    ECH_TRY(ech_initial_expect(c));
    if (!ech_config_reads(c, "data.sequence_length")) return ECH_OK;
    int64_t T = c->model.max_position_embeddings;
    c->data.sequence_length = T < MOST_TOKENS ? T : MOST_TOKENS;
    return ECH_OK;
}

/* A batch has whole balance groups, by which losses are as in training. What is sampled is of none.
 * Batch norm has no groups, since running statistics normalize. */
static ech_status fit_groups(const ech_trained_options *options, ech_config *c)
{
    int64_t samples = c->model.moe_group_samples;
    c->model.norm_samples = 1;
    c->model.norm_sync = 0;
    if (!options->evaluates) c->model.moe_group_samples = 1;
    if (!options->evaluates || options->samples % samples == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "--batch %lld: experts drop rows per group of %lld samples, so a batch needs whole "
             "groups; use --batch %lld",
             (long long)options->samples, (long long)samples,
             (long long)((options->samples / samples + 1) * samples));
}

/* Whether a word "key=value" is about the layout of ranks that only run forwards. */
static bool is_of_layout(const char *word)
{
    static const char *const keys[] = {"pipeline", "tensor",         "sequence",
                                       "context",  "context_method", "expert"};
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i]) == n && strncmp(keys[i], word, n) == 0) return word[n] == '=';
    return false;
}

static ech_status set_layout(const char *words, ech_config *c)
{
    ECH_FREED char *copy = ech_strdup(words);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
        ECH_FREED_TEXT assignment = {0};
        if (!is_of_layout(word))
            ECH_FAIL(ECH_EUSAGE,
                     "--parallel: \"%s\" is none of pipeline=, tensor=, sequence=, context=, "
                     "context_method= and expert=",
                     word);
        ech_text_append(&assignment, "parallel.%s", word);
        ECH_TRY(ech_config_set(c, assignment.at));
    }
    return ECH_OK;
}

static ech_status make_config(const trained_run *run, const char *folder, ech_config **out)
{
    ECH_FREED_TEXT device = {0};
    ECH_TRY(ech_setup_defaults(out));
    set_alone(run->options, *out);
    ECH_TRY(run->checkpoint ? take_config(run, folder, *out) : fill_config(run, *out));
    ECH_TRY(fit_groups(run->options, *out));
    if (run->options->parallel) ECH_TRY(set_layout(run->options->parallel, *out));
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

static int64_t window_of(const trained_run *run, const ech_config *c)
{
    return run->checkpoint ? c->data.sequence_length : c->model.max_position_embeddings;
}

/* All that ranks share. */
static ech_status open_model(ech_trained *trained, const trained_run *run, int *ranks)
{
    const ech_device *device;
    if (run->checkpoint)
        trained->folder = ech_file_join(ech_checkpoint_path(run->checkpoint), "model");
    ECH_TRY(make_config(run, trained->folder, &trained->config));
    if (!run->checkpoint) /* of adapters alone, their base's */
        ECH_TRY(ech_shards_find(trained->config->model.init_from, &trained->folder));
    ECH_TRY(open_tokenizer(trained, run->options));
    ECH_TRY(find_ends(trained));
    ech_config_replace_text(&trained->config->log.directory, run->options->path); /* not written */
    trained->window = window_of(run, trained->config);
    if (run->options->fit) ECH_TRY(run->options->fit(trained, run->context));
    ECH_TRY(ech_run_ranks_of(trained->config, 0, ranks));
    ECH_TRY(
        ech_design_create(trained->config, trained->tokenizer, *ranks, *ranks, &trained->design));
    ECH_TRY(ech_setup_check_device(trained->config, "--device cpu"));
    device = ech_device_find(ech_config_name(trained->config, "parallel.device"));
    return ech_setup_check_sharing(trained->config, device, *ranks);
}

static ech_status run_session(ech_trained *trained, const trained_run *run)
{
    ECH_TRY(ech_session_create(&trained->design, trained->comm, true, &trained->session));
    if (run->checkpoint)
        ECH_TRY(ech_exec_restore(trained->session.exec, run->checkpoint));
    else
        ECH_TRY(ech_session_initialise(&trained->session, trained->config));
    return run->use(trained, run->context);
}

static ech_status run_rank(ech_comm *comm, void *context)
{
    const trained_run *run = context;
    ech_trained own = *run->shared;
    own.comm = comm;
    ech_status status = run_session(&own, run);
    ech_session_destroy(&own.session);
    return status;
}

static void close_model(ech_trained *trained)
{
    ech_design_destroy(&trained->design);
    ech_tokenizer_close(trained->tokenizer);
    free(trained->stops.at);
    free(trained->folder);
    ech_config_destroy(trained->config);
}

ech_status ech_trained_run(const ech_trained_options *options, ech_trained_use use, void *context)
{
    const char *path = options->path;
    const double deadline = 600; /* seconds */
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
    ECH_CLEANUP(close_model) ech_trained trained = {0};
    trained_run run = {options, checkpoint, &trained, use, context};
    int ranks;
    ECH_TRY(open_model(&trained, &run, &ranks));
    return ech_run_ranks(ECH_COMM_local, ranks, deadline, run_rank, &run);
}
