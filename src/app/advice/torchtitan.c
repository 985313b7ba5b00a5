/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of torchtitan's configuration manager. The model is one of its registry (--module,
 * --config), so no key of the model is emitted. ZeRO 3 is its FSDP, ZeRO 2 the same without freeing
 * weights between forward and backward, and without ZeRO data ranks are replicas.
 */
#include "app/advice/emit.h"

static void emit_data(ech_emitted *out, const ech_emit_row *row)
{
    const ech_config *config = out->design->config;
    int64_t stage = config->parallel.zero, data = out->design->layout->replicas[0];
    const char *sharded = "--parallelism.data_parallel_shard_degree";
    ech_emit_add_number(out, row->name, stage == 0 ? data : 1);
    ech_emit_add_number(out, sharded, stage == 0 ? 1 : data);
    if (stage > 0)
        ech_emit_add(out, "--parallelism.fsdp_reshard_after_forward",
                     stage == 3 ? "always" : "never");
    if (stage == 1)
        ech_emit_miss(out, row->key,
                      "torchtitan has 0, 2 and 3; 2 is emitted, which also shards "
                      "gradients");
}

static void emit_batch(ech_emitted *out, const ech_emit_row *row)
{
    const ech_layout *layout = out->design->layout;
    int64_t micro = out->design->config->training.micro_batch_size;
    if (layout->stages == 1) {
        ech_emit_add_number(out, row->name, micro);
        return;
    }
    ech_emit_add_number(out, row->name, micro * layout->micro_batches / layout->replicas[0]);
    ech_emit_add_number(out, "--parallelism.pipeline_parallel_microbatch_size", micro);
    ech_emit_add(out, "--training.disable_cuda_graphs", NULL); /* else it refuses pipelines */
}

/* torchtitan gives each of n virtual stages as many layers, the first ones one more, after a and b
 * layers are added for the embedding and the head. */
static bool is_split(const int *layers, int n, int all, int a, int b)
{
    int each = (all + a + b) / n, more = (all + a + b) % n;
    if (each < 1 || a > each || b > each) return false;
    for (int s = 0; s < n; s++) {
        int count = each + (s < more) - (s == 0 ? a : 0) - (s == n - 1 ? b : 0);
        if (layers[s] != count) return false;
    }
    return true;
}

static bool find_split(const int *layers, int n, int all, int *a, int *b)
{
    for (*a = 0; *a <= layers[0] + layers[1]; ++*a)
        for (*b = 0; *b <= layers[0] + layers[1]; ++*b)
            if (is_split(layers, n, all, *a, *b)) return true;
    return false;
}

static void emit_stages(ech_emitted *out, const ech_emit_row *row)
{
    int layers[ECH_EMIT_STAGES], a, b, v = out->design->layout->chunks;
    int all = (int)out->design->config->model.num_hidden_layers;
    int n = ech_emit_layers(out->design, false, layers);
    if (n == 0 || !find_split(layers, n, all, &a, &b)) {
        ech_emit_miss(out, row->key, "torchtitan cuts layers by another rule; stages differ");
        return;
    }
    ech_emit_add_number(out, row->name, a);
    ech_emit_add_number(out, "--parallelism.pipeline_parallel_last_stage_less_layers", b);
    if (v <= 2) return; /* it has 1 or 2 chunks by its schedule */
    int each = (all + a + b + n - 1) / n;
    if ((all + a + b + each - 1) / each == n)
        ech_emit_add_number(out, "--parallelism.pipeline_parallel_layers_per_stage", each);
    else
        ech_emit_miss(out, "parallel.virtual_stages",
                      "torchtitan cannot cut %d layers into %d "
                      "virtual stages",
                      all, n);
}

static void emit_expert(ech_emitted *out, const ech_emit_row *row)
{
    const ech_config *config = out->design->config;
    const ech_layout *layout = out->design->layout;
    int64_t shards = layout->context * layout->tensor;
    if (config->parallel.zero > 0) shards *= layout->replicas[0];
    if (shards % config->parallel.expert)
        ech_emit_refuse(out, row->key,
                        "experts are sharded only over ranks that shard weights; set "
                        "parallel.zero=3");
    else
        ech_emit_add_number(out, row->name, config->parallel.expert);
}

static const ech_emit_row rows[] = {
    {"parallel.pipeline", "--parallelism.pipeline_parallel_degree", NULL, NULL, NULL},
    {"parallel.tensor", "--parallelism.tensor_parallel_degree", NULL, NULL, NULL},
    {"parallel.context", "--parallelism.context_parallel_degree", NULL, NULL, NULL},
    {"parallel.context_method", "", "ring=", ech_emit_has_context, NULL},
    {"parallel.expert", "--parallelism.expert_parallel_degree", NULL, ech_emit_has_experts,
     emit_expert},
    {"parallel.zero", "--parallelism.data_parallel_replicate_degree", "0= 2= 3=", NULL, emit_data},
    {"parallel.sequence", "--parallelism.no-enable_sequence_parallel",
     "false=+ true=", ech_emit_has_tensor, NULL},
    {"parallel.schedule", "--parallelism.pipeline_parallel_schedule",
     "1f1b=1F1B gpipe=GPipe interleaved=Interleaved1F1B zero-bubble-v=ZBVZeroBubble",
     ech_emit_has_stages, NULL},
    {"parallel.partition", "--parallelism.pipeline_parallel_first_stage_less_layers", NULL,
     ech_emit_has_stages, emit_stages},
    {"training.micro_batch_size", "--training.local_batch_size", NULL, NULL, emit_batch},
    {"training.global_batch_size", "--training.global_batch_size", NULL, NULL, NULL},
    {"data.sequence_length", "--training.seq_len", NULL, NULL, NULL},
    {"precision.compute", "--training.mixed_precision_param", "bf16=bfloat16 fp32=float32", NULL,
     NULL},
    {"memory.offload_optimizer", "", "none=", NULL, NULL},
    /* a subcommand of its parser, so the last row */
    {"memory.recompute", "activation-checkpoint:none", "none=+ selective= full=", NULL, NULL},
    {"memory.recompute", "activation-checkpoint:selective", "none= selective=+ full=", NULL, NULL},
    {"memory.recompute", "activation-checkpoint:full", "none= selective= full=+", NULL, NULL},
    {0}};

static const struct ech_emit_memory memory[] = {
    {NULL, "FSDP gathers and reduces whole transformer blocks, in buffers of its own"},
    {NULL, "PyTorch's allocator rounds sizes up, and fragments; NCCL and the kernels' workspaces "
           "are not in the plan"},
    {NULL, "selective activation checkpointing keeps other tensors than attention's inputs"},
    {NULL, "each rank has the whole table of rotary angles"},
    {ech_emit_has_stages, "without ZeRO 3 every stage has a copy of what its microbatches share"},
    {ech_emit_has_experts, "experts are not cut by tensor ranks: expert ranks are taken from them"},
    {ech_emit_is_tied, "tied embeddings are not tied between stages"},
    {0}};

const ech_emit_system ech_emit_torchtitan = {
    .name = "torchtitan",
    .usage = "torchtitan.train --module MODEL --config CONFIG $(grep -v '^#' FILE).",
    .parser = "torchtitan 0.3.0",
    .sections = "parallel memory precision",
    .row = rows,
    .memory = memory};
