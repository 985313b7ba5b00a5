/* SPDX-License-Identifier: Apache-2.0
 *
 * Features that do not go together: each rule is broken by a run file with its two features, by
 * none with one of them, and the error names key, value, what it does not go with, why, and what
 * would.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "config/capture.h"
#include "config/rules.h"
#include "config/sample.h"
#include "config/table.h"
#include "unit.h"

/* Assignments that turn both on; the other feature alone; the first alone (NULL: there is no such
 * run file). */
typedef struct trial {
    const char *both, *other, *feature;
} trial;

#define LOSSLESS     "memory.encode=lossless"
#define RELU         "model.architecture=gpt2 model.hidden_act=relu"
#define RELU_EXPERTS "model.architecture=mixtral model.hidden_act=relu model.num_local_experts=4"

static const trial trials[ECH_RULES] = {
#define SCHEDULE "parallel.schedule="
#define UNEQUAL  "parallel.stage_replicas=[2,1]"
    [ECH_RULE_virtual_stages_one_virtual_stage] = {"parallel.virtual_stages=2 " SCHEDULE "1f1b", "",
                                                   "parallel.virtual_stages=2 " SCHEDULE
                                                   "interleaved"},
    [ECH_RULE_unequal_replicas_interleaved] = {UNEQUAL " " SCHEDULE "interleaved",
                                               SCHEDULE "interleaved", UNEQUAL},
    [ECH_RULE_unequal_replicas_zero_bubble] = {UNEQUAL " " SCHEDULE "zero-bubble",
                                               SCHEDULE "zero-bubble", UNEQUAL},
    [ECH_RULE_not_two_virtual_stages_zero_bubble_v] = {"parallel.virtual_stages=1 " SCHEDULE
                                                       "zero-bubble-v",
                                                       SCHEDULE "zero-bubble-v",
                                                       "parallel.virtual_stages=3 " SCHEDULE
                                                       "gpipe"},
    [ECH_RULE_unequal_replicas_zero_bubble_v] = {UNEQUAL " " SCHEDULE "zero-bubble-v",
                                                 SCHEDULE "zero-bubble-v", UNEQUAL},
    [ECH_RULE_unequal_replicas_buffered] = {UNEQUAL " " SCHEDULE "pipedream-2bw",
                                            SCHEDULE "pipedream-2bw", UNEQUAL},
    [ECH_RULE_unequal_replicas_written] =
        {"parallel.stage_replicas=[3,3] "
         "training.micro_batch_size=1 " SCHEDULE "my.order",
         SCHEDULE "my.order", "parallel.stage_replicas=[3,3] training.micro_batch_size=1"},
    [ECH_RULE_unequal_replicas_virtual_stages] = {UNEQUAL " parallel.virtual_stages=2 " SCHEDULE
                                                          "gpipe",
                                                  "parallel.virtual_stages=2 " SCHEDULE "gpipe",
                                                  UNEQUAL " " SCHEDULE "gpipe"},
    [ECH_RULE_vertical_sync_not_stashed] = {"parallel.vertical_sync=true", "",
                                            "parallel.vertical_sync=true " SCHEDULE "pipedream"},
    [ECH_RULE_vertical_sync_newest_weights] = {"parallel.vertical_sync=true "
                                               "parallel.weight_stashing=false " SCHEDULE
                                               "pipedream",
                                               "parallel.weight_stashing=false " SCHEDULE
                                               "pipedream",
                                               "parallel.vertical_sync=true " SCHEDULE "pipedream"},
    [ECH_RULE_newest_weights_not_stashed] = {"parallel.weight_stashing=false " SCHEDULE
                                             "pipedream-2bw",
                                             SCHEDULE "pipedream-2bw",
                                             "parallel.weight_stashing=false " SCHEDULE
                                             "pipedream"},
    [ECH_RULE_asynchronous_tied_stages] = {SCHEDULE "pipedream model.tie_word_embeddings=true "
                                                    "parallel.pipeline=2",
                                           "model.tie_word_embeddings=true parallel.pipeline=2",
                                           SCHEDULE "pipedream model.tie_word_embeddings=true"},
    [ECH_RULE_dynamic_scale_asynchronous] = {"precision.loss_scale=auto " SCHEDULE "pipedream",
                                             SCHEDULE "pipedream precision.loss_scale=64",
                                             "precision.loss_scale=auto"},
    [ECH_RULE_sequence_chunks_context] = {"memory.sequence_chunks=2 parallel.context=2",
                                          "parallel.context=2", "memory.sequence_chunks=2"},
    [ECH_RULE_full_recompute_newest_weights] =
        {"memory.recompute=full parallel.weight_stashing=false " SCHEDULE "pipedream",
         "memory.recompute=selective parallel.weight_stashing=false " SCHEDULE "pipedream",
         "memory.recompute=full " SCHEDULE "pipedream"},
    [ECH_RULE_bias_gate_newest_weights] =
        {"model.architecture=mixtral model.num_local_experts=4 model.moe_gate=bias "
         "parallel.weight_stashing=false " SCHEDULE "pipedream",
         "model.architecture=mixtral model.num_local_experts=4 "
         "parallel.weight_stashing=false " SCHEDULE "pipedream",
         "model.architecture=mixtral model.num_local_experts=4 model.moe_gate=bias " SCHEDULE
         "pipedream"},
    [ECH_RULE_segments_partial_recompute] = {"memory.recompute_blocks=2", "",
                                             "memory.recompute=full memory.recompute_blocks=2"},
    [ECH_RULE_invert_one_stream] = {"memory.invert=true", "",
                                    "memory.invert=true model.reversible=true"},
    [ECH_RULE_some_recompute_invert] = {"memory.recompute=full model.reversible=true",
                                        "model.reversible=true",
                                        "memory.recompute=full model.reversible=true "
                                        "memory.invert=false"},
    [ECH_RULE_invert_newest_weights] =
        {"model.reversible=true parallel.weight_stashing=false " SCHEDULE "pipedream",
         "model.reversible=true memory.invert=false "
         "parallel.weight_stashing=false " SCHEDULE "pipedream",
         "model.reversible=true"},
    [ECH_RULE_reversible_fp16] = {"model.reversible=true precision.compute=fp16",
                                  "precision.compute=fp16",
                                  "model.reversible=true precision.compute=bf16"},
    [ECH_RULE_reversible_parallel_branches] = {"model.reversible=true "
                                               "model.parallel_residual=true",
                                               "model.parallel_residual=true",
                                               "model.reversible=true"},
    [ECH_RULE_narrow_stream_reversible] =
        {"model.reversible=true precision.compute=bf16 precision.residual=compute",
         "model.reversible=true precision.compute=bf16",
         "precision.compute=bf16 precision.residual=compute"},
    [ECH_RULE_wide_stream_norm_after] =
        {"precision.residual=fp32 precision.compute=bf16 model.norm_placement=after",
         "model.norm_placement=after", "precision.residual=fp32 precision.compute=bf16"},
    [ECH_RULE_fp32_stream_fp64] = {"precision.residual=fp32 precision.compute=fp64",
                                   "precision.compute=fp64", "precision.residual=fp32"},
    [ECH_RULE_other_wire_half_gradients] =
        {"precision.compute=bf16 precision.gradients=compute precision.reduce=fp32",
         "precision.compute=bf16 precision.gradients=compute precision.reduce=bf16",
         "precision.compute=bf16 precision.reduce=fp32"},
    [ECH_RULE_ulysses_one_key_value_head] =
        {"model.architecture=llama "
         "model.num_key_value_heads=1 parallel.context_method=ulysses parallel.context=2",
         "model.architecture=llama model.num_key_value_heads=1 parallel.context_method=ulysses",
         "parallel.context_method=ulysses parallel.context=2"},
    [ECH_RULE_data_replicas] = {"parallel.data=2 parallel.stage_replicas=[1,1]",
                                "parallel.stage_replicas=[1,1]", "parallel.data=2"},
    [ECH_RULE_replicas_found_partition] = {"parallel.stage_replicas=[1,1] parallel.partition=auto",
                                           "parallel.partition=auto",
                                           "parallel.stage_replicas=[1,1]"},
    [ECH_RULE_found_partition_found_chunks] = {SCHEDULE "gpipe parallel.partition=auto "
                                                        "parallel.virtual_stages=2",
                                               SCHEDULE "gpipe parallel.virtual_stages=2",
                                               SCHEDULE "gpipe parallel.partition=auto "
                                                        "parallel.virtual_stages=2 "
                                                        "parallel.pipeline=2"},
    [ECH_RULE_library_reduction_local] = {"parallel.reduction=library parallel.comm=local",
                                          "parallel.comm=local", "parallel.reduction=mpi"},
    [ECH_RULE_library_reduction_ucx] = {"parallel.reduction=library parallel.comm=ucx",
                                        "parallel.comm=ucx", "parallel.reduction=library"},
    [ECH_RULE_open_shares_replicas] = {"data.shards=static parallel.stage_replicas=[1,1]",
                                       "parallel.stage_replicas=[1,1]", "data.shards=static"},
    [ECH_RULE_open_shares_found_partition] = {"data.shards=static parallel.partition=auto",
                                              "parallel.partition=auto", "data.shards=static"},
    [ECH_RULE_whole_documents_no_document_mask] = {"data.packing=documents "
                                                   "data.document_mask=false",
                                                   "data.document_mask=false",
                                                   "data.packing=documents"},
    [ECH_RULE_drops_documents_stream] = {"data.long_documents=drop", "",
                                         "data.long_documents=drop data.packing=documents"},
    [ECH_RULE_shares_no_shards] = {"data.shares=2", "", "data.shares=2 data.shards=static"},
    [ECH_RULE_nccl_on_processor] = {"parallel.comm=nccl", "",
                                    "parallel.comm=nccl parallel.device=cuda"},
    [ECH_RULE_tf32_without_tf32] = {"precision.tf32=true", "",
                                    "precision.tf32=true parallel.device=cuda"},
    [ECH_RULE_tf32_fp64] = {"precision.tf32=true precision.compute=fp64 parallel.device=cuda",
                            "precision.compute=fp64", "precision.tf32=true parallel.device=cuda"},
    [ECH_RULE_narrowed_not_direct] = {"precision.reduce=bf16 parallel.reduction=ring",
                                      "parallel.reduction=ring precision.reduce=fp32",
                                      "precision.reduce=bf16"},
    [ECH_RULE_half_gradients_not_direct] = {"precision.compute=fp16 precision.gradients=compute "
                                            "parallel.reduction=ring",
                                            "parallel.reduction=ring precision.compute=fp16",
                                            "precision.compute=fp16 precision.gradients=compute"},
    [ECH_RULE_zero_naive_reduction] = {"parallel.zero=1 parallel.reduction=naive",
                                       "parallel.reduction=naive", "parallel.zero=1"},
    [ECH_RULE_zero_gradients_asynchronous] = {"parallel.zero=2 " SCHEDULE "pipedream",
                                              "parallel.zero=1 " SCHEDULE "pipedream",
                                              "parallel.zero=2"},
    [ECH_RULE_offloads_parameters_updates_on_device] =
        {"memory.offload_parameters=host memory.offload_optimizer=none",
         "memory.offload_optimizer=none",
         "memory.offload_parameters=host memory.offload_optimizer=host"},
    [ECH_RULE_offloads_parameters_asynchronous] =
        {"memory.offload_parameters=host memory.offload_optimizer=host " SCHEDULE "pipedream",
         "memory.offload_optimizer=host " SCHEDULE "pipedream",
         "memory.offload_parameters=host memory.offload_optimizer=host"},
#define DELAYED "memory.offload_delayed_from=4 memory.offload_optimizer=host"
    [ECH_RULE_delayed_updates_on_device] = {"memory.offload_delayed_from=4", "", DELAYED},
    [ECH_RULE_delayed_asynchronous] = {DELAYED " " SCHEDULE "pipedream-2bw",
                                       "memory.offload_optimizer=host " SCHEDULE "pipedream-2bw",
                                       DELAYED},
    [ECH_RULE_delayed_sharded_weights] = {DELAYED " parallel.zero=3", "parallel.zero=3",
                                          DELAYED " parallel.zero=2"},
    [ECH_RULE_delayed_offloads_parameters] =
        {DELAYED " memory.offload_parameters=host",
         "memory.offload_optimizer=host memory.offload_parameters=host", DELAYED},
    [ECH_RULE_dynamic_scale_delayed] = {DELAYED " precision.loss_scale=auto",
                                        DELAYED " precision.loss_scale=64",
                                        "precision.loss_scale=auto"},
    [ECH_RULE_kept_at_peer_balanced] = {"memory.offload_activations=peer " SCHEDULE "gpipe",
                                        SCHEDULE "gpipe", "memory.offload_activations=peer"},
    [ECH_RULE_kept_at_peer_unequal_replicas] = {"memory.offload_activations=peer " UNEQUAL, UNEQUAL,
                                                "memory.offload_activations=peer"},
    [ECH_RULE_zero_keep_whole_weights] = {"parallel.zero_keep=true parallel.zero=2",
                                          "parallel.zero=2",
                                          "parallel.zero_keep=true parallel.zero=3"},
    [ECH_RULE_zero_gradients_uneven_replicas] =
        {"parallel.zero=2 parallel.stage_replicas=[3,3] training.micro_batch_size=1",
         "parallel.stage_replicas=[3,3] training.micro_batch_size=1",
         "parallel.zero=2 parallel.stage_replicas=[3,3]"},
    /* Once accepted: ranks waited for each other until the deadline. */
    [ECH_RULE_zero_gradients_naive_growing] =
        {"parallel.zero=2 parallel.stage_replicas=[1,2] " SCHEDULE "naive",
         "parallel.stage_replicas=[1,2] " SCHEDULE "naive",
         "parallel.zero=2 parallel.stage_replicas=[2,1] " SCHEDULE "naive"},
#define EXPERTS "model.architecture=mixtral model.num_local_experts=4"
    [ECH_RULE_expert_parallel_no_experts] = {"parallel.expert=2", "", "parallel.expert=2 " EXPERTS},
    [ECH_RULE_invert_experts] = {"model.reversible=true " EXPERTS,
                                 "model.reversible=true memory.invert=false " EXPERTS,
                                 "model.reversible=true"},
    [ECH_RULE_bound_newest_weights] =
        {EXPERTS " model.moe_bound=1 parallel.schedule=pipedream parallel.weight_stashing=false",
         EXPERTS " parallel.schedule=pipedream parallel.weight_stashing=false",
         EXPERTS " model.moe_bound=1"},
#define DENSE    EXPERTS " model.moe_gate=dense"
#define CAPACITY EXPERTS " model.moe_capacity_factor=1"
#define BALANCED EXPERTS " model.router_aux_loss_coef=0.01"
#define NOISY    EXPERTS " model.moe_gate=noisy_topk"
    [ECH_RULE_capacity_dense_gate] = {DENSE " model.moe_capacity_factor=1", DENSE, CAPACITY},
    [ECH_RULE_balanced_experts_dense_gate] = {DENSE " model.router_aux_loss_coef=0.01", DENSE,
                                              BALANCED},
    [ECH_RULE_balanced_experts_noisy_gate] = {NOISY " model.router_aux_loss_coef=0.01", NOISY,
                                              BALANCED},
    [ECH_RULE_plain_gates_other_gate] = {NOISY " model.norm_topk_prob=false", NOISY,
                                         EXPERTS " model.norm_topk_prob=false"},
    [ECH_RULE_gshard_ports_not_gshard] = {EXPERTS " model.moe_gshard_ports=true", EXPERTS,
                                          "model.moe_gate=gshard model.moe_gshard_ports=true"},
    [ECH_RULE_importance_loss_noiseless_gate] = {EXPERTS " model.router_importance_coef=0.1",
                                                 EXPERTS,
                                                 NOISY " model.router_importance_coef=0.1"},
    [ECH_RULE_load_loss_noiseless_gate] = {EXPERTS " model.router_load_coef=0.1", EXPERTS,
                                           NOISY " model.router_load_coef=0.1"},
    [ECH_RULE_sequence_chunks_importance_loss] =
        {NOISY " model.router_importance_coef=0.1 memory.sequence_chunks=2",
         NOISY " model.router_importance_coef=0.1", NOISY " memory.sequence_chunks=2"},
    [ECH_RULE_sequence_chunks_load_loss] = {NOISY
                                            " model.router_load_coef=0.1 memory.sequence_chunks=2",
                                            NOISY " model.router_load_coef=0.1",
                                            NOISY " memory.sequence_chunks=2"},
    [ECH_RULE_group_samples_no_groups] = {EXPERTS " model.moe_group_samples=2", EXPERTS,
                                          BALANCED " model.moe_group_samples=2"},
    [ECH_RULE_sequence_chunks_capacity] = {CAPACITY " memory.sequence_chunks=2", CAPACITY,
                                           EXPERTS " memory.sequence_chunks=2"},
    [ECH_RULE_sequence_chunks_balanced_experts] = {BALANCED " memory.sequence_chunks=2", BALANCED,
                                                   EXPERTS " memory.sequence_chunks=2"},
#define COMPRESSED "parallel.compression=powersgd"
    [ECH_RULE_warmup_init_absolute_step] = {"optimizer.warmup_init=true", "",
                                            "optimizer.warmup_init=true "
                                            "optimizer.relative_step=true"},
    [ECH_RULE_compression_rank_unfactored] = {"parallel.compression_rank=2", "",
                                              "parallel.compression_rank=2 " COMPRESSED},
    [ECH_RULE_gram_schmidt_unfactored] =
        {"parallel.compression_orthogonal=gram_schmidt", "",
         "parallel.compression_orthogonal=gram_schmidt " COMPRESSED},
#define TOPK "parallel.compression=topk"
    [ECH_RULE_compression_density_not_topk] = {"parallel.compression_density=0.5 " COMPRESSED,
                                               COMPRESSED,
                                               "parallel.compression_density=0.5 " TOPK},
    [ECH_RULE_topk_naive_reduction] = {TOPK " parallel.reduction=naive", "parallel.reduction=naive",
                                       TOPK " parallel.reduction=ring"},
    [ECH_RULE_topk_narrowed] = {TOPK " precision.reduce=bf16", "precision.reduce=bf16",
                                TOPK " precision.reduce=fp32"},
    [ECH_RULE_compressed_dynamic_scale] = {COMPRESSED " precision.loss_scale=auto",
                                           "precision.loss_scale=auto", COMPRESSED},
    [ECH_RULE_compressed_half_gradients] = {COMPRESSED
                                            " precision.compute=bf16 precision.gradients=compute",
                                            "precision.compute=bf16 precision.gradients=compute",
                                            COMPRESSED " precision.compute=bf16"},
    [ECH_RULE_compressed_unequal_replicas] = {COMPRESSED " " UNEQUAL, UNEQUAL,
                                              COMPRESSED " parallel.stage_replicas=[2,2]"},
    [ECH_RULE_compressed_sharded_weights] = {COMPRESSED " parallel.zero=3", "parallel.zero=3",
                                             COMPRESSED " parallel.zero=2"},
    [ECH_RULE_compressed_updates_elsewhere] = {COMPRESSED " memory.offload_optimizer=host",
                                               "memory.offload_optimizer=host", COMPRESSED},
    [ECH_RULE_compressed_shared_heads] =
        {COMPRESSED " model.architecture=llama model.num_key_value_heads=2 parallel.tensor=4",
         "model.architecture=llama model.num_key_value_heads=2 parallel.tensor=4",
         COMPRESSED " model.architecture=llama model.num_key_value_heads=2 parallel.tensor=2"},
    [ECH_RULE_compressed_tensor_latents] =
        {COMPRESSED " model.architecture=llama model.kv_lora_rank=8 parallel.tensor=2",
         "model.architecture=llama model.kv_lora_rank=8 parallel.tensor=2",
         COMPRESSED " model.architecture=llama model.kv_lora_rank=8 parallel.data=2"},
    [ECH_RULE_compressed_tensor_adapters] = {COMPRESSED " lora.rank=2 parallel.tensor=2",
                                             "lora.rank=2 parallel.tensor=2",
                                             COMPRESSED " lora.rank=2 parallel.data=2"},
#define APART "parallel.strategy=local_sgd"
    [ECH_RULE_sync_every_together] = {"parallel.sync_every=2", "", "parallel.sync_every=2 " APART},
    [ECH_RULE_outer_rate_together] = {"parallel.outer_learning_rate=1", "",
                                      "parallel.outer_learning_rate=1 " APART},
    [ECH_RULE_outer_momentum_together] = {"parallel.outer_momentum=0.5", "",
                                          "parallel.outer_momentum=0.5 parallel.strategy=diloco"},
    [ECH_RULE_gossips_meets_each_step] = {"parallel.strategy=gossip", "",
                                          "parallel.strategy=gossip parallel.sync_every=4"},
    [ECH_RULE_apart_asynchronous] = {APART " " SCHEDULE "pipedream", SCHEDULE "pipedream", APART},
    [ECH_RULE_apart_delayed] = {APART " " DELAYED, DELAYED, APART},
    [ECH_RULE_apart_replicas] = {APART " parallel.stage_replicas=[2,2]",
                                 "parallel.stage_replicas=[2,2]", APART},
    [ECH_RULE_apart_found_partition] = {APART " parallel.partition=auto", "parallel.partition=auto",
                                        APART},
    [ECH_RULE_apart_zero] = {APART " parallel.zero=1", "parallel.zero=1", APART},
    [ECH_RULE_apart_compressed] = {APART " " COMPRESSED, COMPRESSED, APART},
    [ECH_RULE_apart_updates_elsewhere] = {APART " memory.offload_optimizer=host",
                                          "memory.offload_optimizer=host", APART},
    [ECH_RULE_apart_expert_parallel] = {APART " " EXPERTS " parallel.expert=2",
                                        EXPERTS " parallel.expert=2", APART " " EXPERTS},
    [ECH_RULE_apart_bias_gate] = {APART " " EXPERTS " model.moe_gate=bias",
                                  EXPERTS " model.moe_gate=bias", APART " " EXPERTS},
    [ECH_RULE_apart_dynamic_scale] = {APART " precision.loss_scale=auto",
                                      "precision.loss_scale=auto", APART},
    [ECH_RULE_apart_half_gradients] = {APART " precision.compute=bf16 precision.gradients=compute",
                                       "precision.compute=bf16 precision.gradients=compute",
                                       APART " precision.compute=bf16"},
    [ECH_RULE_apart_skips] = {APART " training.on_nonfinite=skip", "training.on_nonfinite=skip",
                              APART},
    [ECH_RULE_apart_codes] = {"parallel.strategy=local_sgd optimizer.name=adamw8",
                              "optimizer.name=adamw8", APART},
#define SGD     "optimizer.name=sgd"
#define HOGWILD SGD " parallel.strategy=hogwild"
    [ECH_RULE_lock_free_pipelined] = {HOGWILD " parallel.pipeline=2", "parallel.pipeline=2",
                                      HOGWILD},
    [ECH_RULE_lock_free_tensor] = {HOGWILD " parallel.tensor=2", "parallel.tensor=2", HOGWILD},
    [ECH_RULE_lock_free_context] = {HOGWILD " parallel.context=2", "parallel.context=2", HOGWILD},
    [ECH_RULE_lock_free_expert_parallel] = {HOGWILD " parallel.expert=2 " EXPERTS,
                                            "parallel.expert=2 " EXPERTS, HOGWILD},
    [ECH_RULE_lock_free_replicas] = {HOGWILD " parallel.stage_replicas=[2,2]",
                                     "parallel.stage_replicas=[2,2]", HOGWILD},
    [ECH_RULE_lock_free_found_partition] = {HOGWILD " parallel.partition=auto",
                                            "parallel.partition=auto", HOGWILD},
    [ECH_RULE_lock_free_zero] = {HOGWILD " parallel.zero=1", "parallel.zero=1", HOGWILD},
    [ECH_RULE_lock_free_not_direct] = {HOGWILD " parallel.reduction=ring",
                                       "parallel.reduction=ring", HOGWILD},
    [ECH_RULE_lock_free_asynchronous] = {HOGWILD " " SCHEDULE "pipedream", SCHEDULE "pipedream",
                                         HOGWILD},
    [ECH_RULE_lock_free_updates_elsewhere] = {HOGWILD " memory.offload_optimizer=host",
                                              "memory.offload_optimizer=host", HOGWILD},
    [ECH_RULE_lock_free_compressed] = {HOGWILD " " COMPRESSED, COMPRESSED, HOGWILD},
    [ECH_RULE_lock_free_stateful] = {HOGWILD " optimizer.momentum=0.9", "", HOGWILD},
    [ECH_RULE_lock_free_decays] = {HOGWILD " optimizer.weight_decay=0.1",
                                   "optimizer.weight_decay=0.1", HOGWILD},
    [ECH_RULE_lock_free_half] = {HOGWILD " precision.compute=bf16", "precision.compute=bf16",
                                 HOGWILD},
    [ECH_RULE_lock_free_bias_gate] = {HOGWILD " " EXPERTS " model.moe_gate=bias",
                                      EXPERTS " model.moe_gate=bias", HOGWILD " " EXPERTS},
    [ECH_RULE_lock_free_off_processor] = {HOGWILD " parallel.device=queued",
                                          "parallel.device=queued", HOGWILD},
#define RING SGD " parallel.strategy=hogwild_ring"
    [ECH_RULE_clusters_without_ring] = {"parallel.cluster_ranks=2", "",
                                        RING " parallel.cluster_ranks=2"},
    [ECH_RULE_token_updates_without_ring] = {"parallel.token_updates=2", "",
                                             RING " parallel.token_updates=2"},
    [ECH_RULE_token_rate_without_ring] = {"parallel.token_rate=0.1", "",
                                          RING " parallel.token_rate=0.1"},
    [ECH_RULE_token_tolerance_without_ring] = {"parallel.token_tolerance=1e-3", "",
                                               RING " parallel.token_tolerance=1e-3"},
#define CENTRAL "parallel.strategy=central_storage"
    [ECH_RULE_central_pipelined] = {CENTRAL " parallel.pipeline=2", "parallel.pipeline=2", CENTRAL},
    [ECH_RULE_central_tensor] = {CENTRAL " parallel.tensor=2", "parallel.tensor=2", CENTRAL},
    [ECH_RULE_central_context] = {CENTRAL " parallel.context=2", "parallel.context=2", CENTRAL},
    [ECH_RULE_central_expert_parallel] = {CENTRAL " parallel.expert=2 " EXPERTS,
                                          "parallel.expert=2 " EXPERTS, CENTRAL " " EXPERTS},
    [ECH_RULE_central_replicas] = {CENTRAL " parallel.stage_replicas=[2,2]",
                                   "parallel.stage_replicas=[2,2]", CENTRAL},
    [ECH_RULE_central_found_partition] = {CENTRAL " parallel.partition=auto",
                                          "parallel.partition=auto", CENTRAL},
    [ECH_RULE_central_zero] = {CENTRAL " parallel.zero=1", "parallel.zero=1", CENTRAL},
    [ECH_RULE_central_naive_reduction] = {CENTRAL " parallel.reduction=naive",
                                          "parallel.reduction=naive", CENTRAL},
    [ECH_RULE_central_asynchronous] = {CENTRAL " " SCHEDULE "pipedream", SCHEDULE "pipedream",
                                       CENTRAL},
    [ECH_RULE_central_updates_elsewhere] = {CENTRAL " memory.offload_optimizer=host",
                                            "memory.offload_optimizer=host", CENTRAL},
    [ECH_RULE_central_bias_gate] = {CENTRAL " " EXPERTS " model.moe_gate=bias",
                                    EXPERTS " model.moe_gate=bias", CENTRAL " " EXPERTS},
    [ECH_RULE_central_off_processor] = {CENTRAL " parallel.device=queued", "parallel.device=queued",
                                        CENTRAL},
#define SERVED "parallel.strategy=parameter_server"
    [ECH_RULE_servers_unserved] = {"parallel.servers=2", "", "parallel.servers=2 " SERVED},
#define PUSHES "parallel.strategy=asp parallel.server_sync=false"
    [ECH_RULE_pushes_unserved] = {"parallel.server_sync=false", "", PUSHES},
    [ECH_RULE_staleness_unbound] = {"parallel.staleness=1", "",
                                    "parallel.strategy=ssp parallel.staleness=1"},
    [ECH_RULE_pushes_dynamic_scale] = {PUSHES " precision.loss_scale=auto",
                                       "precision.loss_scale=auto", PUSHES},
    [ECH_RULE_ordered_sums] = {"parallel.serve_log=x", "", "parallel.serve_log=x " PUSHES},
#define BACKUPS SERVED " parallel.backup_workers=1"
    [ECH_RULE_ordered_backups] = {"parallel.serve_log=x " BACKUPS, BACKUPS,
                                  "parallel.serve_log=x " PUSHES},
    [ECH_RULE_backups_unsummed] = {"parallel.backup_workers=1", "", BACKUPS},
    [ECH_RULE_backups_pushes] = {BACKUPS " parallel.server_sync=false",
                                 SERVED " parallel.server_sync=false", BACKUPS},
    [ECH_RULE_backups_dynamic_scale] = {BACKUPS " precision.loss_scale=auto",
                                        "precision.loss_scale=auto", BACKUPS},
    [ECH_RULE_backups_experts] = {BACKUPS " " EXPERTS, EXPERTS, BACKUPS},
    [ECH_RULE_backups_narrowed] = {BACKUPS " precision.reduce=fp32 precision.compute=fp64",
                                   "precision.reduce=fp32 precision.compute=fp64",
                                   BACKUPS " precision.reduce=fp32"},
    [ECH_RULE_backups_half_gradients] = {BACKUPS " precision.compute=bf16 precision.gradients="
                                                 "compute",
                                         "precision.compute=bf16 precision.gradients=compute",
                                         BACKUPS},
#define FROZEN "optimizer.rates=*wte*=0"
    [ECH_RULE_frozen_served] = {FROZEN " " SERVED, SERVED, FROZEN},
    [ECH_RULE_frozen_central] = {FROZEN " " CENTRAL, CENTRAL, FROZEN},
    [ECH_RULE_frozen_lock_free] = {FROZEN " " HOGWILD, HOGWILD, FROZEN},
    [ECH_RULE_frozen_kept_at_peer] = {FROZEN " memory.offload_activations=peer",
                                      "memory.offload_activations=peer", FROZEN},
#define LORA "lora.rank=2"
    [ECH_RULE_adapted_served] = {LORA " " SERVED, SERVED, LORA},
    [ECH_RULE_adapted_central] = {LORA " " CENTRAL, CENTRAL, LORA},
    [ECH_RULE_adapted_lock_free] = {LORA " " HOGWILD, HOGWILD, LORA},
    [ECH_RULE_adapted_kept_at_peer] = {LORA " memory.offload_activations=peer",
                                       "memory.offload_activations=peer", LORA},
    [ECH_RULE_adapted_textless] = {"model.architecture=logistic " LORA,
                                   "model.architecture=logistic", LORA},
    [ECH_RULE_encoded_on_cuda] = {"memory.encode=fp8 parallel.device=cuda", "parallel.device=cuda",
                                  "memory.encode=fp8"},
    [ECH_RULE_sparse_not_rectified] = {LOSSLESS, "", LOSSLESS " " RELU},
    [ECH_RULE_sparse_only_experts] = {LOSSLESS " " RELU_EXPERTS, RELU_EXPERTS, LOSSLESS " " RELU},
    [ECH_RULE_codes_of_16_compute_of_16] = {"memory.encode=fp16 precision.compute=bf16",
                                            "precision.compute=bf16", "memory.encode=fp16"},
    [ECH_RULE_norm_codes_codes_of_8] = {"memory.encode_norms=true memory.encode=fp8",
                                        "memory.encode=fp8",
                                        "memory.encode_norms=true memory.encode=fp10"},
    [ECH_RULE_norm_codes_not_narrow] = {"memory.encode_norms=true", "",
                                        "memory.encode_norms=true memory.encode=fp10"},
    [ECH_RULE_norm_codes_kept_rows] = {"memory.encode_norms=true memory.encode=fp10 "
                                       "parallel.sequence=keep",
                                       "parallel.sequence=keep",
                                       "memory.encode_norms=true memory.encode=fp10"},
    [ECH_RULE_norm_codes_routed_parts] =
        {"memory.encode_norms=true memory.encode=fp10 "
         "parallel.tensor=2 parallel.data=2 parallel.expert=2 " EXPERTS,
         "parallel.tensor=2 parallel.data=2 parallel.expert=2 " EXPERTS,
         "memory.encode_norms=true memory.encode=fp10"},
    [ECH_RULE_density_not_sparse] = {"memory.encode_density=0.3", "",
                                     "memory.encode_density=0.3 " LOSSLESS " " RELU},
    [ECH_RULE_served_pipelined] = {SERVED " parallel.pipeline=2", "parallel.pipeline=2", SERVED},
    [ECH_RULE_served_tensor] = {SERVED " parallel.tensor=2", "parallel.tensor=2", SERVED},
    [ECH_RULE_served_context] = {SERVED " parallel.context=2", "parallel.context=2", SERVED},
    [ECH_RULE_served_expert_parallel] = {SERVED " parallel.expert=2 " EXPERTS,
                                         "parallel.expert=2 " EXPERTS, SERVED " " EXPERTS},
    [ECH_RULE_served_zero] = {SERVED " parallel.zero=1", "parallel.zero=1", SERVED},
    [ECH_RULE_served_not_direct] = {SERVED " parallel.reduction=ring", "parallel.reduction=ring",
                                    SERVED},
    [ECH_RULE_served_asynchronous] = {SERVED " " SCHEDULE "pipedream", SCHEDULE "pipedream",
                                      SERVED},
    [ECH_RULE_served_replicas] = {SERVED " parallel.stage_replicas=[2,2]",
                                  "parallel.stage_replicas=[2,2]", SERVED},
    [ECH_RULE_served_found_partition] = {SERVED " parallel.partition=auto",
                                         "parallel.partition=auto", SERVED},
    [ECH_RULE_served_compressed] = {SERVED " " COMPRESSED, COMPRESSED, SERVED},
    [ECH_RULE_served_updates_elsewhere] = {SERVED " memory.offload_optimizer=host",
                                           "memory.offload_optimizer=host", SERVED},
    [ECH_RULE_served_folds] = {SERVED " optimizer.name=sm3", "optimizer.name=sm3", SERVED},
    [ECH_RULE_served_bias_gate] = {SERVED " " EXPERTS " model.moe_gate=bias",
                                   EXPERTS " model.moe_gate=bias", SERVED " " EXPERTS},
    [ECH_RULE_grouped_heads_gpt2] = {"model.num_key_value_heads=2", "",
                                     "model.num_key_value_heads=2 model.architecture=llama"},
    [ECH_RULE_nesterov_no_momentum] = {"optimizer.nesterov=true", "",
                                       "optimizer.nesterov=true optimizer.momentum=0.9"},
    [ECH_RULE_muon_no_momentum] = {"optimizer.name=muon", "",
                                   "optimizer.name=muon optimizer.momentum=0.95"},
    [ECH_RULE_split_valid_valid] = {"data.split=9,1 data.valid=x", "data.valid=x data.split=9",
                                    "data.split=9,1"},
    [ECH_RULE_validation_split_train] = {"training.validate_every=1 data.split=9", "data.split=9",
                                         "training.validate_every=1 data.split=9 data.valid=x"},
#define VALIDATED "training.validate_every=2 data.valid=x"
    [ECH_RULE_patience_one_validation] = {"training.patience=2 data.valid=x", "data.valid=x",
                                          "training.patience=2 " VALIDATED},
    [ECH_RULE_patience_unvalidated] = {"training.patience=2 training.validate_every=2",
                                       "training.validate_every=2",
                                       "training.patience=2 " VALIDATED},
    [ECH_RULE_min_improvement_impatient] =
        {"training.min_improvement=1 " VALIDATED, VALIDATED,
         "training.min_improvement=1 training.patience=1 " VALIDATED},
    [ECH_RULE_keeps_best_unvalidated] = {"checkpoint.keep_best=true", "",
                                         "checkpoint.keep_best=3 data.split=9,1"},
    [ECH_RULE_evaluators_one_checkpoint] = {"parallel.evaluators=1 data.valid=x checkpoint.every=0",
                                            "checkpoint.every=0",
                                            "parallel.evaluators=1 data.valid=x "
                                            "checkpoint.every=2"},
    [ECH_RULE_evaluators_unvalidated] = {"parallel.evaluators=1 checkpoint.every=2",
                                         "checkpoint.every=2",
                                         "parallel.evaluators=2 data.split=9,1 checkpoint.every=2"},
#define WIDE_STREAM "precision.compute=bf16 precision.residual=fp32"
#define LOGISTIC    "model.architecture=logistic"
    [ECH_RULE_samples_text_textless] = {LOGISTIC " log.sample=x", LOGISTIC, "log.sample=x"},
    [ECH_RULE_sample_every_no_prompts] = {"log.sample_every=2", "",
                                          "log.sample_every=2 log.sample=x"},
#define HISTOGRAMS "log.histograms=2"
    [ECH_RULE_histograms_asynchronous] = {HISTOGRAMS " " SCHEDULE "pipedream", SCHEDULE "pipedream",
                                          HISTOGRAMS},
    [ECH_RULE_histograms_apart] = {HISTOGRAMS " " APART, APART, HISTOGRAMS},
    [ECH_RULE_histograms_lock_free] = {HISTOGRAMS " " HOGWILD, HOGWILD, HISTOGRAMS},
    [ECH_RULE_histograms_served] = {HISTOGRAMS " " SERVED, SERVED, HISTOGRAMS},
    [ECH_RULE_histograms_delayed] = {HISTOGRAMS " " DELAYED, DELAYED, HISTOGRAMS},
    [ECH_RULE_histograms_compressed] = {HISTOGRAMS " parallel.compression=powersgd",
                                        "parallel.compression=powersgd", HISTOGRAMS},
    [ECH_RULE_histograms_features] = {HISTOGRAMS " " LOGISTIC, LOGISTIC, HISTOGRAMS},
    [ECH_RULE_tensor_textless] = {LOGISTIC " parallel.tensor=2", LOGISTIC, "parallel.tensor=2"},
    [ECH_RULE_context_textless] = {LOGISTIC " parallel.context=2", LOGISTIC, "parallel.context=2"},
    [ECH_RULE_sequence_chunks_textless] = {LOGISTIC " memory.sequence_chunks=2", LOGISTIC,
                                           "memory.sequence_chunks=2"},
#define VGG    "model.architecture=vgg training.micro_batch_size=2"
#define RESNET "model.architecture=resnet training.micro_batch_size=2"
    [ECH_RULE_norm_of_micro_batch_open_micro_batch] = {"model.architecture=resnet", "", RESNET},
#define SYNC "model.norm_sync=true parallel.data=2"
    [ECH_RULE_norm_sync_norm_groups] = {RESNET " " SYNC " model.norm_samples=2",
                                        RESNET " model.norm_samples=2", RESNET " " SYNC},
    [ECH_RULE_norm_sync_open_data] = {RESNET " model.norm_sync=true parallel.data=auto",
                                      RESNET " parallel.data=auto", RESNET " " SYNC},
    [ECH_RULE_norm_sync_unequal_replicas] = {RESNET
                                             " model.norm_sync=true parallel.stage_replicas=[2,1]",
                                             RESNET " parallel.stage_replicas=[2,1]",
                                             RESNET " " SYNC},
    [ECH_RULE_norm_sync_asynchronous] = {RESNET " " SYNC " " SCHEDULE "pipedream",
                                         RESNET " " SCHEDULE "pipedream", RESNET " " SYNC},
    [ECH_RULE_norm_sync_apart] = {RESNET " " SYNC " " APART, RESNET " " APART, RESNET " " SYNC},
    [ECH_RULE_norm_sync_pushes] = {RESNET " " SYNC " " PUSHES, RESNET " " PUSHES, RESNET " " SYNC},
    [ECH_RULE_norm_sync_backups] = {RESNET " " SYNC " " BACKUPS, RESNET " " BACKUPS,
                                    RESNET " " SYNC},
    [ECH_RULE_norm_sync_lock_free] = {RESNET " " SYNC " " HOGWILD, RESNET " " HOGWILD,
                                      RESNET " " SYNC},
    [ECH_RULE_images_on_cuda] = {VGG " parallel.device=cuda", "parallel.device=cuda", VGG},
    [ECH_RULE_images_wide_stream] = {VGG " " WIDE_STREAM, WIDE_STREAM, VGG},
    [ECH_RULE_half_images_reversible] = {RESNET " model.reversible=true precision.compute=bf16",
                                         "model.reversible=true precision.compute=bf16",
                                         RESNET " precision.compute=bf16"},
};

/* As the families mark them. */
static const char *unread_by(const char *assignments)
{
    if (strstr(assignments, "=vgg"))
        return "data.tokenizer model.vocab_size model.norm_samples model.norm_sync";
    if (strstr(assignments, "=resnet")) return "data.tokenizer model.vocab_size";
    if (strstr(assignments, "=logistic"))
        return "data.tokenizer model.num_classes model.norm_samples model.norm_sync";
    return "model.num_classes model.norm_samples model.norm_sync";
}

static ech_config *make(const char *assignments)
{
    ech_config *config;
    const ech_config_names names[] = {
        {"models", "gpt2 llama mixtral qwen3_moe logistic vgg resnet"},
        {"optimizers", "adamw sgd muon sm3 adamw8"},
        {"curves", "cosine"},
        {"comms", "local mpi ucx nccl"},
        {"devices", "cpu cuda queued"},
        {"reductions", "direct ring naive torus hierarchical library"},
        {"gates", "topk switch gshard noisy_topk hierarchical bias dense"},
        {"losses", "cross_entropy"}};
    char *words = ech_strdup(assignments), *rest = NULL;
    assert_int_equal(ech_config_create(names, sizeof names / sizeof *names, &config), ECH_OK);
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        assert_int_equal(ech_config_set(config, word), ECH_OK);
    free(words);
    ech_config_mark_unread(config, unread_by(assignments), "");
    return config;
}

static const ech_rule *broken(const ech_config *config)
{
    const ech_rule *of_run = ech_rule_broken(config, ECH_RULES_OF_RUN);
    return of_run ? of_run : ech_rule_broken(config, ECH_RULES_OF_GRID);
}

TEST(test_each)
{
    for (int r = 0; r < ECH_RULES; r++) {
        const ech_rule *rule = &ech_rules[r];
        assert_non_null(trials[r].both);
        ech_config *both = make(trials[r].both), *other = make(trials[r].other),
                   *feature = make(trials[r].feature);
        assert_ptr_equal(broken(both), rule);
        assert_true(ech_feature_is_on(other, rule->other));
        assert_false(ech_feature_is_on(other, rule->feature));
        assert_true(ech_feature_is_on(feature, rule->feature));
        assert_false(ech_feature_is_on(feature, rule->other));
        assert_null(broken(other));
        assert_null(broken(feature));
        ech_config_destroy(both);
        ech_config_destroy(other);
        ech_config_destroy(feature);
    }
}

/* ---- hints ---- */

/* What a value brings along that hints offer: by a preset, by its family, or by further words. */
static const char *beside(const char *assignment)
{
    if (strcmp(assignment, "parallel.strategy=asp") == 0) return "parallel.server_sync=false";
    if (strcmp(assignment, "model.architecture=mixtral") == 0) return "model.num_local_experts=4";
    if (strcmp(assignment, "optimizer.name=sgd") == 0) return "optimizer.momentum=0";
    return "";
}

/* Appends the words, without assignments of the key. */
static void append_without(const char *words, const char *key, ech_text *out)
{
    char *copy = ech_strdup(words), *rest = NULL;
    size_t n = strlen(key);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strncmp(word, key, n) != 0 || word[n] != '=') ech_text_append(out, "%s ", word);
    free(copy);
}

/* Whether the run of `words` keeps the rule without its assignments of the key, and with
 * `assignment` ("": none). */
static bool keeps(int r, const char *words, const char *key, const char *assignment)
{
    ECH_FREED_TEXT run = {0};
    append_without(words, key, &run);
    ech_text_append(&run, "%s %s", assignment, beside(assignment));
    ech_config *config = make(run.at);
    bool kept = broken(config) != &ech_rules[r];
    ech_config_destroy(config);
    return kept;
}

/* "KEY = VALUE", and what " and KEY = VALUE" adds. False: `at` does not begin so. */
static bool follow_value(int r, const char *at, bool *kept)
{
    char key[100], value[100], second[100], of_second[100], word[256];
    ECH_FREED_TEXT words = {0};
    int n = 0;
    if (sscanf(at, "%99[a-z_.0-9] = %99[^ ,;]%n", key, value, &n) < 2 || !strchr(key, '.'))
        return false;
    ech_text_append(&words, "%s", trials[r].both);
    if (sscanf(at + n, " and %99[a-z_.0-9] = %99[^ ,;]", second, of_second) == 2) {
        ech_text_free(&words);
        append_without(trials[r].both, second, &words);
        ech_text_append(&words, "%s=%s", second, of_second);
    }
    snprintf(word, sizeof word, "%s=%s", key, value);
    *kept = keeps(r, words.at, key, word);
    return true;
}

static bool begins(const char *at, const char *words)
{
    return strncmp(at, words, strlen(words)) == 0;
}

/* Follows what a hint says at `at`: what to remove, or a value. False: it says none of these. */
static bool follow(int r, const char *at, bool *kept)
{
    const char *both = trials[r].both;
    const char *own = ech_feature_key(ech_rules[r].feature);
    const char *other = ech_feature_key(ech_rules[r].other);
    char key[100], word[256];
    double number;
    if (begins(at, "remove this key"))
        *kept = keeps(r, both, own, "");
    else if (begins(at, "remove that key"))
        *kept = keeps(r, both, other, "");
    else if (begins(at, "remove one of the two keys"))
        *kept = keeps(r, both, own, "") || keeps(r, both, other, "");
    else if (sscanf(at, "remove %99[a-z_.0-9]", key) == 1 && strchr(key, '.'))
        *kept = keeps(r, both, key, "");
    else if (sscanf(at, "use %lf", &number) == 1) {
        snprintf(word, sizeof word, "%s=%g", own, number);
        *kept = keeps(r, both, own, word);
    } else
        return follow_value(r, at, kept);
    return true;
}

/* True at a word of the hint that begins an offer, not the second part of one. */
static bool is_offer(const char *hint, const char *at)
{
    static const char *const parts[] = {" and ", " and use "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = strlen(parts[i]);
        if ((size_t)(at - hint) >= n && strncmp(at - n, parts[i], n) == 0) return false;
    }
    return at == hint || at[-1] == ' ';
}

/* Hints in which the reader chooses a number or one of several ways. */
static bool is_free(const char *hint)
{
    static const char *const all[] = {
        "set a power of two, for example 1024",
        "use one of the two",
        "use parallel.data instead",
        "set parallel.pipeline",
        "set parallel.data",
        "set data.shares as well",
        "set optimizer.momentum above 0, for example 0.9",
        "use model.router_importance_coef and model.router_load_coef",
        "set training.micro_batch_size, or model.norm_samples to the samples of a norm"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(hint, all[i]) == 0) return true;
    return false;
}

/* Each offer of each hint leads to a run that keeps the rule. */
TEST(test_hints)
{
    for (int r = 0; r < ECH_RULES; r++) {
        const char *hint = ech_rules[r].hint, *key = ech_feature_key(ech_rules[r].feature);
        int offers = 0;
        for (const char *at = hint; *at; at++) {
            bool kept;
            if (!is_offer(hint, at) || !follow(r, at, &kept)) continue;
            if (!kept) fail_msg("%s: %s: \"%s\" does not help", key, hint, at);
            offers++;
        }
        if (!offers != is_free(hint)) fail_msg("%s: %s: %d offers", key, hint, offers);
    }
}

TEST(test_error)
{
    ech_config *config = make("parallel.virtual_stages=3");
    assert_int_equal(ech_rules_check(config), ECH_EUSAGE);
    assert_string_equal(ech_last_error(),
                        "command line: parallel.virtual_stages = 3: not with parallel.schedule = "
                        "1f1b: the schedule has one virtual stage per rank; use 1, or "
                        "parallel.schedule = interleaved");
    ech_config_destroy(config);
}

/* One error a feature, and the features of other keys beside it. */
TEST(test_all_at_once)
{
    ech_config *config = make("parallel.vertical_sync=true parallel.weight_stashing=false "
                              "optimizer.nesterov=true");
    capture log = begin_capture();
    ech_status status = ech_rules_check(config);
    char *lines = end_capture(&log);
    assert_int_equal(status, ECH_EUSAGE);
    assert_string_equal(
        lines,
        "echelon: error: command line: parallel.vertical_sync = true: not with parallel.schedule = "
        "1f1b: only parallel.schedule = pipedream uses this key; remove this key, or set "
        "parallel.schedule = pipedream\n"
        "echelon: error: command line: parallel.weight_stashing = false: not with "
        "parallel.schedule = 1f1b: only parallel.schedule = pipedream uses this key; remove "
        "this key, or set parallel.schedule = pipedream\n"
        "echelon: error: command line: optimizer.nesterov = true: not with optimizer.momentum = "
        "0: Nesterov's method needs momentum; set optimizer.momentum above 0, for example 0.9\n");
    free(lines);
    ech_config_destroy(config);
}

/* Help has a line for each rule, and its reason. */
TEST(test_help)
{
    ech_text text[] = {[ECH_RULE_FORBIDDEN] = {0}, [ECH_RULE_UNBUILT] = {0}};
    ech_rules_help(ECH_RULE_FORBIDDEN, &text[ECH_RULE_FORBIDDEN]);
    ech_rules_help(ECH_RULE_UNBUILT, &text[ECH_RULE_UNBUILT]);
    for (int r = 0; r < ECH_RULES; r++) {
        ech_text words = {0}, lines = {0};
        ech_text_append(&words, "%s; %s", ech_rules[r].reason, ech_rules[r].hint);
        ech_config_append_wrapped(words.at, 6, &lines);
        assert_non_null(strstr(text[ech_rules[r].kind].at, lines.at));
        ech_text_free(&words);
        ech_text_free(&lines);
    }
    assert_non_null(strstr(text[ECH_RULE_UNBUILT].at,
                           "  memory.sequence_chunks above 1, with parallel.context above 1:\n"));
    ech_text_free(&text[ECH_RULE_FORBIDDEN]);
    ech_text_free(&text[ECH_RULE_UNBUILT]);
}

/* Help of one key has the rules that name it on either side, and no others. */
TEST(test_help_of_a_key)
{
    ech_text text = {0};
    ech_rules_help_key("parallel.context", &text);
    assert_non_null(
        strstr(text.at, "  memory.sequence_chunks above 1, with parallel.context above 1:\n"));
    assert_non_null(strstr(text.at, "  parallel.context above 1, with model.architecture"));
    assert_non_null(strstr(text.at, "ulysses and parallel.context above 1, with"));
    for (const char *at = text.at; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, "  ", 2) != 0 || at[2] == ' ') continue;
        size_t n = strcspn(at, "\n");
        const char *named = strstr(at, "parallel.context ");
        assert_true(named && named < at + n);
    }
    ech_text none = {0};
    ech_rules_help_key("log.every", &none);
    assert_int_equal(none.n, 0);
    ech_text_free(&text);
    ech_text_free(&none);
}
