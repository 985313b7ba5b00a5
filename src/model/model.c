/* SPDX-License-Identifier: Apache-2.0
 *
 * Code of all families: resolving, checking and building models, and counting parameters and FLOPs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/random.h"
#include "device/row.h"
#include "kernel/codes.h"
#include "model/decoder.h"
#include "model/mapping.h"
#include "optim/optim.h"

int64_t ech_nearest_divisor(int64_t whole, int64_t wanted)
{
    for (int64_t d = 0; d < whole; d++) {
        if (wanted - d > 0 && whole % (wanted - d) == 0) return wanted - d;
        if (wanted + d <= whole && whole % (wanted + d) == 0) return wanted + d;
    }
    return 1;
}

static ech_status resolve_heads(ech_config *config)
{
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    if (config->model.num_key_value_heads == ECH_AUTO) config->model.num_key_value_heads = H;
    if (config->model.head_dim != ECH_AUTO) return ECH_OK;
    if (config->model.kv_lora_rank > 0) {
        config->model.head_dim = config->model.qk_nope_head_dim + config->model.qk_rope_head_dim;
        return ECH_OK;
    }
    if (C % H)
        return ech_config_complain(config, "model.num_attention_heads",
                                   "does not divide model.hidden_size = %lld; %lld would",
                                   (long long)C, (long long)ech_nearest_divisor(C, H));
    config->model.head_dim = C / H;
    return ECH_OK;
}

/* Widths of feed-forward layers. */
static void resolve_widths(ech_config *config)
{
    const ech_family *family = ech_family_of(config);
    int64_t C = config->model.hidden_size, k = config->model.num_experts_per_tok;
    bool gated = ech_builder_activation(config) == ECH_ACTIVATION_SWIGLU;
    /* 8/3 of the width, rounded up to a multiple of 64: three matrices cost what two of 4 C do. */
    int64_t inner = family->inner ? family->inner(config)
                    : gated       ? (8 * C / 3 + 63) / 64 * 64
                                  : ech_inner_quadruple(config);
    if (config->model.intermediate_size == ECH_AUTO) config->model.intermediate_size = inner;
    if (config->model.moe_intermediate_size != ECH_AUTO) return;
    config->model.moe_intermediate_size = config->model.intermediate_size;
    /* Experts of a token together are as wide as a layer without experts. */
    if (ech_family_reads(config, "model.moe_intermediate_size"))
        config->model.moe_intermediate_size = (config->model.intermediate_size + k - 1) / k;
}

static void resolve_images(ech_config *config)
{
    enum { SMALL = 64 };
    int64_t H = config->model.image_height, W = config->model.image_width;
    if (config->model.small_stem == ECH_AUTO) config->model.small_stem = H < SMALL || W < SMALL;
}

/* The least vocabulary with room for the tokenizer's that tensor ranks can share. */
static int64_t least_vocabulary(const ech_config *config, int64_t tokens)
{
    int64_t tensor = config->parallel.tensor;
    return (tokens + tensor - 1) / tensor * tensor;
}

ech_status ech_model_resolve(ech_config *config, int64_t tokenizer_vocabulary)
{
    const ech_family *family = ech_family_of(config);
    ech_status status = ech_family_check_keys(config);
    ech_model_choose(config);
    if (!family->build) ECH_ALSO(&status, resolve_heads(config));
    if (config->model.max_position_embeddings == ECH_AUTO)
        config->model.max_position_embeddings = config->data.sequence_length;
    if (config->model.vocab_size == ECH_AUTO) config->model.vocab_size = tokenizer_vocabulary;
    if (config->model.vocab_size < tokenizer_vocabulary)
        ECH_ALSO(&status,
                 ech_config_complain(
                     config, "model.vocab_size",
                     "smaller than the vocabulary of tokenizer %s; use at least %lld%s",
                     config->data.tokenizer,
                     (long long)least_vocabulary(config, tokenizer_vocabulary),
                     config->model.init_from[0]
                         ? ", which adds rows for new tokens to the embedding and the head, or the "
                           "tokenizer of the model that is trained"
                         : ""));
    if (config->memory.invert == ECH_AUTO) config->memory.invert = config->model.reversible;
    if (config->model.reversible == 1 && config->precision.compute == ECH_COMPUTE_BF16)
        config->precision.residual = ECH_RESIDUAL_FP32;
    if (!family->build) resolve_widths(config);
    if (!family->build && config->model.tie_word_embeddings == ECH_AUTO)
        config->model.tie_word_embeddings = false;
    if (family->samples == ECH_SAMPLES_OF_images) resolve_images(config);
    return status;
}

ech_sharding ech_model_sharding(const ech_config *config)
{
    int64_t tensor = config->parallel.tensor;
    int64_t heads = ech_family_of(config)->build ? 1 : config->model.num_key_value_heads;
    return (ech_sharding){.tensor = (int)tensor,
                          .key_value = (int)(tensor < heads ? tensor : heads),
                          .context = (int)config->parallel.context,
                          .expert = (int)config->parallel.expert,
                          .replicas = (int)ech_optimizer_replicas(config),
                          .sequence =
                              tensor > 1 && config->parallel.sequence != ECH_SEQUENCE_FALSE};
}

/* Of a key with a letter for each layer, one of two. */
static ech_status check_layers(const ech_config *config, const char *key, const char *layers,
                               const char *letters, const char *form)
{
    size_t n = strlen(layers);
    int64_t L = config->model.num_hidden_layers;
    if (n == 0 || strspn(layers, letters) < n)
        return ech_config_complain(config, key, "must be letters %s", form);
    if ((int64_t)n > L && ech_config_is_set(config, key))
        return ech_config_complain(config, key, "names %s, but model.num_hidden_layers is %lld",
                                   ECH_COUNT((int64_t)n, "layer"), (long long)L);
    return ECH_OK;
}

static ech_status check_heads(const ech_config *config)
{
    enum { WIDEST = 10000000 }; /* as model.intermediate_size */
    int64_t H = config->model.num_attention_heads, G = config->model.num_key_value_heads;
    bool latent = config->model.kv_lora_rank > 0; /* else values are as wide as keys */
    ech_status status = ECH_OK;
    if (latent && config->model.v_head_dim > WIDEST / H)
        ECH_ALSO(&status, ech_config_complain(
                              config, "model.v_head_dim",
                              "%s of that width are wider than %d; use at most %lld",
                              ECH_COUNT(H, "attention head"), WIDEST, (long long)(WIDEST / H)));
    if (config->model.head_dim > WIDEST / H)
        ECH_ALSO(&status, ech_config_complain(
                              config, "model.head_dim",
                              "%s of that width are wider than %d; use at most %lld",
                              ECH_COUNT(H, "attention head"), WIDEST, (long long)(WIDEST / H)));
    if (G > H || H % G)
        ECH_ALSO(&status, ech_config_complain(
                              config, "model.num_key_value_heads",
                              "does not divide model.num_attention_heads = %lld; %lld would",
                              (long long)H, (long long)ech_nearest_divisor(H, G < H ? G : H)));
    return status;
}

static ech_status check(const ech_config *config)
{
    bool decodes = !ech_family_of(config)->build;
    ech_status status = decodes ? check_heads(config) : ECH_OK;
    if (config->data.sequence_length > config->model.max_position_embeddings)
        ECH_ALSO(&status, ech_config_complain(config, "data.sequence_length",
                                              "longer than model.max_position_embeddings = %lld",
                                              (long long)config->model.max_position_embeddings));
    if (!decodes) return status;
    ECH_ALSO(&status, check_layers(config, "model.window_layers", config->model.window_layers, "LG",
                                   "L (with the window) and G (without it), as in LLLLLG"));
    ECH_ALSO(&status, check_layers(config, "model.rotary_layers", config->model.rotary_layers, "RN",
                                   "R (rotary) and N (no positions), as in RRRN"));
    return status;
}

/* B·T' of a micro-batch, whose size may not be known yet. */
static int64_t rows_of(const ech_config *config)
{
    int64_t parts = config->parallel.context * config->memory.sequence_chunks;
    int64_t micro_batch = config->training.micro_batch_size;
    return micro_batch > 0 ? micro_batch * (config->data.sequence_length / parts) : 0;
}

ech_types ech_model_types(const ech_config *config)
{
    ech_dtype compute;
    ECH_ASSERT(ech_dtype_from_name(ech_config_name(config, "precision.compute"), &compute));
    ech_types types = ech_types_of(compute);
    if (config->precision.gradients == ECH_GRADIENTS_COMPUTE) types.gradient = compute;
    return types;
}

/* Replicas whose rows batch norms normalize together. All stages have equally many. */
static int norm_replicas_of(const ech_config *config)
{
    const ech_config_list *replicas = &config->parallel.stage_replicas;
    int64_t data = replicas->n > 0 ? replicas->at[0] : config->parallel.data;
    if (config->model.norm_sync != 1 || data == ECH_AUTO) return 1;
    return (int)data;
}

/* Room for non-zeros in sparse codes where nothing was measured: inputs of a ReLU that are spread
 * evenly around 0. */
static const double usual_density = 0.5;

static ech_block_options ways_of(const ech_config *config)
{
    ECH_ASSERT(config->memory.recompute != ECH_RECOMPUTE_AUTO);
    ech_types types = ech_model_types(config);
    const ech_device_row *device = ech_device_row_of(ech_config_name(config, "parallel.device"));
    bool wide_stream =
        types.compute != types.wide && config->precision.residual == ECH_RESIDUAL_FP32;
    return (ech_block_options){.sharding = ech_model_sharding(config),
                               .samples = ech_family_of(config)->samples,
                               .image = ech_model_image(config),
                               .keep = config->parallel.sequence == ECH_SEQUENCE_KEEP,
                               .ulysses = config->parallel.context_method == ECH_CONTEXT_ULYSSES,
                               .sequence_chunks = (int)config->memory.sequence_chunks,
                               .documents = config->data.document_mask == 1,
                               .rows = rows_of(config),
                               .sequence = config->data.sequence_length,
                               .wide = types.wide,
                               .loss_rows = device->loss_rows,
                               .fused = ech_fused_rows(device->fused),
                               .norm_replicas = norm_replicas_of(config),
                               .stream = wide_stream ? ECH_TYPE_WIDE : ECH_TYPE_COMPUTE,
                               .drifts = config->parallel.weight_stashing == 0,
                               .recompute = (int)config->memory.recompute,
                               .reversible = config->model.reversible == 1,
                               .invert = config->memory.invert == 1,
                               .encode = (int)config->memory.encode,
                               .encode_norms = config->memory.encode_norms == 1,
                               .encode_density = config->memory.encode_density > 0
                                                     ? config->memory.encode_density
                                                     : usual_density};
}

bool ech_model_reads_texts(const ech_config *config)
{
    return ech_sample_row_of(ech_family_of(config)->samples)->texts;
}

int64_t ech_model_outputs(const ech_config *config)
{
    return ech_family_reads(config, "model.num_classes") ? config->model.num_classes
                                                         : config->model.vocab_size;
}

int64_t ech_model_least_samples(const ech_config *config)
{
    bool norms = ech_family_reads(config, "model.norm_samples");
    if (norms) return config->model.norm_samples == ECH_AUTO ? 1 : config->model.norm_samples;
    return config->model.moe_group_samples;
}

ech_image ech_model_image(const ech_config *config)
{
    if (ech_family_of(config)->samples != ECH_SAMPLES_OF_images) return (ech_image){0};
    return (ech_image){.height = config->model.image_height,
                       .width = config->model.image_width,
                       .channels = config->model.image_channels};
}

/* ---- building ---- */

int64_t ech_model_value_dim(const ech_config *config)
{
    return config->model.kv_lora_rank > 0 ? config->model.v_head_dim : config->model.head_dim;
}

/* The letter of layer i, of letters that repeat. */
static char letter_at(const char *letters, int64_t i)
{
    return letters[i % (int64_t)strlen(letters)];
}

int64_t ech_model_window(const ech_config *config, int64_t i)
{
    return letter_at(config->model.window_layers, i) == 'L' ? config->model.sliding_window : 0;
}

bool ech_model_rotates(const ech_config *config, int64_t i)
{
    return config->model.position_encoding == ECH_POSITION_ROTARY &&
           letter_at(config->model.rotary_layers, i) == 'R';
}

static double densest(const ech_config *config)
{
    return ech_code_densest(ech_dtype_bytes(ech_model_types(config).compute));
}

/* Room in the sparse codes of a block for a tenth more non-zeros than were measured; 1 (no sparse
 * code) if the code would then save no memory. */
static double room(double density, double densest)
{
    double most = density * 1.1;
    return most < densest ? most : 1;
}

static bool is_encoder(const ech_layer *layer)
{
    return layer->encodes;
}

static bool is_norm(const ech_layer *layer)
{
    return layer->needs_in == ECH_NEED_10_BITS;
}

static bool has_layer(const ech_model *model, bool (*is)(const ech_layer *layer))
{
    bool some = false;
    for (size_t b = 0; b < model->block.n && !some; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n && !some; n++)
            some = is(model->block.at[b]->node.at[n].layer);
    return some;
}

static ech_status check_codes(const ech_config *config, const ech_model *model)
{
    bool some = model->options.encode == ECH_ENCODE_NONE || has_layer(model, is_encoder);
    bool norms = has_layer(model, is_norm) && !model->options.encode_norms;
    if (!some && model->options.encode == ECH_ENCODE_LOSSLESS)
        return ech_config_complain(
            config, "memory.encode",
            "has nothing to encode: the backward of this model reads no "
            "output of a ReLU that is kept, and there is no max pool; %s"
            "remove this key",
            ech_model_reads_texts(config) ? "use memory.encode = fp16, fp10 or fp8, or " : "");
    if (!some)
        return ech_config_complain(config, "memory.encode",
                                   "has nothing to encode: the backward of this model reads no "
                                   "input of a product or an activation, and no output of "
                                   "attention; %sremove this key",
                                   norms ? "use memory.encode_norms = true with fp16 or fp10, "
                                           "since norms read inputs, or "
                                         : "");
    if (model->options.encode == ECH_ENCODE_LOSSLESS &&
        config->memory.encode_density >= densest(config))
        return ech_config_complain(config, "memory.encode_density",
                                   "gives sparse codes room for so many values that they save no "
                                   "memory; use less than %.2f, or memory.encode = none",
                                   densest(config));
    return ECH_OK;
}

static ech_status create(const ech_config *config, ech_block_options options, const double *density,
                         ech_model **out)
{
    const ech_family *family = ech_family_of(config);
    ECH_TRY(check(config));
    ECH_TRY(ech_family_check_rows(config));
    ECH_TRY(ech_windows_check(config));
    /* Further checks read the head width, which ech_model_resolve has complained about. */
    if (!family->build && config->model.head_dim == ECH_AUTO) return ECH_EUSAGE;
    if (family->check) ECH_TRY(family->check(config));
    if (!family->build) ECH_TRY(ech_decoder_check(config));
    if (family->mapping) ECH_TRY(ech_mapping_check_roles(family->mapping, config));
    ech_model *model = ech_calloc(1, sizeof *model);
    model->family = family;
    model->pool = ech_pool_create();
    model->vocabulary = config->model.vocab_size;
    model->layers = config->model.num_hidden_layers;
    model->std = config->model.initializer_range;
    model->options = options;
    (family->build ? family->build : ech_decoder_build)(config, model);
    ech_status status = ech_adapters_check(config, model);
    if (status == ECH_OK) status = ech_family_place_params(config, model);
    if (status == ECH_OK && family->mapping)
        status = ech_mapping_check_model(family->mapping, model);
    if (status == ECH_OK)
        status = ech_optimizer_freeze_params(config, model->param.at, model->param.n);
    if (status != ECH_OK) {
        ech_model_destroy(model);
        return status;
    }
    bool frozen = true; /* all blocks so far */
    for (size_t i = 0; i < model->block.n; i++) {
        ech_block *block = model->block.at[i];
        block->frozen_below = frozen;
        if (density && density[i] > 0)
            block->options.encode_density = room(density[i], densest(config));
        ech_block_finish(block, model->param.at);
        /* Stages that only have a loss would have no forward. */
        ECH_ASSERT(ech_program_calls(block, ECH_FORWARD, ECH_TRAIN) > 0);
        frozen &= !block->trains;
        block->first_report = model->reports;
        for (size_t k = 0; k < block->report.n; k++) model->reports += block->report.at[k].numbers;
    }
    status = check_codes(config, model);
    if (status == ECH_OK)
        *out = model;
    else
        ech_model_destroy(model);
    return status;
}

ech_status ech_model_create(const ech_config *config, const double *density, ech_model **out)
{
    bool given = config->memory.encode_density > 0;
    return create(config, ways_of(config), given ? NULL : density, out);
}

ech_status ech_model_create_whole(const ech_config *config, ech_model **out)
{
    ech_block_options options = {.samples = ech_family_of(config)->samples,
                                 .image = ech_model_image(config),
                                 .documents = config->data.document_mask == 1,
                                 .reversible = config->model.reversible == 1};
    return create(config, options, NULL, out);
}

void ech_model_destroy(ech_model *model)
{
    if (!model) return;
    for (size_t i = 0; i < model->block.n; i++) ech_block_destroy(model->block.at[i]);
    free(model->block.at);
    free(model->param.at);
    ech_pool_destroy(model->pool);
    free(model);
}

int64_t ech_model_params(const ech_model *model)
{
    int64_t count = 0;
    for (size_t i = 0; i < model->param.n; i++)
        if (!model->param.at[i].commit) count += ech_shape_whole(&model->param.at[i].shape);
    return count;
}

/* The share of a parameter that a token goes to. */
static double share_used(const ech_model *model, const ech_param *param)
{
    return ech_shape_has(&param->shape, ECH_AXIS_EXPERTS) ? model->experts_used : 1;
}

int64_t ech_model_active(const ech_model *model)
{
    double count = 0;
    for (size_t i = 0; i < model->param.n; i++)
        if (!model->param.at[i].commit)
            count += share_used(model, &model->param.at[i]) *
                     (double)ech_shape_whole(&model->param.at[i].shape);
    return (int64_t)llround(count);
}

/* Whether the node has other uses for the parameter than to look up what tokens name. */
static bool uses_more(const ech_block *block, const ech_node *node, int param)
{
    for (int i = 0; i < node->params; i++) {
        const ech_block_value *ids = &block->value.at[node->in[0]];
        bool by_tokens = ids->source == ECH_FROM_BATCH && ids->slot == ECH_TOKENS;
        if (node->param[i] == param && !(node->layer->by_ids && by_tokens)) return true;
    }
    return false;
}

bool ech_model_looks_up(const ech_model *model, int param)
{
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        for (size_t n = 0; n < block->node.n; n++)
            if (uses_more(block, &block->node.at[n], param)) return false;
    }
    return true;
}

bool ech_model_slides(const ech_model *model)
{
    for (size_t b = 0; b < model->block.n; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n; n++)
            if (model->block.at[b]->node.at[n].exchange) return true;
    return false;
}

int64_t ech_model_trained(const ech_model *model)
{
    int64_t count = 0;
    for (size_t i = 0; i < model->param.n; i++)
        if (ech_param_is_trained(&model->param.at[i]))
            count += ech_shape_whole(&model->param.at[i].shape);
    return count;
}

/* Of one sample's forward, and of the backward's products: one for each operand with a gradient. */
static double count_products(const ech_block *block, const ech_node *node, ech_extent extent)
{
    if (!node->layer->products || node->recompute_only) return 0;
    ech_products p = node->layer->products(block, node, extent, ECH_FORWARD);
    double times = 1 + node->back + (node->layer->core ? node->back : node->trains);
    return times * p.M * p.N * p.K * p.count;
}

double ech_model_flops(const ech_model *whole, int64_t T)
{
    const ech_extent sample = {.batch = 1, .tokens = T, .sequence = T};
    double multiplies = 0;
    for (size_t b = 0; b < whole->block.n; b++)
        for (size_t n = 0; n < whole->block.at[b]->node.n; n++)
            multiplies +=
                count_products(whole->block.at[b], &whole->block.at[b]->node.at[n], sample);
    return 2 * multiplies;
}

/* A block's parameters are consecutive. Adapters leave the others' random streams as they are. */
static int add_param(ech_model *model, ech_block *block, ech_param param)
{
    param.block = block->index;
    if (param.adapter) param.site = ECH_SITE_ADAPTER - ECH_SITE_PARAMETER;
    for (size_t i = model->param.n; i > 0 && model->param.at[i - 1].block == block->index; i--)
        param.site += !model->param.at[i - 1].adapter == !param.adapter;
    param.name = ech_pool_format(model->pool, "%s", param.name);
    param.rate = 1;
    ECH_PUSH(model->param, param);
    return (int)model->param.n - 1;
}

int ech_model_matrix(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                     double std)
{
    return add_param(model, block,
                     (ech_param){.name = name,
                                 .shape = shape,
                                 .type = ECH_TYPE_COMPUTE,
                                 .initializer = ECH_INIT_NORMAL,
                                 .std = std,
                                 .decay = true});
}

int ech_model_adapter(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                      ech_adapter part)
{
    bool is_a = part == ECH_ADAPTER_A;
    return add_param(model, block,
                     (ech_param){.name = name,
                                 .shape = shape,
                                 .type = ECH_TYPE_COMPUTE,
                                 .initializer = is_a ? ECH_INIT_UNIFORM : ECH_INIT_ZERO,
                                 .std = is_a ? 1 / sqrt((double)shape.size[1]) : 0,
                                 .decay = true,
                                 .adapter = part});
}

int ech_model_vector(ech_model *model, ech_block *block, const char *name, ech_axis axis,
                     int64_t size, ech_initializer initializer)
{
    return add_param(model, block,
                     (ech_param){.name = name,
                                 .shape = ech_shape_1d(axis, size),
                                 .type = ECH_TYPE_WIDE,
                                 .initializer = initializer});
}

int ech_model_state(ech_model *model, ech_block *block, const char *name, ech_shape shape,
                    void (*commit)(const ech_commit *), double rate)
{
    return add_param(model, block,
                     (ech_param){.name = name,
                                 .shape = shape,
                                 .type = ECH_TYPE_WIDE,
                                 .initializer = ECH_INIT_ZERO,
                                 .commit = commit,
                                 .commit_rate = rate});
}

ech_block *ech_model_block(ech_model *model, const char *name)
{
    ech_block *block = ech_block_create(model->pool, name, (int)model->block.n, model->options);
    ECH_PUSH(model->block, block);
    return block;
}
