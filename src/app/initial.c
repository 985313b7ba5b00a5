/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run begins with.
 */
#include "app/initial.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

/* ---- the model section ---- */

/* data.tokenizer = auto becomes the folder if that holds a tokenizer, of whatever kind: one that we do
 * not understand is an error, not bytes. */
static void fill_tokenizer(ech_config *config, const char *folder)
{
    static const char *const files[] = {"tokenizer.json", "vocab.bpe", "merges.txt"};
    bool found = false;
    if (strcmp(config->data.tokenizer, "auto") != 0) return;
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++) {
        char *path = ech_file_join(folder, files[i]);
        found = ech_file_exists(path);
        free(path);
    }
    if (found) ech_config_replace_text(&config->data.tokenizer, folder);
}

static ech_status fill_from_run_file(ech_config *config, const char *run_yaml, const char *path)
{
    ech_config *saved;
    ECH_TRY(ech_setup_config_text(run_yaml, path, NULL, 0, &saved));
    ech_status st = ech_config_fill_section(config, saved, "model", path);
    char *model = ech_file_join(path, "model");
    fill_tokenizer(config, model);
    free(model);
    ech_config_destroy(saved);
    return st;
}

/* *filled: the run has a checkpoint. */
static ech_status fill_from_checkpoint(ech_config *config, bool *filled)
{
    char *path = NULL, *run_yaml = NULL;
    char *directory = strcmp(config->checkpoint.directory, "auto") == 0
                          ? ech_file_join(config->log.directory, "checkpoints")
                          : ech_strdup(config->checkpoint.directory);
    ech_status st = ech_shards_run_file(directory, &path, &run_yaml);
    if (st == ECH_OK && path) st = fill_from_run_file(config, run_yaml, path);
    *filled = path != NULL;
    free(path);
    free(run_yaml);
    free(directory);
    return st;
}

ech_status ech_initial_open(const ech_config *config, const char *folder, ech_shards **out)
{
    const ech_family *family = ech_family_find(config->model.architecture);
    const ech_shards_names names = {.prefix = family->prefix,
                                    .buffers = family->buffers,
                                    .table = config->model.tie_word_embeddings == 1 ? family->table
                                                                                    : NULL,
                                    .head = ECH_MODEL_HEAD};
    return ech_shards_open(folder, &names, out);
}

ech_status ech_initial_check_layers(const ech_config *config, const char *folder)
{
    ech_shards *weights;
    if (!ech_shards_are_there(folder)) return ECH_OK;
    ECH_TRY(ech_initial_open(config, folder, &weights));
    int tensors = ech_shards_count(weights);
    ech_shards_close(weights);
    if (config->model.num_hidden_layers <= tensors) return ECH_OK;
    return ech_config_complain(config, "model.num_hidden_layers", "%s has only %d tensors", folder,
                               tensors);
}

static ech_status fill_from_folder(ech_config *config)
{
    char *folder;
    ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    char *path = ech_file_join(folder, "config.json");
    ech_status st = ech_model_import(config, path);
    if (st == ECH_OK) st = ech_initial_check_layers(config, folder);
    fill_tokenizer(config, folder);
    free(path);
    free(folder);
    return st;
}

bool ech_initial_is_folder(const char *path)
{
    char *config = ech_file_join(path, "config.json"),
         *manifest = ech_file_join(path, "manifest.json");
    bool is = ech_file_exists(config) && !ech_file_exists(manifest);
    free(config);
    free(manifest);
    return is;
}

ech_status ech_setup_fill_model(ech_config *config)
{
    bool filled = false;
    if (!config->model.init_from[0]) return ECH_OK;
    if (config->log.directory[0]) ECH_TRY(fill_from_checkpoint(config, &filled));
    return filled ? ECH_OK : fill_from_folder(config);
}

/* ---- parameters ---- */

static ech_status open_weights(const ech_config *config, ech_shards **out)
{
    char *folder;
    ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    ech_status st = ech_initial_open(config, folder, out);
    free(folder);
    return st;
}

/* Closed again if something is wrong with them. */
static ech_status open_checked(const ech_session *session, const ech_config *config,
                               ech_shards **out)
{
    ech_shards *weights;
    ECH_TRY(open_weights(config, &weights));
    ech_status st = ech_exec_check_weights(session->exec, weights);
    if (st == ECH_OK)
        *out = weights;
    else
        ech_shards_close(weights);
    return st;
}

/* What is wrong for all ranks rank 0 finds and says, while the others wait. */
static ech_status take_weights(ech_session *session, const ech_config *config)
{
    bool first = session->plan->rank == 0;
    ech_shards *weights = NULL;
    if (first) ECH_TRY(open_checked(session, config, &weights));
    ech_status st = ech_group_barrier(ech_exec_world(session->exec));
    if (st == ECH_OK && !first) st = open_checked(session, config, &weights);
    if (st == ECH_OK && first)
        ech_log_info("starting from the %d tensors of %s", ech_shards_count(weights),
                     config->model.init_from);
    if (st == ECH_OK) st = ech_exec_take_weights(session->exec, weights);
    ech_shards_close(weights);
    return st;
}

ech_status ech_session_initialise(ech_session *session, const ech_config *config)
{
    ECH_TRY(ech_exec_run(session->exec, ECH_LIST_INIT, 0));
    return config->model.init_from[0] ? take_weights(session, config) : ECH_OK;
}
