/* SPDX-License-Identifier: Apache-2.0
 *
 * The choices of NAME, LIST and INT keys: an enumeration for each key, with the names of run files
 * in the same order. The choices of keys with "@table" ("@models") are that table's rows, from 0,
 * and are not here.
 */
#ifndef ECH_CONFIG_CHOICES_H
#define ECH_CONFIG_CHOICES_H

#define ECH_ROPE_SCALINGS(X)                                                                       \
    X(ECH_ROPE_SCALING_NONE, "none")                                                               \
    X(ECH_ROPE_SCALING_LLAMA3, "llama3")                                                           \
    X(ECH_ROPE_SCALING_LINEAR, "linear") X(ECH_ROPE_SCALING_DYNAMIC, "dynamic")                    \
        X(ECH_ROPE_SCALING_YARN, "yarn") X(ECH_ROPE_SCALING_LONGROPE, "longrope")

/* The function between the products of a feed-forward layer. GELU is its tanh form, which Hugging
 * Face calls gelu_new; its "gelu" has erf. */
#define ECH_HIDDEN_ACTS(X)                                                                         \
    X(ECH_HIDDEN_ACT_RELU, "relu")                                                                 \
    X(ECH_HIDDEN_ACT_GELU, "gelu_new")                                                             \
    X(ECH_HIDDEN_ACT_SWIGLU, "swiglu")                                                             \
    X(ECH_HIDDEN_ACT_RELU2, "relu2")                                                               \
    X(ECH_HIDDEN_ACT_GELU_EXACT, "gelu")                                                           \
    X(ECH_HIDDEN_ACT_GEGLU, "geglu")                                                               \
    X(ECH_HIDDEN_ACT_GEGLU_EXACT, "geglu_exact")                                                   \
    X(ECH_HIDDEN_ACT_SWIGLU_CLAMPED, "swiglu_clamped")

/* Norms of a model, where they are in a layer, the norm of queries and keys, positions, and initial
 * weights. */
#define ECH_NORMS(X) X(ECH_NORM_RMS, "rmsnorm") X(ECH_NORM_LAYER, "layernorm")
#define ECH_NORM_PLACEMENTS(X)                                                                     \
    X(ECH_NORM_BEFORE, "before") X(ECH_NORM_AFTER, "after") X(ECH_NORM_BOTH, "both")
#define ECH_HEAD_NORMS(X)                                                                          \
    X(ECH_HEAD_NORM_NONE, "none") X(ECH_HEAD_NORM_HEAD, "head") X(ECH_HEAD_NORM_FULL, "full")
#define ECH_POSITIONS(X)  X(ECH_POSITION_ROTARY, "rotary") X(ECH_POSITION_LEARNED, "learned")
#define ECH_INITIALIZATIONS(X)                                                                     \
    X(ECH_INITIALIZATION_RANGE, "range") X(ECH_INITIALIZATION_INPUTS, "inputs")

/* Words for a number of best checkpoints. */
#define ECH_KEEP_BESTS(X) X(ECH_KEEP_BEST_FALSE, "false") X(ECH_KEEP_BEST_TRUE, "true")

/* The reaction to a NaN or infinity. */
#define ECH_ON_NONFINITES(X) X(ECH_ON_NONFINITE_STOP, "stop") X(ECH_ON_NONFINITE_SKIP, "skip")

/* Named as the types of tensors are. */
#define ECH_COMPUTES(X)                                                                            \
    X(ECH_COMPUTE_FP32, "fp32")                                                                    \
    X(ECH_COMPUTE_FP64, "fp64") X(ECH_COMPUTE_BF16, "bf16") X(ECH_COMPUTE_FP16, "fp16")
/* Types of matrices' gradients, and of the residual stream between blocks. */
#define ECH_GRADIENT_TYPES(X) X(ECH_GRADIENTS_FP32, "fp32") X(ECH_GRADIENTS_COMPUTE, "compute")
#define ECH_RESIDUAL_TYPES(X) X(ECH_RESIDUAL_COMPUTE, "compute") X(ECH_RESIDUAL_FP32, "fp32")

/* How Muon's rate follows a matrix' shape, named as in torch.optim.Muon. */
#define ECH_ADJUST_RATES(X)                                                                        \
    X(ECH_ADJUST_RATE_ORIGINAL, "original") X(ECH_ADJUST_RATE_MATCH_RMS_ADAMW, "match_rms_adamw")

/* The type in which gradients are sent. */
#define ECH_WIRES(X)                                                                               \
    X(ECH_WIRE_AUTO, "auto")                                                                       \
    X(ECH_WIRE_FP32, "fp32")                                                                       \
    X(ECH_WIRE_BF16, "bf16") X(ECH_WIRE_FP16, "fp16") X(ECH_WIRE_E6M9, "e6m9")

/* Sequence parallelism; KEEP: gathered inputs are kept for the backward, which need not gather them
 * again. */
#define ECH_SEQUENCES(X)                                                                           \
    X(ECH_SEQUENCE_FALSE, "false") X(ECH_SEQUENCE_TRUE, "true") X(ECH_SEQUENCE_KEEP, "keep")

#define ECH_CONTEXT_METHODS(X) X(ECH_CONTEXT_RING, "ring") X(ECH_CONTEXT_ULYSSES, "ulysses")

/* What R recomputes of a block for its B and W; AUTO: the least with which the run fits. */
#define ECH_RECOMPUTES(X)                                                                          \
    X(ECH_RECOMPUTE_NONE, "none")                                                                  \
    X(ECH_RECOMPUTE_SELECTIVE, "selective")                                                        \
    X(ECH_RECOMPUTE_FULL, "full") X(ECH_RECOMPUTE_AUTO, "auto")

/* How values that wait for the backward are encoded. */
#define ECH_ENCODES(X)                                                                             \
    X(ECH_ENCODE_NONE, "none")                                                                     \
    X(ECH_ENCODE_LOSSLESS, "lossless")                                                             \
    X(ECH_ENCODE_FP16, "fp16") X(ECH_ENCODE_FP10, "fp10") X(ECH_ENCODE_FP8, "fp8")

/* How gradients are compressed; how the factors of powersgd are made orthonormal. */
#define ECH_COMPRESSIONS(X)                                                                        \
    X(ECH_COMPRESSION_NONE, "none")                                                                \
    X(ECH_COMPRESSION_POWERSGD, "powersgd") X(ECH_COMPRESSION_TOPK, "topk")
#define ECH_ORTHOGONALS(X)                                                                         \
    X(ECH_ORTHOGONAL_HOUSEHOLDER, "householder") X(ECH_ORTHOGONAL_GRAM_SCHMIDT, "gram_schmidt")

#define ECH_PINS(X) X(ECH_PIN_AUTO, "auto") X(ECH_PIN_FALSE, "false")

#define ECH_SAVED_DTYPES(X)                                                                        \
    X(ECH_SAVED_AUTO, "auto") X(ECH_SAVED_FP32, "fp32") X(ECH_SAVED_BF16, "bf16")

/* Where offloaded data are stored. */
#define ECH_OFFLOADS(X)                                                                            \
    X(ECH_OFFLOAD_NONE, "none") X(ECH_OFFLOAD_HOST, "host") X(ECH_OFFLOAD_DISK, "disk")
#define ECH_OFFLOADS_TO_PEER(X) ECH_OFFLOADS(X) X(ECH_OFFLOAD_PEER, "peer")

/* What a sample is: the next tokens of the stream, or whole documents; and what happens to a
 * document that is longer than a sample. */
#define ECH_PACKINGS(X)       X(ECH_PACKING_STREAM, "stream") X(ECH_PACKING_DOCUMENTS, "documents")
#define ECH_LONG_DOCUMENTS(X) X(ECH_LONG_TRUNCATE, "truncate") X(ECH_LONG_DROP, "drop")

/* Which samples of the data a data rank may use. */
#define ECH_SHARDS(X) X(ECH_SHARDS_NONE, "none") X(ECH_SHARDS_STATIC, "static")

/* The words that an INT key may have instead of a number. */
#define ECH_SYNC_EVERIES(X) X(ECH_SYNC_EVERY_EPOCH, "epoch")

/* The words that a LIST key may have instead of a list. */
#define ECH_STAGE_REPLICAS(X) X(ECH_REPLICAS_AUTO, "auto")
#define ECH_PARTITIONS(X)     X(ECH_PARTITION_EVEN, "even") X(ECH_PARTITION_AUTO, "auto")
#define ECH_NEW_ROWS(X)       X(ECH_NEW_ROWS_MEAN, "mean")

#define ECH_CHOICE(enumerator, name) enumerator,
enum { ECH_ROPE_SCALINGS(ECH_CHOICE) };
enum { ECH_HIDDEN_ACTS(ECH_CHOICE) };
enum { ECH_NORMS(ECH_CHOICE) };
enum { ECH_NORM_PLACEMENTS(ECH_CHOICE) };
enum { ECH_HEAD_NORMS(ECH_CHOICE) };
enum { ECH_POSITIONS(ECH_CHOICE) };
enum { ECH_INITIALIZATIONS(ECH_CHOICE) };
enum { ECH_ON_NONFINITES(ECH_CHOICE) };
enum { ECH_COMPUTES(ECH_CHOICE) };
enum { ECH_GRADIENT_TYPES(ECH_CHOICE) };
enum { ECH_RESIDUAL_TYPES(ECH_CHOICE) };
enum { ECH_ADJUST_RATES(ECH_CHOICE) };
enum { ECH_WIRES(ECH_CHOICE) };
enum { ECH_SEQUENCES(ECH_CHOICE) };
enum { ECH_CONTEXT_METHODS(ECH_CHOICE) };
enum { ECH_RECOMPUTES(ECH_CHOICE) };
enum { ECH_ENCODES(ECH_CHOICE) };
enum { ECH_COMPRESSIONS(ECH_CHOICE) };
enum { ECH_ORTHOGONALS(ECH_CHOICE) };
enum { ECH_PINS(ECH_CHOICE) };
enum { ECH_SAVED_DTYPES(ECH_CHOICE) };
enum { ECH_OFFLOADS_TO_PEER(ECH_CHOICE) };
enum { ECH_PACKINGS(ECH_CHOICE) };
enum { ECH_LONG_DOCUMENTS(ECH_CHOICE) };
enum { ECH_SHARDS(ECH_CHOICE) };
enum { ECH_SYNC_EVERIES(ECH_CHOICE) };
enum { ECH_STAGE_REPLICAS(ECH_CHOICE) };
enum { ECH_PARTITIONS(ECH_CHOICE) };
enum { ECH_NEW_ROWS(ECH_CHOICE) };
enum { ECH_KEEP_BESTS(ECH_CHOICE) };
#undef ECH_CHOICE

/* Values of parallel.strategy. */
enum {
#define X(NAME, text, sets, protocol) ECH_STRATEGY_##NAME,
#include "config/strategies.def"
};

/* Their names, separated by blanks. */
#define ECH_CHOICE_NAME(enumerator, name) " " name
#define ECH_CHOICES(list)                 (&(list(ECH_CHOICE_NAME))[1])

#endif
