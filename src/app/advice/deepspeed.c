/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSpeed's configuration, a JSON object. Its pipeline, with 1F1B and its own partition, is built
 * by the user's program (PipelineModule), which may read pipeline.stages from the configuration.
 */
#include "app/advice/emit.h"

static bool has_clip(const ech_design *design)
{
    return design->config->optimizer.clip_norm > 0;
}

static void emit_accumulation(ech_emitted *out, const ech_emit_row *row)
{
    const ech_layout *layout = out->design->layout;
    ech_emit_add_number(out, row->name, layout->micro_batches / layout->replicas[0]);
}

static void emit_zero(ech_emitted *out, const ech_emit_row *row)
{
    int64_t stage = out->design->config->parallel.zero;
    if (stage > 1 && ech_emit_has_stages(out->design))
        ech_emit_miss(out, row->key, "deepspeed has 0 and 1 with a pipeline");
    else
        ech_emit_add_number(out, row->name, stage);
}

static void emit_context(ech_emitted *out, const ech_emit_row *row)
{
    if (out->design->config->parallel.context_method == ECH_CONTEXT_ULYSSES)
        ech_emit_add_number(out, row->name, out->design->layout->context);
    else
        ech_emit_refuse(out, row->key,
                        "it has context parallelism with parallel.context_method=ulysses");
}

static void emit_expert(ech_emitted *out, const ech_emit_row *row)
{
    int64_t expert = out->design->config->parallel.expert;
    if (expert == 1) return;
    ech_emit_add(out, "expert_parallel.enabled", NULL);
    ech_emit_add_number(out, row->name, expert);
    ech_emit_add_number(out, "expert_parallel.expert_tensor_parallel_size",
                        out->design->layout->tensor);
}

/* Its layers recompute what the program wraps; the switch is in the program, too. */
static void emit_recompute(ech_emitted *out, const ech_emit_row *row)
{
    if (out->design->config->memory.recompute == ECH_RECOMPUTE_NONE) return;
    if (out->design->config->memory.recompute == ECH_RECOMPUTE_FULL &&
        ech_emit_has_stages(out->design)) {
        int64_t layers = out->design->config->memory.recompute_blocks;
        ech_emit_add_number(out, row->name, layers > 0 ? layers : 1);
    } else {
        ech_emit_miss(out, row->key, "deepspeed's program wraps layers in checkpoint() itself");
    }
}

/* `least`: the ZeRO stage from which DeepSpeed offloads this to the host; to disk from 3 on.
 * folder: the argument with the disk's folder. */
static void emit_offload(ech_emitted *out, const ech_emit_row *row, int64_t to, int64_t least,
                         const char *folder)
{
    const ech_config *config = out->design->config;
    int64_t needs = to == ECH_OFFLOAD_DISK ? 3 : least;
    if (to == ECH_OFFLOAD_NONE) return;
    if (config->parallel.zero < needs) {
        ech_emit_miss(out, row->key, "deepspeed offloads this from parallel.zero=%d on",
                      (int)needs);
        return;
    }
    ech_emit_add(out, row->name, to == ECH_OFFLOAD_DISK ? "nvme" : "cpu");
    if (to != ECH_OFFLOAD_DISK) return;
    if (ech_config_is_auto(config->memory.offload_directory))
        ech_emit_miss(out, row->key, "deepspeed needs a folder: set memory.offload_directory");
    else
        ech_emit_add(out, folder, config->memory.offload_directory);
}

static void emit_optimizer(ech_emitted *out, const ech_emit_row *row)
{
    emit_offload(out, row, out->design->config->memory.offload_optimizer, 1,
                 "zero_optimization.offload_optimizer.nvme_path");
}

static void emit_parameters(ech_emitted *out, const ech_emit_row *row)
{
    emit_offload(out, row, out->design->config->memory.offload_parameters, 3,
                 "zero_optimization.offload_param.nvme_path");
}

static const ech_emit_row rows[] = {
    {"training.global_batch_size", "train_batch_size", NULL, NULL, NULL},
    {"training.micro_batch_size", "train_micro_batch_size_per_gpu", NULL, NULL, NULL},
    {"parallel.data", "gradient_accumulation_steps", NULL, NULL, emit_accumulation},
    {"parallel.zero", "zero_optimization.stage", NULL, NULL, emit_zero},
    {"memory.offload_optimizer", "zero_optimization.offload_optimizer.device", NULL, NULL,
     emit_optimizer},
    {"memory.offload_parameters", "zero_optimization.offload_param.device", NULL, NULL,
     emit_parameters},
    {"parallel.tensor", "tensor_parallel.autotp_size", NULL, ech_emit_has_tensor, NULL},
    {"parallel.sequence", "", "false=", ech_emit_has_tensor, NULL},
    {"parallel.pipeline", "pipeline.stages", NULL, ech_emit_has_stages, NULL},
    {"parallel.schedule", "", "1f1b=", ech_emit_has_stages, NULL},
    {"parallel.context", "sequence_parallel_size", NULL, ech_emit_has_context, emit_context},
    {"parallel.context_method", "", "ulysses= ring=", NULL, NULL},
    {"parallel.expert", "expert_parallel.autoep_size", NULL, ech_emit_has_experts, emit_expert},
    {"memory.recompute", "pipeline.activation_checkpoint_interval", "none= full=", NULL,
     emit_recompute},
    {"precision.compute", "bf16.enabled", "bf16=+ fp16= fp32=", NULL, NULL},
    {"precision.compute", "fp16.enabled", "bf16= fp16=+ fp32=", NULL, NULL},
    {"precision.gradients", "data_types.grad_accum_dtype", "fp32=fp32 compute=", NULL, NULL},
    {"optimizer.clip_norm", "gradient_clipping", NULL, has_clip, NULL},
    {0}};

static const struct ech_emit_memory memory[] = {
    {NULL, "ZeRO reduces and gathers in buckets of 5e8 elements each (reduce_bucket_size, "
           "allgather_bucket_size), which it allocates beside the gradients"},
    {NULL, "PyTorch's allocator rounds sizes up, and fragments; NCCL and the kernels' workspaces "
           "are not in the plan"},
    {NULL, "parameters below 1e5 elements stay whole with ZeRO 3"},
    {ech_emit_has_tensor, "embeddings and heads may stay whole on each tensor rank"},
    {ech_emit_is_tied, "the tied embedding is on the first and the last stage, each with optimizer "
                       "states"},
    {0}};

const ech_emit_system ech_emit_deepspeed = {.name = "deepspeed",
                                            .usage = "the program's deepspeed_config.",
                                            .parser = "deepspeed 0.19.8",
                                            .sections = "parallel memory precision",
                                            .json = true,
                                            .row = rows,
                                            .memory = memory};
