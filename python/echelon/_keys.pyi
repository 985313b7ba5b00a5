# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py; the keys are those of src/config/keys.def.
import os
from collections.abc import Sequence
from typing import Literal, TypedDict, overload

from typing_extensions import Self

from ._library import Handle

class Key(TypedDict):
    type: str
    fallback: str
    help: str
    more: str
    choices: str

def keys() -> dict[str, Key]: ...
def escaped(path: str | os.PathLike[str]) -> str: ...

# A key of a run file.
Name = Literal[
    "model.architecture", "model.hidden_size", "model.num_hidden_layers",
    "model.num_attention_heads", "model.num_key_value_heads", "model.head_dim",
    "model.image_height", "model.image_width", "model.image_channels", "model.num_classes",
    "model.weight_layers", "model.base_channels", "model.small_stem", "model.pre_activation",
    "model.norm_samples", "model.norm_sync", "model.classifier_dropout", "model.kv_lora_rank",
    "model.q_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim",
    "model.intermediate_size", "model.max_position_embeddings", "model.vocab_size",
    "model.rope_theta", "model.rope_local_base_freq", "model.partial_rotary_factor",
    "model.rope_interleaved", "model.rotary_layers", "model.rope_scaling",
    "model.rope_scaling_factor", "model.rope_scaling_low_freq_factor",
    "model.rope_scaling_high_freq_factor", "model.rope_scaling_original_max_position_embeddings",
    "model.rope_scaling_beta_fast", "model.rope_scaling_beta_slow", "model.rope_scaling_truncate",
    "model.rope_scaling_mscale", "model.rope_scaling_mscale_all_dim",
    "model.rope_scaling_attention_factor", "model.rope_scaling_short_factor",
    "model.rope_scaling_long_factor", "model.embedding_multiplier", "model.residual_multiplier",
    "model.logits_scaling", "model.final_logit_softcapping", "model.norm_unit_offset",
    "model.rms_norm_eps", "model.layer_norm_epsilon", "model.norm", "model.norm_placement",
    "model.head_norm", "model.position_encoding", "model.qkv_bias", "model.o_bias",
    "model.mlp_bias", "model.parallel_residual", "model.initialization",
    "model.tie_word_embeddings", "model.reversible", "model.initializer_range",
    "model.initializer_scale", "model.embd_pdrop", "model.resid_pdrop", "model.attn_pdrop",
    "model.hidden_act", "model.num_local_experts", "model.num_experts_per_tok",
    "model.moe_intermediate_size", "model.moe_every", "model.moe_first_dense",
    "model.moe_shared_experts", "model.moe_shared_gate", "model.norm_topk_prob", "model.moe_gate",
    "model.moe_gshard_ports", "model.n_group", "model.topk_group", "model.routed_scaling_factor",
    "model.router_bias_rate", "model.moe_capacity_factor", "model.moe_group_samples",
    "model.router_aux_loss_coef", "model.router_importance_coef", "model.router_load_coef",
    "model.moe_bound", "model.moe_dropout", "model.moe_bias", "model.router_jitter_noise",
    "model.sliding_window", "model.window_layers", "model.attn_logit_softcapping",
    "model.attention_scale", "model.attention_sinks", "model.init_from", "model.mapping",
    "model.new_rows_from", "data.train", "data.valid", "data.identity", "data.split",
    "data.tokenizer", "data.sequence_length", "data.begin_of_text", "data.packing",
    "data.long_documents", "data.document_mask", "data.shards", "data.shares", "data.crop_padding",
    "data.flip", "data.prefetch", "training.steps", "training.epochs", "training.global_batch_size",
    "training.micro_batch_size", "training.seed", "training.on_nonfinite",
    "training.nonfinite_limit", "training.validate_every", "training.validate_samples",
    "training.patience", "training.min_improvement", "training.time_limit", "training.check_every",
    "training.loss", "training.label_smoothing", "training.plugins", "training.plugin_hashes",
    "lora.rank", "lora.alpha", "lora.init_from", "lora.dropout", "lora.targets", "optimizer.name",
    "optimizer.learning_rate", "optimizer.schedule", "optimizer.warmup_steps",
    "optimizer.min_learning_rate", "optimizer.decay_steps", "optimizer.weight_decay",
    "optimizer.no_decay", "optimizer.rates", "optimizer.beta1", "optimizer.beta2", "optimizer.eps",
    "optimizer.momentum", "optimizer.nesterov", "optimizer.block", "optimizer.scale_parameter",
    "optimizer.relative_step", "optimizer.warmup_init", "optimizer.adjust_rate",
    "optimizer.adamw_rate", "optimizer.clip_norm", "precision.compute", "precision.gradients",
    "precision.residual", "precision.reduce", "precision.tf32", "precision.loss_scale",
    "parallel.strategy", "parallel.sync_every", "parallel.outer_learning_rate",
    "parallel.outer_momentum", "parallel.server_sync", "parallel.backup_workers",
    "parallel.staleness", "parallel.serve_log", "parallel.servers", "parallel.cluster_ranks",
    "parallel.token_updates", "parallel.token_rate", "parallel.token_tolerance", "parallel.data",
    "parallel.comm", "parallel.device", "parallel.share_device", "parallel.evaluators",
    "parallel.pipeline", "parallel.tensor", "parallel.sequence", "parallel.expert",
    "parallel.context", "parallel.context_method", "parallel.virtual_stages",
    "parallel.stage_replicas", "parallel.partition", "parallel.schedule", "parallel.vertical_sync",
    "parallel.weight_stashing", "parallel.flush_every", "parallel.profile", "parallel.node_ranks",
    "parallel.node_bandwidth", "parallel.network_bandwidth", "parallel.reduction",
    "parallel.compression", "parallel.compression_rank", "parallel.compression_orthogonal",
    "parallel.compression_density", "parallel.zero", "parallel.zero_keep", "parallel.bucket_bytes",
    "parallel.threads", "parallel.pin", "parallel.delay", "parallel.deadline",
    "memory.device_limit", "memory.host_limit", "memory.offload_directory",
    "memory.offload_bandwidth", "memory.offload_activations", "memory.offload_optimizer",
    "memory.offload_parameters", "memory.offload_threads", "memory.offload_delayed_from",
    "memory.prefetch", "memory.sequence_chunks", "memory.recompute", "memory.recompute_blocks",
    "memory.invert", "memory.encode", "memory.encode_norms", "memory.encode_density",
    "checkpoint.directory", "checkpoint.every", "checkpoint.keep", "checkpoint.keep_best",
    "checkpoint.dtype", "checkpoint.background", "checkpoint.resume", "log.directory", "log.every",
    "log.tensorboard", "log.histograms", "log.sample", "log.sample_every", "log.sample_tokens",
    "log.trace", "log.trace_steps"
]

# Keys and the types of their values.
Keys = TypedDict("Keys", {
    # model family, which determines the layers of a block
    "model.architecture": str | Literal["deepseek_v3", "gemma2", "gemma3_text", "glm", "glm4",
        "gpt2", "gpt_neox", "gpt_oss", "granite", "llama", "logistic", "mistral", "mixtral", "mlp",
        "olmo2", "olmo3", "olmoe", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "resnet",
        "revnet", "smollm3", "starcoder2", "switch", "vgg"],
    # hidden width C
    "model.hidden_size": int,
    # number of transformer layers L
    "model.num_hidden_layers": int,
    # number of query heads H
    "model.num_attention_heads": int,
    # number of key/value heads; auto: num_attention_heads
    "model.num_key_value_heads": int | Literal["auto"],
    # width D of an attention head; auto: hidden_size / num_attention_heads
    "model.head_dim": int | Literal["auto"],
    # height of an image in pixels
    "model.image_height": int,
    # width of an image in pixels
    "model.image_width": int,
    # numbers of a pixel: 1 for gray images, 3 for colors
    "model.image_channels": int,
    # number of classes of images, which are the model's outputs
    "model.num_classes": int,
    # layers with weights of a convolutional network, as in its name: 18 of ResNet-18, 16 of
    # VGG-16
    "model.weight_layers": int,
    # channels of a convolutional network's first layers; later ones have multiples of it
    "model.base_channels": int,
    # true: ResNet begins with a 3 x 3 convolution, without a pool; auto: for sides below 64
    # pixels
    "model.small_stem": bool | Literal["auto"],
    # true: norms and ReLUs of ResNet come before convolutions, which very deep networks need
    "model.pre_activation": bool,
    # consecutive samples whose statistics batch norm uses in training; auto: the micro-batch
    "model.norm_samples": int | Literal["auto"],
    # true: batch norm's statistics cover the micro-batches of all replicas (synchronized batch
    # norm)
    "model.norm_sync": bool,
    # dropout probability after each of VGG's two wide layers
    "model.classifier_dropout": float,
    # latent attention (MLA): width of the latent of keys and values; 0: there is none
    "model.kv_lora_rank": int,
    # latent attention: width of the latent of queries; 0: queries are projected directly
    "model.q_lora_rank": int,
    # latent attention: width of a head's queries and keys without positions
    "model.qk_nope_head_dim": int,
    # latent attention: width of a head's rotated queries and keys; even
    "model.qk_rope_head_dim": int,
    # latent attention: width of a head's values
    "model.v_head_dim": int,
    # width F of the feed-forward layers; auto: the family's own rule
    "model.intermediate_size": int | Literal["auto"],
    # longest sequence that the model accepts, in tokens; auto: data.sequence_length
    "model.max_position_embeddings": int | Literal["auto"],
    # vocabulary size V; auto: the tokenizer's
    "model.vocab_size": int | Literal["auto"],
    # base of the rotary angles
    "model.rope_theta": float,
    # rope_theta of layers with an attention window, whose angles are not scaled; 0: as other
    # layers
    "model.rope_local_base_freq": float,
    # share of each head, from its beginning on, that rotary positions rotate
    "model.partial_rotary_factor": float,
    # true: rotary pairs are neighbours (2i, 2i+1); false: halves (i, i + D/2); the family's
    # constant
    "model.rope_interleaved": bool,
    # layers with rotary positions, one letter a layer, repeated: R has them, N has no positions
    "model.rotary_layers": str,
    # scaling of the rotary angles for sequences that are longer than in pretraining
    "model.rope_scaling": Literal["none", "llama3", "linear", "dynamic", "yarn", "longrope"],
    # rope scaling: divisor of the angles, or of the slow ones
    "model.rope_scaling_factor": float,
    # llama3 scaling: angles with fewer rotations over the original positions are slow
    "model.rope_scaling_low_freq_factor": float,
    # llama3 scaling: angles with more rotations over the original positions are unchanged
    "model.rope_scaling_high_freq_factor": float,
    # rope scaling: longest sequence before scaling, in tokens
    "model.rope_scaling_original_max_position_embeddings": int,
    # yarn scaling: angles with more rotations over the original positions are unchanged
    "model.rope_scaling_beta_fast": float,
    # yarn scaling: angles with fewer rotations over the original positions are slow
    "model.rope_scaling_beta_slow": float,
    # yarn scaling: the limits between fast and slow angles are rounded to whole pairs
    "model.rope_scaling_truncate": bool,
    # yarn scaling: numerator's coefficient of the attention factor; 0: not given
    "model.rope_scaling_mscale": float,
    # yarn scaling: denominator's coefficient of the attention factor; 0: not given
    "model.rope_scaling_mscale_all_dim": float,
    # yarn and longrope scaling: factor of rotated queries and keys; 0: from rope_scaling_factor
    "model.rope_scaling_attention_factor": float,
    # longrope scaling: divisors of the angles up to the original positions, divided by blanks
    "model.rope_scaling_short_factor": str,
    # longrope scaling: divisors of the angles beyond the original positions, divided by blanks
    "model.rope_scaling_long_factor": str,
    # factor of the embeddings; 0: the square root of hidden_size; the family's constant
    "model.embedding_multiplier": float,
    # factor of what attention and feed-forward layers add to the residual stream
    "model.residual_multiplier": float,
    # divisor of the logits, before the softmax and the cap
    "model.logits_scaling": float,
    # cap of the logits: a logit l becomes cap tanh(l / cap); 0: no cap
    "model.final_logit_softcapping": float,
    # true: gains of RMSNorm are 1 plus the weights; a constant of the family
    "model.norm_unit_offset": bool,
    # epsilon added to the mean square in RMSNorm
    "model.rms_norm_eps": float,
    # epsilon added to the variance in LayerNorm
    "model.layer_norm_epsilon": float,
    # kind of the layers' norms; a constant of the family
    "model.norm": Literal["rmsnorm", "layernorm"],
    # norms before attention and feed-forward layers, after them, or both; a constant of the
    # family
    "model.norm_placement": Literal["before", "after", "both"],
    # norm of queries and keys; head: of each head; full: of all heads together; a constant
    "model.head_norm": Literal["none", "head", "full"],
    # rotary positions, or a table of learned ones; a constant of the family
    "model.position_encoding": Literal["rotary", "learned"],
    # true: queries, keys and values have biases; the default is the family's
    "model.qkv_bias": bool,
    # true: the output of attention has a bias; the default is the family's
    "model.o_bias": bool,
    # true: feed-forward layers have biases; the default is the family's
    "model.mlp_bias": bool,
    # true: attention and feed-forward layer of a block read the same stream; the family's default
    "model.parallel_residual": bool,
    # initial weights by initializer_range, or by initializer_scale; a constant of the family
    "model.initialization": Literal["range", "inputs"],
    # true: the head and the embedding share one table; auto: the family's default
    "model.tie_word_embeddings": bool | Literal["auto"],
    # reversible residual network (RevNet): a layer's inputs can be computed from its outputs
    "model.reversible": bool,
    # standard deviation of the initial weights
    "model.initializer_range": float,
    # scale of the initial weights: their standard deviation is sqrt(scale / fan-in)
    "model.initializer_scale": float,
    # dropout probability after the embedding
    "model.embd_pdrop": float,
    # dropout probability before each residual sum
    "model.resid_pdrop": float,
    # dropout probability of the attention weights
    "model.attn_pdrop": float,
    # activation of feed-forward layers, dense ones and experts; the default is the family's
    "model.hidden_act": Literal["relu", "gelu_new", "swiglu", "relu2", "gelu", "geglu",
        "geglu_exact", "swiglu_clamped"],
    # number of experts E per layer, each a feed-forward layer; auto: 8 in families with experts
    "model.num_local_experts": int | Literal["auto"],
    # number of experts k that process each token
    "model.num_experts_per_tok": int,
    # width of an expert; auto: intermediate_size / num_experts_per_tok, rounded up
    "model.moe_intermediate_size": int | Literal["auto"],
    # every n-th layer has experts, beginning with the n-th; the others are dense
    "model.moe_every": int,
    # number of first layers that are dense
    "model.moe_first_dense": int,
    # number of shared experts per layer, which process all tokens; 0: none
    "model.moe_shared_experts": int,
    # true: shared experts' output is multiplied by a sigmoid gate of each token
    "model.moe_shared_gate": bool,
    # true: the gate weights of a token's k experts are divided by their sum
    "model.norm_topk_prob": bool,
    # gate: how a token's experts are chosen and weighted
    "model.moe_gate": Literal["topk", "switch", "gshard", "noisy_topk", "hierarchical", "bias",
        "dense"],
    # gshard gate as in Lingvo, Mesh TensorFlow and fairseq; false: as in the paper
    "model.moe_gshard_ports": bool,
    # hierarchical and bias gates: number of equal groups of consecutive experts
    "model.n_group": int,
    # hierarchical and bias gates: number of groups from which a token's experts are chosen
    "model.topk_group": int,
    # bias gate: factor of the gate weights
    "model.routed_scaling_factor": float,
    # bias gate: change of an expert's bias after each step
    "model.router_bias_rate": float,
    # expert capacity as a multiple of the mean load in a balance group; 0: no limit
    "model.moe_capacity_factor": float,
    # samples per balance group, over which capacity and auxiliary losses are computed
    "model.moe_group_samples": int,
    # coefficient of the auxiliary loss that balances the experts
    "model.router_aux_loss_coef": float,
    # gates with noise: coefficient of the importance loss
    "model.router_importance_coef": float,
    # gates with noise: coefficient of the load loss
    "model.router_load_coef": float,
    # receive-buffer size per source rank, as a multiple of the balanced share; 0: unlimited
    "model.moe_bound": float,
    # dropout probability within an expert, on the input of its last projection
    "model.moe_dropout": float,
    # biases of the router and of the products of experts, as in gpt-oss
    "model.moe_bias": bool,
    # multiplicative jitter of the router's input in training
    "model.router_jitter_noise": float,
    # attention window W in tokens: keys that a query sees, itself included; 0: no window
    "model.sliding_window": int,
    # layers with the attention window, one letter a layer, repeated: L has it, G sees all keys
    "model.window_layers": str,
    # cap of attention scores: a score s becomes cap tanh(s / cap); 0: no cap
    "model.attn_logit_softcapping": float,
    # factor of the products of queries and keys; 0: 1 / sqrt(head_dim)
    "model.attention_scale": float,
    # attention sinks: a trained number per head joins the softmax's denominator, as in gpt-oss
    "model.attention_sinks": bool,
    # folder with the initial weights; empty: random weights
    "model.init_from": str | os.PathLike[str],
    # mapping file of a family that Echelon does not have; empty: the one in model.init_from, if
    # any
    "model.mapping": str | os.PathLike[str],
    # tokens whose mean row initializes the rows that a larger vocab_size adds; mean: all tokens
    "model.new_rows_from": Sequence[int] | Literal["mean"],
    # training tokens: a prefix of .bin and .idx files, a token file, a pattern, or a weighted
    # blend
    "data.train": str | os.PathLike[str],
    # validation tokens, named as in data.train; empty: none, unless data.split reserves some
    "data.valid": str | os.PathLike[str],
    # fingerprint of data.train, which echelon fills in; any: accept other data on resume
    "data.identity": str,
    # proportions of documents for training, validation and test, as 969,30,1; empty: all train
    "data.split": str,
    # tokenizer: bytes, a tokenizer.json or tokenizer.model, or a folder that contains one
    "data.tokenizer": str | os.PathLike[str],
    # tokens per sample T
    "data.sequence_length": int,
    # whether each document and prompt begins with the begin-of-text token
    "data.begin_of_text": bool | Literal["auto"],
    # what a sample is: stream: the next tokens, across documents; documents: whole documents
    "data.packing": Literal["stream", "documents"],
    # data.packing = documents: what happens to documents of more than data.sequence_length tokens
    "data.long_documents": Literal["truncate", "drop"],
    # true: attention and positions stay within documents; auto: with data.packing = documents
    "data.document_mask": bool | Literal["auto"],
    # which samples a data rank reads: none: one shuffled stream; static: its own share
    "data.shards": Literal["none", "static"],
    # number of shares with data.shards = static; auto: parallel.data
    "data.shares": int | Literal["auto"],
    # images in training are shifted at random by up to this many pixels, with zeros from outside
    "data.crop_padding": int,
    # mirrors every second image in training, left to right, at random
    "data.flip": bool,
    # batches that the loader reads ahead
    "data.prefetch": int,
    # number of optimizer steps; training.epochs may replace it
    "training.steps": int,
    # length of the run in passes over data.train, in place of training.steps; 0: training.steps
    "training.epochs": float,
    # samples per step over all ranks
    "training.global_batch_size": int,
    # samples per micro-batch on a rank; auto: training.global_batch_size / parallel.data
    "training.micro_batch_size": int | Literal["auto"],
    # seed of all random numbers: initial weights, dropout, order of samples
    "training.seed": int,
    # reaction to a NaN or infinity: stop the run, or skip the update
    "training.on_nonfinite": Literal["stop", "skip"],
    # most successive updates skipped by on_nonfinite = skip; one more ends the run; 0: no limit
    "training.nonfinite_limit": int,
    # steps between validations; 0: only after the last step
    "training.validate_every": int,
    # samples per validation, drawn from the set; 0: the whole set; auto: the samples of 8 steps
    "training.validate_samples": int | Literal["auto"],
    # validations without a lower loss after which training ends; 0: it does not end early
    "training.patience": int,
    # decrease of the validation loss, in nats, above which training.patience starts to count
    # again
    "training.min_improvement": float,
    # time after which the run saves and exits with code 75, in seconds; 0: no limit
    "training.time_limit": float | str,
    # steps between checks that parameters are bit-identical across ranks; 0: none
    "training.check_every": int | Literal["auto"],
    # loss of a token: cross_entropy, or a plugin's
    "training.loss": Literal["cross_entropy"],
    # share of an image's target that is spread evenly over all classes; 0: none
    "training.label_smoothing": float,
    # shared objects that add optimizers, curves, schedules, losses and layers; empty: none
    "training.plugins": str | os.PathLike[str],
    # names and hashes of the plugins in use, which echelon fills in; any: accept others on resume
    "training.plugin_hashes": str,
    # rank r of the adapters, which alone are trained; 0: none, and all parameters are trained
    "lora.rank": int,
    # factor of the adapters' results, which are scaled by alpha / rank
    "lora.alpha": float,
    # folder with the initial adapters: PEFT's, or a run directory; empty: A is random, B zeros
    "lora.init_from": str | os.PathLike[str],
    # probability with which adapters drop each of their inputs in training
    "lora.dropout": float,
    # products with adapters, as "q_proj v_proj"; auto: queries and values; all-linear: all
    "lora.targets": str,
    # optimizer
    "optimizer.name": str | Literal["sgd", "adamw", "adamw8", "muon", "sm3", "adafactor"],
    # highest learning rate; not used with optimizer.relative_step = true
    "optimizer.learning_rate": float,
    # learning-rate schedule
    "optimizer.schedule": str | Literal["constant", "linear", "cosine", "rsqrt", "wsd"],
    # steps of linear warmup from 0 to learning_rate
    "optimizer.warmup_steps": int,
    # learning rate at the end of the schedule, one step after the last
    "optimizer.min_learning_rate": float,
    # wsd schedule (warmup, stable, decay): steps of the decay; auto: training.steps / 10
    "optimizer.decay_steps": int | Literal["auto"],
    # weight decay of matrices; norms and biases are never decayed
    "optimizer.weight_decay": float,
    # patterns of parameter names without weight decay, as "*wte* *wpe*"
    "optimizer.no_decay": str,
    # learning-rate factors by patterns of parameter names, as "lm_head*=0.1 *embed*=2"
    "optimizer.rates": str,
    # decay rate of the mean gradient (first moment)
    "optimizer.beta1": float,
    # decay rate of the mean squared gradient (second moment)
    "optimizer.beta2": float,
    # epsilon added to the root of the mean square
    "optimizer.eps": float,
    # momentum; adafactor and sm3: decay rate of the mean update
    "optimizer.momentum": float,
    # true: Nesterov momentum
    "optimizer.nesterov": bool,
    # adamw8: numbers along a tensor's last axis that share one scale
    "optimizer.block": int,
    # adafactor: scale the learning rate by the root mean square of each tensor's weights
    "optimizer.scale_parameter": bool,
    # adafactor: the learning rate is min(1e-2, 1 / sqrt(step))
    "optimizer.relative_step": bool,
    # adafactor with relative_step: the learning rate is min(1e-6 step, 1 / sqrt(step))
    "optimizer.warmup_init": bool,
    # muon: how the learning rate depends on the shape of a matrix
    "optimizer.adjust_rate": Literal["original", "match_rms_adamw"],
    # muon: learning-rate factor of the parameters that AdamW updates
    "optimizer.adamw_rate": float,
    # gradient clipping: largest global gradient norm; 0: no clipping
    "optimizer.clip_norm": float,
    # number type of matrices and activations
    "precision.compute": Literal["fp32", "fp64", "bf16", "fp16"],
    # number type in which gradients of matrices are accumulated; compute: precision.compute
    "precision.gradients": Literal["fp32", "compute"],
    # number type of the residual stream; compute: precision.compute
    "precision.residual": Literal["compute", "fp32"],
    # number type of gradients in reductions; auto: the type in which they are kept
    "precision.reduce": Literal["auto", "fp32", "bf16", "fp16", "e6m9"],
    # true: fp32 matrix products may use TF32 units (10-bit significand)
    "precision.tf32": bool,
    # loss scale, a power of two; auto: dynamic in fp16 runs, 1 otherwise
    "precision.loss_scale": int | Literal["auto"],
    # preset for the data-parallel strategy; synchronous: no preset
    "parallel.strategy": Literal["synchronous", "one_device", "mirrored", "multi_worker_mirrored",
        "tpu", "local_sgd", "diloco", "gossip", "easgd", "central_storage", "parameter_server", "asp",
        "ssp", "hogwild", "hogwild_ring"],
    # local_sgd, diloco, gossip, easgd: steps between averages over replicas; epoch: once per
    # epoch
    "parallel.sync_every": int | Literal["epoch"],
    # diloco: learning rate of the outer optimizer; easgd: moving rate of the common weights
    "parallel.outer_learning_rate": float,
    # diloco: Nesterov momentum of the outer optimizer
    "parallel.outer_momentum": float,
    # parameter_server: true: one update per step; false: one per worker gradient, on arrival
    "parallel.server_sync": bool,
    # parameter_server: workers whose gradients a step does not wait for
    "parallel.backup_workers": int,
    # ssp: most steps by which a worker may be ahead of the slowest
    "parallel.staleness": int,
    # asp, ssp: serves.jsonl of a run whose order of pushes is repeated; empty: order of arrival
    "parallel.serve_log": str | os.PathLike[str],
    # parameter_server, asp, ssp: number of server ranks, which are the last ranks
    "parallel.servers": int,
    # hogwild_ring: ranks per cluster; they share weights, as one socket's ranks can
    "parallel.cluster_ranks": int,
    # hogwild_ring: updates of each cluster between two visits of the token
    "parallel.token_updates": int,
    # hogwild_ring: factor of a cluster's updates when they are exchanged
    "parallel.token_rate": float,
    # hogwild_ring: smallest update of a number, times token_rate, that is exchanged
    "parallel.token_tolerance": float,
    # data-parallel degree; auto: the ranks that remain, / (pipeline x context x tensor)
    "parallel.data": int | Literal["auto"],
    # backend that connects the ranks
    "parallel.comm": Literal["local", "mpi", "ucx", "nccl"],
    # device on which tensors are stored and kernels run
    "parallel.device": Literal["cpu", "cuda", "queued", "walled", "auto"],
    # true: several ranks of a machine may share a GPU
    "parallel.share_device": bool,
    # number of evaluator ranks, which follow all other ranks
    "parallel.evaluators": int,
    # pipeline-parallel degree p (stages); auto: 1, or the choice of parallel.partition = auto
    "parallel.pipeline": int | Literal["auto"],
    # tensor-parallel degree t: heads, feed-forward layers and vocabulary are sharded
    "parallel.tensor": int,
    # sequence parallelism with parallel.tensor: shards norms, dropout, residual sums by tokens
    "parallel.sequence": bool | Literal["false", "true", "keep"],
    # expert-parallel degree e: adjacent ranks of data x context that share a layer's experts
    "parallel.expert": int,
    # context-parallel degree c: the tokens of each sample are sharded
    "parallel.context": int,
    # context parallelism: ring: keys and values are passed around; ulysses: all-to-all of heads
    "parallel.context_method": Literal["ring", "ulysses"],
    # virtual stages (model chunks) v per rank; auto: 2 for zero-bubble-v, otherwise 1
    "parallel.virtual_stages": int | Literal["auto"],
    # data-parallel replicas of each stage, as a list; auto: parallel.data for all
    "parallel.stage_replicas": Sequence[int] | Literal["auto"],
    # layers of each stage: even (equal FLOPs), a list of numbers, or auto (the fastest found)
    "parallel.partition": Sequence[int] | Literal["even", "auto"],
    # pipeline schedule: a name, or a file with an order of forwards and backwards
    "parallel.schedule": str | os.PathLike[str],
    # pipedream: true: a micro-batch uses the same weight version at every stage
    "parallel.vertical_sync": bool,
    # pipedream: true: a backward uses the weight version of its forward
    "parallel.weight_stashing": bool,
    # steps per span, after which asynchronous schedules and protocols synchronize
    "parallel.flush_every": int | Literal["auto"],
    # profile of block costs made by `echelon profile`; empty: all blocks cost the same
    "parallel.profile": str | os.PathLike[str],
    # ranks per machine for hierarchical reductions, partitions and simulations; auto: all
    "parallel.node_ranks": int | Literal["auto"],
    # bandwidth between ranks of a machine, in bytes per second; auto: the profile's
    "parallel.node_bandwidth": int | str,
    # bandwidth between machines, in bytes per second; auto: node_bandwidth
    "parallel.network_bandwidth": int | str,
    # algorithm that sums gradients over data ranks
    "parallel.reduction": Literal["direct", "ring", "naive", "torus", "hierarchical", "library"],
    # gradient compression of layers' matrices; this changes the training result
    "parallel.compression": Literal["none", "powersgd", "topk"],
    # powersgd: rank r of the factors
    "parallel.compression_rank": int,
    # powersgd: how the left factor is made orthonormal
    "parallel.compression_orthogonal": Literal["householder", "gram_schmidt"],
    # topk: share of the numbers of each row or column that is sent
    "parallel.compression_density": float,
    # ZeRO stage: 1 shards optimizer states, 2 also gradients, 3 also weights; 0: none
    "parallel.zero": int,
    # ZeRO 3: gathered weights stay on the device for all micro-batches of a step
    "parallel.zero_keep": bool,
    # largest gradient bucket, in bytes; a bucket has parameters of one block
    "parallel.bucket_bytes": int | str,
    # threads per rank; auto: cores / ranks on this machine, within the control group's CPU quota
    "parallel.threads": int | Literal["auto"],
    # auto: threads are bound to cores of their own if the ranks use most of the machine
    "parallel.pin": Literal["auto", "false"],
    # seconds that ranks sleep in each training step, as "1:0.5 3:2", to study slow ranks
    "parallel.delay": str,
    # longest wait for a rank, a device or a disk, in seconds; then the run fails
    "parallel.deadline": float,
    # device arena per rank, in bytes; auto: the machine's memory / ranks on it
    "memory.device_limit": int | str,
    # host arena per rank, in bytes; 0: no separate limit
    "memory.host_limit": int | str,
    # folder for tensors that are offloaded to disk; auto: log.directory/offload
    "memory.offload_directory": str | os.PathLike[str],
    # most bytes per second that a rank copies in each direction; 0: no limit
    "memory.offload_bandwidth": int | str,
    # where activations wait for the backward: none (device), host, disk, or peer
    "memory.offload_activations": Literal["none", "host", "disk", "peer"],
    # where optimizer states and fp32 masters are stored: none (device), host or disk
    "memory.offload_optimizer": Literal["none", "host", "disk"],
    # where weights are stored: none (device), host or disk
    "memory.offload_parameters": Literal["none", "host", "disk"],
    # threads per rank for updates on the host; auto: parallel.threads
    "memory.offload_threads": int | Literal["auto"],
    # step after which the host's update overlaps with the next step; 0: never
    "memory.offload_delayed_from": int,
    # number of uses by which offloaded tensors and ZeRO 3 weights are fetched ahead
    "memory.prefetch": int,
    # chunks in which each sequence is processed, one after the other, with a KV cache
    "memory.sequence_chunks": int,
    # activation recomputation: none, selective (attention), full (layers) or auto
    "memory.recompute": Literal["none", "selective", "full", "auto"],
    # layers per recomputed segment; auto: the number that needs the least memory
    "memory.recompute_blocks": int | Literal["auto"],
    # reversible models: recompute a layer's inputs from its outputs; auto: model.reversible
    "memory.invert": bool | Literal["auto"],
    # codes of activations that wait for the backward: none, lossless, fp16, fp10 or fp8
    "memory.encode": Literal["none", "lossless", "fp16", "fp10", "fp8"],
    # memory.encode = fp16 or fp10: also encode the inputs of norms
    "memory.encode_norms": bool,
    # memory.encode = lossless: room for non-zeros, as a share of a ReLU's outputs; 0: as measured
    "memory.encode_density": float,
    # folder of the checkpoints; auto: log.directory/checkpoints
    "checkpoint.directory": str | os.PathLike[str],
    # steps between checkpoints; 0: only after the last step; auto: a tenth of the run, at least
    # 1,000
    "checkpoint.every": int | Literal["auto"],
    # number of newest checkpoints that are kept; 0: all
    "checkpoint.keep": int,
    # number of checkpoints with the lowest validation losses that are kept; true: 1; false: 0
    "checkpoint.keep_best": int | bool | Literal["false", "true"],
    # number type of the weights in a checkpoint's model/; auto: precision.compute
    "checkpoint.dtype": Literal["auto", "fp32", "bf16"],
    # true: write checkpoints while training continues, from a snapshot in the host arena
    "checkpoint.background": bool,
    # auto: resume from the run's newest valid checkpoint; never; or a path to start from
    "checkpoint.resume": str | os.PathLike[str],
    # run directory for run.yaml, metrics.jsonl, checkpoints and all other outputs
    "log.directory": str | os.PathLike[str],
    # steps between progress lines if the output is not a terminal
    "log.every": int,
    # true: also write TensorBoard events into the run directory
    "log.tensorboard": bool,
    # steps between histograms of the gradients' exponents, a layer each; 0: none
    "log.histograms": int,
    # prompts that the model continues during training, a line each; empty: none
    "log.sample": str,
    # steps between samples of text; 0: only after the last step
    "log.sample_every": int,
    # most tokens of a sampled text, without its prompt
    "log.sample_tokens": int,
    # true: record when each step runs, to trace.json and for `echelon report`
    "log.trace": bool,
    # number of training steps that are traced, counted from this start
    "log.trace_steps": int,
}, total=False)

class Keyed(Handle):
    def _set(self, key: str, value: object) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.architecture"],
        value:
        str | Literal["deepseek_v3", "gemma2", "gemma3_text", "glm", "glm4", "gpt2", "gpt_neox",
        "gpt_oss", "granite", "llama", "logistic", "mistral", "mixtral", "mlp", "olmo2", "olmo3",
        "olmoe", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "resnet", "revnet", "smollm3",
        "starcoder2", "switch", "vgg"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.hidden_size", "model.num_hidden_layers", "model.num_attention_heads",
        "model.image_height", "model.image_width", "model.image_channels", "model.num_classes",
        "model.weight_layers", "model.base_channels", "model.kv_lora_rank", "model.q_lora_rank",
        "model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim",
        "model.rope_scaling_original_max_position_embeddings", "model.num_experts_per_tok",
        "model.moe_every", "model.moe_first_dense", "model.moe_shared_experts", "model.n_group",
        "model.topk_group", "model.moe_group_samples", "model.sliding_window",
        "data.sequence_length", "data.crop_padding", "data.prefetch", "training.steps",
        "training.global_batch_size", "training.seed", "training.nonfinite_limit",
        "training.validate_every", "training.patience", "lora.rank", "optimizer.warmup_steps",
        "optimizer.block", "parallel.backup_workers", "parallel.staleness", "parallel.servers",
        "parallel.cluster_ranks", "parallel.token_updates", "parallel.evaluators",
        "parallel.tensor", "parallel.expert", "parallel.context", "parallel.compression_rank",
        "parallel.zero", "memory.offload_delayed_from", "memory.prefetch", "memory.sequence_chunks",
        "checkpoint.keep", "log.every", "log.histograms", "log.sample_every", "log.sample_tokens",
        "log.trace_steps"],
        value:
        int) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.num_key_value_heads", "model.head_dim", "model.norm_samples",
        "model.intermediate_size", "model.max_position_embeddings", "model.vocab_size",
        "model.num_local_experts", "model.moe_intermediate_size", "data.shares",
        "training.micro_batch_size", "training.validate_samples", "training.check_every",
        "optimizer.decay_steps", "precision.loss_scale", "parallel.data", "parallel.pipeline",
        "parallel.virtual_stages", "parallel.flush_every", "parallel.node_ranks",
        "parallel.threads", "memory.offload_threads", "memory.recompute_blocks", "checkpoint.every"],
        value:
        int | Literal["auto"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.small_stem", "model.tie_word_embeddings", "data.begin_of_text",
        "data.document_mask", "memory.invert"],
        value:
        bool | Literal["auto"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.pre_activation", "model.norm_sync", "model.rope_interleaved",
        "model.rope_scaling_truncate", "model.norm_unit_offset", "model.qkv_bias", "model.o_bias",
        "model.mlp_bias", "model.parallel_residual", "model.reversible", "model.moe_shared_gate",
        "model.norm_topk_prob", "model.moe_gshard_ports", "model.moe_bias", "model.attention_sinks",
        "data.flip", "optimizer.nesterov", "optimizer.scale_parameter", "optimizer.relative_step",
        "optimizer.warmup_init", "precision.tf32", "parallel.server_sync", "parallel.share_device",
        "parallel.vertical_sync", "parallel.weight_stashing", "parallel.zero_keep",
        "memory.encode_norms", "checkpoint.background", "log.tensorboard", "log.trace"],
        value:
        bool) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.classifier_dropout", "model.rope_theta", "model.rope_local_base_freq",
        "model.partial_rotary_factor", "model.rope_scaling_factor",
        "model.rope_scaling_low_freq_factor", "model.rope_scaling_high_freq_factor",
        "model.rope_scaling_beta_fast", "model.rope_scaling_beta_slow", "model.rope_scaling_mscale",
        "model.rope_scaling_mscale_all_dim", "model.rope_scaling_attention_factor",
        "model.embedding_multiplier", "model.residual_multiplier", "model.logits_scaling",
        "model.final_logit_softcapping", "model.rms_norm_eps", "model.layer_norm_epsilon",
        "model.initializer_range", "model.initializer_scale", "model.embd_pdrop",
        "model.resid_pdrop", "model.attn_pdrop", "model.routed_scaling_factor",
        "model.router_bias_rate", "model.moe_capacity_factor", "model.router_aux_loss_coef",
        "model.router_importance_coef", "model.router_load_coef", "model.moe_bound",
        "model.moe_dropout", "model.router_jitter_noise", "model.attn_logit_softcapping",
        "model.attention_scale", "training.epochs", "training.min_improvement",
        "training.label_smoothing", "lora.alpha", "lora.dropout", "optimizer.learning_rate",
        "optimizer.min_learning_rate", "optimizer.weight_decay", "optimizer.beta1",
        "optimizer.beta2", "optimizer.eps", "optimizer.momentum", "optimizer.adamw_rate",
        "optimizer.clip_norm", "parallel.outer_learning_rate", "parallel.outer_momentum",
        "parallel.token_rate", "parallel.token_tolerance", "parallel.compression_density",
        "parallel.deadline", "memory.encode_density"],
        value:
        float) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.rotary_layers", "model.rope_scaling_short_factor",
        "model.rope_scaling_long_factor", "model.window_layers", "data.identity", "data.split",
        "training.plugin_hashes", "lora.targets", "optimizer.no_decay", "optimizer.rates",
        "parallel.delay", "log.sample"],
        value:
        str) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.rope_scaling"],
        value:
        Literal["none", "llama3", "linear", "dynamic", "yarn", "longrope"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.norm"],
        value:
        Literal["rmsnorm", "layernorm"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.norm_placement"],
        value:
        Literal["before", "after", "both"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.head_norm"],
        value:
        Literal["none", "head", "full"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.position_encoding"],
        value:
        Literal["rotary", "learned"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.initialization"],
        value:
        Literal["range", "inputs"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.hidden_act"],
        value:
        Literal["relu", "gelu_new", "swiglu", "relu2", "gelu", "geglu", "geglu_exact",
        "swiglu_clamped"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.moe_gate"],
        value:
        Literal["topk", "switch", "gshard", "noisy_topk", "hierarchical", "bias", "dense"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.init_from", "model.mapping", "data.train", "data.valid", "data.tokenizer",
        "training.plugins", "lora.init_from", "parallel.serve_log", "parallel.schedule",
        "parallel.profile", "memory.offload_directory", "checkpoint.directory", "checkpoint.resume",
        "log.directory"],
        value:
        str | os.PathLike[str]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["model.new_rows_from"],
        value:
        Sequence[int] | Literal["mean"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["data.packing"],
        value:
        Literal["stream", "documents"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["data.long_documents"],
        value:
        Literal["truncate", "drop"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["data.shards"],
        value:
        Literal["none", "static"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["training.on_nonfinite"],
        value:
        Literal["stop", "skip"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["training.time_limit"],
        value:
        float | str) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["training.loss"],
        value:
        Literal["cross_entropy"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["optimizer.name"],
        value:
        str | Literal["sgd", "adamw", "adamw8", "muon", "sm3", "adafactor"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["optimizer.schedule"],
        value:
        str | Literal["constant", "linear", "cosine", "rsqrt", "wsd"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["optimizer.adjust_rate"],
        value:
        Literal["original", "match_rms_adamw"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["precision.compute"],
        value:
        Literal["fp32", "fp64", "bf16", "fp16"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["precision.gradients"],
        value:
        Literal["fp32", "compute"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["precision.residual"],
        value:
        Literal["compute", "fp32"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["precision.reduce"],
        value:
        Literal["auto", "fp32", "bf16", "fp16", "e6m9"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.strategy"],
        value:
        Literal["synchronous", "one_device", "mirrored", "multi_worker_mirrored", "tpu",
        "local_sgd", "diloco", "gossip", "easgd", "central_storage", "parameter_server", "asp",
        "ssp", "hogwild", "hogwild_ring"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.sync_every"],
        value:
        int | Literal["epoch"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.comm"],
        value:
        Literal["local", "mpi", "ucx", "nccl"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.device"],
        value:
        Literal["cpu", "cuda", "queued", "walled", "auto"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.sequence"],
        value:
        bool | Literal["false", "true", "keep"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.context_method"],
        value:
        Literal["ring", "ulysses"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.stage_replicas"],
        value:
        Sequence[int] | Literal["auto"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.partition"],
        value:
        Sequence[int] | Literal["even", "auto"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.node_bandwidth", "parallel.network_bandwidth", "parallel.bucket_bytes",
        "memory.device_limit", "memory.host_limit", "memory.offload_bandwidth"],
        value:
        int | str) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.reduction"],
        value:
        Literal["direct", "ring", "naive", "torus", "hierarchical", "library"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.compression"],
        value:
        Literal["none", "powersgd", "topk"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.compression_orthogonal"],
        value:
        Literal["householder", "gram_schmidt"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["parallel.pin"],
        value:
        Literal["auto", "false"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["memory.offload_activations"],
        value:
        Literal["none", "host", "disk", "peer"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["memory.offload_optimizer", "memory.offload_parameters"],
        value:
        Literal["none", "host", "disk"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["memory.recompute"],
        value:
        Literal["none", "selective", "full", "auto"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["memory.encode"],
        value:
        Literal["none", "lossless", "fp16", "fp10", "fp8"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["checkpoint.keep_best"],
        value:
        int | bool | Literal["false", "true"]) -> None: ...
    @overload
    def __setitem__(
        self,
        key:
        Literal["checkpoint.dtype"],
        value:
        Literal["auto", "fp32", "bf16"]) -> None: ...
    def __getitem__(self, key: Name) -> str: ...
    def __contains__(self, key: Name) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def __del__(self) -> None: ...
