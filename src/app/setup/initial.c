/* SPDX-License-Identifier: Apache-2.0
 *
 * The model section, tokenizer and weights that a run starts from.
 */
#include "app/setup/initial.h"

#include "app/setup/adapters.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "config/about.h"

/* ---- the model section ---- */

/* The checkpoint to resume from: the run's newest, or else the one that checkpoint.resume names;
 * NULL: none. Its weights are not verified yet: if they turn out to be damaged, the run resumes
 * from an older one, which has the same model section and tokenizer. */
static ech_status find_past(const ech_config *config, ech_checkpoint **out)
{
    const char *resume = config->checkpoint.resume;
    ECH_FREED char *directory = ech_config_is_auto(config->checkpoint.directory)
                                    ? ech_file_join(config->log.directory, "checkpoints")
                                    : ech_strdup(config->checkpoint.directory);
    if (config->log.directory[0]) ECH_TRY(ech_checkpoint_open_newest(directory, false, out));
    bool named = resume[0] && strcmp(resume, "never") != 0 && !ech_config_is_auto(resume);
    return named && !*out ? ech_checkpoint_find(resume, false, out) : ECH_OK;
}

/* The vocabulary by the folder's config.json; of images, the number of classes. */
static ech_status read_vocabulary(const char *folder, int64_t *out)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *theirs = NULL;
    ECH_FREED char *path = ech_file_join(folder, "config.json");
    ECH_TRY(ech_setup_defaults(&theirs));
    ECH_TRY(ech_model_import(theirs, path, NULL));
    ech_model_choose(theirs);
    *out = theirs->model.vocab_size;
    return ECH_OK;
}

/* A run's vocabulary may be larger than the folder's. */
static ech_status grow(const ech_config *config, const char *folder, ech_shards *weights)
{
    const ech_config_list *from = &config->model.new_rows_from;
    int64_t had;
    ECH_TRY(read_vocabulary(folder, &had));
    if (config->model.vocab_size <= had) return ECH_OK;
    for (int i = 0; i < from->n; i++)
        if (from->at[i] >= had)
            return ech_config_complain(config, "model.new_rows_from",
                                       "%s has no token %lld; name tokens below %lld", folder,
                                       (long long)from->at[i], (long long)had);
    ech_shards_grow(weights, had, from->at, from->n);
    return ECH_OK;
}

ech_status ech_initial_open(const ech_config *config, const char *folder, bool verify,
                            ech_shards **out)
{
    bool tied = config->model.tie_word_embeddings == 1;
    ECH_CLEANUP(ech_shards_close_at) ech_shards *weights = NULL;
    ECH_TRY(ech_shards_open(folder, ech_family_of(config), tied, verify, &weights));
    ECH_TRY(grow(config, folder, weights));
    *out = weights;
    weights = NULL;
    return ECH_OK;
}

ech_saved_tensor ech_initial_tensor(const ech_param *param)
{
    ech_saved_tensor whole = {.dims = param->shape.dims};
    for (int d = 0; d < param->shape.dims; d++) whole.shape[d] = param->shape.size[d];
    return whole;
}

void ech_initial_list(const ech_model *model, bool adapters, ech_saved_list *out)
{
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        ech_saved_tensor whole = ech_initial_tensor(param);
        if ((param->adapter != ECH_ADAPTER_NONE) == adapters)
            ech_saved_list_add(out, param, NULL, &whole);
    }
}

ech_status ech_initial_check_model(const ech_model *model, const ech_shards *weights)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list all = {0};
    ech_initial_list(model, false, &all);
    return ech_shards_check(weights, all.tensor.at, (int)all.tensor.n);
}

ech_status ech_initial_check_shapes(const ech_config *config, const char *folder)
{
    ECH_CLEANUP(ech_shards_close_at) ech_shards *weights = NULL;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *resolved = ech_config_copy(config);
    ECH_CLEANUP(ech_model_destroy_at) ech_model *model = NULL;
    if (!ech_shards_are_there(folder)) return ECH_OK;
    ECH_TRY(ech_initial_open(config, folder, false, &weights));
    /* With many more layers, planning would take hours. */
    if (config->model.num_hidden_layers > ech_shards_count(weights))
        return ech_config_complain(config, "model.num_hidden_layers", "%s has only %d tensors",
                                   folder, ech_shards_count(weights));
    ECH_TRY(ech_model_resolve(resolved, 1));
    ECH_TRY(ech_model_create_whole(resolved, &model));
    return ech_initial_check_model(model, weights);
}

static ech_status fill_from_folder(ech_config *config)
{
    ECH_FREED char *folder = NULL;
    ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    ECH_FREED char *path = ech_file_join(folder, "config.json");
    ECH_FREED char *mapping = ech_file_join(folder, ECH_MAPPING_FILE);
    int64_t had;
    ECH_TRY(ech_model_import(config, path, NULL));
    if (ech_family_of(config)->mapping && !config->model.mapping[0])
        ech_config_replace_text(&config->model.mapping, mapping);
    ECH_TRY(read_vocabulary(folder, &had));
    if (config->model.new_rows_from.n && config->model.vocab_size == had)
        return ech_config_complain(config, "model.new_rows_from",
                                   "no rows are added: %s has %lld, too; leave the key out, or "
                                   "set a larger model.vocab_size",
                                   folder, (long long)had);
    ECH_TRY(ech_setup_fill_adapters(config));
    ECH_TRY(ech_initial_check_shapes(config, folder));
    return ech_setup_check_adapters(config);
}

bool ech_initial_is_folder(const char *path)
{
    bool is_model = ech_file_has(path, "config.json") || ech_shards_is_cache(path);
    return is_model && !ech_file_has(path, "manifest.json");
}

ech_status ech_setup_fill_model(ech_config *config)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *past = NULL;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *saved = NULL;
    if (!config->model.init_from[0] && config->lora.init_from[0])
        return ech_config_complain(config, "lora.init_from",
                                   "model.init_from is not set; name the adapters' base there");
    if (!config->model.init_from[0])
        return config->model.new_rows_from.n
                   ? ech_config_check_read(config, "model.new_rows_from", "",
                                           "a run without model.init_from")
                   : ECH_OK;
    ECH_TRY(find_past(config, &past));
    if (!past) return fill_from_folder(config);
    ECH_TRY(ech_setup_config_saved(past, &saved));
    if (config->lora.init_from[0])
        ECH_TRY(ech_config_fill_section(config, saved, "lora", ech_checkpoint_path(past)));
    return ech_config_fill_section(config, saved, "model", ech_checkpoint_path(past));
}

ech_status ech_initial_step(const ech_config *config, int64_t *out)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *past = NULL;
    ECH_TRY(find_past(config, &past));
    *out = past ? ech_checkpoint_get_info(past)->step : 0;
    return ECH_OK;
}

/* ---- the tokenizer ---- */

ech_status ech_initial_open_folder(const char *folder, ech_tokenizer **out)
{
    /* Of every kind: one that we do not support is an error. */
    static const char *const files[] = {"tokenizer.json", "vocab.bpe", "merges.txt",
                                        "tokenizer.model"};
    *out = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ECH_FREED char *path = ech_file_join(folder, files[i]);
        if (ech_file_exists(path)) return ech_tokenizer_open(folder, out);
        if (ech_file_is_link(path)) ech_log_warn("%s: the target of the link does not exist", path);
    }
    return ECH_OK;
}

ech_status ech_initial_read_ends(const char *folder, ech_model_text_ends *out)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED char *path = ech_file_join(folder, "config.json");
    ECH_TRY(ech_setup_defaults(&config));
    return ech_model_import(config, path, out);
}

ech_status ech_initial_export(const ech_config *config, const char *folder, ech_dtype dtype,
                              const ech_model_text_ends *ends, bool came_together, ech_text *out)
{
    ECH_FREED char *path = ech_file_join(folder ? folder : "", "config.json"), *text = NULL;
    ech_model_export_options options = {
        .dtype = dtype, .ends = ends, .path = path, .came_together = came_together};
    if (folder && ech_file_exists(path))
        ECH_TRY(ech_file_read(path, ECH_TEXT_LIMIT, &text, &options.n));
    options.text = text;
    return ech_model_export(config, &options, out);
}

static ech_status open_automatic(const ech_config *config, ech_tokenizer **out,
                                 ech_model_text_ends *ends)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *past = NULL;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *saved = NULL;
    ECH_FREED char *folder = NULL;
    ECH_TRY(find_past(config, &past));
    if (past) {
        ECH_TRY(ech_setup_config_saved(past, &saved));
        folder = ech_file_join(ech_checkpoint_path(past), "model");
    } else if (config->model.init_from[0]) {
        ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    }
    bool bytes = saved ? strcmp(saved->data.tokenizer, "bytes") == 0 : !folder;
    if (bytes) return ech_tokenizer_open("bytes", out);
    ECH_TRY(ech_initial_open_folder(folder, out));
    return *out ? ECH_OK : ech_initial_read_ends(folder, ends);
}

ech_status ech_initial_open_tokenizer(const ech_config *config, ech_tokenizer **out,
                                      int32_t *end_of_text)
{
    ech_model_text_ends ends = {-1, -1};
    *out = NULL;
    *end_of_text = -1;
    if (!ech_model_reads_texts(config)) return ECH_OK;
    if (ech_config_is_auto(config->data.tokenizer))
        ECH_TRY(open_automatic(config, out, &ends));
    else
        ECH_CONFIG_TRY_ABOUT(config, "data.tokenizer",
                             ech_tokenizer_open(config->data.tokenizer, out));
    *end_of_text = *out ? (*out)->end_of_text : ends.end;
    return ECH_OK;
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
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *past = NULL;
    ECH_CLEANUP(ech_shards_close_at) ech_shards *weights = NULL;
    if (!config->model.init_from[0]) return ECH_OK;
    ECH_TRY(find_past(config, &past));
    return past ? ECH_OK : open_weights(config, false, &weights);
}

/* The files of a start. */
typedef struct initial {
    ech_shards *weights;
    ech_peft *adapters; /* NULL: they begin anew, or there are none */
} initial;

static void close_initial(initial *from)
{
    ech_shards_close(from->weights);
    ech_peft_close(from->adapters);
}

/* *out is the caller's also after a failed check. Rank 0 reads the bytes for all. */
static ech_status open_checked(const ech_session *session, const ech_config *config, initial *out)
{
    bool verify = session->plan->rank == 0;
    ECH_TRY(open_weights(config, verify, &out->weights));
    if (config->lora.init_from[0]) ECH_TRY(ech_setup_open_adapters(config, verify, &out->adapters));
    return ech_exec_check_weights(session->exec, out->weights, out->adapters);
}

/* On rank 0. */
static ech_status find_base(ech_session *session, const ech_config *config, const initial *from)
{
    if (!config->lora.rank) return ECH_OK;
    ECH_TRY(ech_setup_hash_base(session->plan->model, from->weights, session->base));
    return from->adapters ? ech_setup_check_base(config, from->adapters, session->base) : ECH_OK;
}

static void report_new_rows(const ech_config *config, const ech_shards *weights)
{
    int64_t had = ech_shards_grown_from(weights), V = config->model.vocab_size;
    int named = config->model.new_rows_from.n;
    if (had)
        ech_log_info("model.vocab_size = %lld: %s of the embedding and the head, each the "
                     "mean of %s%s of %s (model.new_rows_from)",
                     (long long)V, ECH_COUNT(V - had, "new row"), named ? "" : "all ",
                     ECH_COUNT(named ? named : had, "row"), config->model.init_from);
}

/* Rank 0 finds and logs what is wrong for all ranks while the others wait. */
static ech_status take_weights(ech_session *session, const ech_config *config)
{
    bool first = session->plan->rank == 0;
    ech_joint joint;
    ech_group *world = ech_exec_world(session->exec);
    ECH_CLEANUP(close_initial) initial from = {0};
    ech_joint_begin(&joint, world); /* a hash of all weights may take longer than the deadline */
    ech_status status = first ? open_checked(session, config, &from) : ECH_OK;
    if (first && status == ECH_OK) status = find_base(session, config, &from);
    ECH_TRY(ech_joint_end_or_fail(&joint, status));
    ECH_TRY(ech_group_broadcast(world, 0, session->base, sizeof session->base));
    if (!first) ECH_TRY(open_checked(session, config, &from));
    if (first)
        ech_log_info("starting from the %d tensors of %s", ech_shards_count(from.weights),
                     config->model.init_from);
    if (first && config->lora.rank)
        ech_log_info("adapters of rank %lld %s%s", (long long)config->lora.rank,
                     from.adapters ? "continue from " : "begin anew", config->lora.init_from);
    if (first) report_new_rows(config, from.weights);
    return ech_exec_take_weights(session->exec, from.weights, from.adapters);
}

ech_status ech_session_initialise(ech_session *session, const ech_config *config)
{
    ECH_TRY(ech_exec_run(session->exec, ECH_LIST_INIT, 0));
    return config->model.init_from[0] ? take_weights(session, config) : ECH_OK;
}

ech_status ech_initial_resolve_begin(ech_config *config)
{
    int begins, *key = &config->data.begin_of_text;
    if (!config->data.train[0]) return ECH_OK;
    ECH_TRY(ech_data_begins("data.train", config->data.train, &begins));
    if (begins < 0 || *key == begins) return ECH_OK;
    if (*key != ECH_AUTO)
        return ech_config_complain(
            config, "data.begin_of_text",
            "data.train was made %s begin of text; remove this key, or make the tokens again",
            begins ? "with" : "without");
    *key = begins;
    return ECH_OK;
}
