/* SPDX-License-Identifier: Apache-2.0
 *
 * From a configuration to a design: resolves what is "auto", and makes model, layout and schedule.
 */
#include "app/setup/setup.h"
#include "schedule/calendar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/count.h"
#include "app/setup/cards.h"
#include "app/setup/parts.h"
#include "base/divisor.h"
#include "base/file.h"
#include "base/log.h"
#include "check/check.h"
#include "config/about.h"
#include "config/follow.h"
#include "config/rules.h"
#include "config/strategy.h"
#include "layer/layers.h"
#include "schedule/segments.h"
#include "simulate/choose.h"

/* Plugins' functions run on the processor. */
static ech_status check_plugged_device(const ech_config *config)
{
    const char *device = ech_config_name(config, "parallel.device");
    const ech_family *family = ech_family_of(config);
    const char *key = NULL, *what = "optimizer", *hint = "";
    if (strcmp(device, "cuda") != 0) return ECH_OK;
    if (ech_optimizer_of(config)->plugged && config->memory.offload_optimizer == ECH_OFFLOAD_NONE) {
        key = "optimizer.name";
        hint = "memory.offload_optimizer=host or ";
    } else if (ech_loss_plugged(config->training.loss)) {
        key = "training.loss";
        what = "loss";
    } else if (family->attention || family->feed_forward) {
        key = "model.architecture";
        what = "layer";
    }
    if (!key) return ECH_OK;
    return ech_config_complain(config, key,
                               "a plugin's %s runs on the processor, and its tensors are on the "
                               "device cuda; set %sparallel.device=cpu",
                               what, hint);
}

static ech_status resolve_optimizer(ech_config *config)
{
    ech_status status = ech_optimizer_check_keys(config);
    ECH_ALSO(&status, ech_curve_check_keys(config));
    ECH_ALSO(&status, check_plugged_device(config));
    if (config->optimizer.min_learning_rate > config->optimizer.learning_rate)
        ECH_ALSO(&status, ech_config_complain(config, "optimizer.min_learning_rate",
                                              "above optimizer.learning_rate = %g",
                                              config->optimizer.learning_rate));
    if (config->optimizer.decay_steps == ECH_AUTO) {
        int64_t tenth = config->training.steps / 10;
        config->optimizer.decay_steps = tenth > 0 ? tenth : 1;
    }
    return status;
}

/* What a scale of the loss is by default depends on the type. */
static ech_status resolve_loss_scale(ech_config *config)
{
    int64_t *scale = &config->precision.loss_scale, lower = 1;
    bool fp16 = strcmp(ech_config_name(config, "precision.compute"), "fp16") == 0;
    if (!fp16 && !ech_config_is_set(config, "precision.loss_scale")) *scale = 1;
    while (lower <= *scale / 2) lower *= 2;
    if (*scale == ECH_AUTO || *scale == lower) return ECH_OK;
    return ech_config_complain(config, "precision.loss_scale",
                               "%lld is not a power of two and would round the gradients; use %lld "
                               "or %lld",
                               (long long)*scale, (long long)lower, (long long)(2 * lower));
}

static ech_status check_directories(const ech_config *config)
{
    const struct {
        const char *path, *key, *hint;
    } paths[] = {{config->log.directory, "log.directory", "name a folder, for example runs/first"},
                 {config->checkpoint.directory, "checkpoint.directory",
                  "remove this key to use log.directory/checkpoints"},
                 {config->memory.offload_directory, "memory.offload_directory",
                  "remove this key to use log.directory/offload"},
                 {config->checkpoint.resume, "checkpoint.resume",
                  "set auto, never, or the path of a checkpoint"}};
    ech_status status = ECH_OK;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!paths[i].path[0])
            ECH_ALSO(&status,
                     ech_config_complain(config, paths[i].key, "empty; %s", paths[i].hint));
    return status;
}

static void resolve_device(ech_config *config)
{
    if (config->parallel.device != ECH_DEVICE_auto) return;
    const char *why = ech_device_lacks("cuda");
    config->parallel.device = why ? ECH_DEVICE_cpu : ECH_DEVICE_cuda;
    if (why) ech_log_info("parallel.device = auto uses the CPU: %s", why);
}

ech_status ech_setup_check_device(const ech_config *config, const char *instead)
{
    const char *device = ech_config_name(config, "parallel.device");
    const char *why = ech_device_lacks(device);
    if (why) return ech_config_complain(config, "parallel.device", "%s, or say %s", why, instead);
    why = ech_kernels_lack(device, ech_model_types(config).compute);
    return why ? ech_config_complain(config, "precision.compute", "%s", why) : ECH_OK;
}

ech_status ech_setup_check_sharing(const ech_config *config, const ech_device *device,
                                   int local_ranks)
{
    bool is_refused = device->count && config->parallel.share_device != 1;
    if (!is_refused || ech_device_sharers(device, local_ranks) <= 1) return ECH_OK;
    int n = device->count();
    return ech_config_complain(
        config, "parallel.share_device",
        "this machine has %d of the device %s for %d ranks; start at most %d, "
        "or set parallel.share_device=true",
        n, device->name, local_ranks, n);
}

/* A machine without the device has nothing to limit a plan by. */
static ech_status resolve_limit(ech_config *config, int local_ranks)
{
    const char *name = ech_config_name(config, "parallel.device");
    const ech_device *device = ech_device_find(name);
    if (config->memory.device_limit != ECH_AUTO) return ECH_OK;
    config->memory.device_limit = ECH_LIMIT_UNKNOWN;
    if (!ech_device_lacks(name))
        config->memory.device_limit =
            (int64_t)device->memory_bytes() / ech_cards_sharers(config, device, local_ranks);
    else if (config->memory.recompute == ECH_RECOMPUTE_AUTO)
        return ech_config_complain(config, "memory.recompute",
                                   "needs the memory size of the device, and this machine has "
                                   "no %s; set memory.device_limit, for example 80GB",
                                   name);
    return ECH_OK;
}

/* A hierarchical reduction sums within this run's machines. */
static void resolve_machines(ech_config *config, int ranks, int local_ranks)
{
    char text[32];
    if (strcmp(ech_config_name(config, "parallel.reduction"), "hierarchical") != 0) return;
    snprintf(text, sizeof text, "%d", ranks % local_ranks ? ranks : local_ranks);
    ech_config_choose_for(config, "parallel.node_ranks", text, "ranks on a machine");
}

static ech_status resolve_machine(ech_config *config, int ranks, int local_ranks)
{
    ech_status status = check_directories(config);
    if (config->parallel.threads == ECH_AUTO) {
        int threads = ech_device_find("cpu")->cores() / local_ranks;
        config->parallel.threads = threads > 0 ? threads : 1;
    }
    resolve_machines(config, ranks, local_ranks);
    ECH_ALSO(&status, resolve_limit(config, local_ranks));
    if (ech_config_is_auto(config->checkpoint.directory)) {
        ECH_FREED char *directory = ech_file_join(config->log.directory, "checkpoints");
        ech_config_replace_text(&config->checkpoint.directory, directory);
    }
    return status;
}

/* Degrees go up to 1e6 each; nothing needs to be told from the largest number. */
static int64_t times(int64_t a, int64_t b)
{
    return a > INT64_MAX / b ? INT64_MAX : a * b;
}

int64_t ech_setup_ranks(const ech_config *config)
{
    const ech_config_list *list = &config->parallel.stage_replicas;
    int64_t ranks = 0;
    int64_t each = config->parallel.context * config->parallel.tensor; /* of a replica */
    for (int s = 0; s < list->n; s++) ranks += list->at[s];
    int64_t evaluators = config->parallel.evaluators;
    if (list->n) return times(ranks, each) + evaluators;
    int64_t stages = config->parallel.pipeline, data = config->parallel.data;
    bool open = data == ECH_AUTO && stages == ECH_AUTO && each == 1;
    if (open && evaluators == 0) return 0;
    return times(times(data == ECH_AUTO ? 1 : data, stages == ECH_AUTO ? 1 : stages), each) +
           ech_strategy_servers(config) + evaluators;
}

static ech_status read_profile(const ech_config *config, ech_profile **out)
{
    *out = NULL;
    if (config->parallel.profile[0] && !ech_file_exists(config->parallel.profile))
        return ech_config_complain(config, "parallel.profile",
                                   "no such file; `echelon profile` makes one");
    if (config->parallel.profile[0])
        ECH_CONFIG_TRY_ABOUT(config, "parallel.profile",
                             ech_profile_read(config->parallel.profile, out));
    return ECH_OK;
}

static ech_status find_kernels(const ech_config *config, const ech_kernels **out)
{
    ech_isa isa;
    ECH_TRY(ech_isa_decide(&isa));
    *out =
        ech_kernels_on(ech_config_name(config, "parallel.device"), ech_model_types(config).compute);
    return ECH_OK;
}

/* Model, layout and schedule of a configuration whose grid is resolved. */
static ech_status build(ech_config *config, ech_schedule_choice *choice, ech_design *design)
{
    ECH_FREED double *density = ech_profile_densities(design->profile);
    ECH_TRY(ech_model_create(config, density, &design->model));
    ECH_TRY(ech_optimizer_group_params(config, design->model->param.at, design->model->param.n));
    for (size_t i = 0; i < design->model->param.n; i++)
        ECH_TRY(ech_optimizer_check_needs(config, &design->model->param.at[i]));
    ECH_TRY(ech_layout_create(config, design->model, ech_schedule_placement(choice), design->world,
                              &design->layout));
    for (size_t i = 0; i < design->model->param.n; i++)
        ECH_TRY(ech_optimizer_check_shards(config, &design->model->param.at[i],
                                           design->layout->sharding));
    ECH_TRY(ech_segments_check(config, design->model, design->layout));
    if (ech_file_exists(config->parallel.schedule))
        ECH_CONFIG_TRY_ABOUT(config, "parallel.schedule",
                             ech_schedule_create(config, choice, design->layout,
                                                 &design->schedule));
    else
        ECH_TRY(ech_schedule_create(config, choice, design->layout, &design->schedule));
    return ech_balance_check(config, design->model, design->layout, design->schedule);
}

static void unbuild(ech_design *design)
{
    ech_schedule_destroy(design->schedule);
    ech_layout_destroy(design->layout);
    ech_model_destroy(design->model);
    design->schedule = NULL;
    design->layout = NULL;
    design->model = NULL;
}

/* memory.recompute = auto: of none, selective, and full with segments of 1, 2, ... blocks the first
 * with which the run fits; if none does, full with what takes least. */
static ech_status find_recomputation(ech_config *config, ech_schedule_choice *choice,
                                     ech_design *design)
{
    int64_t given = config->memory.recompute_blocks;
    int longest = 0;
    ECH_TRY(build(config, choice, design));
    if (!ech_design_fits(design, &longest)) return ECH_OK;
    int shorter = given == ECH_AUTO ? longest - 1 : 0; /* they recompute less */
    for (int i = 0; i < 2 + shorter; i++) {
        unbuild(design);
        config->memory.recompute = i == 0   ? ECH_RECOMPUTE_NONE
                                   : i == 1 ? ECH_RECOMPUTE_SELECTIVE
                                            : ECH_RECOMPUTE_FULL;
        config->memory.recompute_blocks = i < 2 ? ECH_AUTO : i - 1;
        ECH_TRY(build(config, choice, design));
        if (ech_design_fits(design, NULL)) return ECH_OK;
    }
    unbuild(design);
    config->memory.recompute = ECH_RECOMPUTE_FULL;
    config->memory.recompute_blocks = given;
    return build(config, choice, design);
}

static int64_t shares_of(const ech_config *config)
{
    return config->data.shards == ECH_SHARDS_STATIC ? config->data.shares : 1;
}

static ech_status resolve_shares(ech_config *config)
{
    int64_t *shares = &config->data.shares, fits;
    int64_t micro = config->training.global_batch_size / config->training.micro_batch_size;
    if (config->data.shards != ECH_SHARDS_STATIC) return ECH_OK;
    if (*shares == ECH_AUTO) *shares = config->parallel.data;
    if (micro % *shares == 0) return ECH_OK;
    fits = ech_largest_divisor(micro, *shares);
    return ech_config_complain(config, "data.shares",
                               "does not divide the %s of a step; %lld would, or smaller ones",
                               ECH_COUNT(micro, "micro-batch"), (long long)fits);
}

/* parallel.sync_every = epoch: the step in which an epoch ends is its last. What rules say of the
 * number holds of this one. */
static ech_status resolve_epoch(ech_config *config, const ech_design *design)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    int64_t batch = config->training.global_batch_size;
    if (config->parallel.sync_every != ECH_WORD(ECH_SYNC_EVERY_EPOCH)) return ECH_OK;
    ECH_TRY(ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus));
    int64_t samples = ech_corpus_samples(corpus);
    config->parallel.sync_every = (samples - 1) / batch + 1;
    ech_log_info("parallel.sync_every = epoch is %s: %lld samples, %lld a step",
                 ECH_COUNT(config->parallel.sync_every, "step"), (long long)samples,
                 (long long)batch);
    return ech_rules_check(config);
}

/* Chooses stages, replicas, micro-batches and spans from the whole model (`whole`), then makes the
 * sharded model and its layout and schedule. */
static ech_status make_design(ech_config *config, const ech_model *whole,
                              ech_schedule_choice *choice, ech_design *design)
{
    bool finds = config->memory.recompute == ECH_RECOMPUTE_AUTO;
    /* Grid and partition are chosen as if with the least memory. */
    if (finds) config->memory.recompute = ECH_RECOMPUTE_FULL;
    ECH_TRY(find_kernels(config, &design->kernels));
    ECH_TRY(read_profile(config, &design->profile));
    const ech_layout_filter filter = {.accepts = ech_schedule_accepts, .context = choice};
    ECH_TRY(ech_simulate_choice(config, whole, design->profile, design->kernels, design->world,
                                choice));
    ECH_TRY(ech_layout_resolve(config, whole, design->world, &filter));
    ECH_TRY(resolve_shares(config));
    ECH_TRY(resolve_epoch(config, design));
    if (design->profile)
        ECH_TRY(ech_profile_check(design->profile, config, whole, config->parallel.profile));
    if (design->profile) ECH_TRY(ech_profile_check_density(design->profile, config));
    return finds ? find_recomputation(config, choice, design) : build(config, choice, design);
}

/* Samples and tokens of a run are counted in 64 bits, with room for those that are read ahead. */
static ech_status check_counts(const ech_config *config)
{
    int64_t tokens = times(config->data.sequence_length, 4);
    if (times(times(config->training.global_batch_size, tokens), config->training.steps + 1) ==
        INT64_MAX)
        return ech_config_complain(config, "training.steps",
                                   "of %lld samples of %lld tokens are more tokens than can be "
                                   "counted; use fewer steps",
                                   (long long)config->training.global_batch_size,
                                   (long long)config->data.sequence_length);
    if (config->training.validate_samples > 0 &&
        times(config->training.validate_samples, tokens) == INT64_MAX)
        return ech_config_complain(config, "training.validate_samples",
                                   "of %lld tokens each are more than can be counted; use fewer, "
                                   "or 0 for the whole set",
                                   (long long)config->data.sequence_length);
    return ECH_OK;
}

static ech_status check_split(const ech_config *config)
{
    int64_t bound[4];
    if (!config->data.split[0] || ech_text_to_bounds(config->data.split, bound)) return ECH_OK;
    return ech_config_complain(
        config, "data.split",
        "must be up to three proportions, not all 0, for training, validation "
        "and test, such as 969,30,1");
}

static ech_status resolve_model(ech_config *config, const ech_tokenizer *tokenizer)
{
    if (!tokenizer && config->model.vocab_size == ECH_AUTO)
        return ech_config_complain(config, "model.vocab_size", "auto, and no tokenizer is known%s",
                                   ech_model_reads_texts(config)
                                       ? ""
                                       : "; `echelon data` says how many features there are");
    return ech_model_resolve(config, tokenizer ? tokenizer->vocabulary : 1);
}

static ech_status resolve(ech_config *config, int local_ranks, ech_design *design)
{
    const ech_tokenizer *tokenizer = design->tokenizer;
    ECH_CLEANUP(ech_model_destroy_at) ech_model *whole = NULL;
    ech_schedule_choice choice = ech_schedule_find(config);
    resolve_device(config);
    if (ech_model_reads_texts(config) && config->data.document_mask == ECH_AUTO)
        config->data.document_mask = config->data.packing == ECH_PACKING_DOCUMENTS;
    ech_schedule_fill_chunks(config, &choice);
    ech_status together = ech_rules_check(config), status = together;
    if (together == ECH_OK) ECH_ALSO(&status, ech_design_resolve_epochs(config, design));
    ECH_ALSO(&status, check_split(config));
    ECH_ALSO(&status, check_counts(config));
    if (tokenizer && ech_config_is_auto(config->data.tokenizer) &&
        strcmp(tokenizer->name, "bytes") == 0)
        ech_config_replace_text(&config->data.tokenizer, "bytes");
    ECH_ALSO(&status, resolve_optimizer(config));
    ECH_ALSO(&status, resolve_loss_scale(config));
    ECH_ALSO(&status, resolve_machine(config, design->world, local_ranks));
    ech_status modelled = resolve_model(config, tokenizer);
    ECH_ALSO(&status, modelled);
    if (together == ECH_OK) together = ech_rules_check(config); /* of a family's defaults, too */
    ECH_ALSO(&status, together);
    if (modelled == ECH_OK && together == ECH_OK) /* else errors would follow from the rule's */
        ECH_ALSO(&status, ech_model_create_whole(config, &whole));
    design->sample_units = ech_model_reads_texts(config) ? config->data.sequence_length : 1;
    if (whole) design->sample_flops = ech_model_flops(whole, config->data.sequence_length);
    if (whole) ECH_ALSO(&status, make_design(config, whole, &choice, design));
    ech_schedule_choice_free(&choice);
    return status;
}

ech_status ech_design_check_plans(const ech_design *design, const ech_plan *const *plans, int n,
                                  ech_list_kind list)
{
    ECH_TRY(ech_check_plans(plans, n, list));
    const ech_device *device = ech_device_find(ech_config_name(design->config, "parallel.device"));
    return device && device->is_immediate ? ECH_OK : ech_check_queues(plans, n, list);
}

/* How many ranks are left to train. */
static ech_status count_world(const ech_config *config, int ranks, int *world)
{
    int64_t evaluators = config->parallel.evaluators;
    if (evaluators >= ranks)
        return ech_config_complain(
            config, "parallel.evaluators", "%s of %s %s none to train; start more ranks%s",
            ECH_COUNT(evaluators, "evaluator"), ECH_COUNT(ranks, "rank"),
            evaluators == 1 ? "leaves" : "leave", ranks > 1 ? ", or use fewer" : "");
    *world = ranks - (int)evaluators;
    return ECH_OK;
}

/* Whether ranks fetch shards of optimizer states that are not element-wise: of rows, or of blocks,
 * a shard may touch one more than another. */
static bool moves_uneven_states(const ech_design *design)
{
    const ech_config *config = design->config;
    if (config->parallel.zero == 0 || config->memory.offload_optimizer == ECH_OFFLOAD_NONE)
        return false;
    for (size_t i = 0; i < design->model->param.n; i++) {
        ech_optimizer_needs needs = ech_optimizer_needs_of(config, &design->model->param.at[i]);
        for (int s = 0; s < needs.states; s++)
            if (!ech_state_is_element_wise(&needs.state[s])) return true;
    }
    return false;
}

ech_status ech_design_create(ech_config *config, const ech_tokenizer *tokenizer, int ranks,
                             int local_ranks, ech_design *out)
{
    int world = ranks;
    ECH_TRY(count_world(config, ranks, &world));
    ECH_CLEANUP(ech_design_destroy)
    ech_design design = {.config = config,
                         .tokenizer = tokenizer,
                         .end_of_text = tokenizer ? tokenizer->end_of_text : -1,
                         .world = world};
    ECH_TRY(resolve(config, local_ranks, &design));
    ech_layout_find_classes(design.layout, design.model, NULL, moves_uneven_states(&design));
    ECH_TRY(ech_design_read_serves(&design));
    *out = design;
    design = (ech_design){0};
    return ECH_OK;
}

void ech_design_set_cluster(ech_design *design, const ech_cluster *cluster)
{
    design->cluster = cluster;
    ech_layout_find_classes(design->layout, design->model, cluster, moves_uneven_states(design));
}

ech_status ech_design_create_alone(const ech_design *other, ech_config *config, ech_design *out)
{
    ECH_TRY(ech_design_create(config, other->tokenizer, 1, 1, out));
    out->end_of_text = other->end_of_text;
    return ECH_OK;
}

void ech_design_destroy(ech_design *design)
{
    unbuild(design);
    ech_profile_destroy(design->profile);
    ech_serve_log_destroy(design->serves);
    *design = (ech_design){0};
}

ech_status ech_design_open_data(const ech_design *design, ech_split split, ech_corpus **out)
{
    const ech_config *c = design->config;
    bool own = split == ECH_SPLIT_VALID && c->data.valid[0] != '\0';
    ech_corpus_options options = {.key = own ? "data.valid" : "data.train",
                                  .sources = own ? c->data.valid : c->data.train,
                                  .split = own ? "" : c->data.split,
                                  .part = split,
                                  .sequence_length = c->data.sequence_length,
                                  .document_mask = c->data.document_mask == 1,
                                  .whole_documents = c->data.packing == ECH_PACKING_DOCUMENTS,
                                  .drop_longer = c->data.long_documents == ECH_LONG_DROP,
                                  .samples = ech_family_of(c)->samples,
                                  .image = ech_model_image(c),
                                  .end_of_text = design->end_of_text,
                                  .tokenizer = design->tokenizer,
                                  .vocabulary = ech_model_outputs(c)};
    *out = NULL;
    if (split == ECH_SPLIT_VALID && !ech_calendar_of(c).validates) return ECH_OK;
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    ECH_TRY(ech_corpus_open(&options, &corpus));
    if (split == ECH_SPLIT_TRAIN) ECH_TRY(ech_corpus_check_shares(corpus, shares_of(c)));
    *out = corpus;
    corpus = NULL;
    return ECH_OK;
}

/* Whether a block of the rank reads tokens, targets, weights or where documents begin. */
static bool reads_batch(const ech_design *design, int rank)
{
    for (int b = 0; b < (int)design->model->block.n; b++) {
        if (!ech_layout_has_block(design->layout, rank, b)) continue;
        for (size_t v = 0; v < design->model->block.at[b]->value.n; v++)
            if (design->model->block.at[b]->value.at[v].source == ECH_FROM_BATCH) return true;
    }
    return false;
}

ech_loader_options ech_design_reads(const ech_design *design, int rank, bool shuffle, int64_t last)
{
    const ech_config *c = design->config;
    bool apart = design->layout->alone && shuffle; /* not of validations */
    return (ech_loader_options){
        .sequence_length = c->data.sequence_length,
        .global_batch_size = c->training.global_batch_size,
        .micro_batch_size = c->training.micro_batch_size,
        .data_degree = design->layout->replicas[design->layout->coordinates[rank].stage],
        .data_rank = design->layout->coordinates[ech_layout_pattern(design->layout, rank)].data,
        .replicas = apart ? design->layout->replicas[0] : 0,
        .replica = apart ? design->layout->coordinates[rank].data : 0,
        .counts_only = !reads_batch(design, rank),
        .vocabulary = ech_model_outputs(c),
        .shares = shuffle ? shares_of(c) : 1,
        .shuffle = shuffle,
        .seed = (uint64_t)c->training.seed,
        .last_position = last,
        .document_mask = c->data.document_mask == 1,
        .samples = ech_family_of(c)->samples,
        .image = ech_model_image(c),
        .crop_padding = shuffle ? c->data.crop_padding : 0,
        .flip = shuffle && c->data.flip == 1,
        .prefetch = (int)c->data.prefetch};
}
