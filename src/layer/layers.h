/* SPDX-License-Identifier: Apache-2.0
 *
 * The builders, one per layer, called by model files. Each adds the layer's node or nodes to the
 * block and returns the output value. Arguments are values of the block, and indices of the model's
 * parameters (weight, bias, gain, table).
 */
#ifndef ECH_LAYER_LAYERS_H
#define ECH_LAYER_LAYERS_H

#include <echelon_plugin.h>

#include "base/text.h"
#include "layer/layer.h"

#define X(name, meaning) extern const ech_layer ech_layer_row_##name;
#include "layer/layers.def"
#undef X

/* All rows, for generic tests. */
extern const ech_layer *const ech_layers[];
extern const int ech_layers_count;

/* ids (B,T) -> (B,T,C); table (V,C). With a sharded table, rows whose ids are in other ranks'
 * shards are zero, and the output is the sum over tensor ranks. */
int ech_layer_embedding(ech_block *block, int ids, int table, int64_t C);
/* x (B,T,C), or (rows,C) of ECH_AXIS_ROWS, plus for each row the row of table (P,C) at its
 * position. `starts`, here and below: the value with the starts of documents, or -1
 * (ech_block_starts). */
int ech_layer_position(ech_block *block, int x, int table, int starts);
/* Over the last axis of x, which is unsharded; gain and bias have its size. (B,T,heads,D): per
 * head. */
int ech_layer_layernorm(ech_block *block, int x, int gain, int bias, double eps);
/* The same; the last axis may be sharded over tensor ranks, and so is the gain then. The normalized
 * x is multiplied by gain + offset; the offset is 1 for Gemma, else 0. */
int ech_layer_rmsnorm(ech_block *block, int x, int gain, double offset, double eps);

/* y = x W + bias, x (B,T,in) -> (B,T,out) whose last axis is `axis`. weight is (out,in), or
 * (in,out) if in_first (GPT-2's Conv1D); bias (out) or -1. If neither axis is sharded, (rows,in) of
 * ECH_AXIS_ROWS becomes (rows,out). */
int ech_layer_linear(ech_block *block, int x, int weight, int bias, bool in_first, ech_axis axis,
                     int64_t out);

/* The shape of what a filter makes of images of shape x (B,H,W,C), with that many channels. The
 * filter fits into the padded image. */
ech_shape ech_layer_filtered(const ech_shape *x, const ech_filter *at, int64_t channels);
/* x (B,H,W,C) -> (B,P,Q,channels); weight (channels,C,KH,KW), of at->size; bias (channels) or -1.
 * P and Q, here and below: ech_filter_output. */
int ech_layer_conv2d(ech_block *block, int x, int weight, int bias, const ech_filter *at,
                     int64_t channels);
/* (B,H,W,C) -> (B,P,Q,C): the largest or the mean of the window's pixels, for each channel. */
int ech_layer_max_pool(ech_block *block, int x, const ech_filter *at);
int ech_layer_mean_pool(ech_block *block, int x, const ech_filter *at);
int ech_layer_global_pool(ech_block *block, int x); /* the mean of all pixels: (B,1,1,C) */
int ech_layer_flatten(ech_block *block, int x);     /* (B,H,W,C) -> (B,1,C H W), by channels */

/* A batch norm. Its parameters have a number per channel; the two running statistics are layer
 * states (ech_layer_batch_norm_commit). */
typedef struct ech_layer_batch_norm_args {
    int gain, bias, running_mean, running_variance;
    /* consecutive samples with common statistics; 0: the micro-batch, or with
     * ech_block_options.norm_replicas the micro-batches of all replicas */
    int64_t samples;
    int64_t step_samples; /* samples of a step, over all ranks */
    double eps;
} ech_layer_batch_norm_args;

int ech_layer_batch_norm(ech_block *block, int x,
                         const ech_layer_batch_norm_args *norm); /* of images */
/* The commit (ech_param.commit) of a running statistic: commit_rate is the share of the step's. */
void ech_layer_batch_norm_commit(const ech_commit *commit);

/* (B,T,H,D) rotated by position. */
int ech_layer_rotary(ech_block *block, int x, const ech_rope *rope, int starts);
/* x (B,T,H,D) rotated by position, then y (B,T,H,E), in each head: (B,T,H,D+E). x (B,T,D), or
 * (rows,D) of ECH_AXIS_ROWS, is the same in all heads. */
int ech_layer_rotary_beside(ech_block *block, int x, int y, const ech_rope *rope, int starts);
/* Attention of q (B,T,H,D) to k (B,T,G,D) and v (B,T,G,E); the output is (B,T,H,E). */
typedef struct ech_layer_attention_args {
    int q, k, v;
    int starts;
    double dropout; /* of probabilities */
    double scale;   /* of q·k; 0: 1 / sqrt(D) */
    double softcap; /* scores s become softcap tanh(s / softcap); 0: they stay */
    int64_t window; /* keys that a query sees, itself included; 0: all up to it */
    int sinks; /* parameter (H), wide, of ECH_AXIS_HEADS (kernel.def: sinks_forward); -1: none */
} ech_layer_attention_args;

int ech_layer_attention(ech_block *block, const ech_layer_attention_args *attention);
/* Pairs of a query and a key that it sees; `window` as above. */
double ech_layer_attention_pairs(const ech_rows *query, const ech_rows *key, int64_t window);
int ech_layer_copy(ech_block *block, int x);
/* Two values side by side: (B,T,G,D) and (B,T,G,E) -> (B,T,G,D+E). */
int ech_layer_pack(ech_block *block, int k, int v);
/* Returns the number of operands of an activation: 1, or 2 if it is gated. */
int ech_activation_operands(ech_activation activation);
/* x is the gate of an activation with two operands, and up the other one; up is -1 for an
 * activation with one operand. */
int ech_layer_activation(ech_block *block, ech_activation activation, int x, int up);
int ech_layer_dropout(ech_block *block, int x, double p); /* returns x itself if p is 0 */
int ech_layer_residual(ech_block *block, int x, int y);
int ech_layer_scale(ech_block *block, int x, double factor); /* returns x itself if factor is 1 */

/* True if noise is added to the router's logits in training. Its scale is computed from a second
 * product of the router, with the weight ech_experts.noise. */
static inline bool ech_gate_has_noise(ech_gate_kind kind)
{
    return kind == ECH_GATE_noisy_topk || kind == ECH_GATE_hierarchical;
}

/* A layer of experts (mixture of experts); each row of x goes to some of them. */
typedef struct ech_experts {
    ech_gate gate; /* the gate; the fields that depend on a call are set there */
    int64_t width; /* F of each expert */
    int router;    /* (L,C), wide, L: ech_gate_logits */
    /* The products have biases: router_bias (L), wide, of the router's logits; gate_bias, up_bias
     * (E,F) and down_bias (E,C) of the experts' products. */
    bool biased;
    int router_bias, gate_bias, up_bias, down_bias;
    int noise; /* (L,C), wide: weight of the noise's scale, if ech_gate_has_noise */
    int bias;  /* (E), for the gate `bias`: a layer state (ech_param.commit), not a parameter */
    ech_activation activation;
    int gate_proj, up; /* (E,F,C) each; gate_proj: of activations of two operands */
    int down;          /* (E,C,F) */
    /* noise on the router's input: factors uniform in 1 - jitter to 1 + jitter */
    double jitter;
    double dropout; /* within an expert: on the input of its last product */
    /* with an expert group: rows that a rank may send to another one in one round, as a multiple of
     * the balanced share; further rounds send the rest. 0: one round sends all rows */
    double bound;
} ech_experts;

/* x and y (B,T,C), or (rows,C): each row of y times the sigmoid of a logit, which is the product
 * of its row of x and weight (1,C), wide. For what shared experts made of x (Qwen2-MoE; Yang et
 * al. 2024, arXiv:2407.10671). */
int ech_layer_shared_gate(ech_block *block, int x, int weight, int y);
/* The commit (ech_param.commit) of a router's bias (kernel/gate/bias.h). Adds commit_rate to the
 * bias of experts that fewer rows than the mean chose, and subtracts it if more rows chose them. */
void ech_gate_balance(const ech_commit *commit);
/* The destinations of rows: values of the block. */
typedef struct ech_routed {
    /* (S,C): the rows to send; whole on each tensor rank without an expert group, a row shard with
     * one */
    int x;
    int gates;    /* (S,k) wide: the weight of each choice's result */
    int slot;     /* (S,k) int32, a table: the row's slot in the buffer; -1: none */
    /* (e,X) int32, a table: rows for each expert; the group has e ranks with X experts each */
    int counts;
    bool grouped; /* over an expert group */
    /* slots of the buffer per row of x; they are ECH_AXIS_RECEIVED, or with an expert group
     * ECH_AXIS_SLOTS */
    int64_t width;
    int rows;     /* the buffer */
    int arriving; /* with an expert group: as counts, of rows that its ranks send to this rank */
    int received; /* with an expert group: the rows that arrive in the first round */
    /* for dropout, tables: the choices' numbers of `rows` and of `received`; -1: not needed */
    int index, received_index;
    uint32_t site; /* of the dropout's random stream */
} ech_routed;

/* A layer of experts, in three parts. Rows of x, (B,T,C) or (rows,C) of ECH_AXIS_ROWS, are sent to
 * their experts; the experts compute; the results return. Each row gets the sum of its experts'
 * results, down (silu(gate x) up x), or down (relu(up x)) and so on, weighted by its gates. Nodes
 * that are built between the parts are computed while rows are in flight. */
ech_routed ech_layer_send_rows(ech_block *block, int x, const ech_experts *experts);
/* Returns the buffer with the experts' results. */
int ech_layer_experts(ech_block *block, const ech_routed *to, const ech_experts *experts);
/* y: that buffer. Returns a value of x's shape. */
int ech_layer_combine(ech_block *block, int y, const ech_routed *to);

/* What becomes of logits before the softmax: they are multiplied by `factor`, then with a cap
 * above 0 cap tanh(logit / cap). */
typedef struct ech_logits {
    double factor, cap;
} ech_logits;
/* The end of a model: logits x Wᵀ, weight (V,C), and the cross-entropy with the batch's targets
 * and weights, a chunk of the micro-batch's rows (ech_block_options.rows) at a time; nothing of
 * size T·V lives. Returns the value of the next token's logits, (B,V), which only lists of
 * the purpose ECH_GENERATE compute. plugged: a plugin's loss; NULL: the cross-entropy. Tensor ranks
 * then gather a chunk's logits. */
int ech_layer_head_loss(ech_block *block, int x, int targets, int weights, int weight, int64_t V,
                        ech_logits logits, const echelon_loss *plugged);
/* The end of a classifier of samples: x (B,1,C), one target and weight per sample; logits x Wᵀ +
 * bias, weight (V,C), bias (V), and the cross-entropy, as above. It generates nothing. smoothing:
 * in training the targets are (1 - smoothing) onehot + smoothing / V, and V is not sharded. */
void ech_layer_classes_loss(ech_block *block, int x, int weight, int bias, int64_t V,
                            double smoothing);
/* The end of a logistic regression: x (B,T,1), a weight of each feature of a sample, times the
 * batch's values, summed over the sample and added to bias (1), is its logit; the loss is that
 * of kernel.def's logistic_loss. Tokens are not sharded. */
void ech_layer_logistic_loss(ech_block *block, int x, int bias);

/* ---- plugins' layers and losses ---- */

/* Add a plugin's row. Errors: ECH_EUSAGE, logged: its name is taken, or a function is missing. */
ech_status ech_layer_plug(const char *plugin, const echelon_layer *row);
ech_status ech_loss_plug(const char *plugin, const echelon_loss *row);
const echelon_layer *ech_layer_find_plugged(const char *name); /* NULL: none of that name */
const char *ech_layer_plugged_names(void);                     /* blank-separated */
/* The row of the number that the name has in ech_loss_names, from 0. NULL: the cross-entropy. */
const echelon_loss *ech_loss_plugged(int number);
const char *ech_loss_names(void); /* "cross_entropy", and the plugins' */

/* Returns what a layer declares. `fits` is false, and `why` says more, for a bad weight, or an FFN
 * that `tensor` ranks cannot share equally. */
echelon_layer_needs ech_layer_plugged_needs(const echelon_layer *row, const echelon_sizes *sizes);
bool ech_layer_plugged_fits(const echelon_layer *row, const echelon_sizes *sizes, int tensor,
                            ech_text *why);
/* The tensor as functions of plugins get it. */
echelon_array ech_plugged_array(const ech_tensor *x);
/* The shape of its weight. */
ech_shape ech_layer_plugged_shape(const echelon_layer_needs *needs, int weight);
/* x (B,T,C) or (rows,C) of ECH_AXIS_ROWS; weight: [weights] the model's parameters. Returns a value
 * of x's shape. */
int ech_layer_plugged(ech_block *block, int x, const echelon_layer *row, const echelon_sizes *sizes,
                      const int *weight);
/* Compare derivatives with finite differences in fp64, on a few rows of small sizes; and that a row
 * does not depend on another one. False: `why` says which derivative is off. */
bool ech_layer_plugged_derives(const echelon_layer *row, ech_text *why);
bool ech_loss_plugged_derives(const echelon_loss *row, ech_text *why);

/* The report of a sparse code (kernel/codes.h): ECH_SPARSE_COUNTS. */
#define ECH_SPARSE_REPORT "sparse values"

#endif
