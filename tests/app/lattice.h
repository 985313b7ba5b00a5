/* SPDX-License-Identifier: Apache-2.0
 *
 * The lattice of runs over the grid. This header has its axes, a case as the words of a command
 * line, and the layout's answer whether such a run is possible (no rule is repeated here). A case
 * passes if verify passes and a resumed run leaves the same bits. It runs in a process of its own,
 * so that a case that crashes fails. Include it after grid_run.h.
 */
#ifndef ECH_TESTS_APP_LATTICE_H
#define ECH_TESTS_APP_LATTICE_H

#include "app/bars.h"
#include "app/cover.h"
#include "app/made_up_profile.h"
#include "app/verdict.h"
#include "app/watch.h"
#include "config/rules.h"

enum lattice_axis {
    PIPELINE,
    DATA,
    CONTEXT,
    TENSOR,
    SEQUENCE,
    METHOD,
    PIECES,
    SCHEDULE,
    MODEL,
    ZERO,
    LATTICE_GRID_AXES, /* the axes above say which rank does what of which model */
    MICRO_BATCHES = LATTICE_GRID_AXES,
    DROPOUT,
    VOCABULARY,
    REDUCTION,
    BUCKET,
    DOCUMENTS,
    LATTICE_LONG_AXES, /* of the longest form of the test, which draws the others */
    PARTITION = LATTICE_LONG_AXES,
    OPTIMIZER,
    PRECISION,
    SAVES,
    RECOMPUTE,
    WIRE,
    DEVICE,
    OPTIMIZER_AT,
    KEPT_AT,
    COMPRESSION,
    STRATEGY,
    LATTICE_AXES
};

enum { LATTICE_RANKS = 8, LATTICE_LAYERS = 2 };
enum { LATTICE_PEER = 3 }; /* KEPT_AT: takes four stages, and has the most micro-batches */

#define LATTICE_LEVELS(names) (int)(sizeof(names) / sizeof *(names))
/* The words of each level; the first is the simplest. Degrees and micro-batches are numbers. */
static const char *const lattice_models[] = {
    "model.architecture=gpt2 model.tie_word_embeddings=false",
    "model.architecture=gpt_neox model.tie_word_embeddings=true model.partial_rotary_factor=0.5",
    "model.architecture=llama model.num_key_value_heads=2",
    "model.architecture=granite model.num_key_value_heads=1 model.embedding_multiplier=3 "
    "model.residual_multiplier=0.5 model.logits_scaling=2 model.attention_scale=0.3 "
    "model.qkv_bias=true model.o_bias=true model.mlp_bias=true model.rotary_layers=RN",
    "model.architecture=glm4 model.num_key_value_heads=4 model.partial_rotary_factor=0.5 "
    "model.tie_word_embeddings=true",
    "model.architecture=qwen3 model.num_key_value_heads=2 model.head_dim=6 model.sliding_window=3 "
    "model.window_layers=GL model.attn_logit_softcapping=2 model.attention_sinks=true",
    "model.architecture=gemma3_text model.num_key_value_heads=4 model.head_dim=2 "
    "model.sliding_window=5 model.window_layers=LG model.rope_local_base_freq=90 "
    "model.final_logit_softcapping=4 model.tie_word_embeddings=true",
    "model.architecture=mixtral model.num_key_value_heads=2 model.num_local_experts=5 "
    "model.num_experts_per_tok=3 model.moe_dropout=0.1 model.router_jitter_noise=0.1",
    "model.architecture=mixtral model.num_key_value_heads=2 model.num_local_experts=4 "
    "model.moe_dropout=0.1 model.moe_shared_experts=2 parallel.expert=2",
    "model.architecture=qwen3_moe model.num_key_value_heads=2 model.head_dim=6 "
    "model.num_local_experts=6 model.num_experts_per_tok=3 model.norm_topk_prob=false "
    "model.moe_every=2 model.moe_shared_experts=1 model.moe_bound=1 parallel.expert=2",
    "model.architecture=mixtral model.num_key_value_heads=2 model.num_local_experts=4 "
    "model.num_experts_per_tok=1 model.moe_gate=switch model.moe_capacity_factor=1.25 "
    "model.router_aux_loss_coef=0.1 model.router_jitter_noise=0.1 parallel.expert=2",
    "model.architecture=mixtral model.num_key_value_heads=2 model.num_local_experts=4 "
    "model.moe_gate=gshard model.moe_capacity_factor=1.25 model.router_aux_loss_coef=5 "
    "model.moe_dropout=0.1 parallel.expert=2",
    "model.architecture=mixtral model.num_key_value_heads=2 model.num_local_experts=4 "
    "model.moe_gate=noisy_topk model.moe_capacity_factor=1.25 model.router_importance_coef=0.1 "
    "model.router_load_coef=0.1 parallel.expert=2",
    "model.architecture=qwen3_moe model.num_key_value_heads=2 model.head_dim=6 "
    "model.num_local_experts=6 model.moe_gate=hierarchical model.n_group=3 model.topk_group=2 "
    "model.router_importance_coef=0.1 model.router_load_coef=0.1",
    "model.architecture=mixtral model.num_key_value_heads=2 model.num_local_experts=4 "
    "model.moe_gate=bias model.router_bias_rate=0.01 model.n_group=2 model.topk_group=2 "
    "parallel.expert=2",
    "model.architecture=gpt2 model.tie_word_embeddings=false model.reversible=true",
    "model.architecture=llama model.num_key_value_heads=2 model.reversible=true",
    "model.architecture=switch model.num_local_experts=4 model.moe_every=1 "
    "model.moe_capacity_factor=1.25 model.router_aux_loss_coef=0.1 model.moe_dropout=0.2 "
    "parallel.expert=2",
    "model.architecture=switch model.hidden_act=swiglu_clamped model.moe_bias=true "
    "model.num_local_experts=4 "
    "model.moe_gate=topk model.num_experts_per_tok=2 model.moe_every=1 model.moe_first_dense=1 "
    "model.moe_shared_experts=1 model.moe_bound=1 parallel.expert=2",
    "model.architecture=olmo3 model.num_key_value_heads=2 model.sliding_window=7 "
    "model.window_layers=LG model.rope_local_base_freq=90 model.attention_sinks=true",
    "model.architecture=deepseek_v3 model.q_lora_rank=6 model.kv_lora_rank=5 "
    "model.qk_nope_head_dim=3 model.qk_rope_head_dim=4 model.v_head_dim=5 model.qkv_bias=true "
    "model.o_bias=true "
    "model.num_local_experts=4 model.n_group=2 model.topk_group=2 model.moe_first_dense=1 "
    "model.router_bias_rate=0.01 parallel.expert=2",
    "model.architecture=mlp model.hidden_size=20",
    "model.architecture=vgg model.weight_layers=11 model.base_channels=2 model.hidden_size=10",
    "model.architecture=resnet model.weight_layers=18 model.base_channels=2 model.small_stem=true",
    "model.architecture=revnet model.weight_layers=26 model.base_channels=4",
};
enum { LATTICE_IMAGES = LATTICE_LEVELS(lattice_models) - 4 }; /* models from here on see images */
/* Their blocks without the first and the last one; 0: as many as there are layers. */
static const int lattice_image_layers[] = {0, 8, 8, 6};
enum { LATTICE_SIDE = 32, LATTICE_CLASSES = 6, LATTICE_SAMPLES = 48 };
static const char *const lattice_schedules[] = {
    "1f1b",
    "gpipe",
    "naive",
    "interleaved parallel.virtual_stages=2",
    "zero-bubble",
    "pipedream",
    "pipedream-2bw",
    "zero-bubble-v",
    "pipedream parallel.vertical_sync=true",
    "pipedream parallel.weight_stashing=false",
};
static const int lattice_degrees[] = {1, 2, 3, 4, 8};
enum { DEGREES = sizeof lattice_degrees / sizeof *lattice_degrees };
enum { UNEQUAL = DEGREES }; /* DATA: two replicas of the first stage, one of the others */
/* Of a data rank, and samples in each. */
static const int lattice_micro_batches[][2] = {{1, 2}, {2, 1}, {3, 2}, {4, 1}};
static const char *const lattice_sequences[] = {"false", "true", "keep"};
static const char *const lattice_methods[] = {"ring", "ulysses"};
static const char *const lattice_pieces[] = {"1", "2"};
static const char *const lattice_recomputes[] = {"", " memory.recompute=selective",
                                                 " memory.recompute=full"};
static const char *const lattice_partitions[] = {"even", "list", "auto"};
static const char *const lattice_optimizers[] = {
    "optimizer.eps=1e-6", "optimizer.name=sgd optimizer.momentum=0.9",
    "optimizer.name=sgd optimizer.momentum=0.9 optimizer.nesterov=true "
    "optimizer.rates=*.[13].*=0.5 optimizer.no_decay=*.[13].*",
    "optimizer.name=adamw8 optimizer.block=2 optimizer.eps=1e-6", "optimizer.name=adafactor",
    "optimizer.name=sm3", "optimizer.name=sm3 optimizer.momentum=0.9",
    "optimizer.name=adafactor optimizer.momentum=0.9 optimizer.scale_parameter=false "
    "optimizer.schedule=rsqrt",
    "optimizer.name=muon optimizer.momentum=0.95 optimizer.nesterov=true optimizer.eps=1e-6",
    "optimizer.name=muon optimizer.momentum=0.8 optimizer.adjust_rate=match_rms_adamw "
    "optimizer.adamw_rate=0.5 optimizer.eps=1e-6",
    /* Frozen: one layer; and all but one layer, the patterns divided by a tab. */
    "optimizer.eps=1e-6 optimizer.rates=*.0.*=0",
    "optimizer.name=sgd optimizer.momentum=0.9 optimizer.rates=*=0\t*.[13].*=1",
    /* Adapters, of all products and of queries and values. */
    "optimizer.eps=1e-6 lora.rank=2 lora.alpha=3 lora.dropout=0.1 lora.targets=all-linear",
    "optimizer.name=sgd optimizer.momentum=0.9 lora.rank=2"};
static const char *const lattice_precisions[] = {
    "fp64", "fp32", "bf16", "bf16 precision.gradients=compute precision.residual=fp32"};
/* Verifying takes the first; runs that are resumed take theirs. */
static const char *const lattice_wires[] = {"", " precision.reduce=bf16 precision.loss_scale=1024"};
/* Those of the first are not resumed, by which probes/resumes.c tells them. */
static const char *const lattice_saves[] = {"checkpoint.keep=9", "checkpoint.background=true",
                                            "checkpoint.background=false checkpoint.dtype=bf16",
                                            "checkpoint.background=true checkpoint.dtype=fp32"};
static const char *const lattice_devices[] = {"", " parallel.device=queued",
                                              " parallel.device=walled"};
static const char *const lattice_optimizers_at[] = {
    "",
    " memory.offload_optimizer=host",
    " memory.offload_optimizer=disk",
    " memory.offload_optimizer=host memory.offload_delayed_from=2",
    " memory.offload_optimizer=disk memory.offload_delayed_from=2",
    " memory.offload_optimizer=host memory.offload_parameters=host",
    " memory.offload_optimizer=host memory.offload_parameters=disk",
    " memory.offload_optimizer=disk memory.offload_parameters=disk"};
static const char *const lattice_kept_at[] = {"", " memory.offload_activations=host",
                                              " memory.offload_activations=disk memory.prefetch=0",
                                              " memory.offload_activations=peer"};
static const char *const lattice_dropouts[] = {
    "", " model.resid_pdrop=0.1 model.attn_pdrop=0.2 model.embd_pdrop=0.1"};
/* With dropout. In fp64 alone: in other types a sum in another order is often rounded to another
 * code. */
static const char lattice_codes[] = " memory.encode=fp10 memory.encode_norms=true";
/* Of GPT-2 with the second vocabulary; some tensors spill. */
static const char lattice_lossless[] = " model.hidden_act=relu memory.encode=lossless";
static const char lattice_image_codes[] = " memory.encode=fp10";
/* Of a VGG or an mlp with the second number of classes. */
static const char lattice_image_lossless[] = " memory.encode=lossless";
static const char *const lattice_vocabularies[] = {"264", "257"};
static const char *const lattice_classes[] = {"8", "7"}; /* of images, by VOCABULARY's level */
static const char *const lattice_reductions[] = {"direct", "ring", "torus",
                                                 "hierarchical parallel.node_ranks=2"};
static const char *const lattice_zeros[] = {"", " parallel.zero=1", " parallel.zero=2",
                                            " parallel.zero=3"};
static const char *const lattice_compressions[] = {
    "", " parallel.compression=powersgd parallel.compression_rank=2",
    " parallel.compression=powersgd parallel.compression_orthogonal=gram_schmidt",
    " parallel.compression=topk parallel.compression_density=0.1"};
/* With the keys that the name stands for. */
static const char *const lattice_strategies[] = {
    "",
    " parallel.strategy=diloco parallel.sync_every=2",
    " parallel.strategy=gossip parallel.sync_every=2 parallel.outer_learning_rate=1 "
    "parallel.outer_momentum=0",
    " parallel.strategy=parameter_server parallel.servers=2",
    " parallel.strategy=asp parallel.server_sync=false",
    " parallel.strategy=ssp parallel.server_sync=false parallel.staleness=1 parallel.servers=2",
    " parallel.strategy=central_storage",
    " parallel.strategy=easgd parallel.sync_every=2 parallel.outer_momentum=0"};
static const int lattice_servers[] = {0, 0, 0, 2, 1, 2, 0, 0}; /* STRATEGY: so many ranks more */
static const char *const lattice_buckets[] = {"1GiB", "8KiB", "1"};
static const char *const lattice_documents[] = {"", " data.document_mask=true",
                                                " data.shards=static", " data.packing=documents"};
static const char *const lattice_orders[] = {"", " data.flip=true", " data.shards=static",
                                             " data.crop_padding=2"}; /* of images */

static const int lattice_levels[LATTICE_AXES] = {
    [PIPELINE] = DEGREES,
    [DATA] = DEGREES + 1,
    [CONTEXT] = DEGREES,
    [TENSOR] = DEGREES,
    [SEQUENCE] = LATTICE_LEVELS(lattice_sequences),
    [METHOD] = LATTICE_LEVELS(lattice_methods),
    [PIECES] = LATTICE_LEVELS(lattice_pieces),
    [RECOMPUTE] = LATTICE_LEVELS(lattice_recomputes),
    [SCHEDULE] = LATTICE_LEVELS(lattice_schedules),
    [MICRO_BATCHES] = LATTICE_LEVELS(lattice_micro_batches),
    [MODEL] = LATTICE_LEVELS(lattice_models),
    [PARTITION] = LATTICE_LEVELS(lattice_partitions),
    [OPTIMIZER] = LATTICE_LEVELS(lattice_optimizers),
    [PRECISION] = LATTICE_LEVELS(lattice_precisions),
    [SAVES] = LATTICE_LEVELS(lattice_saves),
    [WIRE] = LATTICE_LEVELS(lattice_wires),
    [DEVICE] = LATTICE_LEVELS(lattice_devices),
    [OPTIMIZER_AT] = LATTICE_LEVELS(lattice_optimizers_at),
    [KEPT_AT] = LATTICE_LEVELS(lattice_kept_at),
    [DROPOUT] = LATTICE_LEVELS(lattice_dropouts),
    [VOCABULARY] = LATTICE_LEVELS(lattice_vocabularies),
    [REDUCTION] = LATTICE_LEVELS(lattice_reductions),
    [ZERO] = LATTICE_LEVELS(lattice_zeros),
    [COMPRESSION] = LATTICE_LEVELS(lattice_compressions),
    [STRATEGY] = LATTICE_LEVELS(lattice_strategies),
    [BUCKET] = LATTICE_LEVELS(lattice_buckets),
    [DOCUMENTS] = LATTICE_LEVELS(lattice_documents),
};

/* ---- features ---- */

/* Without which an axis does nothing. Experts may be cut over context ranks alone, too; said of
 * data, cases with them are found, also those that need most ranks for something else. */
static inline int lattice_needs(int axis, int level)
{
    if (axis == METHOD) return CONTEXT;
    if (axis == SCHEDULE || (axis == KEPT_AT && level == LATTICE_PEER)) return PIPELINE;
    if (axis == SEQUENCE && level > 0) return TENSOR;
    if ((axis == ZERO && level > 0) || (axis == REDUCTION && level > 1)) return DATA;
    if (axis == STRATEGY && level > 0) return DATA;
    if (axis == MODEL && strstr(lattice_models[level], "parallel.expert")) return DATA;
    if ((axis == PARTITION && level > 0) || (axis == DATA && level == UNEQUAL)) return PIPELINE;
    return -1;
}

static inline bool lattice_is_degree(int axis)
{
    return axis == PIPELINE || axis == DATA || axis == CONTEXT || axis == TENSOR ||
           axis == MICRO_BATCHES;
}

/* What a user turns on: of a degree and of micro-batches "several", of other axes each level. */
static inline int lattice_list_features(cover_feature *out)
{
    int n = 0;
    for (int axis = 0; axis < LATTICE_AXES; axis++) {
        bool degree = lattice_is_degree(axis);
        int high = axis == DATA ? DEGREES - 1 : lattice_levels[axis] - 1;
        if (degree) out[n++] = (cover_feature){axis, 1, high, -1};
        for (int i = degree ? high + 1 : 0; i < lattice_levels[axis]; i++)
            out[n++] = (cover_feature){axis, i, i, lattice_needs(axis, i)};
    }
    return n;
}

/* Lists the same features, and then each level of the degrees. */
static inline int lattice_list_levels(cover_feature *out)
{
    int n = lattice_list_features(out);
    for (int axis = 0; axis < LATTICE_AXES; axis++)
        for (int i = 0; lattice_is_degree(axis) && i < lattice_levels[axis]; i++)
            out[n++] = (cover_feature){axis, i, i, -1};
    ECH_ASSERT(n <= COVER_FEATURES);
    return n;
}

/* ---- a case ---- */

static inline int lattice_stages(const cover_case *c)
{
    return lattice_degrees[c->level[PIPELINE]];
}

static inline int lattice_ranks(const cover_case *c)
{
    int stages = lattice_stages(c), data = c->level[DATA];
    int each = lattice_degrees[c->level[CONTEXT]] * lattice_degrees[c->level[TENSOR]];
    return (data == UNEQUAL ? stages + 1 : stages * lattice_degrees[data]) * each +
           lattice_servers[c->level[STRATEGY]];
}

/* Whether some axis is not at its first level although that changes nothing. */
static inline bool lattice_is_idle(const cover_case *c)
{
    for (int axis = 0; axis < LATTICE_AXES; axis++) {
        int needs = lattice_needs(axis, c->level[axis]);
        if (axis != SCHEDULE && axis != MODEL && c->level[axis] > 0 && needs >= 0 &&
            c->level[needs] == 0)
            return true;
    }
    return false;
}

static inline int lattice_virtual_stages(const cover_case *c)
{
    const char *schedule = lattice_schedules[c->level[SCHEDULE]];
    bool chunks = strstr(schedule, "virtual_stages") || strstr(schedule, "bubble-v");
    return lattice_stages(c) * (chunks ? 2 : 1);
}

static inline bool lattice_has_images(int model)
{
    return model >= LATTICE_IMAGES;
}

/* As many layers as the stages need: embedding and head are blocks, too. Some networks on images
 * have a fixed number. */
static inline int lattice_layers(const cover_case *c)
{
    int stages = lattice_virtual_stages(c), model = c->level[MODEL];
    int fixed = lattice_has_images(model) ? lattice_image_layers[model - LATTICE_IMAGES] : 0;
    if (fixed) return fixed;
    return stages - 2 > LATTICE_LAYERS ? stages - 2 : LATTICE_LAYERS;
}

/* None on the first stage, one on those between, the others on the last. */
static inline void lattice_print_list(const cover_case *c, ech_text *out)
{
    int stages = lattice_virtual_stages(c), left = lattice_layers(c);
    for (int s = 0; s < stages; s++) {
        int layers = s == stages - 1 ? left : s > 0;
        ech_text_append(out, "%s%d", s ? "," : "[", layers);
        left -= layers;
    }
    ech_text_append(out, "]");
}

static inline void lattice_print_partition(const cover_case *c, ech_text *out)
{
    const char *name = lattice_partitions[c->level[PARTITION]];
    ech_text_append(out, " parallel.partition=");
    if (strcmp(name, "list") == 0)
        lattice_print_list(c, out);
    else
        ech_text_append(out, "%s", name);
    if (strcmp(name, "auto") != 0) return;
    ech_text_append(out, " parallel.profile=%s/profile-", fixture_folder);
    for (int axis = 0; axis < LATTICE_AXES; axis++) ech_text_append(out, "%x", c->level[axis]);
}

static inline void lattice_print_data(const cover_case *c, ech_text *out)
{
    int data = c->level[DATA], stages = lattice_stages(c);
    int most = LATTICE_LEVELS(lattice_micro_batches) - 1;
    const int *micro =
        lattice_micro_batches[c->level[KEPT_AT] == LATTICE_PEER ? most : c->level[MICRO_BATCHES]];
    if (data == UNEQUAL) {
        ech_text_append(out, " parallel.stage_replicas=[2");
        for (int s = 1; s < stages; s++) ech_text_append(out, ",1");
        ech_text_append(out, "]");
    } else {
        ech_text_append(out, " parallel.data=%d", lattice_degrees[data]);
    }
    ech_text_append(out, " training.micro_batch_size=%d training.global_batch_size=%d", micro[1],
                    micro[0] * micro[1] * (data == UNEQUAL ? 2 : lattice_degrees[data]));
}

static inline bool lattice_is_encoded(const cover_case *c)
{
    bool keeps = strcmp(lattice_sequences[c->level[SEQUENCE]], "keep") == 0;
    bool routes_parts = c->level[TENSOR] > 0 && c->level[SEQUENCE] == 0 &&
                        strstr(lattice_models[c->level[MODEL]], "parallel.expert=");
    return c->level[DROPOUT] > 0 && c->level[PRECISION] == 0 && !keeps && !routes_parts;
}

static inline const char *lattice_codes_of(const cover_case *c)
{
    bool gpt2 = strstr(lattice_models[c->level[MODEL]], "architecture=gpt2 ");
    if (!lattice_is_encoded(c)) return "";
    return gpt2 && c->level[VOCABULARY] > 0 ? lattice_lossless : lattice_codes;
}

static inline const char *lattice_image_codes_of(const cover_case *c)
{
    const char *model = lattice_models[c->level[MODEL]];
    bool zeros = strstr(model, "=mlp") || strstr(model, "=vgg");
    if (!lattice_is_encoded(c)) return "";
    return zeros && c->level[VOCABULARY] > 0 ? lattice_image_lossless : lattice_image_codes;
}

/* True if batch norms cover all replicas: with several or larger micro-batches, where no rule
 * refuses it. */
static inline bool lattice_syncs_norms(const cover_case *c)
{
    const int *x = c->level;
    bool equal = x[DATA] > 0 && x[DATA] != UNEQUAL && x[STRATEGY] == 0;
    return strstr(lattice_models[x[MODEL]], "net ") && x[MICRO_BATCHES] > 0 && equal &&
           !strstr(lattice_schedules[x[SCHEDULE]], "pipedream");
}

/* The model's keys. All blocks of an mlp are layers. */
static inline void lattice_print_images(const cover_case *c, ech_text *out)
{
    const int *x = c->level;
    const char *model = lattice_models[x[MODEL]];
    ech_text_append(out, "%s model.num_classes=%s", model, lattice_classes[x[VOCABULARY]]);
    if (strstr(model, "=mlp"))
        ech_text_append(out, " model.num_hidden_layers=%d", lattice_layers(c) + 2);
    if (strstr(model, "=vgg"))
        ech_text_append(out, " model.classifier_dropout=%s", x[DROPOUT] ? "0.2" : "0");
    ech_text_append(out, "%s", lattice_image_codes_of(c));
    ech_text_append(out, "%s", lattice_syncs_norms(c) ? " model.norm_sync=true" : "");
}

static inline void lattice_print_texts(const cover_case *c, ech_text *out)
{
    const int *x = c->level;
    ech_text_append(out, "%s model.num_hidden_layers=%d model.vocab_size=%s%s%s",
                    lattice_models[x[MODEL]], lattice_layers(c),
                    lattice_vocabularies[x[VOCABULARY]], lattice_dropouts[x[DROPOUT]],
                    lattice_codes_of(c));
    ech_text_append(out, " parallel.sequence=%s parallel.context_method=%s",
                    lattice_sequences[x[SEQUENCE]], lattice_methods[x[METHOD]]);
}

/* Assignments, divided by blanks. */
static inline void lattice_print_words(const cover_case *c, ech_text *out)
{
    const int *x = c->level;
    bool images = lattice_has_images(x[MODEL]);
    if (images)
        lattice_print_images(c, out);
    else
        lattice_print_texts(c, out);
    ech_text_append(out, " parallel.pipeline=%d parallel.context=%d parallel.tensor=%d",
                    lattice_stages(c), lattice_degrees[x[CONTEXT]], lattice_degrees[x[TENSOR]]);
    ech_text_append(out, " memory.sequence_chunks=%s%s parallel.schedule=%s",
                    lattice_pieces[x[PIECES]], lattice_recomputes[x[RECOMPUTE]],
                    lattice_schedules[x[SCHEDULE]]);
    lattice_print_data(c, out);
    lattice_print_partition(c, out);
    ech_text_append(out, " parallel.reduction=%s parallel.bucket_bytes=%s%s%s",
                    lattice_reductions[x[REDUCTION]], lattice_buckets[x[BUCKET]],
                    lattice_zeros[x[ZERO]],
                    images ? lattice_orders[x[DOCUMENTS]] : lattice_documents[x[DOCUMENTS]]);
    ech_text_append(out, " %s precision.compute=%s%s %s%s%s%s%s%s",
                    lattice_optimizers[x[OPTIMIZER]], lattice_precisions[x[PRECISION]],
                    lattice_wires[x[WIRE]], lattice_saves[x[SAVES]], lattice_devices[x[DEVICE]],
                    lattice_optimizers_at[x[OPTIMIZER_AT]], lattice_kept_at[x[KEPT_AT]],
                    lattice_compressions[x[COMPRESSION]], lattice_strategies[x[STRATEGY]]);
}

/* Taken by runs instead of their own, which the parent plans: it asks no GPU. NULL: none. */
static const char *lattice_device;

static const char *lattice_run_file(int model)
{
    return lattice_has_images(model) ? "images.yaml" : "run.yaml";
}

/* "echelon verify FOLDER/run.yaml --ranks 4 ...". */
static inline void lattice_print_command(const cover_case *c, ech_text *out)
{
    ech_text_append(out, "echelon verify %s/%s --ranks %d %s", fixture_folder,
                    lattice_run_file(c->level[MODEL]), lattice_ranks(c),
                    c->level[PRECISION] ? "--own-precision " : "");
    lattice_print_words(c, out);
    if (lattice_device)
        ech_text_append(out, " parallel.device=%s parallel.share_device=true", lattice_device);
}

static inline void lattice_print_yaml(int model, ech_text *out)
{
    if (!lattice_has_images(model)) {
        grid_print_yaml("gpt2", "run", out);
        return;
    }
    ech_text_append(out,
                    "model: {image_height: %d, image_width: %d, image_channels: 1}\n"
                    "data: {train: %s/bars.images, valid: %s/bars.images}\n"
                    "training: {steps: 2, global_batch_size: 4, check_every: 0}\n"
                    "optimizer: {learning_rate: 1e-2, weight_decay: 0.1}\n"
                    "precision: {compute: fp64}\n"
                    "parallel: {comm: local, threads: 1, bucket_bytes: 8KiB}\n"
                    "log: {directory: %s/run}\n",
                    LATTICE_SIDE, LATTICE_SIDE, fixture_folder, fixture_folder, fixture_folder);
}

/* What the commands read, besides the grid's tokens. */
static inline void lattice_write_run_files(void)
{
    static const int models[] = {0, LATTICE_IMAGES};
    for (int i = 0; i < 2; i++) {
        char path[300];
        ech_text yaml = {0};
        snprintf(path, sizeof path, "%s/%s", fixture_folder, lattice_run_file(models[i]));
        lattice_print_yaml(models[i], &yaml);
        ECH_ASSERT(ech_file_write(path, yaml.at, yaml.n) == ECH_OK);
        ech_text_free(&yaml);
    }
    bars_write("bars", LATTICE_SAMPLES, LATTICE_SIDE, LATTICE_CLASSES);
}

/* [MODEL's level], since a configuration takes its family's defaults when it is made; NULL: not
 * made yet. */
static ech_config *lattice_bases[sizeof lattice_models / sizeof *lattice_models];

static inline const ech_config *lattice_base_of(int model)
{
    if (!lattice_bases[model]) {
        ech_text words = {0}, yaml = {0};
        ech_text_append(&words,
                        "training.steps=4 training.validate_every=2 training.validate_samples=4 "
                        "checkpoint.every=2 %s",
                        lattice_models[model]);
        if (lattice_has_images(model)) ech_text_append(&words, " model.num_classes=8");
        if (strstr(words.at, "=mlp")) ech_text_append(&words, " model.num_hidden_layers=2");
        lattice_print_yaml(model, &yaml);
        lattice_bases[model] = fixture_config_of(yaml.at, words.at);
        ECH_ASSERT(lattice_bases[model]);
        ech_text_free(&words);
        ech_text_free(&yaml);
    }
    return lattice_bases[model];
}

static inline void lattice_forget_bases(void)
{
    for (size_t i = 0; i < sizeof lattice_bases / sizeof *lattice_bases; i++) {
        ech_config_destroy(lattice_bases[i]);
        lattice_bases[i] = NULL;
    }
}

static inline ech_config *lattice_config(const cover_case *c)
{
    ech_text words = {0};
    char *rest = NULL;
    ech_config *config = ech_config_copy(lattice_base_of(c->level[MODEL]));
    lattice_print_words(c, &words);
    for (char *word = strtok_r(words.at, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (ech_config_set(config, word) == ECH_OK) continue;
        ech_config_destroy(config);
        config = NULL;
        break;
    }
    ech_text_free(&words);
    return config;
}

/* ---- what may be asked for ---- */

typedef struct lattice_made {
    ech_config *config; /* the design's */
    ech_design design;
} lattice_made;

static inline void lattice_free(lattice_made *made)
{
    ech_design_destroy(&made->design);
    ech_config_destroy(made->config);
}

/* False: refused, and ech_last_error says why. Otherwise released with lattice_free. */
static inline bool lattice_make(const cover_case *c, lattice_made *out)
{
    int ranks = lattice_ranks(c);
    *out = (lattice_made){.config = lattice_config(c)};
    if (out->config && ech_design_create(out->config, fixture_tokenizer_of(out->config), ranks,
                                         ranks, &out->design) == ECH_OK)
        return true;
    ech_config_destroy(out->config);
    return false;
}

/* The rule that a configuration with all degrees given breaks; NULL: none. */
static inline const ech_rule *lattice_rule(const ech_config *config)
{
    const ech_rule *rule = ech_rule_broken(config, ECH_RULES_OF_RUN);
    return rule ? rule : ech_rule_broken(config, ECH_RULES_OF_GRID);
}

/* Whether no two features meet that do not go together. Says nothing: to explain costs a hundred
 * times as much. */
static inline bool lattice_goes_together(const cover_case *c)
{
    ech_config *config = lattice_config(c);
    bool together = config && !lattice_rule(config);
    ech_config_destroy(config);
    return together;
}

/* The simplest case that has two features; `b`: NULL for one. */
static inline cover_case lattice_simplest_with(const cover_feature *a, const cover_feature *b)
{
    const cover_feature *const features[] = {a, b};
    cover_case c = {{0}};
    for (int i = 0; i < 2 && features[i]; i++) {
        if (features[i]->low > c.level[features[i]->factor])
            c.level[features[i]->factor] = features[i]->low;
        if (features[i]->needs >= 0 && c.level[features[i]->needs] == 0)
            c.level[features[i]->needs] = 1;
    }
    return c;
}

/* Whether the simplest case of two features has too many ranks or breaks a rule: then so do all
 * others. */
static inline bool lattice_is_refused(const cover_feature *a, const cover_feature *b)
{
    cover_case both = lattice_simplest_with(a, b);
    return lattice_ranks(&both) > LATTICE_RANKS || !lattice_goes_together(&both);
}

/* What partition = auto reads. */
static inline void lattice_write_profile(const cover_case *c)
{
    cover_case even = *c;
    lattice_made made;
    ech_config *config = lattice_config(c);
    even.level[PARTITION] = 0;
    ECH_ASSERT(lattice_make(&even, &made) && config);
    made_up_profile_write(&made.design, config->parallel.profile);
    ech_config_destroy(config);
    lattice_free(&made);
}

/* Returns true if there are not too many ranks, and a design can be made. For partitions that are
 * found by simulation only the even one is tried, unless the rank that holds for another one
 * depends on the stages. */
static inline bool lattice_is_feasible(const cover_case *c)
{
    cover_case tried = *c;
    if (lattice_ranks(c) > LATTICE_RANKS) return false;
    bool feasible = lattice_goes_together(c);
    if (strcmp(lattice_partitions[c->level[PARTITION]], "auto") == 0) tried.level[PARTITION] = 0;
    lattice_made made;
    feasible = feasible && lattice_make(&tried, &made);
    if (feasible) lattice_free(&made);
    bool depends = c->level[KEPT_AT] == LATTICE_PEER ||
                   strstr(lattice_reductions[c->level[REDUCTION]], "node_ranks");
    if (feasible && tried.level[PARTITION] != c->level[PARTITION] && depends) {
        lattice_write_profile(c);
        feasible = lattice_make(c, &made);
        if (feasible) lattice_free(&made);
    }
    return feasible;
}

/* Without cases. Released with cover_free. */
static inline cover *lattice_cover_begin(bool (*feasible)(const cover_case *))
{
    static cover_feature features[COVER_FEATURES];
    static const int dear[] = {SAVES, PRECISION, -1};
    const cover kind = {.factors = LATTICE_AXES,
                        .dear = dear,
                        .strict = LATTICE_GRID_AXES,
                        .features = lattice_list_levels(features),
                        .levels = lattice_levels,
                        .feature = features,
                        .feasible = feasible,
                        .refused = lattice_is_refused};
    return cover_begin(&kind);
}

/* ---- the cases that are kept ---- */

static const char lattice_digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
static const char *const lattice_kept_cases[] = {
#define X(levels) levels,
#include "app/lattice_cases.def"
#undef X
    NULL, /* there may be none */
};

/* Axes without a digit are at their first level. */
static inline cover_case lattice_read_case(const char *levels)
{
    cover_case c = {{0}};
    ECH_ASSERT(strlen(levels) <= LATTICE_AXES);
    for (int axis = 0; levels[axis]; axis++) {
        const char *digit = strchr(lattice_digits, levels[axis]);
        ECH_ASSERT(digit);
        c.level[axis] = (int)(digit - lattice_digits);
        ECH_ASSERT(c.level[axis] < lattice_levels[axis]);
    }
    return c;
}

static inline void lattice_print_case(const cover_case *c)
{
    printf("X(\"");
    for (int axis = 0; axis < LATTICE_AXES; axis++) putchar(lattice_digits[c->level[axis]]);
    printf("\")\n");
}

/* Those for which `takes` holds. Released with cover_free. */
static inline cover *lattice_kept_cover(bool (*takes)(const cover_case *))
{
    cover *kept = lattice_cover_begin(lattice_is_feasible);
    for (const char *const *levels = lattice_kept_cases; *levels; levels++) {
        cover_case c = lattice_read_case(*levels);
        if (takes(&c)) cover_add(kept, &c);
    }
    return kept;
}

/* ---- the verdict ---- */

static inline void lattice_begin(void *results, const ech_config *config, int ranks)
{
    probe_begin(config, ranks, results);
}

static inline bool lattice_judge(void *results, bool passed, char *why, size_t n)
{
    (void)results;
    return probe_judge(passed, why, n);
}

/* Verify's and all probes'. results: [PROBES], in memory that is shared with children. */
static inline verdict lattice_verify(const cover_case *c, probe_result *results)
{
    if (strcmp(lattice_partitions[c->level[PARTITION]], "auto") == 0) lattice_write_profile(c);
    ech_config *config = lattice_config(c);
    memset(results, 0, PROBES * sizeof *results);
    verdict found = verdict_of(&(verdict_request){.config = config,
                                                  .device = lattice_device,
                                                  .ranks = lattice_ranks(c),
                                                  .steps = 2,
                                                  .own_precision = c->level[PRECISION] > 0,
                                                  .begin = lattice_begin,
                                                  .judge = lattice_judge,
                                                  .context = results});
    ech_config_destroy(config);
    return found;
}

#endif
