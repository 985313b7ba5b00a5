/* SPDX-License-Identifier: Apache-2.0
 *
 * The model section, tokenizer and weights that a run starts from.
 */
#include "app/setup/initial.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

/* ---- the model section ---- */

static ech_status fill_from_run_file(ech_config *config, const char *run_yaml, const char *path)
{
    ech_config *saved;
    ECH_TRY(ech_setup_config_text(run_yaml, path, NULL, 0, &saved));
    ech_status st = ech_config_fill_section(config, saved, "model", path);
    ech_config_destroy(saved);
    return st;
}

ech_resume ech_initial_resume(const ech_config *config)
{
    const char *resume = config->checkpoint.resume;
    if (ech_config_is_auto(resume)) return ECH_RESUME_AUTO;
    return strcmp(resume, "never") == 0 ? ECH_RESUME_NEVER : ECH_RESUME_PATH;
}

/* The checkpoint to resume from: the run's newest, or without one that of checkpoint.resume; NULL: none. Its
 * weights are not verified yet: if they turn out to be damaged, the run resumes from an older one, which has
 * the same model section and tokenizer. */
static ech_status find_past(const ech_config *config, ech_checkpoint **out)
{
    ech_checkpoint *past = NULL;
    char *directory = ech_config_is_auto(config->checkpoint.directory)
                          ? ech_file_join(config->log.directory, "checkpoints")
                          : ech_strdup(config->checkpoint.directory);
    ech_status st = ECH_OK;
    if (config->log.directory[0]) st = ech_checkpoint_open_newest(directory, false, &past);
    free(directory);
    if (st == ECH_OK && !past && config->checkpoint.resume[0] &&
        ech_initial_resume(config) == ECH_RESUME_PATH)
        st = ech_checkpoint_find(config->checkpoint.resume, false, &past);
    if (st == ECH_OK) *out = past;
    return st;
}

/* *filled: there is a checkpoint. */
static ech_status fill_from_checkpoint(ech_config *config, bool *filled)
{
    ech_checkpoint *past;
    ECH_TRY(find_past(config, &past));
    *filled = past != NULL;
    ech_status st = past ? fill_from_run_file(config, ech_checkpoint_get_info(past)->run_yaml,
                                              ech_checkpoint_path(past))
                         : ECH_OK;
    ech_checkpoint_close(past);
    return st;
}

ech_status ech_initial_open(const ech_config *config, const char *folder, bool verify,
                            ech_shards **out)
{
    const ech_family *family = ech_family_of(config);
    const ech_shards_names names = {.prefix = family->prefix,
                                    .buffers = family->buffers,
                                    .table = config->model.tie_word_embeddings == 1 ? family->table
                                                                                    : NULL,
                                    .head = ECH_MODEL_HEAD};
    return ech_shards_open(folder, &names, verify, out);
}

/* Names and shapes of the whole model's tensors. */
static ech_saved_tensor *describe(const ech_model *model)
{
    ech_saved_tensor *all = ech_calloc(model->param.n, sizeof *all);
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_shape *shape = &model->param.at[i].shape;
        all[i] = (ech_saved_tensor){.name = model->param.at[i].name, .dims = shape->dims};
        for (int d = 0; d < shape->dims; d++) all[i].shape[d] = shape->size[d];
    }
    return all;
}

ech_status ech_initial_check_model(const ech_model *model, const ech_shards *weights)
{
    ECH_FREED ech_saved_tensor *all = describe(model);
    return ech_shards_check(weights, all, (int)model->param.n);
}

/* An untrusted config.json could ask for so many layers that planning takes hours. */
static ech_status check_layers(const ech_config *config, const char *folder, int tensors)
{
    if (config->model.num_hidden_layers <= tensors) return ECH_OK;
    return ech_config_complain(config, "model.num_hidden_layers", "%s has only %d tensors", folder,
                               tensors);
}

/* On a copy: the configuration stays unresolved. */
static ech_status check_shapes(const ech_config *config, const ech_shards *weights)
{
    ech_config *copy = ech_config_copy(config);
    ech_model *model = NULL;
    ech_status st = ech_model_resolve(copy, 1);
    if (st == ECH_OK) st = ech_model_create_whole(copy, &model);
    if (st == ECH_OK) st = ech_initial_check_model(model, weights);
    ech_model_destroy(model);
    ech_config_destroy(copy);
    return st;
}

ech_status ech_initial_check_shapes(const ech_config *config, const char *folder)
{
    ech_shards *weights;
    if (!ech_shards_are_there(folder)) return ECH_OK;
    ECH_TRY(ech_initial_open(config, folder, false, &weights));
    ech_status st = check_layers(config, folder, ech_shards_count(weights));
    if (st == ECH_OK) st = check_shapes(config, weights);
    ech_shards_close(weights);
    return st;
}

static ech_status fill_from_folder(ech_config *config)
{
    ECH_FREED char *folder = NULL;
    ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    ECH_FREED char *path = ech_file_join(folder, "config.json");
    ECH_TRY(ech_model_import(config, path, NULL));
    return ech_initial_check_shapes(config, folder);
}

bool ech_initial_is_folder(const char *path)
{
    bool is_model = ech_file_has(path, "config.json") || ech_shards_is_cache(path);
    return is_model && !ech_file_has(path, "manifest.json");
}

ech_status ech_setup_fill_model(ech_config *config)
{
    bool filled = false;
    if (!config->model.init_from[0]) return ECH_OK;
    ECH_TRY(fill_from_checkpoint(config, &filled));
    return filled ? ECH_OK : fill_from_folder(config);
}

/* ---- the tokenizer ---- */

/* A link to nothing is told of, so that nobody wonders where the tokenizer is. */
static bool is_there(const char *folder, const char *name)
{
    ECH_FREED char *path = ech_file_join(folder, name);
    bool is = ech_file_exists(path);
    if (!is && ech_file_is_link(path)) ech_log_warn("%s: a link to what is not there", path);
    return is;
}

/* Of whatever kind: one that we do not understand is an error. */
static bool has_tokenizer(const char *folder)
{
    static const char *const files[] = {"tokenizer.json", "vocab.bpe", "merges.txt",
                                        "tokenizer.model"};
    bool found = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++)
        found = is_there(folder, files[i]);
    return found;
}

ech_status ech_initial_open_folder(const char *folder, ech_tokenizer **out)
{
    *out = NULL;
    return has_tokenizer(folder) ? ech_tokenizer_open(folder, out) : ECH_OK;
}

/* What the run file of a checkpoint said. */
static ech_status used_bytes(const ech_checkpoint *past, bool *out)
{
    ech_config *saved;
    ECH_TRY(ech_setup_config_text(ech_checkpoint_get_info(past)->run_yaml,
                                  ech_checkpoint_path(past), NULL, 0, &saved));
    *out = strcmp(saved->data.tokenizer, "bytes") == 0;
    ech_config_destroy(saved);
    return ECH_OK;
}

/* The folder with config.json that the run has its model from: of the checkpoint that it goes on
 * from, or what model.init_from means; NULL: none. *bytes: the checkpoint's tokens were bytes. */
static ech_status find_folder(const ech_config *config, char **folder, bool *bytes)
{
    ech_checkpoint *past;
    *folder = NULL;
    *bytes = false;
    ECH_TRY(find_past(config, &past));
    if (!past)
        return config->model.init_from[0] ? ech_shards_find(config->model.init_from, folder)
                                          : ECH_OK;
    ech_status st = used_bytes(past, bytes);
    if (st == ECH_OK) *folder = ech_file_join(ech_checkpoint_path(past), "model");
    ech_checkpoint_close(past);
    return st;
}

static ech_status open_automatic(const ech_config *config, ech_tokenizer **out,
                                 ech_model_text_ends *ends)
{
    ECH_FREED char *folder = NULL;
    bool bytes;
    ECH_TRY(find_folder(config, &folder, &bytes));
    ech_status st =
        folder && !bytes ? ech_initial_open_folder(folder, out) : ech_tokenizer_open("bytes", out);
    if (st == ECH_OK && !*out) st = ech_initial_read_ends(folder, ends);
    return st;
}

ech_status ech_initial_open_tokenizer(const ech_config *config, ech_tokenizer **out,
                                      int32_t *end_of_text)
{
    ech_model_text_ends ends = {-1, -1};
    if (ech_config_is_auto(config->data.tokenizer))
        ECH_TRY(open_automatic(config, out, &ends));
    else
        ECH_TRY(ech_tokenizer_open(config->data.tokenizer, out));
    *end_of_text = *out ? ech_tokenizer_end_of_text(*out) : ends.end;
    return ECH_OK;
}

ech_status ech_initial_read_ends(const char *folder, ech_model_text_ends *out)
{
    ech_config *config;
    ECH_TRY(ech_setup_defaults(&config));
    ECH_FREED char *path = ech_file_join(folder, "config.json");
    ech_status st = ech_model_import(config, path, out);
    ech_config_destroy(config);
    return st;
}

/* ---- parameters ---- */

static ech_status open_weights(const ech_config *config, bool verify, ech_shards **out)
{
    ECH_FREED char *folder = NULL;
    ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    return ech_initial_open(config, folder, verify, out);
}

ech_status ech_initial_expect(const ech_config *config)
{
    ech_checkpoint *past = NULL;
    ech_shards *weights = NULL;
    if (!config->model.init_from[0]) return ECH_OK;
    ECH_TRY(find_past(config, &past));
    ech_checkpoint_close(past);
    if (past) return ECH_OK;
    ECH_TRY(open_weights(config, false, &weights));
    ech_shards_close(weights);
    return ECH_OK;
}

/* Closed again if something is wrong with them. Rank 0 reads the bytes for all. */
static ech_status open_checked(const ech_session *session, const ech_config *config,
                               ech_shards **out)
{
    ech_shards *weights;
    ECH_TRY(open_weights(config, session->plan->rank == 0, &weights));
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
