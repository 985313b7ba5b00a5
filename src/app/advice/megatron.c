/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of Megatron-LM (megatron/training/arguments.py), whose ranks are numbered as ours: by
 * stage, data, context, tensor. Its pipeline schedules are 1F1B and interleaved 1F1B. ZeRO 1 is its
 * distributed optimizer; ZeRO 2 and 3 are Megatron-FSDP.
 */
#include <math.h>
#include <string.h>

#include "app/advice/emit.h"

static bool has_fewer_kv_heads(const ech_design *design)
{
    return design->config->model.num_key_value_heads < design->config->model.num_attention_heads;
}

static bool is_rotary(const ech_design *design)
{
    return design->config->model.position_encoding == ECH_POSITION_ROTARY;
}

static bool has_rms(const ech_design *design)
{
    return design->config->model.norm == ECH_NORM_RMS;
}

static bool has_layer_norm(const ech_design *design)
{
    return !has_rms(design);
}

static bool is_fixed_schedule(const ech_design *design)
{
    const char *schedule = design->config->parallel.schedule;
    return strcmp(schedule, "1f1b") == 0 || strcmp(schedule, "interleaved") == 0;
}

/* "Ett|ttt|ttL": the layers of each stage or virtual stage. A schedule that Megatron does not have
 * may place chunks otherwise; then each stage gets as many layers as here. */
static void emit_stages(ech_emitted *out, const ech_emit_row *row)
{
    int layers[ECH_EMIT_STAGES];
    int n = ech_emit_layers(out->design, !is_fixed_schedule(out->design), layers);
    ECH_FREED_TEXT text = {0};
    if (n == 0) {
        ech_emit_miss(out, "parallel.partition", "the model has blocks that are not layers");
        return;
    }
    for (int s = 0; s < n; s++) {
        ech_text_append(&text, "%s", s == 0 ? "E" : "|");
        if (layers[s] > 0) ech_text_append(&text, "t*%d", layers[s]);
        if (s == n - 1) ech_text_append(&text, "L");
    }
    ech_emit_add(out, row->name, text.at);
}

static void emit_zero(ech_emitted *out, const ech_emit_row *row)
{
    int64_t stage = out->design->config->parallel.zero;
    if (stage == 0) return;
    ech_emit_add(out, row->name, NULL);
    if (stage == 1) return;
    ech_emit_add(out, "--use-megatron-fsdp", NULL);
    ech_emit_add(out, "--data-parallel-sharding-strategy",
                 stage == 2 ? "optim_grads" : "optim_grads_params");
    ech_emit_add(out, "--ckpt-format", "fsdp_dtensor");
}

/* Megatron refuses experts of tensor ranks without it. */
static void emit_sequence(ech_emitted *out, const ech_emit_row *row)
{
    const ech_design *design = out->design;
    if (design->config->parallel.sequence == ECH_SEQUENCE_TRUE)
        ech_emit_add(out, row->name, NULL);
    else if (design->config->parallel.sequence == ECH_SEQUENCE_KEEP)
        ech_emit_miss(out, row->key, "megatron has true and false");
    else if (ech_emit_has_experts(design) && ech_emit_has_tensor(design))
        ech_emit_miss(out, row->key,
                      "megatron trains experts with tensor ranks only with parallel.sequence=true");
}

static void emit_recompute(ech_emitted *out, const ech_emit_row *row)
{
    const ech_config *config = out->design->config;
    int64_t layers = config->memory.recompute_blocks;
    if (config->memory.recompute == ECH_RECOMPUTE_NONE) return;
    bool full = config->memory.recompute == ECH_RECOMPUTE_FULL;
    ech_emit_add(out, row->name, full ? "full" : "selective");
    if (!full) return;
    ech_emit_add(out, "--recompute-method", "uniform");
    ech_emit_add_number(out, "--recompute-num-layers", layers > 0 ? layers : 1);
}

static void emit_offload(ech_emitted *out, const ech_emit_row *row)
{
    const ech_config *config = out->design->config;
    if (config->memory.offload_optimizer == ECH_OFFLOAD_NONE) return;
    if (config->memory.offload_optimizer == ECH_OFFLOAD_DISK || config->parallel.zero != 1) {
        ech_emit_miss(out, row->key, "megatron has none, and host with parallel.zero=1");
        return;
    }
    ech_emit_add(out, row->name, NULL);
    ech_emit_add(out, "--use-precision-aware-optimizer", NULL);
}

static void emit_kv_heads(ech_emitted *out, const ech_emit_row *row)
{
    ech_emit_add(out, "--group-query-attention", NULL);
    ech_emit_add_number(out, row->name, out->design->config->model.num_key_value_heads);
}

static void emit_rotary_base(ech_emitted *out, const ech_emit_row *row)
{
    ech_emit_add_number(out, row->name, (int64_t)out->design->config->model.rope_theta);
}

/* Biases of the output projection and the feed-forward layers are one switch there. */
static void emit_biases(ech_emitted *out, const ech_emit_row *row)
{
    const ech_config *config = out->design->config;
    if (!config->model.o_bias && !config->model.mlp_bias)
        ech_emit_add(out, row->name, NULL);
    else if (!config->model.o_bias || !config->model.mlp_bias)
        ech_emit_miss(out, row->key, "megatron has o_bias and mlp_bias together");
    if (config->model.qkv_bias && !config->model.o_bias)
        ech_emit_add(out, "--add-qkv-bias", NULL);
    else if (!config->model.qkv_bias && config->model.o_bias)
        ech_emit_miss(out, "model.qkv_bias", "megatron has it wherever it has model.o_bias");
}

/* One argument drops out both. */
static void emit_embedding_dropout(ech_emitted *out, const ech_emit_row *row)
{
    const ech_config *config = out->design->config;
    if (fabs(config->model.embd_pdrop - config->model.resid_pdrop) > 0)
        ech_emit_miss(out, row->key, "megatron has the same as model.resid_pdrop");
}

static const ech_emit_row rows[] = {
    {"parallel.pipeline", "--pipeline-model-parallel-size", NULL, NULL, NULL},
    {"parallel.tensor", "--tensor-model-parallel-size", NULL, NULL, NULL},
    {"parallel.context", "--context-parallel-size", NULL, NULL, NULL},
    {"parallel.context_method", "--cp-comm-type", "ring=p2p ulysses=a2a", ech_emit_has_context,
     NULL},
    {"parallel.expert", "--expert-model-parallel-size", NULL, ech_emit_has_experts, NULL},
    {"parallel.sequence", "--sequence-parallel", "false= true=+", NULL, emit_sequence},
    {"parallel.schedule", "", "1f1b= interleaved=", ech_emit_has_stages, NULL},
    {"parallel.partition", "--pipeline-model-parallel-layout", NULL, ech_emit_has_stages,
     emit_stages},
    {"parallel.zero", "--use-distributed-optimizer", NULL, NULL, emit_zero},
    {"memory.recompute", "--recompute-granularity", NULL, NULL, emit_recompute},
    {"memory.offload_optimizer", "--optimizer-cpu-offload", NULL, NULL, emit_offload},
    {"training.micro_batch_size", "--micro-batch-size", NULL, NULL, NULL},
    {"training.global_batch_size", "--global-batch-size", NULL, NULL, NULL},
    {"data.sequence_length", "--seq-length", NULL, NULL, NULL},
    {"precision.compute", "--bf16", "bf16=+ fp16= fp32=", NULL, NULL},
    {"precision.compute", "--fp16", "bf16= fp16=+ fp32=", NULL, NULL},
    {"precision.gradients", "--grad-reduce-in-bf16", "fp32= compute=+", NULL, NULL},
    {"model.num_hidden_layers", "--num-layers", NULL, NULL, NULL},
    {"model.hidden_size", "--hidden-size", NULL, NULL, NULL},
    {"model.intermediate_size", "--ffn-hidden-size", NULL, NULL, NULL},
    {"model.num_attention_heads", "--num-attention-heads", NULL, NULL, NULL},
    {"model.num_key_value_heads", "--num-query-groups", NULL, has_fewer_kv_heads, emit_kv_heads},
    {"model.head_dim", "--kv-channels", NULL, NULL, NULL},
    {"model.max_position_embeddings", "--max-position-embeddings", NULL, NULL, NULL},
    {"model.vocab_size", "--vocab-size", NULL, NULL, NULL},
    {"model.norm", "--normalization", "rmsnorm=RMSNorm layernorm=LayerNorm", NULL, NULL},
    {"model.rms_norm_eps", "--norm-epsilon", NULL, has_rms, NULL},
    {"model.layer_norm_epsilon", "--norm-epsilon", NULL, has_layer_norm, NULL},
    {"model.hidden_act", "--swiglu", "swiglu=+ gelu_new= gelu= relu2=", NULL, NULL},
    {"model.hidden_act", "--squared-relu", "swiglu= gelu_new= gelu= relu2=+", NULL, NULL},
    {"model.position_encoding", "--position-embedding-type", "rotary=rope learned=learned_absolute",
     NULL, NULL},
    {"model.rope_theta", "--rotary-base", NULL, is_rotary, emit_rotary_base},
    {"model.partial_rotary_factor", "--rotary-percent", NULL, is_rotary, NULL},
    {"model.mlp_bias", "--disable-bias-linear", NULL, NULL, emit_biases},
    {"model.o_bias", "", "true= false=", NULL, NULL},
    {"model.qkv_bias", "", "true= false=", NULL, NULL},
    {"model.tie_word_embeddings", "--untie-embeddings-and-output-weights", "true= false=+", NULL,
     NULL},
    {"model.resid_pdrop", "--hidden-dropout", NULL, NULL, NULL},
    {"model.embd_pdrop", "", NULL, NULL, emit_embedding_dropout},
    {"model.attn_pdrop", "--attention-dropout", NULL, NULL, NULL},
    {"model.initializer_range", "--init-method-std", NULL, NULL, NULL},
    {"model.num_local_experts", "--num-experts", NULL, ech_emit_has_experts, NULL},
    {"model.num_experts_per_tok", "--moe-router-topk", NULL, ech_emit_has_experts, NULL},
    {"model.moe_intermediate_size", "--moe-ffn-hidden-size", NULL, ech_emit_has_experts, NULL},
    {0}};

static const struct ech_emit_memory memory[] = {
    {NULL, "gradients are in contiguous fp32 buffers of its own, in buckets of at least 40 million "
           "elements, padded to the data ranks"},
    {NULL, "PyTorch's allocator rounds sizes up, and fragments; NCCL and the kernels' workspaces "
           "are not in the plan"},
    {NULL, "the vocabulary is padded to a multiple of 128 x tensor ranks"},
    {NULL, "masks of dropout, inputs of norms and outputs of activations are kept, which our plan "
           "computes again"},
    {is_rotary, "each model chunk has its own table of rotary angles"},
    {ech_emit_is_tied, "the tied embedding has gradients and optimizer states on the first and on "
                       "the last stage"},
    {0}};

const ech_emit_system ech_emit_megatron = {
    .name = "megatron",
    .usage = "pretrain_gpt.py $(grep -v '^#' FILE), with data, tokenizer and optimizer.",
    .parser = "megatron-core 0.19.2",
    .sections = "parallel memory precision model",
    .row = rows,
    .memory = memory};
